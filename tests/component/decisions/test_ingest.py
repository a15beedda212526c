"""Records from the spool by Redis to the database, with a real Redis: each once, in order, whatever is lost on the way."""

import shutil
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from django.db import DatabaseError, connection, transaction
from prometheus_client import generate_latest

from controlplane.up import free_port, redis_server, wait_for_port
from policies.engine.decision import CompiledRevision
from policies.engine.ruleset import Revision
from scheduler.decisions import ingest as ingest_module
from scheduler.decisions.frames import HEADER_BYTES, Kind
from scheduler.decisions.ingest import ingest, store
from scheduler.decisions.metrics import GAPS
from scheduler.decisions.reading import body_of
from scheduler.decisions.record import Entry, read_outcome
from scheduler.decisions.recorder import Recorder
from scheduler.decisions.segments import Position, take_over_the_dead
from scheduler.decisions.shipping import Shipper, read_checkpoints
from scheduler.decisions.stream import STREAM, DecisionStream, Shipment, StreamError
from scheduler.metrics import SPOOL_CORRUPT, SPOOL_LOST
from scheduler.models import Checkpoint, DeadLetter, Decision, DecisionGap, PlacedPod
from scheduler.models import Outcome as OutcomeRow
from tests.builders import make_node, make_pod
from tests.recording import PLENTY, History, Prepared, outcome_of
from tests.stack import eventually

pytestmark = pytest.mark.django_db

AT = datetime(2026, 1, 1, tzinfo=UTC)


