"""Which nodes have an image, and how big it is there.

A node has some dozens of images under twice as many names, so they are kept in three flat arrays, sorted by name, and
not as an object for each. Nodes that changed since the arrays were made are searched one by one, until there are many.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from policies.engine.objects.node import NodeInfo

_MAX_CHANGED = 128

_Images = Mapping[str, int]


class Found(NamedTuple):
    """The rows of the nodes that have an image, in no order, and its size in bytes on each."""

    rows: npt.NDArray[np.intp]
    sizes: npt.NDArray[np.int64]


class _Arrays(NamedTuple):
    """All images: those of name i are at starts[i]:starts[i+1]."""

    number_of: dict[str, int]
    starts: npt.NDArray[np.int64]
    rows: npt.NDArray[np.intp]
    sizes: npt.NDArray[np.int64]


class Images:
    """The images of a Table's nodes. Never changes."""

    def __init__(self, arrays: _Arrays, images: list[_Images], changed: frozenset[int]) -> None:
        self._arrays = arrays
        self._images = images
        self._changed = changed

    @classmethod
    def of(cls, infos: Sequence[NodeInfo]) -> "Images":
        """Read all nodes."""
        return cls._made([info.node.images for info in infos])

    @classmethod
    def _made(cls, images: list[_Images]) -> "Images":
        number_of: dict[str, int] = {}
        numbers = [number_of.setdefault(name, len(number_of)) for found in images for name in found]
        # Entries come node by node; sorting by the image's number puts those of one image together.
        order = np.argsort(np.array(numbers, dtype=np.int64), kind="stable")
        rows = np.repeat(np.arange(len(images), dtype=np.intp), [len(found) for found in images])
        sizes = np.array([size for found in images for size in found.values()], dtype=np.int64)
        counts = np.bincount(np.array(numbers, dtype=np.int64), minlength=len(number_of))
        starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        return cls(_Arrays(number_of, starts, rows[order], sizes[order]), images, frozenset())

    def find(self, name: str) -> Found:
        """Return where an image is."""
        arrays = self._arrays
        number = arrays.number_of.get(name)
        rows, sizes = arrays.rows[:0], arrays.sizes[:0]
        if number is not None:
            at = slice(int(arrays.starts[number]), int(arrays.starts[number + 1]))
            rows, sizes = arrays.rows[at], arrays.sizes[at]
        if not self._changed:
            return Found(rows, sizes)
        # The arrays are out of date for the nodes that changed since: those are searched directly.
        kept = ~np.isin(rows, list(self._changed))
        newer = {row: self._images[row][name] for row in self._changed if name in self._images[row]}
        return Found(
            np.concatenate([rows[kept], np.array(list(newer), dtype=np.intp)]),
            np.concatenate([sizes[kept], np.array(list(newer.values()), dtype=np.int64)]),
        )

    def renewed(self, infos: Sequence[NodeInfo], rows: Iterable[int]) -> "Images":
        """Return the images after reading these rows again."""
        # By identity: versions of a node with the same images in the same text share them.
        differing = {row: infos[row].node.images for row in rows if infos[row].node.images is not self._images[row]}
        if not differing:
            return self
        images = list(self._images)
        for row, found in differing.items():
            images[row] = found
        changed = self._changed | differing.keys()
        return Images(self._arrays, images, changed) if len(changed) <= _MAX_CHANGED else Images._made(images)

    def moved(self, sources: Sequence[int]) -> "Images":
        """Return the images for renumbered rows: each new row gets the images of the old row `sources[row]`; -1 gets none."""
        nothing: _Images = {}
        images = [nothing if old < 0 else self._images[old] for old in sources]
        new_row = np.full(len(self._images), -1, dtype=np.intp)
        for new, old in enumerate(sources):
            if old >= 0:
                new_row[old] = new
        arrays = self._arrays
        rows = new_row[arrays.rows] if len(new_row) else arrays.rows
        kept = rows >= 0
        # The number of kept entries before each entry: its new position, and the new start of each image's entries.
        before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(kept)])
        starts = before[arrays.starts]
        changed = frozenset(int(new_row[row]) for row in self._changed if new_row[row] >= 0)
        return Images(_Arrays(arrays.number_of, starts, rows[kept], arrays.sizes[kept]), images, changed)
