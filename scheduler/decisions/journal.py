"""The journal of the Snapshots that Decisions were made on, written so that a Snapshot costs only its changes.

A chain begins with a base, a whole Snapshot in parts, and continues with changes; Decisions refer to a place in it.
A change is written only when a Decision needs that Snapshot, before the Decision. Writing the base of a big cluster takes
long, so a thread writes it, compressed, while Decisions go on. When a chain's changes have become larger than its base, a new
base is written in the same way, and used once it is complete: a replay reads a base and at most as much again.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec

from policies.engine.objects.lineage import names_between
from policies.engine.objects.snapshot import Snapshot
from scheduler.decisions.frames import Kind
from scheduler.decisions.masking import NO_MASKS, Masks
from scheduler.decisions.node_names import NodeNames, names_of
from scheduler.decisions.record import make_compressor
from scheduler.decisions.snapshots import change_between, encode_change, is_empty, whole
from scheduler.decisions.spool import Payload, SpoolFullError

logger = logging.getLogger("berth.decisions")

PART_BYTES = 256 << 10
# The bytes of changes that a chain may always have, however small its base is.
SHORTEST_CHAIN_BYTES = 8 << 20

# The live Snapshot's chain, and the one for Snapshots with nodes of full request bodies.
_MOST_CHAINS = 2
_MOST_NAMES = 8
# If more nodes than this changed, and more than half, a new base is written: a request doesn't wait for that.
_MANY = 500
# How long Decisions are recorded without a Snapshot after there was no room for its base, before the next attempt.
_AGAIN_SECONDS = 10.0
# The share of the spool's room that a base may use: Decisions come first.
_SHARE = 0.8


class Place(msgspec.Struct, frozen=True):
    """A place in the journal: the number of a chain, and how many changes follow its base. Chain 0: nowhere."""

    chain: int = 0
    position: int = 0


class PartHead(msgspec.Struct, array_like=True):
    """The head of a BASE or DELTA: its place. `parts` is 0 except in the last part of a base."""

    chain: int
    position: int
    part: int = 0
    parts: int = 0


class NamesHead(msgspec.Struct, array_like=True):
    """The head of NAMES."""

    number: int


class Chain:
    """A chain that is being written."""

    def __init__(self, number: int, base: Snapshot) -> None:
        self.number = number
        self.last = base
        self.position = 0
        self.base_bytes = 0
        self.change_bytes = 0
        # Set once the base is written, or has failed.
        self.written = threading.Event()
        self.failed = False
        self.begun = time.monotonic()
        self.next: Chain | None = None


class Journal:
    """Writes the journal of one process. `place_of` and `number_of` are for one thread at a time.

    Args:
        append: writes frames to the spool, all or none; raises SpoolFullError.
        masks: replaces masked values.
    """

    def __init__(self, append: Callable[[Sequence[Payload], float], None], masks: Masks = NO_MASKS) -> None:
        self._append = append
        self._masks = masks
        self._chains: OrderedDict[object, Chain] = OrderedDict()
        self._names: OrderedDict[NodeNames, int] = OrderedDict()
        self._last_chain = 0
        self._last_names = 0
        self._threads: list[threading.Thread] = []

    def number_of(self, names: NodeNames, payloads: list[Payload]) -> int:
        """Return the number of these names; payloads that must be written first are appended to `payloads`."""
        known = self._names.get(names)
        if known is None:
            known = self._last_names = self._last_names + 1
            self._names[names] = known
            payloads.append((Kind.NAMES, headed(NamesHead(known), names.json)))
            while len(self._names) > _MOST_NAMES:
                self._names.popitem(last=False)
        return known

    def place_of(self, snapshot: Snapshot, payloads: list[Payload]) -> tuple[Place, Chain]:
        """Return the place of a Snapshot; payloads that must be written first are appended to `payloads`.

        Returns:
            The place, and its chain: the base of a new one may not be written yet, see `Chain.written`.
        """
        chain = self._chain_of(snapshot)
        if chain.last is not snapshot and not self._follow(chain, snapshot, payloads):
            chain = self._begin(snapshot)
        if chain.next is None and chain.change_bytes > max(chain.base_bytes, SHORTEST_CHAIN_BYTES):
            chain.next = self._start(snapshot, _give_way)
        return (Place() if chain.failed else Place(chain.number, chain.position)), chain

    def forget(self) -> None:
        """Start new chains: the last payloads could not be written."""
        self._chains.clear()
        self._names.clear()

    def join(self, timeout_seconds: float) -> None:
        """Wait for the bases that are being written."""
        for thread in self._threads:
            thread.join(timeout_seconds)

    def _chain_of(self, snapshot: Snapshot) -> Chain:
        """Return the chain of the Snapshot's tree, or its successor once that is ready; begin a chain if there is none."""
        root = snapshot.step.root
        chain = self._chains.get(root)
        if chain is None or (chain.failed and time.monotonic() - chain.begun > _AGAIN_SECONDS):
            return self._begin(snapshot)
        if chain.next is not None and chain.next.written.is_set():
            following = chain.next
            chain.next = None
            if following.failed:
                chain.change_bytes = 0  # the next attempt is made after as many changes again
            else:
                chain = following
                self._chains[root] = chain
        self._chains.move_to_end(root)
        return chain

    def _begin(self, snapshot: Snapshot) -> Chain:
        chain = self._chains[snapshot.step.root] = self._start(snapshot)
        self._chains.move_to_end(snapshot.step.root)
        while len(self._chains) > _MOST_CHAINS:
            self._chains.popitem(last=False)
        return chain

    def _start(self, snapshot: Snapshot, between: Callable[[], None] = lambda: None) -> Chain:
        self._last_chain += 1
        chain = Chain(self._last_chain, snapshot)
        thread = threading.Thread(
            target=self._write_base, args=(chain, snapshot, between), name="berth-journal", daemon=True
        )
        self._threads = [*(other for other in self._threads if other.is_alive()), thread]
        thread.start()
        return chain

    def _follow(self, chain: Chain, snapshot: Snapshot, payloads: list[Payload]) -> bool:
        """Write the Snapshot's difference from the chain's last one; False if a new base is better."""
        names = names_between(chain.last.step, snapshot.step)
        if names is None:
            names = _differing(chain.last, snapshot)
        if len(names) > _MANY and len(names) > len(snapshot.table) // 2:
            return False
        change = change_between(chain.last, snapshot, sorted(names), self._masks)
        if snapshot.table.row_of is not chain.last.table.row_of:
            change.names_number = self.number_of(names_of(snapshot.table), payloads)
        if not is_empty(change) or change.names_number:
            chain.position += 1
            parts = headed(PartHead(chain.number, chain.position), encode_change(change))
            chain.change_bytes += len(parts[-1])
            payloads.append((Kind.DELTA, parts))
        chain.last = snapshot
        return True

    def _write_base(self, chain: Chain, snapshot: Snapshot, between: Callable[[], None]) -> None:
        try:
            number = 0
            held: bytes | None = None
            compressor = make_compressor()
            for part in whole(snapshot, PART_BYTES, between, self._masks):
                chain.base_bytes += len(part)
                if held is not None:
                    self._append_part(chain, number, 0, held)
                    number += 1
                held = compressor.compress(part)
            self._append_part(chain, number, number + 1, held or b"")
        except SpoolFullError as error:
            chain.failed = True
            logger.warning("a Snapshot can't be written, Decisions on it can't be replayed: %s", error)
        except Exception:
            # Without memory, for instance: otherwise all later Decisions would refer to a base that never comes.
            chain.failed = True
            logger.exception("a Snapshot can't be written, Decisions on it can't be replayed")
        finally:
            chain.written.set()

    def _append_part(self, chain: Chain, number: int, parts: int, data: bytes) -> None:
        self._append([(Kind.BASE, headed(PartHead(chain.number, 0, number, parts), data))], _SHARE)


def _give_way() -> None:
    """Let requests go first: otherwise they would wait for the interpreter lock while a big cluster is written."""
    time.sleep(0.0005)


def _differing(before: Snapshot, after: Snapshot) -> set[str]:
    """Compare the Snapshots themselves."""
    gone = before.nodes.keys() - after.nodes.keys()
    return gone | {name for name, info in after.nodes.items() if before.nodes.get(name) is not info}


_encode = msgspec.msgpack.Encoder().encode


def headed(head: msgspec.Struct, data: bytes) -> list[bytes]:
    """Put a head before data: one byte with the head's length, the head, the data."""
    encoded = _encode(head)
    return [bytes([len(encoded)]), encoded, data]


def split_headed(payload: bytes) -> tuple[bytes, bytes]:
    """Return the encoded head, and the data after it."""
    start = 1 + payload[0]
    return payload[1:start], payload[start:]
