"""Maps the full nodes of bodies to the live Snapshot: nearly always, each is the same version that the watch has shown.

So a node's text, once read, maps to a row of the table, as long as neither changes. Only when a body has a different
version of a node than the watch does its node replace the live one, and stays there until something changes.
"""

from collections.abc import Iterator, Sequence
from threading import Lock
from typing import overload

import numpy as np
import numpy.typing as npt

from policies.engine.objects.lineage import names_between
from policies.engine.objects.metadata import is_later_version
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Rows
from scheduler.extender.request.node_bytes import SentNodes
from scheduler.extender.request.objects import NodeCache

_UNKNOWN = -1


class NamesOfRows(Sequence[str]):
    """The names of a table's rows, each looked up on access."""

    def __init__(self, names: Sequence[str], rows: Rows) -> None:
        self._names = names
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, position: int) -> str: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[str]: ...
    def __getitem__(self, position: int | slice) -> str | Sequence[str]:
        """Return the name at a position, or the names of a slice."""
        if isinstance(position, slice):
            return NamesOfRows(self._names, self._rows[position])
        return self._names[int(self._rows[position])]

    def at(self, positions: npt.NDArray[np.intp]) -> Iterator[str]:
        """Return the names at some positions."""
        return map(self._names.__getitem__, self._rows[positions].tolist())

    def __iter__(self) -> Iterator[str]:
        """Return the names in order."""
        return map(self._names.__getitem__, self._rows.tolist())


def at(names: Sequence[str], positions: npt.NDArray[np.intp]) -> list[str]:
    """Return the names at some positions."""
    if isinstance(names, NamesOfRows):
        return list(names.at(positions))
    return list(map(names.__getitem__, positions.tolist()))


