"""On PostgreSQL, Decisions come to stand in partitions by week, so that a week can be dropped whole.

The table that was there becomes one partition, up to the next Monday; nothing is copied and its indexes stay. No column changes, so
the version before goes on with the new table. Unique keys of a partitioned table must contain what it is partitioned by, so each
partition has its own: that nothing is stored twice is the checkpoints' work. On SQLite nothing happens.
"""

from typing import Any

from django.db import migrations

TABLE = "scheduler_decision"

# They run as their owner: who runs as a role that can't change tables may call them, and nothing else comes of it.
MAKE = f"""
CREATE OR REPLACE FUNCTION berth_make_partition(first_at timestamptz, end_at timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = {{schema}}, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    name text := '{TABLE}_' || to_char(first_at AT TIME ZONE 'UTC', 'YYYYMMDD');
BEGIN
    IF to_regclass(name) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE format(
        'CREATE TABLE %I (LIKE {TABLE} INCLUDING DEFAULTS, PRIMARY KEY (id), UNIQUE (process, sequence))', name
    );
    -- What came before its partition was there.
    EXECUTE format(
        'WITH moved AS (DELETE FROM {TABLE}_default WHERE at >= %L AND at < %L RETURNING *) INSERT INTO %I SELECT * FROM moved',
        first_at, end_at, name
    );
    EXECUTE format('ALTER TABLE {TABLE} ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', name, first_at, end_at);
    RETURN true;
END
$$
"""
DROP = f"""
CREATE OR REPLACE FUNCTION berth_drop_partition(name text, OUT rows bigint, OUT bytes bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = {{schema}}, pg_temp SET lock_timeout = '5s' AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_inherits JOIN pg_class ON oid = inhrelid
        WHERE inhparent = '{TABLE}'::regclass AND relname = name AND relname <> '{TABLE}_default'
    ) THEN
        RAISE EXCEPTION '% is no partition of {TABLE} by time', name;
    END IF;
    EXECUTE format('LOCK TABLE {TABLE}, %I IN ACCESS EXCLUSIVE MODE', name);
    EXECUTE format('SELECT count(*) FROM %I', name) INTO rows;
    bytes := pg_total_relation_size(to_regclass(name));
    EXECUTE format('DROP TABLE %I', name);
END
$$
"""


def partition(_apps: Any, editor: Any) -> None:
    """Make the table that is there a partition of a new one."""
    if editor.connection.vendor != "postgresql":
        return
    with editor.connection.cursor() as cursor:
        cursor.execute(f"LOCK TABLE {TABLE} IN ACCESS EXCLUSIVE MODE")
        definitions = _indexes(cursor)
        for name in definitions:
            cursor.execute(f"ALTER INDEX {name} RENAME TO {name}_before")
        cursor.execute(f"ALTER TABLE {TABLE} RENAME TO {TABLE}_before")
        cursor.execute(f"CREATE TABLE {TABLE} (LIKE {TABLE}_before INCLUDING DEFAULTS) PARTITION BY RANGE (at)")
        cursor.execute(
            f"CREATE TABLE {TABLE}_default (LIKE {TABLE} INCLUDING DEFAULTS, PRIMARY KEY (id), UNIQUE (process, sequence))"
        )
        cursor.execute(
            "SELECT current_schema(), (date_trunc('week', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC')::text, "
            "((date_trunc('week', now() AT TIME ZONE 'UTC') + interval '7 days') AT TIME ZONE 'UTC')::text, "
            f"NOT EXISTS (SELECT FROM {TABLE}_before)"
        )
        schema, week, following, is_empty = cursor.fetchone()
        if is_empty:
            cursor.execute(f"DROP TABLE {TABLE}_before")
        else:
            # A clock that was ahead: such rows are nobody's yet.
            cursor.execute(
                f"WITH moved AS (DELETE FROM {TABLE}_before WHERE at >= %s RETURNING *) "
                f"INSERT INTO {TABLE}_default SELECT * FROM moved",
                [following],
            )
            cursor.execute(
                f"ALTER TABLE {TABLE} ATTACH PARTITION {TABLE}_before FOR VALUES FROM (MINVALUE) TO ('{following}')"
            )
        cursor.execute(f"ALTER TABLE {TABLE} ATTACH PARTITION {TABLE}_default DEFAULT")
        # An index that a partition has already isn't built again.
        for definition in definitions.values():
            cursor.execute(definition)
        cursor.execute(MAKE.format(schema=schema))
        cursor.execute(DROP.format(schema=schema))
        first = week if is_empty else following
        for weeks in range(5):
            cursor.execute(
                "SELECT berth_make_partition(%s::timestamptz + %s * interval '7 days', "
                "%s::timestamptz + %s * interval '7 days')",
                [first, weeks, first, weeks + 1],
            )


def unite(_apps: Any, editor: Any) -> None:
    """Copy all partitions into one table again."""
    if editor.connection.vendor != "postgresql":
        return
    with editor.connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION berth_make_partition")
        cursor.execute("DROP FUNCTION berth_drop_partition")
        definitions = _indexes(cursor)
        cursor.execute(f"CREATE TABLE {TABLE}_one (LIKE {TABLE} INCLUDING DEFAULTS)")
        cursor.execute(f"INSERT INTO {TABLE}_one SELECT * FROM {TABLE}")
        cursor.execute(f"DROP TABLE {TABLE}")
        cursor.execute(f"ALTER TABLE {TABLE}_one RENAME TO {TABLE}")
        cursor.execute(f"ALTER TABLE {TABLE} ADD PRIMARY KEY (id)")
        cursor.execute(f"ALTER TABLE {TABLE} ADD CONSTRAINT one_decision_per_sequence UNIQUE (process, sequence)")
        for definition in definitions.values():
            cursor.execute(definition.replace(" ON ONLY ", " ON "))


def _indexes(cursor: Any) -> dict[str, str]:
    """Return the definitions of the table's indexes by name, without those of its keys."""
    cursor.execute(
        "SELECT relname, pg_get_indexdef(indexrelid) FROM pg_index JOIN pg_class ON oid = indexrelid "
        "WHERE indrelid = %s::regclass AND NOT indisunique ORDER BY relname",
        [TABLE],
    )
    return dict(cursor.fetchall())


class Migration(migrations.Migration):

    dependencies = [
        ('scheduler', '0014_retention'),
    ]

    operations = [
        migrations.RunPython(partition, unite),
    ]
