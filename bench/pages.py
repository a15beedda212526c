"""Server time and queries of each admin page, on PostgreSQL with 1,000 rule sets in 50 versions, 2,000 Assignments and many Decisions.

`python -m tests.postgres python -m bench.pages --decisions 2000000` prints the p95 and the queries of each page beside the aims, and
the statements that count rows without a limit. The database is the one that BERTH_DATABASE_URL names. It must be empty: Berth's own
models and PostgreSQL itself fill it, with its triggers switched off.
"""

import argparse
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from time import perf_counter, process_time
from typing import Any, TypeVar

AIM_MS, AIM_QUERIES = 300.0, 20
RULE_SETS, VERSIONS, ASSIGNMENTS, CLASSES, CHANGES = 1_000, 50, 2_000, 40, 200
_DAYS = 28.0
_CHUNK = 100_000
_AT_ONCE = 2_000
# A count of a very large table without a condition.
_COUNTS_ALL = re.compile(
    r'SELECT COUNT\(\*\)[^()]*FROM "(?:scheduler_decision|scheduler_outcome|policies_auditevent)"(?! WHERE)',
    re.IGNORECASE,
)

Item = TypeVar("Item")


def fill_policies(rule_sets: int, versions: int, assignments: int) -> None:
    """Insert the rows of that many published Revisions, without publishing's checks, which would take hours."""
    from django.db import connection, transaction

    with transaction.atomic():
        with connection.cursor() as cursor:
            # Triggers refuse rows that no Revision brings; these rows are the same as those of a Revision.
            cursor.execute("SET LOCAL session_replication_role = replica")
        _fill(rule_sets, versions, assignments)


def _fill(rule_sets: int, versions: int, assignments: int) -> None:
    import msgspec

    from policies import compiler
    from policies.models import Assignment, PriorityClass, Revision, RuleSet, RuleSetVersion
    from policies.publishing.parts import Kind
    from tests.builders import TEAM_FILTER, make_assignment, make_priority_class, make_rule_set

    began = datetime.now(UTC) - timedelta(days=versions)
    for number in range(1, versions + 1):
        Revision.objects.create(
            number=number, digest=f"{number:064x}", made_by="operator", reason="filled for a bench",
            summary="\n".join(f"rule set rules-{each} version {number} published" for each in range(rule_sets)),
            created_at=began + timedelta(days=number),
        )  # fmt: skip
    names = [f"rules-{number}" for number in range(rule_sets)]
    _write(RuleSet(name=name, description="filled for a bench") for name in names)
    rows = RuleSet.objects.in_bulk(field_name="name")
    model = make_rule_set("rules", filters=[TEAM_FILTER, {"builtin": "PodFitsResources"}])
    spare = make_rule_set("rules", filters=[TEAM_FILTER], scores=[{"builtin": "LeastRequestedPriority"}])
    for number in range(1, versions + 1):
        state = RuleSetVersion.State.PUBLISHED if number == versions else RuleSetVersion.State.SUPERSEDED
        contents = {
            name: msgspec.structs.replace(model if number % 2 else spare, name=name, version=number) for name in names
        }
        at = began + timedelta(days=number)
        made = [
            RuleSetVersion(
                rule_set=rows[name], number=number, author="operator", published_by="operator", published_at=at, state=state,
                **compiler.version_fields(content),
            )
            for name, content in contents.items()
        ]  # fmt: skip
        _write(made)
        _write(rule for version in made for rule in compiler.rules_of(contents[version.rule_set.name], version=version))
        until = number + 1 if number < versions else None
        _write_parts(Kind.RULE_SET, contents, number, until)
    given = {
        f"gives-{number}": make_assignment(
            f"gives-{number}", names[number % rule_sets], order=number + 1, match={"namespaces": [f"ns-{number}"]}
        )
        for number in range(assignments)
    }
    _write_parts(Kind.ASSIGNMENT, given, versions, None)
    _write(
        Assignment(name=name, author="operator", **compiler.assignment_fields(each, rule_set=rows[each.rule_set]))
        for name, each in given.items()
    )
    classes = {f"class-{number}": make_priority_class(f"class-{number}", value=number + 1) for number in range(CLASSES)}
    _write_parts(Kind.PRIORITY_CLASS, classes, versions, None)
    _write(PriorityClass(name=name, **compiler.priority_class_fields(each)) for name, each in classes.items())


def _write_parts(kind: str, contents: dict[str, Any], since: int, until: int | None) -> None:
    from policies import compiler
    from policies.engine.ruleset import encode
    from policies.models import Part, RevisionPart

    digests = {name: compiler.digest_of(each) for name, each in contents.items()}
    _write(Part(digest=digests[name], document=encode(each).decode()) for name, each in contents.items())
    _write(
        RevisionPart(kind=kind, name=name, part_id=digests[name], since_id=since, until_id=until) for name in contents
    )


