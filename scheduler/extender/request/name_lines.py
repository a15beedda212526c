"""Names of nodes of one length, found and written by the thousand without a look at each.

Clouds name a pool's nodes alike: their names stand in a body at equal distances, so that rows of an array are what separate
texts would be. A hash of all names at once says where in the table each one may stand; that they do is seen by comparing the whole.
"""

from collections.abc import Mapping, Sequence
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
_FEWEST_BYTES = _FEWEST * (_WORD + len(BETWEEN)) - len(BETWEEN)
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

    def chosen(self, are_chosen: npt.NDArray[np.bool_]) -> Self:
        """Return those of them that are chosen."""
        return type(self)(self._lines.take(are_chosen.nonzero()[0], axis=0))

    def written(self) -> bytes:
        """Return how they stand between the first quote and the last."""
        return self._lines.reshape(-1)[: -len(BETWEEN)].tobytes()


class NameLines:
    """Those of a table's names that have one length, and where their hashes lead."""

    def __init__(self, names: Sequence[bytes], rows: Rows) -> None:
        """Take names of the same length, of at least eight bytes that JSON doesn't escape, and their rows in the table."""
        self._rows = rows
        self._width = len(names[0]) + len(BETWEEN)
        text = b"".join(name + BETWEEN for name in names)
        self._lines: npt.NDArray[np.uint8] = np.frombuffer(text, dtype=np.uint8).reshape(len(names), self._width)
        self._words = self._telling_words()
        bits = (_PLACES * len(names)).bit_length()
        self._shift = np.uint64(_BITS - bits)
        self._hashes = self._hashes_in(text, len(names))
        self._line_at = np.zeros(1 << bits, dtype=np.int32)
        self._line_at[self._hashes >> self._shift] = np.arange(len(names))
        # Lines that found their place taken, by their hashes in order.
        others = (self._line_at[self._hashes >> self._shift] != np.arange(len(names))).nonzero()[0]
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
        at = self._line_at.take(hashes >> self._shift)
        others = (self._hashes.take(at) != hashes).nonzero()[0]
        if len(others):
            if not len(self._others):
                return None
            at[others] = self._others.take(self._hashes_of_others.searchsorted(hashes[others]), mode="clip")
        found = WrittenNames(self._lines.take(at, axis=0))
        return (found, self._rows.take(at)) if found.written() == written else None


_lines: WeakKeyDictionary[NodeNames, Mapping[int, NameLines]] = WeakKeyDictionary()


def find(table: Table, written: bytes) -> tuple[WrittenNames, Rows] | None:
    """Return the names that stand between a first quote and a last, and their rows; None where that takes a look at each."""
    if len(written) < _FEWEST_BYTES:
        return None
    lines = lines_of(table).get(written.find(b'"'))
    return lines.find(written) if lines else None


def lines_of(table: Table) -> Mapping[int, NameLines]:
    """Return the names of a table's nodes by their length, where many have it; made once for tables with the same nodes."""
    names = names_of(table)
    if names not in _lines:
        _lines[names] = _by_length([name.encode() for name in names.listed])
    return _lines[names]


def _by_length(names: Sequence[bytes]) -> dict[int, NameLines]:
    if len(names) > _MOST_NAMES:
        return {}
    lengths = np.fromiter(map(len, names), dtype=np.intp, count=len(names))
    groups = {length: np.flatnonzero(lengths == length) for length in np.unique(lengths).tolist() if length >= _WORD}
    alike = {
        length: ([names[row] for row in rows.tolist()], rows) for length, rows in groups.items() if len(rows) >= _FEWEST
    }
    return {length: NameLines(found, rows) for length, (found, rows) in alike.items() if _is_plain(found)}


def _is_plain(names: Sequence[bytes]) -> bool:
    """Return whether JSON has names as they are. The watch's are; where one weren't, texts in a body would be others than names."""
    text = b"".join(names)
    return b'"' not in text and b"\\" not in text and text.isascii()
