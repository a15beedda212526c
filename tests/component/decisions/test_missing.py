"""Decisions of processes that are gone: missing until they arrive, in the table, the metrics, the pages and doctor."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError
from prometheus_client import generate_latest

from policies.engine.objects.pod import Pod
from policies.models import AuditEvent
from scheduler.admin import decisions
from scheduler.admin.decisions import lost_sentence
from scheduler.decisions.metrics import GAPS
from scheduler.decisions.missing import REASON, SILENT, Absent, database_now, missing, note_missing, note_numbered
from scheduler.decisions.shipping import Depth
from scheduler.models import Checkpoint, Decision, DecisionGap, Process
from scheduler.serving import process
from scheduler.serving.process import Heartbeat
from tests.builders import make_pod
from tests.recording import History, Prepared

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
AFTER = NOON + SILENT + timedelta(seconds=1)
WRITER = "extender@test"


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    made = History(tmp_path / "spool", WRITER)
    yield made
    made.spool.close()


def record(history: History, count: int) -> None:
    for number in range(count):
        pod = Pod.from_json(make_pod(f"web-{number}"))
        history.recorder.record(Prepared(now=NOON, verb="filter", pod=pod))


def beat(heartbeat_at: datetime, writer: str = WRITER) -> None:
    fields = {"role": "extender", "host": "h", "pid": 1, "started_at": NOON, "heartbeat_at": heartbeat_at}
    Process.objects.update_or_create(id=writer, defaults=fields)


def gaps() -> list[tuple[str, int, int, bool]]:
    return list(DecisionGap.objects.order_by("process", "first").values_list("process", "first", "last", "may_return"))


def metrics() -> dict[str, float]:
    lines = [line.split(" ") for line in generate_latest(GAPS).decode().splitlines() if not line.startswith("#")]
    return {name: float(number) for name, number in lines}


def test_a_writer_that_vanished_with_its_folder_leaves_a_gap(history: History) -> None:
    record(history, 2)
    history.settle()
    record(history, 49)
    beat(NOON)
    note_numbered(WRITER, history.recorder.numbered, NOON)
    note_missing(AFTER)
    assert gaps() == [(WRITER, 3, 51, True)]
    assert metrics() == {"berth_decisions_lost_total": 0, "berth_decisions_missing": 49, "berth_dead_letters": 0}
    assert lost_sentence() == (
        "49 Decisions were answered and are not in the history, the last on 2026-05-01 12:00:00 UTC. "
        "49 of them may still arrive: their process is gone. See Decision gaps."
    )


def test_a_process_whose_clock_is_wrong_by_a_day_is_neither_gone_nor_alive_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Wrong(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> "Wrong":
            return cls.fromtimestamp(datetime.now(tz).timestamp(), tz) - timedelta(days=1)

    monkeypatch.setattr("scheduler.serving.process.datetime", Wrong)
    live: Any = type("Live", (), {"synced": False})()
    heartbeat = Heartbeat(
        "extender",
        live=live,
        served=lambda: (0, None),
        numbered=lambda: 49,
        spooled=lambda: Depth(0, 0),
        more=lambda: None,
    )
    heartbeat.write()
    assert missing(database_now()) == []
    assert [gap.last for gap in missing(database_now() + SILENT + timedelta(seconds=1))] == [49]
    assert abs(database_now() - datetime.now(UTC)) < timedelta(minutes=1)


def test_each_cause_for_which_a_heartbeat_is_not_written_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process.connection, "close", lambda: None)
    causes = iter(["terminating connection", "read-only transaction", "read-only transaction"])

    def refuse() -> None:
        raise DatabaseError(next(causes))

    live: Any = type("Live", (), {"synced": False})()
    heartbeat = Heartbeat(
        "extender",
        live=live,
        served=lambda: (0, None),
        numbered=lambda: 0,
        spooled=lambda: Depth(0, 0),
        more=refuse,
    )
    for _ in range(3):
        heartbeat.write()
    assert caplog.messages == [
        "the heartbeat can't be written: terminating connection",
        "the heartbeat can't be written: read-only transaction",
    ]


def test_a_fault_in_what_else_a_process_writes_does_not_end_its_heartbeat(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        message = "date value out of range"
        raise OverflowError(message)

    live: Any = type("Live", (), {"synced": False})()
    heartbeat = Heartbeat(
        "binder",
        live=live,
        served=lambda: (0, None),
        numbered=lambda: 0,
        spooled=lambda: Depth(0, 0),
        more=fail,
    )
    heartbeat.write()
    (first,) = Process.objects.values_list("heartbeat_at", flat=True)
    time.sleep(0.01)
    heartbeat.write()
    (second,) = Process.objects.values_list("heartbeat_at", flat=True)
    assert second > first
    assert caplog.messages == ["the heartbeat failed; it is written again in a second"]


def test_one_of_whom_nothing_was_ever_stored_leaves_a_gap_too() -> None:
    note_numbered(WRITER, 49, NOON)
    note_missing(AFTER)
    assert gaps() == [(WRITER, 1, 49, True)]


def test_the_gap_outlives_the_process_on_the_list() -> None:
    """A process that is silent for an hour is taken off the list; what it answered isn't forgotten with it."""
    beat(NOON)
    note_numbered(WRITER, 49, NOON)
    Process.objects.all().delete()
    note_missing(NOON + timedelta(days=30))
    assert gaps() == [(WRITER, 1, 49, True)]


