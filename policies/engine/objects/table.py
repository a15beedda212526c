"""Nodes as columns: what a rule reads of every node, kept as one array, and carried on from Snapshot to Snapshot.

A rule asks for a column by a key and by how one value is read. The first time that is read from every node; when a
Snapshot differs from the one before in a few nodes, only their values are read again. So deciding on 5,000 nodes is a
few operations over arrays.
"""

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from policies.engine.objects.images import Images
from policies.engine.objects.node import NodeInfo
from policies.engine.objects.patched import Patched
from policies.engine.objects.placed import Placed
from policies.engine.objects.sparse import Read, Sparse

# Positions of nodes in a Table.
Rows = npt.NDArray[np.intp]

Numbers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

# Columns by labels of Pods come and go with apps; beyond this the ones used longest ago are given up.
_MAX_COLUMNS = 1024

# Changes that a column may be behind before it is given up: then nobody asks for it any more.
_MAX_STEPS = 512


class Coded(NamedTuple):
    """A column of values of any kind: `values` holds each distinct one once, `codes` says which stands in each row.

    `code_of` maps a value's token to its code.
    """

    codes: Codes
    values: list[object]
    code_of: Mapping[Hashable, int]


class _Coding:
    """Gives each distinct token a code. Shared by a Table and those that follow from it; it only grows."""

    def __init__(self) -> None:
        self.by_token: dict[Hashable, int] = {}
        self.values: list[object] = []

    def code(self, token: Hashable, value: object) -> int:
        known = self.by_token.get(token)
        if known is None:
            known = self.by_token[token] = len(self.values)
            self.values.append(value)
        return known


class _Column(Protocol):
    """A kind of column: how its content is made, and made anew for a few rows."""

    def make(self, infos: Sequence[NodeInfo]) -> Any:
        """Read all nodes."""

    def renew(self, old: Any, infos: Sequence[NodeInfo], rows: Iterable[int]) -> Any:
        """Read these rows again."""

    def move(self, old: Any, sources: Rows) -> Any:
        """Return the content for other rows, each taken from the old row in `sources`; what -1 gets is read again."""


class _NumberColumn:
    def __init__(self, read: Callable[[NodeInfo], int], first: Callable[[], Numbers] | None) -> None:
        self._read = read
        self._first = first

    def make(self, infos: Sequence[NodeInfo]) -> Numbers:
        if self._first is not None:
            numbers, self._first = self._first(), None  # it holds on to the Table
            return numbers
        return np.fromiter(map(self._read, infos), dtype=np.int64, count=len(infos))

    def renew(self, old: Numbers, infos: Sequence[NodeInfo], rows: Iterable[int]) -> Numbers:
        self._first = None
        new = old.copy()
        for row in rows:
            new[row] = self._read(infos[row])
        return new

    def move(self, old: Numbers, sources: Rows) -> Numbers:
        return old[sources] if len(old) else np.zeros(len(sources), dtype=np.int64)


class _CodedColumn:
    """Reads (token, value) of a node; equal tokens mean equal values."""

    def __init__(self, read: Callable[[NodeInfo], tuple[Hashable, object]]) -> None:
        self._read = read

    def make(self, infos: Sequence[NodeInfo]) -> tuple[Codes, _Coding]:
        coding = _Coding()
        codes = np.fromiter((coding.code(*self._read(info)) for info in infos), dtype=np.int32, count=len(infos))
        return codes, coding

    def renew(
        self, old: tuple[Codes, _Coding], infos: Sequence[NodeInfo], rows: Iterable[int]
    ) -> tuple[Codes, _Coding]:
        codes, coding = old
        if len(coding.values) > 4 * len(infos) + 1024:
            return self.make(infos)  # most of what it knows is gone from the cluster
        codes = codes.copy()
        for row in rows:
            codes[row] = coding.code(*self._read(infos[row]))
        return codes, coding

    def move(self, old: tuple[Codes, _Coding], sources: Rows) -> tuple[Codes, _Coding]:
        codes, coding = old
        return (codes[sources] if len(codes) else np.zeros(len(sources), dtype=np.int32)), coding


