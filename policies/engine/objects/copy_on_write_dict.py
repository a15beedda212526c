"""Dicts that change in a few entries at a time, again and again, while earlier versions stay as they were."""

from collections.abc import Hashable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_MAX_PATCHES = 256


class CopyOnWriteDict(Mapping[K, V]):
    """A dict, with patches that replace some of its entries. Never changes.

    Copying a dict of 50,000 entries takes a millisecond; here only the patches are copied, until there are many.
    """

    __slots__ = ("_base", "_patches", "_size")

    def __init__(self, base: dict[K, V], patches: Mapping[K, V | None] | None = None, size: int | None = None) -> None:
        self._base = base
        # None marks an entry that was removed.
        self._patches = patches or {}
        self._size = len(base) if size is None else size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, key: K) -> V:
        if key not in self._patches:
            return self._base[key]
        found = self._patches[key]
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[K]:
        return iter(self._whole())

    def items(self) -> ItemsView[K, V]:
        """Return the entries."""
        return self._whole().items()

    def keys(self) -> KeysView[K]:
        """Return the keys."""
        return self._whole().keys()

    def values(self) -> ValuesView[V]:
        """Return the values."""
        return self._whole().values()

    def _whole(self) -> dict[K, V]:
        """Return all entries as a dict. Callers must not change it."""
        if not self._patches:
            return self._base
        whole = dict(self._base)
        for key, value in self._patches.items():
            if value is None:
                whole.pop(key, None)
            else:
                whole[key] = value
        return whole

    def changed(self, changes: Mapping[K, V | None]) -> "CopyOnWriteDict[K, V]":
        """Return the dict in which these keys have other values; None removes a key."""
        came = sum((value is not None) - (key in self) for key, value in changes.items())
        after = CopyOnWriteDict(self._base, {**self._patches, **changes}, self._size + came)
        return after if len(after._patches) <= _MAX_PATCHES else CopyOnWriteDict(after._whole())
