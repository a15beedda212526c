"""The names of a table's nodes, computed once for all Decisions on Snapshots with the same nodes."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from operator import itemgetter

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from policies.engine.objects.table import Rows, Table

_KEPT = 8


class NodeNames:
    """The names of nodes in the order of the table. Decisions refer to nodes by their position here."""

    def __init__(self, row_of: dict[str, int]) -> None:
        self.row_of = row_of

    def __len__(self) -> int:
        return len(self.row_of)

    @cached_property
    def listed(self) -> list[str]:
        """The names."""
        return list(self.row_of)

    @cached_property
    def _row_of_text(self) -> dict[bytes, bytes]:
        """The rows, as bytes of an array, by the names' UTF-8."""
        rows = np.arange(len(self.row_of), dtype=np.intp).tobytes()
        size = np.dtype(np.intp).itemsize
        return {name.encode(): rows[row * size : (row + 1) * size] for name, row in self.row_of.items()}

    def rows_of(self, texts: Sequence[bytes]) -> Rows | None:
        """Return the rows of nodes by their names in UTF-8, None if one isn't in the table. There must be at least one name."""
        try:
            found = itemgetter(*texts)(self._row_of_text)  # the fastest way to look up many, by a quarter
        except KeyError:
            return None
        return np.frombuffer(found if len(texts) == 1 else b"".join(found), dtype=np.intp)

    @cached_property
    def json(self) -> bytes:
        """The names as a JSON list."""
        return msgspec.json.encode(self.listed)

    @cached_property
    def digest(self) -> bytes:
        """A digest of these names in this order."""
        return xxhash.xxh3_128_digest(self.json)

    @cached_property
    def rank(self) -> npt.NDArray[np.int64]:
        """Per row, the place of the name among all names in order."""
        rank = np.empty(len(self.row_of), dtype=np.int64)
        rank[[self.row_of[name] for name in sorted(self.row_of)]] = np.arange(len(self.row_of))
        return rank

    def first(self, rows: Rows) -> str:
        """Return the alphabetically first name of these rows. There must be at least one row."""
        return self.listed[int(rows[np.argmin(self.rank[rows])])]


# The names that were last requested, by the identity of their tables' `row_of`: tables with the same nodes share it.
_known: OrderedDict[int, NodeNames] = OrderedDict()
_lock = threading.Lock()


def names_of(table: Table) -> NodeNames:
    """Return the names of a table's nodes; the same object for tables with the same nodes in the same order."""
    key = id(table.row_of)
    found = _known.get(key)
    if found is None:
        with _lock:
            found = _known.setdefault(key, NodeNames(table.row_of))
            while len(_known) > _KEPT:
                _known.popitem(last=False)
    return found
