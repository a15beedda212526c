"""Records from the spool by Redis to the database, with a real Redis: each once and in order."""

import threading
from pathlib import Path

import pytest
from django.db import DatabaseError, connection

from scheduler.decisions import ingest as ingest_module
from scheduler.decisions.ingest import ingest, store
from scheduler.decisions.reading import body_of
from scheduler.decisions.recorder import Recorder
from scheduler.decisions.segments import Position
from scheduler.decisions.shipping import read_checkpoints
from scheduler.decisions.stream import DecisionStream
from scheduler.models import Checkpoint, Decision
from tests.builders import make_pod
from tests.component.decisions.real_history import AT, RealHistory, make_entry, record, sequences
from tests.recording import PLENTY

pytestmark = pytest.mark.django_db


class TestOnce:
    def test_what_is_recorded_is_stored_once_and_leaves_redis(
        self, real_history: RealHistory, stream: DecisionStream
    ) -> None:
        assert ingest(stream) == 0
        for name in ("a", "b", "c"):
            real_history.recorder.record(make_entry(name, duration_microseconds=7))
        real_history.ship()

        assert ingest(stream) == 3
        assert ingest(stream) == 0

        columns = ("process", "sequence", "pod_name", "at", "revision", "feasible", "duration_microseconds")
        rows = Decision.objects.order_by("sequence").values_list(*columns)
        assert list(rows) == [
            ("extender@test", number, name, AT, 3, 2, 7) for number, name in enumerate("abc", start=1)
        ]
        assert body_of(Decision.objects.get(sequence=2))["pod"] == make_pod("b")
        assert stream.length() == 0

    def test_a_drain_that_died_after_storing_leaves_nothing_twice(
        self, real_history: RealHistory, stream: DecisionStream
    ) -> None:
        record(real_history, 2)
        real_history.ship()
        store(stream.read(10))
        record(real_history, 2)
        real_history.ship()

        assert ingest(stream) == 4
        assert sequences() == [1, 2, 3, 4]
        assert stream.length() == 0

    def test_a_drain_that_dies_before_the_commit_stores_nothing(
        self, real_history: RealHistory, stream: DecisionStream, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_: object) -> None:
            raise DatabaseError("gone")

        record(real_history, 2)
        real_history.ship()
        with monkeypatch.context() as patch:
            patch.setattr(ingest_module, "note_outcomes", fail)
            with pytest.raises(DatabaseError):
                ingest(stream)
        assert (Decision.objects.count(), Checkpoint.objects.count(), len(stream.read(2))) == (0, 0, 2)
        assert ingest(stream) == 2
        assert sequences() == [1, 2]

    def test_many_batches_are_drained_in_one_go(
        self, real_history: RealHistory, stream: DecisionStream, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ingest_module, "BATCH", 20)
        record(real_history, 95)
        real_history.ship()
        assert ingest(stream) == 95
        assert sequences() == list(range(1, 96))

    def test_writers_are_stored_beside_each_other(self, tmp_path: Path, stream: DecisionStream) -> None:
        one, two = RealHistory(tmp_path / "a", stream, "one"), RealHistory(tmp_path / "b", stream, "two")
        for _ in range(3):
            record(one, 1)
            record(two, 2)
            one.ship()
            two.ship()
        ingest(stream)
        assert Decision.objects.filter(process="one").count() == 3
        assert Decision.objects.filter(process="two").count() == 6
        for real_history in (one, two):
            real_history.spool.close()


@pytest.mark.django_db(transaction=True)
def test_two_drains_at_once_store_each_record_once(real_history: RealHistory, stream: DecisionStream) -> None:
    record(real_history, 2000)
    real_history.ship()

    def run() -> None:
        # What it raises fails the test: pytest takes an exception of a thread for an error.
        try:
            while ingest(stream):
                pass
        finally:
            connection.close()

    ingests = [threading.Thread(target=run) for _ in range(4)]
    for each in ingests:
        each.start()
    for each in ingests:
        each.join()
    real_history.settle()
    assert sequences() == list(range(1, 2001))


def test_marks_are_read_by_writer() -> None:
    Checkpoint.objects.create(writer="w", segment=3, offset=70, next_sequence=9, at=AT)
    marks = read_checkpoints(["w", "other"])
    assert marks is not None
    assert {writer: (found.position, found.sequence) for writer, found in marks.items()} == {
        "w": (Position(3, 70), 9)
    }  # fmt: skip


def test_a_recorder_starts_ships_and_stops(tmp_path: Path, stream: DecisionStream) -> None:
    recorder = Recorder(
        root=tmp_path / "spool", writer="w", stream=stream, max_bytes=PLENTY, checkpoints=lambda _writers: {}
    )
    recorder.start()
    recorder.record(make_entry())
    recorder.stop()
    ingest(stream)
    assert sequences() == [1]
    assert Checkpoint.objects.get(writer="w").has_ended
