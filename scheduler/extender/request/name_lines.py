"""Finds and writes thousands of node names of equal length in array operations.

Clouds name a pool's nodes alike: their names are at equal distances in a body, so the rows of one array hold the names. Hashing
all names at once gives each one's possible place in the table; comparing whole arrays confirms them.
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
# Bytes of each integer that names are hashed by.
_WORD = 8
# Fewer names are faster to look up one by one, and take fewer bytes.
_FEWEST = 64
_FEWEST_BYTES = _FEWEST * (_WORD + len(BETWEEN)) - len(BETWEEN)
# Odd, and without a pattern: 2^64 through the golden ratio, and its powers (Knuth, The Art of Computer Programming 6.4).
_MULTIPLIER = 0x9E3779B97F4A7C15
_BITS = 64
# Hash table slots for each name, at most twice that: of a hundred names, six to twelve collide.
_PLACES = 4
# Slots are memory that a call reads in random order.
_MOST_NAMES = 200_000


class WrittenNames:
    """Names as written in JSON, each of the same number of bytes, followed by the separator."""

    def __init__(self, lines: npt.NDArray[np.uint8]) -> None:
        self._lines = lines

    def chosen(self, are_chosen: npt.NDArray[np.bool_]) -> Self:
        """Return the chosen names."""
        return type(self)(self._lines.take(are_chosen.nonzero()[0], axis=0))

    def written(self) -> bytes:
        """Return the names as JSON text, from after the first quote to before the last."""
        return self._lines.reshape(-1)[: -len(BETWEEN)].tobytes()


class NameLines:
    """The names of one length in a table, and their hash table."""

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
        # Lines whose slot was taken, sorted by their hashes.
        others = (self._line_at[self._hashes >> self._shift] != np.arange(len(names))).nonzero()[0]
        self._others = others[self._hashes[others].argsort()]
        self._hashes_of_others = self._hashes[self._others]

    def _telling_words(self) -> list[tuple[int, np.uint64]]:
        """Return the offsets of the eight-byte words that differ between names, and each word's multiplier."""
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
        """Return the names between a first quote and a last, and their rows; None if one isn't a node's."""
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
    """Return the names between a first quote and a last, and their rows; None if they have to be looked up one by one."""
    if len(written) < _FEWEST_BYTES:
        return None
    lines = lines_of(table).get(written.find(b'"'))
    return lines.find(written) if lines else None


def lines_of(table: Table) -> Mapping[int, NameLines]:
    """Return the names of a table's nodes by length, for lengths that many have; made once for all tables with the same nodes."""
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
    """Return whether no name needs escaping in JSON. Names from the watch don't; escaped text would differ from the name."""
    text = b"".join(names)
    return b'"' not in text and b"\\" not in text and text.isascii()
