"""Sparse columns: for every token, on which nodes it occurs and how often, for tokens that are each on few nodes.

Labels of Pods, host ports, affinity terms: there are many of them and each is on few nodes, so a column of numbers for
each would be mostly zeros. When a node changes, only its old and new tokens are updated.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from policies.engine.objects.copy_on_write_dict import CopyOnWriteDict
from policies.engine.objects.copy_on_write_list import CopyOnWriteList
from policies.engine.objects.node import NodeInfo

# Returns the (group, token) pairs of a node; a pair that occurs twice counts twice.
Read = Callable[[NodeInfo], Iterable[tuple[Hashable, Hashable]]]

_Counts = Mapping[tuple[Hashable, Hashable], int]


class Places:
    """Where one token occurs. Never changes."""

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
        """How often it occurs in each of `rows`."""
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
        """Return the Places in which these rows have other counts; 0 removes a row."""
        counts = self._counts | changes
        for row, count in changes.items():
            if not count:
                counts.pop(row, None)
        return Places(counts)

    def moved(self, row_of: Mapping[int, int]) -> "Places":
        """Return the Places after rows were renumbered; removed rows are left out."""
        return Places({row_of[row]: count for row, count in self._counts.items() if row in row_of})


_NOWHERE: CopyOnWriteDict[Hashable, Places] = CopyOnWriteDict({})
_NO_PLACES = Places({})

# Returns the keys of a token.
KeysOf = Callable[[Any], Iterable[Hashable]]
# Makes such a function for an index of some tokens: the most useful keys may depend on all of them.
MakeKeys = Callable[[Collection[Any]], KeysOf]

# The most tokens that may be added or removed before an index is made anew.
_MAX_SINCE = 64


class Index:
    """A group's tokens, by their keys. Never changes: the next index also lists the tokens added and removed since it was made."""

    __slots__ = ("_came", "_keys_of", "_made", "_went")

    def __init__(
        self,
        made: Mapping[Hashable, Sequence[Hashable]],
        keys_of: KeysOf,
        came: frozenset[Hashable] = frozenset(),
        went: frozenset[Hashable] = frozenset(),
    ) -> None:
        self._made, self._keys_of = made, keys_of
        self._came, self._went = came, went

    @classmethod
    def of(cls, tokens: Collection[Hashable], make_keys: MakeKeys) -> "Index":
        """Read all tokens."""
        keys_of = make_keys(tokens)
        made: dict[Hashable, list[Hashable]] = {}
        for token in tokens:
            for key in keys_of(token):
                made.setdefault(key, []).append(token)
        return cls(made, keys_of)

    def most(self, key: Hashable) -> int:
        """Return an upper bound on how many tokens have a key."""
        return len(self._made.get(key, ())) + len(self._came)

    def having(self, key: Hashable) -> list[Hashable]:
        """Return the tokens that have a key."""
        found = [token for token in self._made.get(key, ()) if token not in self._went]
        return found + [token for token in self._came if key in self._keys_of(token)]

    def may_have(self, keys: Iterable[Hashable]) -> list[Hashable]:
        """Return the tokens that have one of these keys, where none has two of them, and all recently added tokens."""
        found = [token for key in keys for token in self._made.get(key, ()) if token not in self._went]
        return [*found, *self._came]

    def changed(self, came: frozenset[Hashable], went: frozenset[Hashable]) -> "Index | None":
        """Return the index after tokens were added and removed; None where it should be made anew."""
        # A token that was removed and comes back is among those that the index was made of.
        now_came = (self._came - went) | (came - self._went)
        now_went = (self._went - came) | (went - self._came)
        if len(now_came) + len(now_went) > _MAX_SINCE:
            return None
        return Index(self._made, self._keys_of, now_came, now_went)


class Sparse:
    """For each group, its tokens and where they occur. Never changes."""

    def __init__(
        self,
        groups: CopyOnWriteDict[Hashable, CopyOnWriteDict[Hashable, Places]],
        counts: CopyOnWriteList[_Counts],
        indexes: dict[Hashable, Index] | None = None,
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
        groups = {
            group: CopyOnWriteDict({token: Places(places) for token, places in tokens.items()})
            for group, tokens in found.items()
        }
        return cls(CopyOnWriteDict(groups), CopyOnWriteList(counts))

    def group(self, group: Hashable) -> Mapping[Hashable, Places]:
        """Return a group's tokens, each with its Places."""
        return self._groups.get(group, _NOWHERE)

    def index(self, group: Hashable, make_keys: MakeKeys) -> Index:
        """Return the index of a group's tokens by their keys. It is kept while few tokens are added and removed.

        Several threads may make the same index at the same time; one result is kept.

        Args:
            group: the group.
            make_keys: makes the function that returns the keys of a token; always the same for one Sparse.
        """
        found = self._indexes.get(group)
        if found is None:
            found = self._indexes[group] = Index.of(self.group(group), make_keys)
        return found

    def groups(self) -> Iterable[Hashable]:
        """Return the groups that have tokens."""
        return self._groups.keys()

    def renewed(self, read: Read, infos: Sequence[NodeInfo], rows: Iterable[int]) -> "Sparse":
        """Return the tokens after reading these rows again."""
        counts: dict[int, _Counts] = {}
        changes: dict[Hashable, dict[Hashable, dict[int, int]]] = {}
        for row in rows:
            old, new = self._counts[row], Counter(read(infos[row]))
            counts[row] = new
            for pair in old.keys() | new.keys():
                # `new` is a Counter: 0 for a token that the node no longer has, which removes its row.
                if old.get(pair) != new[pair]:
                    changes.setdefault(pair[0], {}).setdefault(pair[1], {})[row] = new[pair]
        indexes = dict(self._indexes)
        groups: dict[Hashable, CopyOnWriteDict[Hashable, Places] | None] = {}
        for group, tokens in changes.items():
            before = self._groups.get(group, _NOWHERE)
            places = {token: before.get(token, _NO_PLACES).changed(changed) for token, changed in tokens.items()}
            after = before.changed({token: found if len(found) else None for token, found in places.items()})
            groups[group] = after if len(after) else None
            if group in indexes:
                came = frozenset(token for token in tokens if token not in before)
                went = frozenset(token for token in tokens if token not in after)
                # An index lists tokens, not places.
                index = indexes[group].changed(came, went) if came or went else indexes[group]
                if index is None:
                    del indexes[group]
                else:
                    indexes[group] = index
        return Sparse(self._groups.changed(groups), self._counts.changed(counts), indexes)

    def moved(self, sources: Sequence[int]) -> "Sparse":
        """Return the tokens for renumbered rows: each new row gets the tokens of the old row `sources[row]`; -1 gets none."""
        row_of = {old: new for new, old in enumerate(sources) if old >= 0}
        nothing: _Counts = Counter()
        counts = [nothing if old < 0 else self._counts[old] for old in sources]
        groups: dict[Hashable, CopyOnWriteDict[Hashable, Places]] = {}
        for group, tokens in self._groups.items():
            moved = {token: places.moved(row_of) for token, places in tokens.items()}
            kept = {token: places for token, places in moved.items() if len(places)}
            if kept:
                groups[group] = CopyOnWriteDict(kept)
        return Sparse(CopyOnWriteDict(groups), CopyOnWriteList(counts))