class _SparseColumn:
    def __init__(self, read: Read) -> None:
        self._read = read

    def make(self, infos: Sequence[NodeInfo]) -> Sparse:
        return Sparse.of(self._read, infos)

    def renew(self, old: Sparse, infos: Sequence[NodeInfo], rows: Iterable[int]) -> Sparse:
        return old.renewed(self._read, infos, rows)

    def move(self, old: Sparse, sources: Rows) -> Sparse:
        return old.moved(sources.tolist())


class _ImageColumn:
    def make(self, infos: Sequence[NodeInfo]) -> Images:
        return Images.of(infos)

    def renew(self, old: Images, infos: Sequence[NodeInfo], rows: Iterable[int]) -> Images:
        return old.renewed(infos, rows)

    def move(self, old: Images, sources: Rows) -> Images:
        return old.moved(sources.tolist())


class _PlacedColumn:
    def make(self, infos: Sequence[NodeInfo]) -> Placed:
        return Placed.of(infos)

    def renew(self, old: Placed, infos: Sequence[NodeInfo], rows: Iterable[int]) -> Placed:
        return old.renewed(infos, rows)

    def move(self, old: Placed, sources: Rows) -> Placed:
        return old.moved(sources.tolist())


class _Step:
    """One change of a few rows. Tables that follow from one another are a chain of steps."""

    __slots__ = ("before", "number", "rows")

    def __init__(self, number: int, rows: frozenset[int], before: "_Step | None") -> None:
        self.number = number
        self.rows = rows
        self.before = before


class Beside(NamedTuple):
    """Something that never changes and that is read beside the nodes, and which rows differ with another state of it.

    `rows_since` is given the Table, the earlier state and this one; None means that it may be any.
    """

    state: Any
    rows_since: Callable[["Table", Any, Any], Iterable[int] | None]


class _Kept(NamedTuple):
    """A column's content, the last step that it knows of, what was read beside, and rows outdated even then."""

    column: _Column
    content: Any
    step: _Step
    beside: Any = None
    outdated: frozenset[int] = frozenset()


