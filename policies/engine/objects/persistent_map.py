"""A mapping that never changes, and from which others with a few different keys are made without copying the whole."""

from collections.abc import Hashable, Iterator, Mapping
from itertools import chain
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# A change of one key copies one shard and the list of shards: at 100,000 keys some 100 entries and 1,024 pointers.
_SHARDS = 1024

_EMPTY: dict[Any, Any] = {}
_NO_SHARDS: tuple[dict[Any, Any], ...] = (_EMPTY,) * _SHARDS


class PersistentMap(Mapping[K, V], Generic[K, V]):
    """Keys and values. The order of iteration has no meaning, and differs from process to process."""

    __slots__ = ("_shards", "_size")

    def __init__(self, content: Mapping[K, V] | None = None) -> None:
        self._shards: tuple[dict[K, V], ...] = _NO_SHARDS
        self._size = 0
        if content:
            self._change(content)

    def __getitem__(self, key: K) -> V:
        return self._shards[hash(key) % _SHARDS][key]

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self._shards)

    def __len__(self) -> int:
        return self._size

    def changed(self, changes: Mapping[K, V | None]) -> "PersistentMap[K, V]":
        """Return the mapping in which these keys have other values; None removes a key."""
        after: PersistentMap[K, V] = object.__new__(PersistentMap)
        after._shards, after._size = self._shards, self._size
        after._change(changes)
        return after

    def differing(self, other: "PersistentMap[K, V]") -> Iterator[K]:
        """Iterate over the keys of either under which the two have different objects. Shared parts cost nothing."""
        for mine, others in zip(self._shards, other._shards, strict=True):  # noqa: SLF001 - of the same class
            if mine is not others:
                yield from (key for key in {**mine, **others} if mine.get(key) is not others.get(key))

    def _change(self, changes: Mapping[K, V] | Mapping[K, V | None]) -> None:
        shards = list(self._shards)
        copied: set[int] = set()
        for key, value in changes.items():
            number = hash(key) % _SHARDS
            if number not in copied:
                copied.add(number)
                shards[number] = dict(shards[number])
            shard = shards[number]
            self._size -= len(shard)
            if value is None:
                shard.pop(key, None)
            else:
                shard[key] = value
            self._size += len(shard)
        self._shards = tuple(shards)
