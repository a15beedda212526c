"""Nodes as columns: a value that a rule reads of every node, in one array that is carried from Snapshot to Snapshot.

A rule requests a column with a key and a function that reads one value. The first time it is read from every node. When a
Snapshot differs from the one before in a few nodes, only their values are read again. So a decision over 5,000 nodes is a
few operations on arrays.
"""

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from policies.engine.objects.copy_on_write_list import CopyOnWriteList
from policies.engine.objects.images import Images
from policies.engine.objects.lineage import STEPS_KEPT, Step, names_between
from policies.engine.objects.node import NodeInfo
from policies.engine.objects.placed import Placed
from policies.engine.objects.sparse import Read, Sparse

# Positions of nodes in a Table.
Rows = npt.NDArray[np.intp]

Numbers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

# Columns by labels of Pods come and go with apps; beyond this number the least recently used ones are dropped.
_MAX_COLUMNS = 1024


class Coded(NamedTuple):
    """A column of values of any kind: `values` holds each distinct value once, `codes` says which one each row has.

    `code_of` maps a value's token to its code. Both also have the values of other Tables, and may grow at any moment; `codes` doesn't.
    """

    codes: Codes
    values: list[object]
    code_of: Mapping[Hashable, int]


class _Coding:
    """Assigns a code to each distinct token. Shared by a Table and those that follow from it; it only grows."""

    def __init__(self) -> None:
        self.by_token: dict[Hashable, int] = {}
        self.values: list[object] = []

    def code(self, token: Hashable, value: object) -> int:
        known = self.by_token.get(token)
        if known is None:
            # The value first: another thread may look the code up at any moment.
            known = len(self.values)
            self.values.append(value)
            self.by_token[token] = known
        return known


class _Column(Protocol):
    """A kind of column: how its content is made, and updated for a few rows."""

    def make(self, infos: Sequence[NodeInfo]) -> Any:
        """Read all nodes."""

    def renew(self, old: Any, infos: Sequence[NodeInfo], rows: Iterable[int]) -> Any:
        """Read these rows again."""

    @staticmethod
    def move(old: Any, sources: Rows) -> Any:
        """Return the content for renumbered rows, each taken from the old row in `sources`; rows with -1 are read again."""


class _NumberColumn:
    def __init__(self, read: Callable[[NodeInfo], int], first: Callable[[], Numbers] | None) -> None:
        self._read = read
        self._first = first

    def make(self, infos: Sequence[NodeInfo]) -> Numbers:
        if self._first is not None:
            numbers, self._first = self._first(), None  # it keeps the Table alive
            return numbers
        return np.fromiter(map(self._read, infos), dtype=np.int64, count=len(infos))

    def renew(self, old: Numbers, infos: Sequence[NodeInfo], rows: Iterable[int]) -> Numbers:
        self._first = None
        found = [(row, self._read(infos[row])) for row in rows]
        other = [(row, number) for row, number in found if old[row] != number]
        if not other:
            return old  # most columns don't change with every Pod
        new = old.copy()
        for row, number in other:
            new[row] = number
        return new

    @staticmethod
    def move(old: Numbers, sources: Rows) -> Numbers:
        # -1 takes the last row's number. It is never seen: the log names the new node, so its row is read again first.
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
            return self.make(infos)  # most of its values no longer occur in the cluster
        # The coding is shared with earlier Tables: it only grows, so their codes keep their meaning.
        found = [(row, coding.code(*self._read(infos[row]))) for row in rows]
        other = [(row, code) for row, code in found if codes[row] != code]
        if not other:
            return old  # few Pods that come or go change this column
        codes = codes.copy()
        for row, code in other:
            codes[row] = code
        return codes, coding

    @staticmethod
    def move(old: tuple[Codes, _Coding], sources: Rows) -> tuple[Codes, _Coding]:
        codes, coding = old
        return (codes[sources] if len(codes) else np.zeros(len(sources), dtype=np.int32)), coding


class _SparseColumn:
    def __init__(self, read: Read) -> None:
        self._read = read

    def make(self, infos: Sequence[NodeInfo]) -> Sparse:
        return Sparse.of(self._read, infos)

    def renew(self, old: Sparse, infos: Sequence[NodeInfo], rows: Iterable[int]) -> Sparse:
        return old.renewed(self._read, infos, rows)

    @staticmethod
    def move(old: Sparse, sources: Rows) -> Sparse:
        return old.moved(sources.tolist())


class _ImageColumn:
    def make(self, infos: Sequence[NodeInfo]) -> Images:
        return Images.of(infos)

    def renew(self, old: Images, infos: Sequence[NodeInfo], rows: Iterable[int]) -> Images:
        return old.renewed(infos, rows)

    @staticmethod
    def move(old: Images, sources: Rows) -> Images:
        return old.moved(sources.tolist())


