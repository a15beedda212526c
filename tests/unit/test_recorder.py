"""The recorder: Decisions are numbered without gaps and shipped in order, whatever Redis does."""

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from scheduler.decisions import recorder as module
from scheduler.decisions.record import Record
from scheduler.decisions.recorder import Recorder
from scheduler.decisions.stream import StreamError
from scheduler.metrics import DECISIONS_LOST

LONG = 60.0


class FakeStream:
    """Stands in for Redis: keeps what is appended, and is away when told so."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.away = False
        self.refused = threading.Event()
        self.grew = threading.Condition()

    def append(self, entries: Sequence[bytes]) -> None:
        if self.away:
            self.refused.set()
            raise StreamError("connection refused")
        with self.grew:
            self.entries += entries
            self.grew.notify_all()

    def wait_for(self, count: int) -> list[Record]:
        with self.grew:
            assert self.grew.wait_for(lambda: len(self.entries) >= count, LONG)
        return self.records()

    def records(self) -> list[Record]:
        return [msgspec.json.decode(entry, type=Record) for entry in self.entries]


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> FakeStream:
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.001)
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.001)
    return FakeStream()


@pytest.fixture
def recorder(stream: FakeStream) -> Iterator[Recorder]:
    made: Recorder = Recorder(stream, "extender-1")  # type: ignore[arg-type]
    yield made
    if made._thread.ident:
        made.stop()


def record(name: str = "web") -> Record:
    return Record(
        at=datetime(2026, 1, 1, tzinfo=UTC),
        verb="filter",
        pod_namespace="default",
        pod_name=name,
        pod_uid="u",
        revision=1,
    )


def body(value: Any = 1) -> Callable[[], dict[str, object]]:
    return lambda: {"value": value}


def lost() -> float:
    return DECISIONS_LOST._value.get()


class TestRecorder:
    def test_ships_in_order_with_numbers_without_gaps(self, stream: FakeStream, recorder: Recorder) -> None:
        recorder.start()
        for place in range(1000):
            recorder.record(record(f"p{place}"), body(place))
        found = stream.wait_for(1000)
        assert [one.sequence for one in found] == list(range(1, 1001))
        assert [one.body["value"] for one in found] == list(range(1000))
        assert {one.process for one in found} == {"extender-1"}

    def test_numbers_have_no_gap_when_threads_record_at_once(self, stream: FakeStream, recorder: Recorder) -> None:
        recorder.start()
        threads = [
            threading.Thread(target=lambda: [recorder.record(record(), body()) for _ in range(250)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [one.sequence for one in stream.wait_for(1000)] == list(range(1, 1001))

    def test_what_was_recorded_while_redis_was_away_comes_after_it(
        self, stream: FakeStream, recorder: Recorder, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", "berth.decisions")
        stream.away = True
        recorder.start()
        for _ in range(500):
            recorder.record(record(), body())
        assert stream.refused.wait(LONG)
        stream.refused.clear()
        assert stream.refused.wait(LONG)
        assert stream.entries == []
        stream.away = False
        assert [one.sequence for one in stream.wait_for(500)] == list(range(1, 501))
        recorder.stop()
        assert [entry.getMessage().partition(":")[0] for entry in caplog.records] == [
            "Redis unreachable, Decisions wait in memory",
            "Redis reachable again",
        ]

    def test_stop_ships_what_waits(self, stream: FakeStream, recorder: Recorder) -> None:
        for _ in range(900):
            recorder.record(record(), body())
        recorder.start()
        recorder.stop()
        assert len(stream.entries) == 900

    def test_stop_tells_how_many_could_not_be_shipped(
        self, stream: FakeStream, recorder: Recorder, caplog: pytest.LogCaptureFixture
    ) -> None:
        stream.away = True
        recorder.start()
        for _ in range(300):
            recorder.record(record(), body())
        assert stream.refused.wait(LONG)
        recorder.stop()
        assert "300 Decisions could not be shipped before the end" in caplog.text

    def test_beyond_the_limit_the_oldest_are_given_up_and_counted(
        self, stream: FakeStream, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "MAX_WAITING", 10)
        before = lost()
        for _ in range(25):
            recorder.record(record(), body())
        assert lost() - before == 15
        recorder.start()
        recorder.stop()
        assert [one.sequence for one in stream.records()] == list(range(16, 26))

    @pytest.mark.parametrize("broken", [lambda: 1 / 0, lambda: {"value": object()}, lambda: {"value": "\ud800"}])
    def test_a_decision_that_cannot_be_written_is_counted_and_holds_up_no_other(
        self, stream: FakeStream, recorder: Recorder, broken: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        before = lost()
        recorder.record(record("a"), body())
        recorder.record(record("b"), broken)
        recorder.record(record("c"), body())
        recorder.start()
        recorder.stop()
        assert [one.pod_name for one in stream.records()] == ["a", "c"]
        assert lost() - before == 1
        assert "can't be written and is lost" in caplog.text

    def test_a_body_is_made_in_the_background(self, stream: FakeStream, recorder: Recorder) -> None:
        makers: list[str] = []
        recorder.start()
        recorder.record(record(), lambda: {"by": makers.append(threading.current_thread().name)})
        stream.wait_for(1)
        assert makers == ["berth-recorder"]
