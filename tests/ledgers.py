"""A history with a ledger for tests: Decisions and outcomes of two writers, checkpoints inside and outside the database."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Protocol
from uuid import UUID

import msgspec
from django.db import connection, transaction

from policies.engine.objects.pod import Pod
from policies.models import AuditEvent
from policies.models.audit import first_id_at
from policies.publishing import audit
from scheduler.decisions.record import Outcome
from scheduler.evidence.verify import LogReport, verify
from scheduler.ledger.checkpoints import sign
from scheduler.ledger.logs import DECISIONS
from scheduler.ledger.note import Signer
from scheduler.ledger.tree import Edge, leaf_hash
from scheduler.models import LedgerCheckpoint, LedgerHead, LedgerTile
from tests.builders import make_pod
from tests.recording import PLENTY, History, Prepared

AT = datetime(2026, 1, 1, tzinfo=UTC)
SIGNER = Signer("berth", bytes(range(32)))
# `make long` runs more trials.
_TRIALS = int(os.environ.get("VERIFY_TRIALS", "40"))
_SEED = int(os.environ.get("VERIFY_SEED", "0"))


class Ledgered:
    """A history that records Decisions, and signs them after each step.

    Args:
        folder: the folder of the spools and of the checkpoints outside the database.
    """

    def __init__(self, folder: Path) -> None:
        self.outside = folder / "checkpoints"
        self._writers = [History(folder / f"spool-{name}", f"extender@{name}") for name in ("a", "b")]
        self._number = 0
        self.signer = SIGNER

    def record(self, count: int, *, at: datetime | None = None) -> None:
        """Record Decisions, and an outcome for each third Pod; one second apart, or all at the same time."""
        for _ in range(count):
            self._number += 1
            writer, name = self._writers[self._number % 2], f"pod-{self._number}"
            now = at or AT + timedelta(seconds=self._number)
            pod = Pod.from_json(make_pod(name, uid=f"uid-{self._number}"))
            writer.recorder.record(Prepared(verb="bind", pod=pod, now=now, best=f"node-{self._number % 5}"))
            if self._number % 3 == 0:
                outcome = Outcome(
                    pod_uid=pod.uid, pod_namespace=pod.namespace, pod_name=name, node_name="node-1", at=now
                )
                writer.recorder.record_outcome(outcome)
        for writer in self._writers:
            writer.settle()

    def garble(self, data: bytes) -> None:
        """Add an entry that isn't a record."""
        writer = self._writers[0]
        writer.stream.entries[b"9999999-%d" % len(data)] = {b"d": data}
        writer.settle()

    def store_former(self, fields: dict[str, Any]) -> None:
        """Store a Decision as version 0.1.0 shipped it."""
        writer = self._writers[0]
        writer.stream.entries[b"7777777-0"] = {b"d": msgspec.json.encode(fields)}
        writer.settle()

    def garble_many(self, count: int) -> None:
        """Add this number of entries at once that aren't records."""
        writer = self._writers[0]
        writer.stream.entries |= {
            b"8888888-%d" % number: {b"d": b"\x00 nothing %d" % number} for number in range(count)
        }
        writer.settle()

    def lose(self, count: int) -> None:
        """Lose this number of one writer's Decisions for lack of space."""
        writer = self._writers[0]
        writer.spool._max_bytes = 0
        for _ in range(count):
            writer.recorder.record(Prepared(verb="bind", pod=Pod.from_json(make_pod("lost")), now=AT))
        writer.spool._max_bytes = PLENTY
        writer.recorder._full_until = 0
        self.record(2)

    def sign(self) -> None:
        """Sign the logs that have grown."""
        for head in LedgerHead.objects.order_by("log"):
            sign(head, self.signer, [SIGNER.verifier, self.signer.verifier], AT + timedelta(seconds=self._number))

    def verify(self, *, outside: bool = True, **more: Any) -> list[LogReport]:
        """Verify with the trusted key."""
        keys = more.pop("keys", [SIGNER.verifier])
        folder = self.outside if outside else None
        return verify(keys, folder, more.pop("progress", {}), lambda *_: None, more.pop("processes", 1))


def faults(reports: list[LogReport]) -> list[str]:
    return [fault for report in reports for fault in report.faults]


def log_of(reports: list[LogReport], log: str = DECISIONS) -> LogReport:
    return next(report for report in reports if report.log == log)


def rebuild(log: str, exacts: list[bytes]) -> None:
    """Write the tree again, as an attacker does who knows its format."""
    edge = Edge()
    tiles: dict[tuple[int, int], bytes] = {}
    for exact in exacts:
        tiles |= {(tile.level, tile.number): tile.hashes for tile in edge.append(leaf_hash(exact))}
    LedgerTile.objects.filter(log=log).delete()
    LedgerTile.objects.bulk_create(
        LedgerTile(log=log, level=level, number=number, hashes=hashes) for (level, number), hashes in tiles.items()
    )
    LedgerHead.objects.filter(log=log).update(size=edge.size, root=edge.root())


def resign(log: str, signer: Signer) -> None:
    """Replace all checkpoints in the database by one for the present tree."""
    from scheduler.ledger.checkpoints import tree_head

    LedgerCheckpoint.objects.filter(log=log).delete()
    head = LedgerHead.objects.get(log=log)
    note = signer.sign(tree_head(signer.verifier.name, head, AT).text())
    LedgerCheckpoint.objects.create(log=log, size=head.size, note=note, at=AT)


def plant_event(kind: str, *, made_at: datetime | UUID, says_at: datetime, **said: Any) -> AuditEvent:
    """Insert an event whose id and content have different times, as an attacker does who can only write rows."""
    key = made_at if isinstance(made_at, UUID) else first_id_at(made_at)
    words = audit.Said(id=str(key), at=says_at, kind=kind, door="admin", **said)
    columns = {name: getattr(words, name) for name in audit._COLUMNS}
    return AuditEvent.objects.create(id=key, at=says_at, **columns, body=audit._encode(words))


def without_triggers() -> None:
    """Drop the triggers that protect rows, as the tables' owner can, until the transaction is rolled back."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET LOCAL session_replication_role = replica")
            return
        cursor.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        for (name,) in cursor.fetchall():
            cursor.execute(f"DROP TRIGGER {name}")


@contextmanager
def hidden_beginning() -> Iterator[None]:
    """Hide the event of the first signed deletions, so that workers sign another one, and bring it back unchanged."""
    without_triggers()
    first = AuditEvent.objects.filter(kind="prune.begin").values_list("pk", flat=True).get()
    AuditEvent.objects.filter(pk=first).update(kind="hidden")
    yield
    AuditEvent.objects.filter(pk=first).update(kind="prune.begin")


class Tampering(Protocol):
    """A way to change records, which returns the findings that verification has to report."""

    @property
    def ways(self) -> Sequence[Callable[[], str]]: ...


def unnoticed(history: Ledgered, tampering: Callable[[Random], Tampering]) -> list[tuple[int, str, str, list[str]]]:
    """Change a history in many random ways, each from the same state; return the changes that verification doesn't report."""
    missed = []
    for seed in range(_SEED, _SEED + _TRIALS):
        ways = tampering(Random(seed)).ways
        way = ways[seed % len(ways)]
        with transaction.atomic():
            without_triggers()
            named = way()
            said = faults(history.verify())
            transaction.set_rollback(True)
        if not any(named in fault for fault in said):
            missed.append((seed, way.__name__, named, said[:2]))
    return missed
