"""Writes /prioritize's answer from rows and points, without iterating over the names.

Each node has a line of the same length, padded with spaces, which JSON readers skip. An answer consists of the
requested lines with the points filled in, in two array operations.
"""

import re
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from policies.engine.objects.table import Numbers, Rows, Table
from scheduler.decisions.node_names import NodeNames, names_of

_BEFORE, _BETWEEN, _BEHIND = b'{"Host":"', b'","Score":', b"  },"
_END = ord("]")
# 0 to 10, two bytes each.
_POINTS = np.frombuffer(b"".join(b"%2d" % points for points in range(11)), dtype=np.uint16)
# A node with a long name makes all lines long; with many nodes they would take more memory than they are worth.
_MOST_BYTES = 32 << 20


class PriorityLines:
    """The lines of a table's nodes."""

    def __init__(self, names: Sequence[str]) -> None:
        """Write the lines; names that Kubernetes allows need no escaping."""
        encoded = [_BEFORE + name.encode("ascii") + _BETWEEN for name in names]
        width = max(map(len, encoded), default=0)
        text = b"".join(line.rjust(width) + _BEHIND for line in encoded)
        self._lines: npt.NDArray[np.uint8] = np.frombuffer(text, dtype=np.uint8).reshape(
            len(names), width + len(_BEHIND)
        )

    def encode(self, rows: Rows, points: Numbers) -> list[bytes]:
        """Return HostPriorityList in pieces: whole numbers 0..10, in the order of the rows."""
        if not len(rows):
            return [b"[]"]
        lines = self._lines.take(rows, axis=0)
        width = lines.shape[1]
        # The two bytes for each line's points, as one number: written in one operation, at any offset.
        written = np.ndarray((len(rows),), np.uint16, lines, width - len(_BEHIND), (width,))
        written[:] = _POINTS.take(points)
        lines[-1, -1] = _END
        return [b"[", lines.tobytes()]


# ASCII without quotes, backslashes and control characters.
_is_plain = re.compile(r"[ !#-\[\]-~]*").fullmatch

_lines: WeakKeyDictionary[NodeNames, PriorityLines | None] = WeakKeyDictionary()


def lines_of(table: Table) -> PriorityLines | None:
    """Return the lines of a table's nodes, written once for all tables with the same nodes.

    None if they are too long, or if a name needs escaping: a body may have a node that no API server would take.
    """
    names = names_of(table)
    if names not in _lines:
        longest = max(map(len, names.listed), default=0) + len(_BEFORE + _BETWEEN + _BEHIND)
        is_written = longest * len(names) <= _MOST_BYTES and all(map(_is_plain, names.listed))
        _lines[names] = PriorityLines(names.listed) if is_written else None
    return _lines[names]
