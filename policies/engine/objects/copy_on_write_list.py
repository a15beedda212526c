"""Lists that change in a few entries at a time, again and again, while earlier versions stay as they were."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar, overload

T = TypeVar("T")

_MAX_PATCHES = 256


class CopyOnWriteList(Sequence[T]):
    """A list, with patches that replace some of its entries. Never changes.

    Copying a list of 20,000 objects touches each of them, wherever it lies in memory; here only the patches are copied,
    until there are many.
    """

    __slots__ = ("_base", "_patches")

    def __init__(self, base: Sequence[T], patches: Mapping[int, T] | None = None) -> None:
        self._base = base
        self._patches = patches or {}

    def __len__(self) -> int:
        return len(self._base)

    @overload
    def __getitem__(self, position: int) -> T: ...

    @overload
    def __getitem__(self, position: slice) -> Sequence[T]: ...

    def __getitem__(self, position: int | slice) -> T | Sequence[T]:
        if isinstance(position, slice):
            return self.listed()[position]
        patches = self._patches
        return patches[position] if position in patches else self._base[position]

    def __iter__(self) -> Iterator[T]:
        return iter(self.listed() if self._patches else self._base)

    def listed(self) -> list[T]:
        """Return all entries as a list of their own."""
        entries = list(self._base)
        for position, entry in self._patches.items():
            entries[position] = entry
        return entries

    def changed(self, changes: Mapping[int, T]) -> "CopyOnWriteList[T]":
        """Return the list with other entries at these positions (from 0 up)."""
        following = CopyOnWriteList(self._base, {**self._patches, **changes})
        return following if len(following._patches) <= _MAX_PATCHES else CopyOnWriteList(following.listed())
