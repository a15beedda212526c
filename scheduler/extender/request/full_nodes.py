"""Full nodes of bodies on the live Snapshot: nearly always each is the very version that the watch has shown.

So a node's text, once read, stands for a row of the live table, as long as neither changes. Only where a body knows
another version of a node than the watch are its own nodes put in place of the live ones.
"""

from collections.abc import Iterator, Sequence
from itertools import repeat
from threading import Lock
from typing import overload

import numpy as np
import numpy.typing as npt

from policies.engine.objects.lineage import names_between
from policies.engine.objects.snapshot import Overlay, Snapshot, is_same_version
from policies.engine.objects.table import Rows
from scheduler.decisions.record import rows_of
from scheduler.extender.request.node_bytes import SentNodes
from scheduler.extender.request.objects import NodeCache

_UNKNOWN = -1


class NamesOfRows(Sequence[str]):
    """The names of rows of a table, each looked up when it is asked for."""

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
        """Return the name at a position, or the names of a part."""
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
        self._overlay = Overlay()
        self._lock = Lock()
        self._live = Snapshot({})
        self._texts: list[bytes] = []
        # By the number of a text; negative where it isn't known to be the live version of a node.
        self._row_of: npt.NDArray[np.intp] = np.empty(0, dtype=np.intp)
        # By the row of the table.
        self._number_of: npt.NDArray[np.intp] = np.empty(0, dtype=np.intp)

    def on(self, live: Snapshot, sent: SentNodes) -> tuple[Snapshot, Sequence[str], Rows]:
        """Return the Snapshot of these nodes and the other ones known, the names sent, and their rows.

        Raises:
            WireError: one isn't a Node.
        """
        with self._lock:
            rows = self._rows(live, sent)
            if not len(rows) or rows.min() >= 0:
                return live, NamesOfRows(live.table.names, rows), rows
            nodes = self._cache.read(sent.at())
            snapshot = self._overlay.over(live, nodes)
        names = [node.name for node in nodes]
        return snapshot, names, rows_of(snapshot.table, names)

    def names(self, sent: SentNodes) -> list[str]:
        """Return the names of a body's nodes alone.

        Raises:
            WireError: one isn't a Node.
        """
        with self._lock:
            return [node.name for node in self._cache.read(sent.at())]

    def _rows(self, live: Snapshot, sent: SentNodes) -> Rows:
        self._follow(live)
        self._turn_to(sent.texts)
        rows = self._row_of[sent.numbers]
        for position in np.flatnonzero(rows < 0).tolist():
            number = int(sent.numbers[position])
            rows[position] = self._find(live, number, position)
        return rows

    def _find(self, live: Snapshot, number: int, position: int) -> int:
        node = self._cache.read_one(self._texts[number], position)
        row = live.table.row_of.get(node.name, _UNKNOWN)
        if row == _UNKNOWN or not is_same_version(node, live.table.infos[row].node):
            return _UNKNOWN
        self._row_of[number], self._number_of[row] = row, number
        return row

    def _follow(self, live: Snapshot) -> None:
        """Forget what was known of nodes that have changed."""
        last, self._live = self._live, live
        if live is last:
            return
        moved = names_between(last.step, live.step) if last.table.row_of is live.table.row_of else None
        if moved is None:
            self._number_of = np.full(len(live.table.names), _UNKNOWN, dtype=np.intp)
            self._row_of.fill(_UNKNOWN)
            return
        rows = np.fromiter(map(live.table.row_of.get, moved, repeat(_UNKNOWN)), dtype=np.intp, count=len(moved))
        numbers = self._number_of[rows[rows >= 0]]
        self._row_of[numbers[numbers >= 0]] = _UNKNOWN

    def _turn_to(self, texts: list[bytes]) -> None:
        """Make a place for each text."""
        if texts is not self._texts:
            self._texts = texts
            self._row_of = np.full(len(texts), _UNKNOWN, dtype=np.intp)
            self._number_of.fill(_UNKNOWN)
        elif len(texts) > len(self._row_of):
            grown = np.full(2 * len(texts), _UNKNOWN, dtype=np.intp)
            grown[: len(self._row_of)] = self._row_of
            self._row_of = grown
