"""Shared code of the history's tests: a stream in memory, and a history that needs neither Redis nor threads."""

from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from scheduler.decisions.facts import facts_in
from scheduler.decisions.ingest import ingest
from scheduler.decisions.masking import NO_MASKS, Masks
from scheduler.decisions.node_names import NodeNames
from scheduler.decisions.record import Best, Encoded, Entry, Outcome, compressed, make_compressor, payload_of, split
from scheduler.decisions.recorder import Recorder
from scheduler.decisions.shipping import Shipper
from scheduler.decisions.spool import Spool
from scheduler.decisions.stream import Answer, Arrived, Shipment, StreamError, Wanted
from scheduler.models import Decision
from scheduler.models import NodeNames as NodeNamesRow

PLENTY = 1 << 30


def outcome_of(name: str, node: str, at: datetime, **more: Any) -> Outcome:
    """Return the outcome that a Pod was bound to a node, with other fields from `more`."""
    return Outcome(pod_uid=f"uid-{name}", pod_namespace="default", pod_name=name, node_name=node, at=at, **more)


class Prepared(Entry, kw_only=True):
    """An entry with a body and best nodes that the test chooses."""

    body: bytes | None = None
    best_nodes: Best | None = None

    def encode(self, masks: Masks = NO_MASKS) -> Encoded:
        body = super().encode(masks).body if self.body is None else self.body
        return Encoded(self._head(), body, best_nodes=self.best_nodes)


class MemoryStream:
    """Replaces Redis: keeps appended entries, can be unavailable, and can lose its entries."""

    def __init__(self) -> None:
        self.entries: OrderedDict[bytes, Shipment | dict[bytes, bytes]] = OrderedDict()
        self.shipped: dict[str, int] = {}
        self.wanted: dict[str, Wanted] = {}
        self.policy = "noeviction"
        self.away = False
        self._last = 0

    def _check(self) -> None:
        if self.away:
            raise StreamError("connection refused")

    def append(self, writer: str, shipments: Sequence[Shipment], following: int) -> Answer:
        self._check()
        before = Answer(self.shipped.get(writer), len(self.entries))
        for shipment in shipments:
            self._last += 1
            self.entries[b"%d-0" % self._last] = shipment
        if shipments:
            self.shipped[writer] = following
        return before

    def take_wanted(self, writer: str) -> Wanted | None:
        self._check()
        return self.wanted.pop(writer, None)

    def set_shipped(self, writer: str, sequence: int) -> None:
        self._check()
        self.shipped[writer] = sequence

    def forget(self, writer: str) -> None:
        self._check()
        self.shipped.pop(writer, None)

    def read(self, count: int) -> list[Arrived]:
        self._check()
        first = list(self.entries.items())[:count]
        return [
            Arrived(entry_id, found, {}) if isinstance(found, Shipment) else Arrived(entry_id, None, found)
            for entry_id, found in first
        ]

    def finish(self, ids: Sequence[bytes], wanted: dict[str, Wanted] | None = None) -> None:
        self._check()
        for entry_id in ids:
            self.entries.pop(entry_id, None)
        self.wanted |= wanted or {}

    def length(self) -> int:
        self._check()
        return len(self.entries)

    def is_nearly_full(self) -> bool:
        self._check()
        return False

    def eviction_policy(self) -> str:
        self._check()
        return self.policy

    def wipe(self) -> None:
        """Lose all entries, as with FLUSHALL."""
        self.entries.clear()
        self.shipped.clear()
        self.wanted.clear()


class History:
    """A recorder whose spool is shipped and ingested by `settle`. The component tests' conftest closes it after its test."""

    opened: ClassVar[list["History"]] = []

    def __init__(self, root: Path, writer: str = "extender@test", **settings: Any) -> None:
        self.stream: Any = MemoryStream()
        self.recorder = Recorder(
            root=root, writer=writer, stream=self.stream, **{"max_bytes": PLENTY, "when_full": "lose"} | settings
        )
        self.recorder.spool.open()
        self.opened.append(self)

    @property
    def spool(self) -> Spool:
        return self.recorder.spool

    @property
    def shipper(self) -> Shipper:
        return self.recorder.shipper

    def ship(self) -> None:
        """Ship the whole spool."""
        self.recorder._journal.join(60)
        while self.shipper.step():
            pass

    def settle(self) -> None:
        """Store all recorded entries in the database."""
        self.ship()
        while self.stream.entries:
            ingest(self.stream)
            self.shipper._asked_at = -1e9
            self.ship()

    def die(self) -> None:
        """End like a killed process: nothing more is written, and its lock is free."""
        lock = self.spool._file_lock
        assert lock is not None
        lock.close()


def row_of(entry: Entry, *, process: str = "p", sequence: int = 1, **fields: Any) -> Decision:
    """Store an entry as the ingest does, without a Snapshot; returns its row."""
    encoded = entry.encode()
    encoded.head.sequence = sequence
    if encoded.names is not None:
        encoded.head.names_number = _number_of(encoded.names, process)
    payload = b"".join(payload_of(encoded.head.encode(), encoded.body))
    read, body = split(compressed(payload, make_compressor()))
    members = {name: getattr(read, name) for name in read.__struct_fields__} | {"body": body, "process": process}
    members |= msgspec.structs.asdict(facts_in(encoded.body))
    return Decision.objects.create(**(members | fields))


def _number_of(names: NodeNames, process: str) -> int:
    number = NodeNamesRow.objects.filter(writer=process).count() + 1
    data = make_compressor().compress(names.json)
    NodeNamesRow.objects.create(writer=process, number=number, data=data)
    return number
