"""Names of nodes that all have the same length, found and written by the thousand without a look at each.

Clouds name a pool's nodes alike: their names stand in a body at equal distances, so that rows of an array are what separate
texts would be. A hash of all names at once says where in the table each one may stand; that they do is seen by comparing the whole.
"""

from collections.abc import Sequence
from typing import Self
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from policies.engine.objects.table import Rows, Table
from scheduler.decisions.node_names import NodeNames, names_of
from scheduler.extender.request.node_bytes import MAX_NODES

BETWEEN = b'","'
# Numbers that texts are hashed by have so many bytes.
_WORD = 8
# Fewer names are sooner looked up one by one, and take fewer bytes than so many do.
_FEWEST = 64
FEWEST_BYTES = _FEWEST * (_WORD + len(BETWEEN)) - len(BETWEEN)
# Odd, and without a pattern: 2^64 through the golden ratio, and its powers (Knuth, The Art of Computer Programming 6.4).
_MULTIPLIER = 0x9E3779B97F4A7C15
_BITS = 64
# Of the places for hashes, so many for each name, at most twice that: of a hundred names six to twelve find theirs taken.
_PLACES = 4
# Places are memory that a call reads here and there.
_MOST_NAMES = 200_000


class WrittenNames:
    """Names as they stand in JSON, the same number of bytes each, with what separates two behind them."""

    def __init__(self, lines: npt.NDArray[np.uint8]) -> None:
        self._lines = lines

    def __len__(self) -> int:
        return len(self._lines)

    def chosen(self, are_chosen: npt.NDArray[np.bool_]) -> Self:
        """Return those of them that are chosen."""
        return type(self)(self._lines.take(are_chosen.nonzero()[0], axis=0))

    def written(self) -> bytes:
        """Return how they stand between the first quote and the last."""
        return self._lines.reshape(-1)[: -len(BETWEEN)].tobytes()


class NameLines:
    """The names of a table's nodes: as many bytes each, and where their hashes lead."""

    def __init__(self, names: Sequence[bytes]) -> None:
        """Take names of the same length, in the order of the table, of at least eight bytes that JSON doesn't escape."""
        self._width = len(names[0]) + len(BETWEEN)
        text = b"".join(name + BETWEEN for name in names)
        self._lines: npt.NDArray[np.uint8] = np.frombuffer(text, dtype=np.uint8).reshape(len(names), self._width)
        self._words = self._telling_words()
        bits = (_PLACES * len(names)).bit_length()
        self._shift = np.uint64(_BITS - bits)
        self._hashes = self._hashes_in(text, len(names))
        self._row_at = np.zeros(1 << bits, dtype=np.int32)
        self._row_at[self._hashes >> self._shift] = np.arange(len(names))
        # Rows that found their place taken, by their hashes in order.
        others = (self._row_at[self._hashes >> self._shift] != np.arange(len(names))).nonzero()[0]
        self._others = others[self._hashes[others].argsort()]
        self._hashes_of_others = self._hashes[self._others]

    def _telling_words(self) -> list[tuple[int, np.uint64]]:
        """Return where the eight bytes stand that aren't the same in all names, and by what each number is multiplied."""
        length = self._width - len(BETWEEN)
        differ = (self._lines != self._lines[0]).any(axis=0)
        starts = sorted({min(start, length - _WORD) for start in range(0, length, _WORD)})
        telling = [start for start in starts if differ[start : start + _WORD].any()] or starts[:1]
        return [(start, np.uint64(pow(_MULTIPLIER, at + 1, 1 << _BITS))) for at, start in enumerate(telling)]

    def _hashes_in(self, written: bytes, count: int) -> npt.NDArray[np.uint64]:
        hashes = np.zeros(count, dtype=np.uint64)
        for start, multiplier in self._words:
            words = np.ndarray((count,), "<u8", written, start, (self._width,))
            hashes += words * multiplier
        return hashes

    def find(self, written: bytes) -> tuple[WrittenNames, Rows] | None:
        """Return the names that stand between a first quote and a last, and their rows; None where one isn't a node's."""
        count, rest = divmod(len(written) + len(BETWEEN), self._width)
        if rest or not _FEWEST <= count <= MAX_NODES:
            return None
        hashes = self._hashes_in(written, count)
        rows = self._row_at.take(hashes >> self._shift).astype(np.intp)
        others = (self._hashes.take(rows) != hashes).nonzero()[0]
        if len(others):
            if not len(self._others):
                return None
            rows[others] = self._others.take(np.searchsorted(self._hashes_of_others, hashes[others]), mode="clip")
        found = WrittenNames(self._lines.take(rows, axis=0))
        return (found, rows) if found.written() == written else None


_lines: WeakKeyDictionary[NodeNames, NameLines | None] = WeakKeyDictionary()


def lines_of(table: Table) -> NameLines | None:
    """Return the names of a table's nodes, made once for tables with the same nodes; None where they aren't that much alike."""
    names = names_of(table)
    if names not in _lines:
        encoded = [name.encode() for name in names.listed]
        _lines[names] = NameLines(encoded) if _are_alike(encoded) else None
    return _lines[names]


def _are_alike(names: Sequence[bytes]) -> bool:
    if not _FEWEST <= len(names) <= _MOST_NAMES or len(set(map(len, names))) > 1 or len(names[0]) < _WORD:
        return False
    # The watch has names that need no escape. Where one did, texts in a body would be others than names.
    text = b"".join(names)
    return b'"' not in text and b"\\" not in text and text.isascii()
