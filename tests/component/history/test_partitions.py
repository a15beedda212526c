"""On PostgreSQL Decisions stand in partitions by week: made ahead, and dropped whole."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from importlib import import_module
from itertools import pairwise
from threading import Event
from uuid import uuid4

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, transaction

from scheduler.decisions.storing import insert
from scheduler.history.holds import make_hold
from scheduler.history.partitions import WEEK, drop, make_ahead, partitions, week_of
from scheduler.history.pruning import Retention, prune
from scheduler.models import Decision, Pruning
from tests.component.policies.test_changes_at_once import somebody_waits

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="partitions are PostgreSQL's"),
]

# Later than any partition that the migration made.
MONDAY = datetime(2031, 1, 6, tzinfo=UTC)
KEPT = Retention(days=30, details_days=0)


def decision(at: datetime, sequence: int = 1, **fields: object) -> Decision:
    base = {"verb": "filter", "pod_namespace": "d", "pod_name": "a", "pod_uid": "u", "revision": 1}
    return Decision(at=at, process="p", sequence=sequence, **base | fields)  # type: ignore[arg-type]


def where() -> dict[int, str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT sequence, tableoid::regclass::text FROM scheduler_decision")
        return dict(cursor.fetchall())


def test_partitions_are_made_weeks_ahead_once() -> None:
    assert make_ahead(MONDAY + timedelta(days=3)) == 5
    assert make_ahead(MONDAY + timedelta(days=3)) == 0
    assert make_ahead(MONDAY + timedelta(days=8)) == 1
    assert [each.first_at for each in partitions()][-6:] == [MONDAY + number * WEEK for number in range(6)]


def test_the_ingests_copy_finds_the_partition_and_the_default_has_the_rest() -> None:
    make_ahead(MONDAY)
    rows = [decision(MONDAY + timedelta(days=8), 1), decision(MONDAY + timedelta(days=800), 2)]
    assert insert(Decision, rows) == []
    assert where() == {1: "scheduler_decision_20310113", 2: "scheduler_decision_default"}


def test_beside_a_partition_that_somebody_made_of_a_month_the_rest_of_its_weeks_is_made() -> None:
    first, end = datetime(2031, 2, 1, tzinfo=UTC), datetime(2031, 3, 1, tzinfo=UTC)
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE february PARTITION OF scheduler_decision FOR VALUES FROM (%s) TO (%s)",
            [f"{first}", f"{end}"],
        )
    assert make_ahead(MONDAY + 3 * WEEK) == 2
    assert make_ahead(MONDAY + 7 * WEEK) == 4
    assert make_ahead(MONDAY + 7 * WEEK) == 0
    spans = [(each.first_at, each.end_at) for each in partitions()][-7:]
    assert [each[0] for each in spans[:3]] == [MONDAY + 3 * WEEK, first, end]
    assert all(before[1] == after[0] for before, after in pairwise(spans))
    assert spans[-1][1] == MONDAY + 12 * WEEK


def test_what_came_before_its_partition_moves_there() -> None:
    decision(MONDAY + timedelta(days=1)).save(force_insert=True)
    assert where() == {1: "scheduler_decision_default"}
    make_ahead(MONDAY)
    assert where() == {1: "scheduler_decision_20310106"}


@pytest.mark.django_db(transaction=True)
def test_what_comes_while_its_partition_is_made_moves_there_too() -> None:
    is_stored, is_waited_for = Event(), Event()

    def ingest() -> None:
        try:
            with transaction.atomic():
                decision(MONDAY, 2).save(force_insert=True)
                is_stored.set()
                is_waited_for.wait(10)
        finally:
            connection.close()

    def tell_when_somebody_waits() -> None:
        try:
            any(somebody_waits() for _ in range(1_000))
            is_waited_for.set()
        finally:
            connection.close()

    decision(MONDAY, 1).save(force_insert=True)
    with ThreadPoolExecutor(2) as others:
        others.submit(ingest)
        assert is_stored.wait(10)
        others.submit(tell_when_somebody_waits)
        make_ahead(MONDAY)
    try:
        assert where() == dict.fromkeys((1, 2), "scheduler_decision_20310106")
    finally:
        for made in partitions():
            if made.first_at >= MONDAY:
                drop(made)


@pytest.mark.django_db(transaction=True)
def test_what_moves_to_its_partition_is_found_by_who_reads_meanwhile() -> None:
    def read() -> int:
        try:
            return Decision.objects.count()
        finally:
            connection.close()

    decision(MONDAY).save(force_insert=True)
    try:
        with ThreadPoolExecutor(1) as others:
            with transaction.atomic():
                make_ahead(MONDAY)
                found = others.submit(read)
                assert any(somebody_waits() for _ in range(1_000))
            assert found.result(10) == 1
    finally:
        for made in partitions():
            if made.first_at >= MONDAY:
                drop(made)


def test_a_partition_takes_neither_an_id_nor_a_number_twice() -> None:
    make_ahead(MONDAY)
    decision(MONDAY).save(force_insert=True)
    for again in (decision(MONDAY), decision(MONDAY, 2, id=Decision.objects.get().pk)):
        with pytest.raises(IntegrityError), transaction.atomic():
            again.save(force_insert=True)


def test_a_week_that_is_over_goes_whole_and_its_cutoffs_own_week_stays() -> None:
    make_ahead(MONDAY)
    now = MONDAY + timedelta(days=42)
    for sequence, day in enumerate((0, 6, 7, 11), start=1):
        decision(MONDAY + timedelta(days=day), sequence).save(force_insert=True)
    prune(KEPT, now)  # the cutoff is day 12
    assert set(where()) == {3, 4}
    row = Pruning.objects.get()
    assert (row.rows, row.whole_partitions, row.until_at) == (2, 1, MONDAY + WEEK)
    assert row.bytes > 0
    assert "scheduler_decision_20310106" not in {each.name for each in partitions()}


def test_a_partition_with_something_held_loses_the_rest_row_by_row() -> None:
    make_ahead(MONDAY)
    for sequence in (1, 2, 3):
        decision(MONDAY, sequence, pod_name=f"p{sequence}").save(force_insert=True)
    make_hold(by="a", now=MONDAY, reason="r", pod_namespace="d", pod_name="p2")
    prune(KEPT, MONDAY + timedelta(days=50))
    assert where() == {2: "scheduler_decision_20310106"}
    assert (Pruning.objects.get().rows, Pruning.objects.get().whole_partitions) == (2, 0)


def test_only_a_partition_by_time_can_be_dropped() -> None:
    for name in ("scheduler_decision_default", "policies_revision", "scheduler_decision"):
        with pytest.raises(Exception, match="is no partition"), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT berth_drop_partition(%s)", [name])


def test_a_decision_is_found_by_its_id_without_a_look_at_a_whole_table() -> None:
    make_ahead(MONDAY)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("EXPLAIN SELECT * FROM scheduler_decision WHERE id = %s", [uuid4()])
        assert not any("Seq Scan" in line for (line,) in cursor.fetchall())


def test_a_week_begins_on_monday_in_utc() -> None:
    assert week_of(datetime.fromisoformat("2031-01-06T00:30:00+02:00")) == MONDAY - WEEK
    assert week_of(MONDAY) == MONDAY


@pytest.mark.django_db(transaction=True)
def test_an_index_is_built_partition_by_partition_also_after_an_interruption() -> None:
    migration = import_module("scheduler.migrations.0021_found_by_name")
    with connection.schema_editor(atomic=False) as editor, connection.cursor() as cursor:
        migration.drop(*migration.NOW)(apps, editor)
        migration.build(migration.BEFORE)(apps, editor)
        # As a run that was ended on its way leaves it.
        cursor.execute("CREATE INDEX decision_namespace ON ONLY scheduler_decision (pod_namespace, at DESC)")
        cursor.execute(
            "CREATE INDEX scheduler_decision_default_namespace ON scheduler_decision_default (pod_namespace, at DESC)"
        )
        for _again in range(2):
            migration.build(*migration.NOW)(apps, editor)
            migration.drop(migration.BEFORE)(apps, editor)
        cursor.execute(
            "SELECT relname, indisvalid, (SELECT count(*) FROM pg_inherits WHERE inhparent = indexrelid) FROM pg_index "
            "JOIN pg_class ON oid = indexrelid WHERE relname IN ('decision_pod', 'decision_pod_name', 'decision_namespace')"
        )
        all_of_them = len(partitions()) + 1
        assert set(cursor.fetchall()) == {
            (name, True, all_of_them) for name in ("decision_pod_name", "decision_namespace")
        }