class _PlacedColumn:
    def make(self, infos: Sequence[NodeInfo]) -> Placed:
        return Placed.of(infos)

    def renew(self, old: Placed, infos: Sequence[NodeInfo], rows: Iterable[int]) -> Placed:
        return old.renewed(infos, rows)

    @staticmethod
    def move(old: Placed, sources: Rows) -> Placed:
        return old.moved(sources.tolist())


class Beside(NamedTuple):
    """An immutable input besides the nodes, and which rows differ with another state of it.

    `rows_since` takes the Table, the earlier state and this one; None means that any row may differ.
    """

    state: Any
    rows_since: Callable[["Table", Any, Any], Iterable[int] | None]


class _Kept(NamedTuple):
    """A column's content, the step of the log that it is current for, and the inputs besides the nodes.

    Of the column only its kind is kept: the reading function belongs to a rule, and must not outlive the rule's Revision.
    """

    kind: type[_Column]
    content: Any
    step: Step[str]
    beside: Any


class Table:
    """The nodes of a Snapshot in order, and the columns that rules have asked for so far. Never changes for readers.

    Attributes:
        step: its place in the log of nodes that changed.
    """

    def __init__(self, infos: Sequence[NodeInfo], step: Step[str] | None = None) -> None:
        self.infos = CopyOnWriteList(infos)
        self.step = step if step is not None else Step()
        self.names = [info.name for info in infos]
        self.row_of = {name: row for row, name in enumerate(self.names)}
        self._all_rows = np.arange(len(infos), dtype=np.intp)
        self._all_rows.flags.writeable = False
        self._by_name: tuple[list[str], Rows] | None = None
        self._kept: dict[Hashable, _Kept] = {}
        # Columns that were read from every node; shared with following Tables, which may exist before a column does.
        self._made: dict[Hashable, _Kept] = {}
        self._base: Table | None = None
        # Reentrant: reading a column may request another one. Shared along the chain, as columns are.
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self.infos)

    def changed(self, changes: Mapping[str, NodeInfo | None]) -> "Table":
        """Return the next Table: other NodeInfos under these names, None for a node that was removed.

        New nodes are added at the end. Columns are carried over for the nodes that stay.
        """
        row_of, step = self.row_of, Step(changes, self.step, heartbeats=self._heartbeats(changes))
        if any((info is None) == (name in row_of) for name, info in changes.items()):
            return self._rearranged(changes, step)
        table = object.__new__(Table)
        table.infos = self.infos.changed({row_of[name]: info for name, info in changes.items() if info is not None})
        table.step = step
        table.names, table.row_of = self.names, row_of
        table._all_rows, table._lock = self._all_rows, self._lock
        table._by_name = self._by_name
        table._kept = self._carried(step)
        # Not for ever: each column keeps its step alive, and with it all earlier ones.
        table._made = self._made if step.number % STEPS_KEPT else {}
        table._base = None
        return table

    def _heartbeats(self, changes: Mapping[str, NodeInfo | None]) -> frozenset[str]:
        """Return the nodes that only a heartbeat changed."""
        found = ((self.row_of.get(name), info) for name, info in changes.items() if info is not None)
        return frozenset(info.name for row, info in found if row is not None and info.is_heartbeat_of(self.infos[row]))

    def branched(self, changes: Mapping[str, NodeInfo | None]) -> "Table":
        """Return a temporary next Table, such as for one answer, while others follow this one.

        Outdated columns of this Table are updated first, which serves all others that follow it too. Not where nodes are added
        or removed.
        """
        table = self.changed(changes)
        if table.row_of is self.row_of:
            table._base = self  # noqa: SLF001 - of the same class
        return table

    def _rearranged(self, changes: Mapping[str, NodeInfo | None], step: Step[str]) -> "Table":
        followed: dict[str, NodeInfo | None] = {**dict(zip(self.names, self.infos, strict=True)), **changes}
        table = Table([info for info in followed.values() if info is not None], step)
        if len(changes) <= len(table) // 2:
            # A column stays as outdated as it was: the log names the nodes, wherever their rows are now.
            sources = self.rows(table.names)
            for key, kept in self._carried(step).items():
                table._kept[key] = kept._replace(content=kept.kind.move(kept.content, sources))
        return table

    def _carried(self, step: Step[str]) -> dict[Hashable, _Kept]:
        """Return the columns to carry over; now and then without those that weren't requested for a long time."""
        with self._lock:
            kept = dict(self._kept)
        if step.number % STEPS_KEPT == 0:
            # Each column keeps its step alive, and with it all earlier ones.
            kept = {key: found for key, found in kept.items() if step.number - found.step.number < STEPS_KEPT}
        return kept

    def _current(self, kept: _Kept, column: _Column, beside: Beside | None, *, heartbeats: bool) -> _Kept | None:
        """Return a column brought up to date, or None when the changes since are no longer known.

        `heartbeats`: whether a heartbeat may change it.
        """
        names = names_between(kept.step, self.step, heartbeats=heartbeats)
        if names is None:
            return None
        outdated = {self.row_of[name] for name in names if name in self.row_of}
        state = beside.state if beside is not None else None
        if beside is not None and state is not kept.beside:
            more = beside.rows_since(self, kept.beside, state)
            if more is None:
                return None
            outdated.update(more)
        content = column.renew(kept.content, self.infos, outdated) if outdated else kept.content
        return _Kept(type(column), content, self.step, state)

    def rows(self, names: Iterable[str]) -> Rows:
        """Return the rows of nodes by name, in this order; -1 for an unknown name."""
        return np.fromiter(map(self.row_of.get, names, repeat(-1)), dtype=np.intp)

    def all_rows(self) -> Rows:
        """Return all rows: always the same read-only array."""
        return self._all_rows

    def by_name(self) -> tuple[list[str], Rows]:
        """Return the sorted names, and each row's place among them; this order doesn't depend on which node came first.

        Computed anew where nodes were added or removed. Callers must not write to it.
        """
        if self._by_name is None:
            rows = np.array(sorted(range(len(self.names)), key=self.names.__getitem__), dtype=np.intp)
            places = np.empty_like(rows)
            places[rows] = self._all_rows
            self._by_name = [self.names[row] for row in rows], places
        return self._by_name

    def keeps(self, key: Hashable) -> bool:
        """Return whether a column was read before, so that it costs no more than the changes since."""
        return key in self._kept

    def numbers(
        self,
        key: Hashable,
        read: Callable[[NodeInfo], int],
        *,
        first: Callable[[], Numbers] | None = None,
        beside: Beside | None = None,
    ) -> Numbers:
        """Return a column of whole numbers (64 bits). Callers must not write to it.

        Args:
            key: names the column; the same key always comes with the same way of reading.
            read: returns the number of one node.
            first: returns the numbers of all nodes of this Table, where there is a faster way than reading each.
            beside: the input of `read` besides the node.
        """
        numbers: Numbers = self._column(
            key, lambda table: _NumberColumn(read, first if table is self else None), beside
        )
        return numbers

    def coded(
        self, key: Hashable, read: Callable[[NodeInfo], tuple[Hashable, object]], *, heartbeats: bool = False
    ) -> Coded:
        """Return a column of values of any kind. Callers must not write to it.

        Args:
            key: names the column; the same key always comes with the same way of reading.
            read: returns a hashable token and the value of one node; equal tokens mean equal values.
            heartbeats: whether a heartbeat may change the value: an expression can read its time.
        """
        codes, coding = self._column(key, lambda _: _CodedColumn(read), heartbeats=heartbeats)
        return Coded(codes, coding.values, coding.by_token)

    def sparse(self, key: Hashable, read: Read) -> Sparse:
        """Return where each of many tokens occurs.

        Args:
            key: names the column; the same key always comes with the same way of reading.
            read: returns the (group, token) pairs of one node.
        """
        sparse: Sparse = self._column(key, lambda _: _SparseColumn(read))
        return sparse

    def images(self) -> Images:
        """Return where each image is."""
        # Nodes with the same content may have different images, see `Node.content`.
        images: Images = self._column("images", lambda _: _ImageColumn(), heartbeats=True)
        return images

    def placed(self) -> Placed:
        """Return the node of each Pod."""
        placed: Placed = self._column("placed", lambda _: _PlacedColumn())
        return placed

    def _column(
        self,
        key: Hashable,
        make: Callable[["Table"], _Column],
        beside: Beside | None = None,
        *,
        heartbeats: bool = False,
    ) -> Any:
        state = beside.state if beside is not None else None
        # Without the lock: kept columns are replaced as a whole, never changed.
        kept = self._kept.get(key)
        if kept is not None and kept.step is self.step and kept.beside is state:
            return kept.content
        base = self._base
        if base is not None:
            base._column(key, make, beside, heartbeats=heartbeats)  # noqa: SLF001 - of the same class
        column = make(self)
        with self._lock:
            # Removed and put back at the end, so that the least recently used ones come first.
            known = self._kept.pop(key, None) or self._made.get(key)
            kept = base._kept.get(key, known) if base is not None else known  # noqa: SLF001 - of the same class
            current = self._current(kept, column, beside, heartbeats=heartbeats) if kept is not None else None
            if current is not None:
                return self._keep(key, current)
        # Outside the lock: a request for another column doesn't wait until this one is read from every node.
        current = _Kept(type(column), column.make(self.infos), self.step, state)
        with self._lock:
            self._made[key] = current
            return self._keep(key, current)

    def _keep(self, key: Hashable, current: _Kept) -> Any:
        self._kept[key] = current
        for columns in (self._kept, self._made):
            while len(columns) > _MAX_COLUMNS:
                del columns[next(iter(columns))]
        return current.content