class FullNodes:
    """Places the nodes of bodies on the live Snapshot. Threads may share it."""

    def __init__(self) -> None:
        self._cache = NodeCache()
        self._lock = Lock()
        # The Snapshot with the nodes of bodies in it: the live one itself while none of them differs.
        self._live = self._snapshot = Snapshot({})
        # Nodes of bodies that replace the live ones, or that the watch doesn't know.
        self._strange: set[str] = set()
        # The strange nodes that aren't newer: the live one is restored when a body comes without the node.
        self._passing: set[str] = set()
        self._texts: list[bytes] = []
        # By the number of a text: the row of its node.
        self._row_of: Rows = np.empty(0, dtype=np.intp)
        # By row: the number of the text of its node. The last entry belongs to no row: an unknown row (-1) finds it.
        self._number_at: Rows = np.full(1, _UNKNOWN, dtype=np.intp)

    def on(self, live: Snapshot, sent: SentNodes, *, anew: bool = True) -> tuple[Snapshot, Sequence[str], Rows]:
        """Return the Snapshot of the sent nodes and all other known ones, the names sent, and their rows.

        For a node that wasn't sent, the newest known version counts, whether from the watch or from a body.

        Args:
            live: the Snapshot from the watch.
            sent: the nodes of the body.
            anew: whether a Pod's cycle begins. When one continues, nodes that were refused meanwhile stay as they were sent.

        Raises:
            WireError: an item isn't a Node.
        """
        with self._lock:
            self._turn_to(sent.texts)
            self._follow(live)
            rows = self._row_of[sent.numbers]
            positions = np.flatnonzero(self._number_at[rows] != sent.numbers)
            unasked = self._unasked(rows) if anew and self._passing else set()
            if len(positions) or unasked:
                self._put(live, sent, positions, unasked)
                rows = self._row_of[sent.numbers]
            return self._snapshot, NamesOfRows(self._snapshot.table.names, rows), rows

    def names(self, sent: SentNodes) -> list[str]:
        """Return only the names of a body's nodes.

        Raises:
            WireError: an item isn't a Node.
        """
        with self._lock:
            return [node.name for node in self._cache.read(sent.at())]

    def _put(self, live: Snapshot, sent: SentNodes, positions: npt.NDArray[np.intp], unasked: set[str]) -> None:
        """Put the nodes at these positions into the Snapshot, and restore the live version of those in `unasked`."""
        numbers = sent.numbers[positions]
        texts = list(map(self._texts.__getitem__, numbers.tolist()))
        # Before anything is forgotten: it fails where an item isn't a Node.
        nodes = [self._cache.read_one(text, at) for text, at in zip(texts, positions.tolist(), strict=True)]
        changes = {name: live.node(name) for name in unasked}
        self._strange -= unasked
        self._passing -= unasked
        self._number_at[self._snapshot.table.rows(unasked)] = _UNKNOWN
        changes |= {node.name: self._placed(node, text, live) for node, text in zip(nodes, texts, strict=True)}
        if not self._change(live, changes):
            # The rows have changed: all sent nodes are looked up again.
            numbers, nodes = sent.numbers, self._cache.read(sent.at())
        places = self._snapshot.table.rows(node.name for node in nodes)
        self._row_of[numbers] = places
        self._number_at[places] = numbers

    def _unasked(self, rows: Rows) -> set[str]:
        """Return the passing nodes that this body didn't send."""
        names = self._snapshot.table.names
        return self._passing.difference(map(names.__getitem__, rows[rows >= 0].tolist()))

    def _placed(self, node: Node, text: bytes, live: Snapshot) -> NodeInfo:
        """Return the NodeInfo to put into the Snapshot for a node."""
        known = live.node(node.name)
        self._strange.discard(node.name)
        self._passing.discard(node.name)
        if known is not None and is_same_version(node, known.node):
            self._cache.share(text, known.node)
            return known
        self._strange.add(node.name)
        if known is None or not is_newer(node, known.node):
            self._passing.add(node.name)
        return NodeInfo(node) if known is None else known.with_node(node)

    def _change(self, live: Snapshot, changes: dict[str, NodeInfo | None]) -> bool:
        """Put NodeInfos into the Snapshot, None for nodes that are gone; returns whether rows stay what they were."""
        row_of, last = self._snapshot.table.row_of, self._snapshot
        if not self._strange:
            self._snapshot = live
        else:
            changes = {name: info for name, info in changes.items() if last.node(name) is not info}
            # Based on the live Snapshot only for a while: it will be used again, and its columns should stay up to date meanwhile.
            self._snapshot = (
                live.branched(changes)
                if last is live
                else last.changed(changes, live.namespaces, objects=live.objects, nominated=live.nominated)
            )
        if self._snapshot.table.row_of is row_of:
            return True
        self._forget_rows()
        return False

    def _follow(self, live: Snapshot) -> None:
        """Take over which nodes have changed."""
        last, self._live = self._live, live
        if live is last:
            return
        moved = names_between(last.step, live.step)
        if moved is None or (live.objects is None and last.objects is not None):
            self._snapshot = live
            self._strange.clear()
            self._passing.clear()
            self._forget_rows()
            return
        self._number_at[self._snapshot.table.rows(moved)] = _UNKNOWN
        self._strange -= moved
        self._passing -= moved
        # Sorted: new nodes stand in the same order in every process.
        self._change(live, {name: live.node(name) for name in sorted(moved)})

    def _forget_rows(self) -> None:
        self._number_at = np.full(len(self._snapshot.table) + 1, _UNKNOWN, dtype=np.intp)
        self._row_of.fill(_UNKNOWN)

    def _turn_to(self, texts: list[bytes]) -> None:
        """Reserve an entry for each text."""
        if texts is not self._texts:
            self._texts = texts
            self._row_of = np.full(len(texts), _UNKNOWN, dtype=np.intp)
            self._number_at.fill(_UNKNOWN)
        elif len(texts) > len(self._row_of):
            grown = np.full(2 * len(texts), _UNKNOWN, dtype=np.intp)
            grown[: len(self._row_of)] = self._row_of
            self._row_of = grown


def is_same_version(one: Node, other: Node) -> bool:
    """Return whether both are the same version of a node: the API server gives each change of an object its own number."""
    first, second = one.metadata, other.metadata
    numbered = first.resource_version and (first.uid, first.resource_version) == (second.uid, second.resource_version)
    return one is other or bool(numbered)


def is_newer(one: Node, other: Node) -> bool:
    """Return whether the first is known to be the later version: Kubernetes orders the versions of a kind as numbers.

    Its documentation says so since v1.35; an API server on etcd never did otherwise.
    """
    first, second = one.metadata, other.metadata
    return first.uid == second.uid and bool(is_later_version(first.resource_version, second.resource_version))
