"""What is on few nodes each: for every token, on which nodes it is found and how often.

Labels of Pods, host ports, affinity terms: there are many of them and each is on few nodes, so a column of numbers for
each would be mostly zeros. When a node changes, only the tokens it has and had are touched.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from policies.engine.objects.copy_on_write_list import CopyOnWriteList
from policies.engine.objects.node import NodeInfo

# Gives the (group, token) pairs of a node; one that is given twice counts twice.
Read = Callable[[NodeInfo], Iterable[tuple[Hashable, Hashable]]]

_Counts = Mapping[tuple[Hashable, Hashable], int]


class Places:
    """Where one token is found. Never changes."""

    __slots__ = ("_arrays", "_counts")

    def __init__(self, counts: dict[int, int]) -> None:
        self._counts = counts
        self._arrays: tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        return len(self._counts)

    @property
    def rows(self) -> npt.NDArray[np.intp]:
        """The rows of the nodes that have it, in no order."""
        return self._both()[0]

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        """How often it is found in each of `rows`."""
        return self._both()[1]

    def _both(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]:
        if self._arrays is None:
            size = len(self._counts)
            self._arrays = (
                np.fromiter(self._counts.keys(), dtype=np.intp, count=size),
                np.fromiter(self._counts.values(), dtype=np.int64, count=size),
            )
        return self._arrays

    def changed(self, changes: dict[int, int]) -> "Places":
        """Return the Places in which these rows have other counts; 0 takes a row out."""
        counts = self._counts | changes
        for row, count in changes.items():
            if not count:
                counts.pop(row, None)
        return Places(counts)

    def moved(self, row_of: Mapping[int, int]) -> "Places":
        """Return the Places after rows were renumbered; those that are gone are left out."""
        return Places({row_of[row]: count for row, count in self._counts.items() if row in row_of})


_NOWHERE: Mapping[Hashable, Places] = {}


_Index = Mapping[Hashable, Sequence[Hashable]]


class Sparse:
    """For each group, its tokens and where they are found. Never changes."""

    def __init__(
        self,
        groups: dict[Hashable, dict[Hashable, Places]],
        counts: CopyOnWriteList[_Counts],
        indexes: dict[Hashable, _Index] | None = None,
    ) -> None:
        self._groups = groups
        self._counts = counts
        self._indexes = indexes if indexes is not None else {}

    @classmethod
    def of(cls, read: Read, infos: Sequence[NodeInfo]) -> "Sparse":
        """Read all nodes."""
        counts: list[_Counts] = [Counter(read(info)) for info in infos]
        found: dict[Hashable, dict[Hashable, dict[int, int]]] = {}
        for row, counted in enumerate(counts):
            for (group, token), count in counted.items():
                found.setdefault(group, {}).setdefault(token, {})[row] = count
        groups = {group: {token: Places(places) for token, places in tokens.items()} for group, tokens in found.items()}
        return cls(groups, CopyOnWriteList(counts))

    def group(self, group: Hashable) -> Mapping[Hashable, Places]:
        """Return a group's tokens, each with where it is found."""
        return self._groups.get(group, _NOWHERE)

    def index(self, group: Hashable, keys_of: Callable[[Any], Iterable[Hashable]]) -> _Index:
        """Return a group's tokens by keys that they have. Kept as long as the group has the same tokens.

        Several threads may make the same index at the same time; one of them stays.

        Args:
            group: the group.
            keys_of: gives the keys of a token; for one Sparse always the same function.
        """
        found = self._indexes.get(group)
        if found is None:
            made: dict[Hashable, list[Hashable]] = {}
            for token in self.group(group):
                for key in keys_of(token):
                    made.setdefault(key, []).append(token)
            found = self._indexes[group] = made
        return found

    def groups(self) -> Iterable[Hashable]:
        """Return the groups that have tokens."""
        return self._groups.keys()

    def renewed(self, read: Read, infos: Sequence[NodeInfo], rows: Iterable[int]) -> "Sparse":
        """Return what follows when these rows are read again."""
        counts: dict[int, _Counts] = {}
        changes: dict[Hashable, dict[Hashable, dict[int, int]]] = {}
        for row in rows:
            old, new = self._counts[row], Counter(read(infos[row]))
            counts[row] = new
            for pair in old.keys() | new.keys():
                # `new` is a Counter: 0 for a token that the node doesn't have any more, which takes its row out.
                if old.get(pair) != new[pair]:
                    changes.setdefault(pair[0], {}).setdefault(pair[1], {})[row] = new[pair]
        # Shallow: only the groups that change are copied further down.
        groups, indexes = dict(self._groups), dict(self._indexes)
        for group, tokens in changes.items():
            before = groups.get(group, _NOWHERE)
            places = dict(before)
            for token, changed in tokens.items():
                places[token] = places.get(token, Places({})).changed(changed)
                if not len(places[token]):
                    del places[token]
                # An index lists tokens, not places: it stays as long as none comes or goes.
                if (token in before) != (token in places):
                    indexes.pop(group, None)
            groups[group] = places
            if not places:
                del groups[group]
        return Sparse(groups, self._counts.changed(counts), indexes)

    def moved(self, sources: Sequence[int]) -> "Sparse":
        """Return the same for other rows: each new row takes what the old row `sources[row]` had; -1 has nothing."""
        row_of = {old: new for new, old in enumerate(sources) if old >= 0}
        nothing: _Counts = Counter()
        counts = [nothing if old < 0 else self._counts[old] for old in sources]
        groups: dict[Hashable, dict[Hashable, Places]] = {}
        for group, tokens in self._groups.items():
            moved = {token: places.moved(row_of) for token, places in tokens.items()}
            kept = {token: places for token, places in moved.items() if len(places)}
            if kept:
                groups[group] = kept
        return Sparse(groups, CopyOnWriteList(counts))
