"""What tests of the way into the database share: a history by a real Redis, and what they record."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from controlplane.up import free_port, redis_server, wait_for_port
from policies.engine.decision import CompiledRevision
from policies.engine.ruleset import Revision
from scheduler.decisions.ingest import ingest
from scheduler.decisions.record import Entry
from scheduler.decisions.stream import DecisionStream
from scheduler.models import Checkpoint, Decision, DecisionGap
from tests.builders import make_pod
from tests.recording import History, Prepared

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


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Run a Redis whose files are in a folder."""
    running = Server(folder)
    running.start()
    try:
        yield running
    finally:
        running.kill()


class RealHistory(History):
    """A History with a real Redis."""

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


def gaps() -> list[tuple[int, int]]:
    return list(DecisionGap.objects.order_by("first").values_list("first", "last"))
