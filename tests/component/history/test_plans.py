"""What PostgreSQL does to find Decisions among many: by each filter alone and by the usual pairs, never by reading them all."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from scheduler.decisions.search import FILTERS, parse_search
from scheduler.history.partitions import drop, make_ahead, partitions
from tests.many_decisions import analyze, fill

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="plans of PostgreSQL"),
]

ROWS = 100_000
NOW = datetime(2031, 1, 20, tzinfo=UTC)
VALUES = {
    "q": "web-777", "pod_namespace": "ns-7", "owner": "Deployment/app-77", "node": "node-77", "refused_by": "team",
    "reason": "reason 7", "top_reason": "reason 7", "answer": "none", "missed": "true", "verb": "filter", "rule_set": "rules-7",
    "rule_set_version": "3", "assignment": "assignment-7", "revision": "77", "publisher": "operator",
    "approver": "approver", "mode": "enforce", "divergence": "agreed", "best": "node-77", "placed_on": "node-77",
    "pod_name": "web-777", "pod_uid": "uid-777", "refused": "true", "process": "extender@h:1",
}  # fmt: skip
PAIRS = [
    ("pod_namespace", "answer"), ("pod_namespace", "pod_name"), ("rule_set", "answer"), ("rule_set", "rule_set_version"),
    ("placed_on", "rule_set"), ("owner", "answer"), ("revision", "refused"), ("verb", "rule_set"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def few_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no index leads to is looked for in a small part of what is there, as it is among millions."""
    monkeypatch.setattr("scheduler.decisions.search.MOST_LOOKED_AT", 2_000)


@pytest.fixture(scope="module")
def many(django_db_setup: None, django_db_blocker: pytest.FixtureRequest) -> Iterator[None]:
    """Decisions of two weeks, and how PostgreSQL finds them. Once for all tests: they take seconds to make."""
    with django_db_blocker.unblock():
        before = partitions()
        make_ahead(datetime(2031, 1, 6, tzinfo=UTC))
        fill(1, ROWS, rows=ROWS, until=NOW, days=14, body_bytes=100)
        analyze()
        yield
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE scheduler_decision")
        for partition in partitions():
            if partition not in before:
                drop(partition)


def scans(query: dict[str, str]) -> list[str]:
    """Return the scans of a page of a search, and of how far it looks: lines of the plans."""
    with CaptureQueriesContext(
        connection,
    ) as made:
        parse_search(query, NOW).page()
    found = []
    for each in made:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN {each['sql']}")
            found += [line for (line,) in cursor.fetchall() if "Scan" in line and "scheduler_decision" in line]
    return found


def whole(lines: list[str]) -> list[str]:
    """Return scans of a whole partition that has Decisions; of an empty one it is what costs the least."""
    return [line for line in lines if "Seq Scan" in line and re.search(r"_203101(06|13)\b", line)]


@pytest.mark.usefixtures("many")
def test_no_filter_reads_all_decisions() -> None:
    assert set(VALUES) == {each.name for each in FILTERS}
    assert {name: found for name, value in VALUES.items() if (found := whole(scans({name: value})))} == {}


@pytest.mark.usefixtures("many")
def test_no_usual_pair_reads_all_decisions() -> None:
    assert {pair: found for pair in PAIRS if (found := whole(scans({name: VALUES[name] for name in pair})))} == {}


@pytest.mark.usefixtures("many")
def test_a_time_leaves_other_weeks_alone() -> None:
    lines = scans({"from": "2031-01-14", "to": "2031-01-15", "pod_namespace": "ns-7"})
    assert lines
    assert not any("_20310106" in line for line in lines)
