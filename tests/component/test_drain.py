"""Decisions from Redis to the database, with a real Redis."""

import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controlplane.up import free_port, redis_server, wait_for_port
from scheduler.decisions import drain as drain_module
from scheduler.decisions.drain import drain
from scheduler.decisions.record import Record
from scheduler.decisions.recorder import Recorder
from scheduler.decisions.stream import STREAM, DecisionStream, StreamError
from scheduler.models import Decision

pytestmark = pytest.mark.django_db


class Server:
    """A Redis of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._command = [redis_server(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder)]
        self._command += ["--appendonly", "yes", "--save", ""]
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


def make_record(sequence: int, **fields: Any) -> Record:
    record = Record(
        at=datetime(2026, 1, 1, tzinfo=UTC), verb="filter", pod_namespace="default", pod_name=f"p{sequence}",
        pod_uid=f"u{sequence}", revision=3, nodes=5, feasible=2, **fields,
    )  # fmt: skip
    record.process, record.sequence = "extender@test", sequence
    return record


def append(stream: DecisionStream, *sequences: int) -> None:
    stream.append([msgspec.json.encode(make_record(sequence)) for sequence in sequences])


def test_what_is_appended_is_stored_once_and_leaves_redis(stream: DecisionStream) -> None:
    assert drain(stream) == 0
    append(stream, 1, 2, 3)

    assert drain(stream) == 3
    assert drain(stream) == 0

    rows = Decision.objects.order_by("sequence").values_list("process", "sequence", "pod_name", "revision", "feasible")
    assert list(rows) == [("extender@test", number, f"p{number}", 3, 2) for number in (1, 2, 3)]
    assert stream.length() == 0


def test_a_drain_that_died_after_storing_leaves_nothing_twice(stream: DecisionStream) -> None:
    append(stream, 1, 2)
    drain(stream)
    append(stream, 3, 4)
    read = stream.read(10)
    Decision.objects.bulk_create([row for _, entry in read if (row := drain_module._row(entry))])

    assert drain(stream) == 2
    assert sorted(Decision.objects.values_list("sequence", flat=True)) == [1, 2, 3, 4]
    assert stream.length() == 0


def test_an_entry_that_is_no_decision_does_not_hold_up_the_others(stream: DecisionStream) -> None:
    append(stream, 1)
    stream.append([b"not a Decision"])
    append(stream, 2)
    drain(stream)

    assert drain(stream) == 0
    assert Decision.objects.count() == 2


def test_many_batches_are_drained_in_one_go(stream: DecisionStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_module, "BATCH", 10)
    drain(stream)
    append(stream, *range(1, 96))

    assert drain(stream) == 95
    assert Decision.objects.count() == 95


def test_redis_away_is_an_error_of_ours_and_nothing_is_lost(server: Server, stream: DecisionStream) -> None:
    append(stream, 1)
    server.kill()
    with pytest.raises(StreamError):
        drain(stream)
    with pytest.raises(StreamError):
        stream.append([b"x"])
    with pytest.raises(StreamError):
        stream.length()
    with pytest.raises(StreamError):
        stream.finish([b"1-0"])

    server.start()
    drain(stream)
    drain(stream)
    assert Decision.objects.count() == 1


def test_a_recorder_ships_what_came_while_redis_was_away(server: Server, stream: DecisionStream) -> None:
    recorder = Recorder(stream, "extender@test")
    recorder.start()
    recorder.record(make_record(0), lambda: {"nodes": ["n1"]})
    deadline = time.monotonic() + 20
    while stream.length() < 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    server.kill()
    for _ in range(5):
        recorder.record(make_record(0), dict)
    server.start()
    recorder.stop(timeout_seconds=20)

    drain(stream)
    drain(stream)
    assert sorted(Decision.objects.values_list("sequence", flat=True)) == [1, 2, 3, 4, 5, 6]
    assert Decision.objects.get(sequence=1).body == {"nodes": ["n1"]}


def test_the_name_of_the_stream_is_kept() -> None:
    """Another version of Berth must find what this one left in Redis."""
    assert STREAM == "berth:decisions"
