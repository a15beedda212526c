"""Rebuilds what a recorded Decision was made on: its body, its Pod, the names of nodes, and the Snapshot."""

from collections import deque

import msgspec
from django.db.models import QuerySet

from policies.engine.errors import ObjectError
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from scheduler.decisions.reading import PRUNED
from scheduler.decisions.record import Body, decompress, read_body
from scheduler.decisions.snapshots import Rebuilt, decode_change
from scheduler.models import Decision, SnapshotPart
from scheduler.models import NodeNames as NodeNamesRow

_MOST_KEPT = 4
# Changes of a Snapshot that are read in one query.
_READ_AHEAD = 256


class ReplayError(Exception):
    """A Decision can't be replayed; the message says what is missing."""


class _Chain:
    """A chain of the journal, rebuilt up to a position. It only moves forward."""

    def __init__(self, writer: str, number: int, database: str | None) -> None:
        self._writer = writer
        # The database that the Decision was read from: it may be a replica.
        self._database = database
        self._number = number
        self.position = 0
        self._ahead: deque[SnapshotPart] = deque()
        self._rebuilt = Rebuilt(self._base())

    def _base(self) -> list[bytes]:
        found = list(self._parts.filter(position=0).order_by("part"))
        if not found or found[-1].parts != len(found):
            message = "the Snapshot that the Decision was made on is not there: pruned, not stored yet, or without room in the spool"
            raise ReplayError(message)
        return [decompress(bytes(row.data)) for row in found]

    @property
    def _parts(self) -> QuerySet[SnapshotPart]:
        return SnapshotPart.objects.using(self._database).filter(writer=self._writer, chain=self._number)

    def go_to(self, position: int) -> Snapshot:
        """Apply the changes up to a position."""
        while self.position < position:
            row = self._next()
            if row is None or row.position != self.position + 1:
                break
            change = decode_change(decompress(bytes(row.data)))
            number = change.names_number
            self._rebuilt.apply(change, recorded_names(self._writer, number, self._database) if number else None)
            self.position = row.position
        if self.position != position:
            message = f"change {self.position + 1} of Snapshot chain {self._number} is missing"
            raise ReplayError(message)
        return self._rebuilt.snapshot

    @property
    def masked(self) -> set[str]:
        """The masked names in the Snapshots up to here."""
        return self._rebuilt.masked

    def _next(self) -> SnapshotPart | None:
        """Return the next change. Many are read at once: a caller that needs one will need the next ones too."""
        if not self._ahead:
            self._ahead.extend(self._parts.filter(position__gt=self.position).order_by("position")[:_READ_AHEAD])
        return self._ahead.popleft() if self._ahead else None


class Snapshots:
    """Snapshots of recorded Decisions. A later Snapshot of the same chain costs only the changes in between."""

    def __init__(self) -> None:
        self._chains: dict[tuple[str, int], _Chain] = {}

    def of(self, decision: Decision, body: Body | None = None) -> Snapshot:
        """Return what a Decision was made on, with the Pods that were assumed.

        Raises:
            ReplayError: it is not there (any more), or can't be read.
        """
        body = body or recorded_body_of(decision)
        if not decision.chain:
            message = "the Decision refers to no Snapshot"
            raise ReplayError(message)
        try:
            snapshot = self._chain(decision).go_to(decision.position)
            if body.assumed:
                assumed = [(Pod.from_json(msgspec.json.decode(pod)), name) for pod, name in body.assumed]
                snapshot = snapshot.assume_all(assumed)
        except (msgspec.DecodeError, ObjectError, KeyError, ValueError) as error:
            message = f"the Snapshot can't be read: {error}"
            raise ReplayError(message) from error
        return snapshot

    def masked_of(self, decision: Decision) -> set[str]:
        """Return the masked names in the Snapshot that `of` returned."""
        return self._chain(decision).masked

    def _chain(self, decision: Decision) -> _Chain:
        key = (decision.process, decision.chain)
        chain = self._chains.pop(key, None)
        if chain is None or chain.position > decision.position:
            chain = _Chain(*key, decision._state.db)  # noqa: SLF001 - documented
        self._chains[key] = chain
        while len(self._chains) > _MOST_KEPT:
            del self._chains[next(iter(self._chains))]
        return chain


def recorded_names(writer: str, number: int, database: str | None) -> list[str]:
    """Return names of nodes, in the Snapshot's order.

    Raises:
        ReplayError: the names are missing, or can't be read.
    """
    row = NodeNamesRow.objects.using(database).filter(writer=writer, number=number).first()
    if row is None:
        message = f"the names of nodes, number {number}, are missing"
        raise ReplayError(message)
    try:
        return msgspec.json.decode(decompress(bytes(row.data)), type=list[str])
    except (msgspec.DecodeError, ValueError) as error:
        message = f"the names of nodes, number {number}, can't be read: {error}"
        raise ReplayError(message) from error


def recorded_body_of(decision: Decision) -> Body:
    """Return a Decision's body.

    Raises:
        ReplayError: the body can't be read, or was pruned.
    """
    if not decision.body:
        raise ReplayError(PRUNED)
    try:
        return read_body(bytes(decision.body))
    except ValueError as error:
        raise ReplayError(str(error)) from error


def pod_of(body: Body) -> Pod:
    """Return the Decision's Pod.

    Raises:
        ReplayError: the Pod can't be read.
    """
    try:
        return Pod.from_json(msgspec.json.decode(body.pod))
    except (msgspec.DecodeError, ObjectError) as error:
        message = f"the Pod can't be read: {error}"
        raise ReplayError(message) from error