class Server:
    """A Redis of the test's own."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._command = [redis_server(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder)]
        self._command += ["--appendonly", "yes", "--save", "", *options]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        assert wait_for_port(self.port, 20)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path)
    running.start()
    yield running
    running.kill()


@pytest.fixture
def stream(server: Server) -> DecisionStream:
    return DecisionStream(server.url)


class RealHistory(History):
    """The same with a real Redis."""

    def __init__(self, root: Path, stream: DecisionStream, writer: str = "extender@test") -> None:
        super().__init__(root, writer)
        self.stream = self.shipper._stream = stream

    def settle(self) -> None:
        for _ in range(50):
            self.shipper._asked_at = self.shipper._house_kept_at = -1e9
            self.ship()
            if not ingest(self.stream) and self.all_stored():
                return
        raise AssertionError("it doesn't settle")

    def all_stored(self) -> bool:
        mark = Checkpoint.objects.filter(writer=self.spool.segments.writer).first()
        return (mark.next_sequence if mark else 1) == self.spool.next_sequence


@pytest.fixture
def history(tmp_path: Path, stream: DecisionStream) -> Iterator[RealHistory]:
    made = RealHistory(tmp_path / "spool", stream)
    yield made
    made.spool.close()


def make_entry(name: str = "p", **fields: Any) -> Entry:
    revision = CompiledRevision(Revision(number=3))
    common: dict[str, Any] = {"verb": "filter", "pod": pod_of(name), "now": AT, "revision": revision, "nodes": 5}
    return Prepared(**common | {"feasible": 2} | fields)


def pod_of(name: str) -> Any:
    from policies.engine.objects.pod import Pod

    return Pod.from_json(make_pod(name))


def record(history: History, count: int) -> None:
    for _ in range(count):
        history.recorder.record(make_entry())


def sequences() -> list[int]:
    return list(Decision.objects.order_by("sequence").values_list("sequence", flat=True))


def shipments(history: History) -> list[Shipment]:
    """What would be shipped next; nothing moves."""
    return history.shipper._own.peek()[0]


class TestOnce:
    def test_what_is_recorded_is_stored_once_and_leaves_redis(
        self, history: RealHistory, stream: DecisionStream
    ) -> None:
        assert ingest(stream) == 0
        for name in ("a", "b", "c"):
            history.recorder.record(make_entry(name, duration_microseconds=7))
        history.ship()

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
        self, history: RealHistory, stream: DecisionStream
    ) -> None:
        record(history, 2)
        history.ship()
        store(stream.read(10))
        record(history, 2)
        history.ship()

        assert ingest(stream) == 4
        assert sequences() == [1, 2, 3, 4]
        assert stream.length() == 0

    def test_a_drain_that_dies_before_the_commit_stores_nothing(
        self, history: RealHistory, stream: DecisionStream, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_: object) -> None:
            raise DatabaseError("gone")

        record(history, 2)
        history.ship()
        with monkeypatch.context() as patch:
            patch.setattr(ingest_module, "note_outcomes", fail)
            with pytest.raises(DatabaseError):
                ingest(stream)
        assert (Decision.objects.count(), Checkpoint.objects.count(), stream.length()) == (0, 0, 2)
        assert ingest(stream) == 2
        assert sequences() == [1, 2]

    def test_many_batches_are_drained_in_one_go(
        self, history: RealHistory, stream: DecisionStream, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ingest_module, "BATCH", 10)
        record(history, 95)
        history.ship()
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
        for history in (one, two):
            history.spool.close()


@pytest.mark.django_db(transaction=True)
def test_two_drains_at_once_store_each_record_once(history: RealHistory, stream: DecisionStream) -> None:
    record(history, 2000)
    history.ship()

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
    history.settle()
    assert sequences() == list(range(1, 2001))


class TestLosses:
    def test_an_entry_that_redis_lost_is_sent_again(self, history: RealHistory, stream: DecisionStream) -> None:
        record(history, 10)
        history.ship()
        stream._redis.xdel(STREAM, stream.read(10)[4].id)
        ingest(stream)
        assert sequences() == [1, 2, 3, 4]
        history.settle()
        assert sequences() == list(range(1, 11))

    def test_the_last_entry_that_redis_lost_is_sent_again_though_nothing_comes_behind_it(
        self, history: RealHistory, stream: DecisionStream, caplog: pytest.LogCaptureFixture
    ) -> None:
        record(history, 3)
        history.ship()
        stream._redis.xdel(STREAM, stream.read(3)[2].id)
        history.settle()
        assert sequences() == [1, 2, 3]
        assert "has lost the last records of extender@test" in caplog.text

    def test_what_is_stored_is_not_sent_again(
        self, history: RealHistory, stream: DecisionStream, caplog: pytest.LogCaptureFixture
    ) -> None:
        history.settle()
        record(history, 3)
        history.settle()
        for _ in range(3):
            history.shipper._asked_at = history.shipper._house_kept_at = -1e9
            assert not history.shipper.step()
        assert "sent again" not in caplog.text

    def test_a_wiped_redis_gets_all_again_that_is_not_stored(
        self, history: RealHistory, stream: DecisionStream
    ) -> None:
        record(history, 5)
        history.settle()
        record(history, 5)
        history.ship()
        stream._redis.flushall()
        history.settle()
        assert sequences() == list(range(1, 11))

    def test_a_redis_that_went_back_in_time_gets_again_what_it_lost(
        self, history: RealHistory, stream: DecisionStream
    ) -> None:
        record(history, 10)
        history.ship()
        for each in stream.read(10)[6:]:
            stream._redis.xdel(STREAM, each.id)
        stream.set_shipped("extender@test", 7)
        history.settle()
        assert sequences() == list(range(1, 11))

    def test_without_the_database_a_wiped_redis_gets_all_that_is_on_disk(
        self, history: RealHistory, stream: DecisionStream
    ) -> None:
        record(history, 5)
        history.ship()
        history.shipper._checkpoints = lambda _writers: None
        stream._redis.flushall()
        record(history, 1)
        history.shipper._asked_at = -1e9
        history.ship()
        history.ship()
        assert stream.length() >= 6
        history.settle()
        assert sequences() == [1, 2, 3, 4, 5, 6]

    def test_redis_away_is_an_error_of_ours_and_nothing_is_lost(
        self, server: Server, history: RealHistory, stream: DecisionStream, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", "berth.decisions")
        record(history, 1)
        history.ship()
        server.kill()
        for call in (
            lambda: ingest(stream),
            lambda: stream.append("w", [], 0),
            stream.length,
            stream.eviction_policy,
            lambda: stream.finish([b"1-0"]),
            lambda: stream.take_wanted("w"),
            lambda: stream.set_shipped("w", 1),
            lambda: stream.forget("w"),
        ):
            with pytest.raises(StreamError):
                call()
        record(history, 5)
        assert history.shipper.step() is False
        assert history.shipper.step() is False

        server.start()
        history.settle()
        assert sequences() == [1, 2, 3, 4, 5, 6]
        messages = [entry.getMessage().partition(":")[0] for entry in caplog.records]
        assert messages.count("Redis unreachable, records wait on disk") == 1
        assert messages.count("Redis reachable again") == 1

    def test_more_than_redis_should_hold_waits_on_disk(
        self, history: RealHistory, stream: DecisionStream, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("scheduler.decisions.shipping.MOST_IN_REDIS", 10)
        monkeypatch.setattr("scheduler.decisions.shipping._BATCH_BYTES", 1000)
        record(history, 100)
        for _ in range(100):
            history.shipper._asked_at = -1e9
            history.shipper.step()
        assert 10 <= stream.length() < 20
        history.settle()
        assert sequences() == list(range(1, 101))

    def test_a_policy_that_throws_entries_away_is_warned_of(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        server = Server(tmp_path, "--maxmemory-policy", "allkeys-lru")
        server.start()
        history = RealHistory(tmp_path / "spool", DecisionStream(server.url))
        history.ship()
        assert "maxmemory-policy is allkeys-lru, and must be noeviction" in caplog.text
        history.spool.close()
        server.kill()


class TestGaps:
    def test_what_was_lost_for_want_of_room_is_in_the_table(self, history: RealHistory) -> None:
        record(history, 2)
        history.spool._max_bytes = 0
        record(history, 3)
        history.spool._max_bytes = PLENTY
        history.recorder._full_until = 0
        record(history, 1)
        history.settle()
        assert sequences() == [1, 2, 6]
        gap = DecisionGap.objects.get()
        assert (gap.process, gap.first, gap.last, gap.decisions) == ("extender@test", 3, 5, 3)
        assert gap.reason == "no room in the spool"

    def test_a_number_that_is_missing_between_two_is_a_gap_and_counted(self, history: RealHistory) -> None:
        record(history, 2)
        history.recorder._sequence = 7
        record(history, 1)
        history.settle()
        assert list(DecisionGap.objects.values_list("first", "last")) == [(3, 7)]
        assert "berth_decisions_lost_total 5.0" in generate_latest(GAPS).decode()

    def test_the_end_says_how_many_there_were(self, history: RealHistory) -> None:
        record(history, 2)
        history.recorder._sequence = 4
        history.recorder._write_end()
        history.settle()
        assert list(DecisionGap.objects.values_list("first", "last")) == [(3, 4)]
        assert Checkpoint.objects.get(writer="extender@test").has_ended


class TestDamage:
    @pytest.mark.parametrize(
        "place", [0, 5, HEADER_BYTES, HEADER_BYTES + 10, -1], ids=["length", "crc", "body", "inside", "last byte"]
    )
    def test_what_stands_behind_damage_is_dead_letter_and_the_next_segment_goes_on(
        self, history: RealHistory, place: int
    ) -> None:
        record(history, 3)
        history.spool.rotate()
        record(history, 2)
        path = history.spool.segments.path(1)
        data = bytearray(path.read_bytes())
        second = history.spool.segments.read(Position(1)).frames[0].end
        at = second + place if place >= 0 else len(data) - 1
        data[at] ^= 0xFF
        path.write_bytes(data)
        before = SPOOL_CORRUPT._value.get()

        history.settle()

        kept = [1] if place >= 0 else [1, 2]
        assert sequences() == [*kept, 4, 5]
        assert list(DecisionGap.objects.values_list("first", "last")) == [(len(kept) + 1, 3)]
        aside = DeadLetter.objects.get()
        corrupt = bytes(data[aside.offset - len(bytes(aside.data)) : aside.offset])
        assert (bytes(aside.data), aside.segment) == (corrupt, 1)
        assert SPOOL_CORRUPT._value.get() - before == 1

    def test_damage_in_the_segment_that_is_being_written_ends_it(self, history: RealHistory) -> None:
        record(history, 3)
        path = history.spool.segments.path(1)
        data = bytearray(path.read_bytes())
        data[-1] ^= 0xFF
        path.write_bytes(data)
        history.ship()
        record(history, 2)
        history.settle()
        assert sequences() == [1, 2, 4, 5]
        assert list(DecisionGap.objects.values_list("first", "last")) == [(3, 3)]

    def test_records_that_are_no_records_are_dead_letter_and_hold_up_no_other(
        self, history: RealHistory, stream: DecisionStream
    ) -> None:
        record(history, 1)
        for kind in (Kind.DECISION, Kind.OUTCOME, Kind.GAP, Kind.NAMES, Kind.DELTA, 99):
            history.spool.append([(kind, [b"\x00\x00\x00\x00\xc1"])])  # type: ignore[list-item] # that is the test
        record(history, 1)
        stream._redis.xadd(STREAM, {b"w": b"extender@test", b"s": b"no number"})
        stream._redis.xadd(STREAM, {b"d": b"no JSON"})
        history.settle()
        assert sequences() == [1, 2]
        assert DeadLetter.objects.count() == 8
        assert {row.reason.partition(":")[0] for row in DeadLetter.objects.all()} == {
            "it can't be read", "it is no record",
        }  # fmt: skip

    def test_a_row_that_the_database_refuses_is_dead_letter(self, history: RealHistory) -> None:
        if connection.vendor != "postgresql":
            history.recorder.record(make_entry("twice", id="4e7c2ad0-6c4f-4b0c-8a31-6d6a2b1d7a11"))
            history.recorder.record(make_entry("twice", id="4e7c2ad0-6c4f-4b0c-8a31-6d6a2b1d7a11"))
        else:
            history.recorder.record(make_entry("first"))
            history.recorder.record(make_entry("a\x00b"))
        record(history, 1)
        history.settle()
        assert sequences() == [1, 3]
        assert DeadLetter.objects.get().reason.startswith("the database refuses it: ")

    def test_what_version_0_1_0_left_in_redis_is_stored(self, stream: DecisionStream) -> None:
        old = {
            "id": "4e7c2ad0-6c4f-4b0c-8a31-6d6a2b1d7a11", "at": "2026-01-01T00:00:00Z", "process": "extender@old",
            "sequence": 9, "verb": "filter", "pod_namespace": "default", "pod_name": "p", "pod_uid": "u", "revision": 3,
            "nodes": 5, "feasible": 2, "body": {"nodes": ["n1"]},
        }  # fmt: skip
        for _ in range(2):
            stream._redis.xadd(STREAM, {b"d": msgspec.json.encode(old)})
            ingest(stream)
        row = Decision.objects.get()
        assert (row.process, row.sequence, row.at) == ("extender@old", 9, AT)
        assert body_of(row) == {"nodes": ["n1"]}


class TestOutcomes:
    def test_a_pods_node_is_joined_to_all_its_decisions(self, history: RealHistory) -> None:
        for name in ("web", "other", "web"):
            history.recorder.record(make_entry(name))
        history.recorder.record_outcome(outcome_of("web", "n1", AT))
        history.settle()
        found = Decision.objects.order_by("sequence").values_list("placed_on", "placed_at", "placed_best")
        assert list(found) == [("n1", AT, None), ("", None, None), ("n1", AT, None)]

    def test_who_knew_whether_it_was_the_best_is_believed(self, tmp_path: Path, stream: DecisionStream) -> None:
        from policies.engine.objects.node import Node
        from policies.engine.objects.snapshot import Snapshot
        from scheduler.decisions.node_names import names_of
        from scheduler.decisions.record import Best

        table = Snapshot.of([Node.from_json(make_node("n1"))]).table
        histories = [RealHistory(tmp_path / name, stream, name) for name in ("knows", "doesn't")]
        histories[0].recorder.record(
            make_entry("web", best_nodes=Best(names_of(table), np.array([0]), np.array([True])))
        )
        for history in histories:
            history.recorder.record_outcome(outcome_of("web", "n1", AT))
            history.settle()
            history.spool.close()
        assert Decision.objects.get().placed_best is True

    def test_of_several_who_saw_the_same_one_record_is_kept_as_it_was_written(
        self, tmp_path: Path, stream: DecisionStream
    ) -> None:
        histories = [RealHistory(tmp_path / name, stream, name) for name in ("first", "second")]
        written = [outcome_of("web", "n1", AT, by="default-scheduler"), outcome_of("web", "", AT, kind="deleted")]
        for history in histories:
            for outcome in written:
                history.recorder.record_outcome(outcome)
            history.settle()
            history.spool.close()
        rows = OutcomeRow.objects.order_by("sequence")
        assert [(row.process, row.sequence, row.kind) for row in rows] == [
            ("first", 1, "bound"),
            ("first", 2, "deleted"),
        ]
        assert [bytes(row.body) for row in rows] == [outcome.encode() for outcome in written]
        assert [read_outcome(bytes(row.body)) for row in rows] == written
        assert not PlacedPod.objects.exists()

    @pytest.mark.parametrize("order", [("knows", "saw"), ("saw", "knows")])
    def test_who_knows_for_whom_a_pod_was_preempted_is_heard_whoever_comes_first(
        self, tmp_path: Path, stream: DecisionStream, order: tuple[str, str]
    ) -> None:
        from scheduler.decisions.story import ends_of

        for name in order:
            history = RealHistory(tmp_path / name, stream, name)
            named = {"preemptor_uid": "uid-urgent", "preemptor_namespace": "default", "preemptor_name": "urgent"}
            outcome = outcome_of("web", "n1", AT, kind="preempted", **(named if name == "knows" else {}))
            history.recorder.record_outcome(outcome)
            history.settle()
            history.spool.close()
        assert [end.says for end in ends_of("uid-web", [])] == ["preempted from n1 for default/urgent"]
        assert OutcomeRow.objects.filter(preemptor_uid="uid-urgent").count() == 1

    def test_what_another_writer_said_before_is_joined_when_the_decision_comes(self, history: RealHistory) -> None:
        history.recorder.record_outcome(outcome_of("web", "n1", AT))
        history.settle()
        assert list(PlacedPod.objects.values_list("uid", "node_name")) == [("uid-web", "n1")]
        history.recorder.record(make_entry("web"))
        history.settle()
        assert list(Decision.objects.values_list("placed_on", "placed_at")) == [("n1", AT)]

    def test_the_end_of_a_pod_says_nothing_of_when_it_was_bound(self, history: RealHistory) -> None:
        later = AT + timedelta(days=1)
        for name in ("seen", "unseen"):
            history.recorder.record(make_entry(name))
        history.recorder.record_outcome(outcome_of("seen", "n1", AT))
        history.settle()
        for name in ("seen", "unseen"):
            history.recorder.record_outcome(outcome_of(name, "n1", later, kind="evicted"))
        history.settle()
        found = Decision.objects.order_by("sequence").values_list("placed_on", "placed_at")
        assert list(found) == [("n1", AT), ("n1", later)]

    def test_a_pod_that_is_known_to_have_ended_is_not_looked_after_when_its_binding_comes_late(
        self, history: RealHistory
    ) -> None:
        history.recorder.record_outcome(outcome_of("web", "n1", AT, kind="preempted"))
        history.recorder.record_outcome(outcome_of("web", "n1", AT))
        history.settle()
        assert OutcomeRow.objects.count() == 2
        assert not PlacedPod.objects.exists()

    def test_one_that_the_database_refuses_holds_up_nothing(self, history: RealHistory) -> None:
        if connection.vendor != "postgresql":
            pytest.skip("SQLite takes a zero byte")
        history.recorder.record_outcome(outcome_of("a\0b", "n1", AT))
        history.recorder.record_outcome(outcome_of("web", "n1", AT))
        history.settle()
        assert [row.pod_name for row in OutcomeRow.objects.all()] == ["web"]
        assert DeadLetter.objects.get().reason.startswith("the database refuses it: ")

    def test_a_record_that_is_none_becomes_a_dead_letter(self, history: RealHistory) -> None:
        history.recorder.record_outcome(outcome_of("web", "n1", AT, decision="not an id"))
        history.settle()
        assert DeadLetter.objects.get().reason.startswith("it can't be read: ")

    def test_a_row_is_never_changed(self, history: RealHistory) -> None:
        history.recorder.record_outcome(outcome_of("web", "n1", AT))
        history.settle()
        with pytest.raises(DatabaseError, match="never changed"), transaction.atomic():
            OutcomeRow.objects.update(node_name="n2")


def test_a_clock_that_goes_back_by_a_day_puts_nothing_out_of_order(history: RealHistory) -> None:
    yesterday = AT - timedelta(days=1)
    history.recorder.record(make_entry("web"))
    history.recorder.record(make_entry("web", now=yesterday))
    history.recorder.record_outcome(outcome_of("web", "n1", yesterday))
    history.recorder.record_outcome(outcome_of("web", "n1", yesterday - timedelta(days=1), kind="deleted"))
    history.settle()
    found = Decision.objects.order_by("sequence").values_list("at", "placed_on", "placed_at")
    assert list(found) == [(AT, "n1", yesterday), (yesterday, "n1", yesterday)]
    assert list(OutcomeRow.objects.order_by("sequence").values_list("kind", flat=True)) == ["bound", "deleted"]
    assert not DecisionGap.objects.exists()
    assert not PlacedPod.objects.exists()


class TestALostFolder:
    """What a process does whose folder is deleted while it runs: noticed, counted, and it goes on."""

    def lose(self, history: RealHistory) -> None:
        shutil.rmtree(history.spool.segments.folder)

    def test_what_was_not_shipped_is_a_gap_and_what_comes_then_is_stored(self, history: RealHistory) -> None:
        record(history, 2)
        history.settle()
        record(history, 3)
        self.lose(history)
        before = SPOOL_LOST._value.get()
        history.recorder._mend()
        history.settle()
        assert gaps() == [(3, 5)]
        record(history, 2)
        history.settle()
        assert sequences() == [1, 2, 6, 7]
        assert gaps() == [(3, 5)]
        assert SPOOL_LOST._value.get() == before + 1
        assert not DeadLetter.objects.exists()

    def test_where_all_was_shipped_nothing_is_missing(self, history: RealHistory) -> None:
        record(history, 2)
        history.settle()
        self.lose(history)
        history.recorder._mend()
        record(history, 1)
        history.settle()
        assert (sequences(), gaps()) == ([1, 2, 3], [])

    def test_a_deleted_file_alone_is_noticed_too(self, history: RealHistory) -> None:
        record(history, 2)
        history.spool.segments.delete(1)
        history.recorder._mend()
        record(history, 1)
        history.settle()
        assert (sequences(), gaps()) == ([3], [(1, 2)])

    def test_who_comes_next_does_not_take_the_new_folder_from_its_writer(
        self, tmp_path: Path, history: RealHistory, stream: DecisionStream
    ) -> None:
        self.lose(history)
        history.recorder._mend()
        assert take_over_the_dead(history.spool.root, but=set()) == []

    def test_nothing_is_begun_anew_while_all_is_there(self, history: RealHistory) -> None:
        record(history, 1)
        assert not history.spool.is_lost()
        history.spool.rotate()
        assert not history.spool.is_lost()


def gaps() -> list[tuple[int, int]]:
    return list(DecisionGap.objects.order_by("first").values_list("first", "last"))


class TestTheDead:
    def test_what_a_killed_process_left_is_shipped_by_the_next_one_and_then_deleted(
        self, tmp_path: Path, stream: DecisionStream
    ) -> None:
        dead = RealHistory(tmp_path, stream, "dead")
        record(dead, 5)
        with dead.spool.segments.path(1).open("ab") as file:
            file.write(b"half of a record")
        dead.die()

        next_one = RealHistory(tmp_path, stream, "next")
        next_one.settle()
        assert sequences() == [1, 2, 3, 4, 5]
        assert bytes(DeadLetter.objects.get().data) == b"half of a record"
        assert not Checkpoint.objects.get(writer="dead").has_ended
        next_one.shipper._house_kept_at = -1e9
        next_one.shipper.step()
        assert not dead.spool.segments.folder.exists()
        assert next_one.spool.others_bytes == 0
        next_one.spool.close()

    def test_also_its_last_record_where_redis_loses_it(self, tmp_path: Path, stream: DecisionStream) -> None:
        dead = RealHistory(tmp_path, stream, "dead")
        record(dead, 3)
        dead.die()
        next_one = RealHistory(tmp_path, stream, "next")
        next_one.ship()
        stream._redis.xdel(STREAM, stream.read(3)[2].id)
        for _ in range(5):
            next_one.settle()
        assert sequences() == [1, 2, 3]
        assert not dead.spool.segments.folder.exists()
        next_one.spool.close()

    def test_a_writer_that_never_wrote_is_swept_away(self, tmp_path: Path, stream: DecisionStream) -> None:
        RealHistory(tmp_path, stream, "dead").die()
        next_one = RealHistory(tmp_path, stream, "next")
        next_one.ship()
        assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["next"]
        next_one.spool.close()

    def test_nothing_is_deleted_before_it_is_stored(self, tmp_path: Path, stream: DecisionStream) -> None:
        history = RealHistory(tmp_path, stream)
        for _ in range(3):
            record(history, 1)
            history.spool.rotate()
        history.shipper._house_kept_at = -1e9
        history.ship()
        assert history.spool.segments.numbers() == [1, 2, 3]
        history.settle()
        history.shipper._house_kept_at = -1e9
        history.shipper.step()
        assert history.spool.segments.numbers() == [3]
        assert history.spool.size_bytes == history.spool.segments.total_bytes()
        history.spool.close()


def test_a_fault_of_a_file_does_not_end_the_shipper(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    history = History(tmp_path)
    calls: list[int] = []

    def fail_once() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise OSError("the disk coughed")

    shipper = Shipper(history.spool, history.stream, checkpoints=lambda _writers: {}, before=fail_once)
    shipper.start()
    history.recorder.record(make_entry())
    eventually(lambda: history.stream.entries, what="the record is shipped")
    shipper.stop(20)
    assert "records can't be shipped, tried again" in caplog.text
    assert len(history.stream.entries) == 1
    history.spool.close()


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