def _write(rows: Iterable[Any]) -> None:
    for batch in _batches(rows):
        type(batch[0])._default_manager.bulk_create(batch)  # noqa: SLF001 - Django's own name for what is public


def _batches(items: Iterable[Item]) -> Iterable[Sequence[Item]]:
    left = iter(items)
    while batch := list(islice(left, _AT_ONCE)):
        yield batch


def fill_changes(number: int) -> None:
    """Open this number of Changes."""
    from tests.builders import TEAM_FILTER, make_rule_set
    from tests.component.pages import opened

    for each in range(number):
        opened(make_rule_set(f"rules-{each}", filters=[TEAM_FILTER]), title=f"one of many, {each}")


def fill_decisions(number: int, until: datetime) -> None:
    """Make this number of Decisions over some weeks, in batches of 100,000."""
    from scheduler.history.partitions import make_ahead
    from tests.many_decisions import analyze, fill

    for weeks in range(int(_DAYS // 7) + 1, -1, -1):
        make_ahead(until - timedelta(days=7 * weeks))
    for first in range(1, number + 1, _CHUNK):
        fill(first, min(first + _CHUNK - 1, number), rows=number, until=until, days=_DAYS)
    analyze()


def measure(times: int, only: str) -> list[str]:
    """Print a line for each page; return those beyond the aims."""
    from controlplane.gunicorn_conf import post_worker_init
    from tests.admin_pages import Asked, paths

    post_worker_init(None)
    asking, beyond = Asked(), []
    print(
        f"{'page':<58} {'p95 ms':>8} {'slowest':>8} {'CPU p50':>8} {'CPU p95':>8} {'queries':>8} {'kB':>7}   aims {AIM_MS:.0f} ms, {AIM_QUERIES} queries"
    )
    for name, path in paths().items():
        if only not in name:
            continue
        page, _ = asking.get(path)
        if page.status_code != 200:  # noqa: PLR2004 - HTTP's OK
            continue
        taken, worked = [], []
        for _ in range(times):
            began, worked_before = perf_counter(), process_time()
            page, asked = asking.get(path)
            taken.append((perf_counter() - began) * 1000)
            worked.append((process_time() - worked_before) * 1000)
        taken.sort()
        worked.sort()
        place = min(int(times * 0.95), times - 1)
        p95 = taken[place]
        counts = [sql for sql in asked if _COUNTS_ALL.search(sql)]
        marks = "".join(
            said
            for is_so, said in (
                (p95 > AIM_MS, " slow"),
                (len(asked) > AIM_QUERIES, " queries"),
                (counts, " counts all"),
            )
            if is_so
        )
        beyond += [f"{name}:{marks}"] if marks else []
        print(
            f"{name:<58} {p95:>8.1f} {taken[-1]:>8.1f} {worked[times // 2]:>8.1f} {worked[place]:>8.1f} {len(asked):>8} {len(page.content) / 1000:>7.0f}  {marks}"
        )
    return beyond


def main() -> None:
    """Fill, measure and print."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--decisions", type=int, default=200_000, help="the aims are for 2,000,000")
    parser.add_argument("--rule-sets", type=int, default=RULE_SETS)
    parser.add_argument("--versions", type=int, default=VERSIONS)
    parser.add_argument("--assignments", type=int, default=ASSIGNMENTS)
    parser.add_argument("--only", default="", help="pages whose URL has this")
    parser.add_argument("--times", type=int, default=20, help="how often each page is asked for")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as folder:
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
        os.environ["BERTH_STATE_DIR"] = folder
        import django
        from django.conf import settings
        from django.core.management import call_command
        from django.db import connection

        django.setup()
        from bench.running import machine, server_version

        if connection.vendor != "postgresql":
            parser.error("BERTH_DATABASE_URL names no PostgreSQL; begin with `python -m tests.postgres`")
        # Nothing else of Django's test environment: it keeps the context of every template, which makes garbage in cycles
        # that no server has, and the collector's pauses would be measured, too.
        settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "testserver"]
        call_command("migrate", verbosity=0)
        began = perf_counter()
        fill_policies(given.rule_sets, given.versions, given.assignments)
        fill_changes(min(CHANGES, given.rule_sets))
        fill_decisions(given.decisions, datetime.now(UTC))
        print(
            f"PostgreSQL {server_version()}; {machine()}; {given.rule_sets:,} rule sets x {given.versions} versions, "
            f"{given.assignments:,} Assignments, {given.decisions:,} Decisions, filled in {perf_counter() - began:.0f} s"
        )
        beyond = measure(given.times, given.only)
        print("beyond the aims: " + ("; ".join(beyond) or "none"))


if __name__ == "__main__":
    main()
