"""Hundreds of thousands of Decisions, made by PostgreSQL itself: for query plans and benches of searches."""

from datetime import datetime

from django.db import connection

# How many namespaces, nodes and so on a history has. Each Pod has two Decisions.
NAMESPACES, NODES, RULE_SETS, REVISIONS, REASONS = 50, 1_000, 20, 200, 12
BODY_BYTES = 1_200

_FILL = f"""
INSERT INTO scheduler_decision (
    id, at, process, sequence, verb, pod_namespace, pod_name, pod_uid, revision, rule_set, rule_set_version, assignment,
    nodes, feasible, best, top_reason, duration_microseconds, mode, error, body, names_number, chain, position,
    placed_on, placed_at, placed_best, owner_kind, owner_name, refused_by
)
SELECT
    -- As the recorder makes them: the time in milliseconds, then what is random.
    (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || substr(hash, 1, 3) || '8' || substr(hash, 4, 15))::uuid,
    at, 'extender@h:' || number %% 4, number, CASE number %% 2 WHEN 0 THEN 'filter' ELSE 'prioritize' END,
    'ns-' || pod %% {NAMESPACES}, 'web-' || pod, 'uid-' || pod, pod %% {REVISIONS} + 1,
    'rules-' || pod %% {RULE_SETS}, pod %% 7 + 1, 'assignment-' || pod %% {RULE_SETS},
    1000, CASE WHEN pod %% 50 = 0 THEN 0 ELSE 900 END, 'node-' || pod %% {NODES},
    'reason ' || pod %% {REASONS}, 300, 'enforce', CASE WHEN pod %% 5000 = 0 THEN 'no Snapshot' ELSE '' END,
    substring(%(blob)s::bytea FROM (number %% 1000 + 1)::int FOR %(body)s), 1, 1, 1,
    CASE WHEN pod %% 50 = 0 THEN '' ELSE 'node-' || (pod + pod %% 9 / 8) %% {NODES} END, at + interval '1 second', pod %% 9 < 8,
    'Deployment', 'app-' || pod %% 5000, CASE WHEN pod %% 3 = 0 THEN E'\\nteam\\n' ELSE E'\\nPodFitsResources\\n' END
FROM (
    SELECT number, number / 2 AS pod, %(until)s::timestamptz - (%(rows)s - number) * %(step)s * interval '1 second' AS at,
        md5(number::text) AS hash
    FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS number
) AS made
"""  # fmt: skip


def fill(first: int, last: int, *, rows: int, until: datetime, days: float, body_bytes: int = BODY_BYTES) -> None:
    """Store Decisions number `first` to `last` of `rows`, made in the days before `until`."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT string_agg(decode(md5(n::text), 'hex'), ''::bytea) FROM generate_series(1, 200) n")
        blob = cursor.fetchone()[0]
        cursor.execute(
            _FILL,
            {
                "blob": blob,
                "until": until,
                "rows": rows,
                "step": days * 86_400 / rows,
                "first": first,
                "last": last,
                "body": body_bytes,
            },
        )


def analyze() -> None:
    """Update the planner's statistics as autovacuum does: for each table with rows, but never for a partitioned table."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
        )
        for (table,) in cursor.fetchall():
            cursor.execute(f"ANALYZE {table}")