@pytest.mark.parametrize(("silent_seconds", "found"), [(0, 0), (29, 0), (31, 1)])
def test_what_a_living_process_has_not_shipped_yet_is_not_missing(silent_seconds: float, found: int) -> None:
    beat(AFTER - timedelta(seconds=silent_seconds))
    note_numbered(WRITER, 49, NOON)
    assert len(missing(AFTER)) == found


def test_what_was_answered_a_moment_ago_may_still_be_on_its_way() -> None:
    """A process that ended in order takes itself off the list before all of it is stored."""
    note_numbered(WRITER, 49, AFTER - SILENT + timedelta(seconds=1))
    assert missing(AFTER) == []


def test_nothing_is_missing_of_a_process_that_is_stored_whole(history: History) -> None:
    record(history, 5)
    note_numbered(WRITER, 5, NOON)
    history.settle()
    note_missing(AFTER)
    assert gaps() == []
    assert metrics() == {"berth_decisions_lost_total": 0, "berth_decisions_missing": 0, "berth_dead_letters": 0}
    assert lost_sentence() == ""


def test_a_gap_that_is_gone_since_it_was_counted_is_no_fault_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "absent", lambda: Absent(lost=0, may_return=3))
    assert lost_sentence() == ""


def test_the_gap_is_gone_when_the_folder_comes_back_and_is_shipped(history: History) -> None:
    record(history, 49)
    note_numbered(WRITER, 49, NOON)
    note_missing(AFTER)
    assert len(gaps()) == 1
    history.settle()
    assert gaps() == []
    assert Decision.objects.count() == 49
    note_missing(AFTER)
    assert gaps() == []


def test_what_arrives_in_part_leaves_the_rest(history: History) -> None:
    record(history, 10)
    note_numbered(WRITER, 49, NOON)
    note_missing(AFTER)
    history.settle()
    note_missing(AFTER)
    assert gaps() == [(WRITER, 11, 49, True)]


def test_a_number_that_is_lost_for_good_takes_the_place_of_the_missing_one(history: History) -> None:
    """The same first number: the row of what may return must not keep out the one of what can't."""
    note_numbered(WRITER, 7, NOON)
    note_missing(AFTER)
    history.recorder._sequence = 4
    record(history, 3)
    history.settle()
    note_missing(AFTER)
    assert gaps() == [(WRITER, 1, 4, False)]
    assert metrics() == {"berth_decisions_lost_total": 4, "berth_decisions_missing": 0, "berth_dead_letters": 0}


def test_lost_for_want_of_room_and_killed_before_it_was_written_is_missing_by_number(history: History) -> None:
    record(history, 2)
    history.settle()
    history.spool._max_bytes = 0
    record(history, 3)
    note_numbered(WRITER, history.recorder.numbered, NOON)
    note_missing(AFTER)
    assert gaps() == [(WRITER, 3, 5, True)]


def test_a_second_look_changes_nothing() -> None:
    note_numbered(WRITER, 49, NOON)
    note_missing(AFTER)
    first = DecisionGap.objects.get()
    note_missing(AFTER + timedelta(minutes=5))
    assert DecisionGap.objects.get() == first
    assert (first.at, first.reason) == (NOON, REASON)


def test_several_writers_are_told_apart() -> None:
    for number, writer in enumerate(("a", "b", "c"), start=1):
        note_numbered(writer, number, NOON)
    beat(AFTER, "b")
    note_missing(AFTER)
    assert gaps() == [("a", 1, 1, True), ("c", 1, 3, True)]


def test_the_ingest_keeps_what_the_heartbeat_wrote(history: History) -> None:
    note_numbered(WRITER, 49, NOON)
    record(history, 5)
    history.settle()
    mark = Checkpoint.objects.get(writer=WRITER)
    assert (mark.numbered, mark.numbered_at, mark.next_decision) == (49, NOON, 6)


class Live:
    synced = False

    def age_seconds(self) -> float:
        return 0.0


def heartbeat(numbered: list[int]) -> Heartbeat:
    live: Any = Live()
    return Heartbeat(
        "extender",
        live=live,
        served=lambda: (0, None),
        numbered=lambda: numbered[0],
        spooled=lambda: Depth(0, 0),
        more=lambda: None,
    )


def test_the_first_heartbeat_lists_the_process_and_records_its_start_once_though_its_row_is_deleted() -> None:
    made = heartbeat([0])
    for _ in range(2):
        made.write()
        assert Process.objects.get().id == made.process_id
        Process.objects.all().delete()
    assert list(AuditEvent.objects.filter(kind="process.start").values_list("thing_name", flat=True)) == [
        made.process_id
    ]


def test_the_heartbeat_writes_how_many_decisions_there_are_when_there_are_more() -> None:
    numbered = [0]
    made = heartbeat(numbered)
    made.write()
    assert not Checkpoint.objects.exists()
    numbered[0] = 7
    made.write()
    first = Checkpoint.objects.get(writer=made.process_id)
    assert first.numbered == 7
    made.write()
    assert Checkpoint.objects.get(writer=made.process_id).numbered_at == first.numbered_at


def test_a_process_that_leaves_writes_the_last_number() -> None:
    numbered = [0]
    made = heartbeat(numbered)
    made.write()
    numbered[0] = 3
    made.leave()
    assert not Process.objects.exists()
    assert Checkpoint.objects.get(writer=made.process_id).numbered == 3