class Table:
    """The nodes of a Snapshot in order, and the columns that rules have asked for so far. Never changes for readers."""

    def __init__(self, infos: Sequence[NodeInfo]) -> None:
        self.infos = Patched(infos)
        self.names = [info.name for info in infos]
        self.row_of = {name: row for row, name in enumerate(self.names)}
        self._all_rows = np.arange(len(infos), dtype=np.intp)
        self._all_rows.flags.writeable = False
        self._kept: dict[Hashable, _Kept] = {}
        self._lock = threading.RLock()
        self._step = _Step(0, frozenset(), None)

    def __len__(self) -> int:
        return len(self.infos)

    def changed(self, changes: Mapping[int, NodeInfo]) -> "Table":
        """Return the Table in which these rows hold other NodeInfos of the same nodes."""
        table = object.__new__(Table)
        table.infos = self.infos.changed(changes)
        table.names = self.names
        table.row_of = self.row_of
        table._all_rows = self._all_rows
        table._lock = self._lock
        table._step = _Step(self._step.number + 1, frozenset(changes), self._step)
        with self._lock:
            table._kept = dict(self._kept)
        if table._step.number >= 2 * _MAX_STEPS:
            table._forget()
        return table

    def rearranged(self, infos: Sequence[NodeInfo]) -> "Table":
        """Return the Table of other nodes. Columns are carried on for the nodes that are in both."""
        table = Table(infos)
        sources = self.rows(info.name for info in infos)
        outdated = [row for row, old in enumerate(sources.tolist()) if old < 0 or self.infos[old] is not infos[row]]
        if len(outdated) > len(infos) // 2:
            return table
        before = table._step
        table._step = _Step(1, frozenset(outdated), before)
        new_row = {old: new for new, old in enumerate(sources.tolist()) if old >= 0}
        with self._lock:
            kept = [(key, found) for key, found in self._kept.items() if self._is_near(found)]
        for key, found in kept:
            rows = frozenset(new_row[row] for row in self._outdated(found) if row in new_row)
            table._kept[key] = found._replace(
                content=found.column.move(found.content, sources), step=before, outdated=rows
            )
        return table

    def _is_near(self, kept: _Kept) -> bool:
        return self._step.number - kept.step.number <= _MAX_STEPS

    def _current(self, kept: _Kept, column: _Column, beside: Beside | None) -> _Kept | None:
        """Return a column as of now, or None when it is too far behind to be worth it."""
        if not self._is_near(kept):
            return None
        outdated = self._outdated(kept)
        state = beside.state if beside is not None else None
        if beside is not None and state is not kept.beside:
            more = beside.rows_since(self, kept.beside, state)
            if more is None:
                return None
            outdated |= frozenset(more)
        content = column.renew(kept.content, self.infos, outdated) if outdated else kept.content
        return _Kept(column, content, self._step, state)

    def _outdated(self, kept: _Kept) -> frozenset[int]:
        return kept.outdated if kept.step is self._step else kept.outdated | self._rows_since(kept.step)

    def _rows_since(self, step: _Step) -> set[int]:
        rows: set[int] = set()
        at: _Step | None = self._step
        while at is not None and at is not step:
            rows |= at.rows
            at = at.before
        return rows

    def _forget(self) -> None:
        """Drop columns that are far behind, and the part of the chain that only they need."""
        oldest = self._step.number - _MAX_STEPS
        self._kept = {key: kept for key, kept in self._kept.items() if kept.step.number > oldest}
        steps = [self._step]
        while steps[-1].before is not None and steps[-1].before.number > oldest:
            steps.append(steps[-1].before)
        renumbered: dict[int, _Step] = {}
        before: _Step | None = None
        for number, step in enumerate(reversed(steps)):
            before = self._step = renumbered[id(step)] = _Step(number, step.rows, before)
        self._kept = {key: kept._replace(step=renumbered[id(kept.step)]) for key, kept in self._kept.items()}

    def rows(self, names: Iterable[str]) -> Rows:
        """Return the rows of nodes by name, in this order; -1 for a name that isn't there."""
        return np.fromiter(map(self.row_of.get, names, repeat(-1)), dtype=np.intp)

    def all_rows(self) -> Rows:
        """Return all rows, each time the same array, which can't be written to."""
        return self._all_rows

    def numbers(
        self,
        key: Hashable,
        read: Callable[[NodeInfo], int],
        *,
        first: Callable[[], Numbers] | None = None,
        beside: Beside | None = None,
    ) -> Numbers:
        """Return a column of whole numbers (64 bits). Don't write to it.

        Args:
            key: names the column; the same key always comes with the same way of reading.
            read: gives the number of one node.
            first: gives the numbers of all nodes of this Table, where there is a faster way than reading each.
            beside: what `read` looks at besides the node.
        """
        numbers: Numbers = self._column(key, lambda: _NumberColumn(read, first), beside)
        return numbers

    def coded(self, key: Hashable, read: Callable[[NodeInfo], tuple[Hashable, object]]) -> Coded:
        """Return a column of values of any kind. Don't write to it.

        Args:
            key: names the column; the same key always comes with the same way of reading.
            read: gives a hashable token and the value of one node; equal tokens mean equal values.
        """
        codes, coding = self._column(key, lambda: _CodedColumn(read))
        return Coded(codes, coding.values, coding.by_token)

    def sparse(self, key: Hashable, read: Read) -> Sparse:
        """Return where each of many tokens is found.

        Args:
            key: names the column; the same key always comes with the same way of reading.
            read: gives the (group, token) pairs of one node.
        """
        sparse: Sparse = self._column(key, lambda: _SparseColumn(read))
        return sparse

    def images(self) -> Images:
        """Return where each image is."""
        images: Images = self._column("images", _ImageColumn)
        return images

    def placed(self) -> Placed:
        """Return which Pod is where."""
        placed: Placed = self._column("placed", _PlacedColumn)
        return placed

    def _column(self, key: Hashable, make: Callable[[], _Column], beside: Beside | None = None) -> Any:
        state = beside.state if beside is not None else None
        kept = self._kept.get(key)
        if kept is not None and kept.step is self._step and kept.beside is state and not kept.outdated:
            return kept.content
        with self._lock:
            kept = self._kept.pop(key, None)
            column = make()
            current = self._current(kept, column, beside) if kept is not None else None
            if current is None:
                current = _Kept(column, column.make(self.infos), self._step, state)
            self._kept[key] = current
            while len(self._kept) > _MAX_COLUMNS:
                del self._kept[next(iter(self._kept))]
            return current.content
