"""Merkle trees of RFC 6962: hashes, tiles of 256 (C2SP tlog-tiles), and both proofs. Pure.

A tree is stored as tiles: level 0 has the hashes of the leaves, level 1 the roots of full tiles of level 0, and so on. Only
the last tile of a level can be partial, so an append touches one or two tiles of a level.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

HASH_BYTES = 32
TILE_HEIGHT = 8
TILE_WIDTH = 1 << TILE_HEIGHT
EMPTY_ROOT = hashlib.sha256().digest()

_sha256 = hashlib.sha256


class Tile(NamedTuple):
    """Adjacent hashes: the `number`-th 256 of a level, or as many of them as there are."""

    level: int
    number: int
    hashes: bytes

    @property
    def width(self) -> int:
        """The number of hashes."""
        return len(self.hashes) // HASH_BYTES


# Returns the hash of a full subtree: at a height, the `number`-th from the left.
ReadSubtree = Callable[[int, int], bytes]


class ProofError(Exception):
    """A proof is invalid. The message says why."""


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf."""
    return _sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of two subtrees together."""
    return _sha256(b"\x01" + left + right).digest()


def perfect_root(hashes: bytes) -> bytes:
    """Return the root of a whole subtree; the number of its hashes is a power of two."""
    while len(hashes) > HASH_BYTES:
        hashes = b"".join(
            _sha256(b"\x01" + hashes[at : at + 2 * HASH_BYTES]).digest() for at in range(0, len(hashes), 2 * HASH_BYTES)
        )
    return hashes


def widths(size: int) -> Iterator[tuple[int, int, int]]:
    """Iterate over the last tile of each level of a tree: level, number, how many hashes it has; without empty ones."""
    level = 0
    while size:
        if size % TILE_WIDTH:
            yield level, size // TILE_WIDTH, size % TILE_WIDTH
        size //= TILE_WIDTH
        level += 1


class Edge:
    """The right edge of a tree, which is all that an append and the root need: the last, partial tile of each level.

    Args:
        size: of the tree.
        tiles: the hashes of the partial tile of each level from 0 on; empty if a level has none.
    """

    def __init__(self, size: int = 0, tiles: Sequence[bytes] = ()) -> None:
        self.size = size
        self.tiles = [*tiles]
        for level, number, width in widths(size):
            if level >= len(self.tiles) or len(self.tiles[level]) != width * HASH_BYTES:
                message = f"tile {level}/{number} has not {width} hashes, which a tree of {size} leaves needs"
                raise ProofError(message)

    def append(self, hashes: bytes) -> list[Tile]:
        """Append concatenated hashes of leaves; returns the changed tiles."""
        changed: list[Tile] = []
        self._append(0, hashes, changed)
        self.size += len(hashes) // HASH_BYTES
        return changed

    def _append(self, level: int, hashes: bytes, changed: list[Tile]) -> None:
        if level == len(self.tiles):
            self.tiles.append(b"")
        number = self.size >> TILE_HEIGHT * (level + 1)
        hashes = self.tiles[level] + hashes
        whole = len(hashes) // (TILE_WIDTH * HASH_BYTES)
        roots = []
        for at in range(whole):
            tile = hashes[at * TILE_WIDTH * HASH_BYTES : (at + 1) * TILE_WIDTH * HASH_BYTES]
            changed.append(Tile(level, number + at, tile))
            roots.append(perfect_root(tile))
        self.tiles[level] = hashes[whole * TILE_WIDTH * HASH_BYTES :]
        if self.tiles[level]:
            changed.append(Tile(level, number + whole, self.tiles[level]))
        if roots:
            self._append(level + 1, b"".join(roots), changed)

    def root(self) -> bytes:
        """Return the root."""
        found: bytes | None = None
        for hashes in self.tiles:
            end = len(hashes) // HASH_BYTES
            while end:
                part = end & -end
                subtree = perfect_root(hashes[(end - part) * HASH_BYTES : end * HASH_BYTES])
                found = subtree if found is None else node_hash(subtree, found)
                end -= part
        return EMPTY_ROOT if found is None else found


def subtrees_of(read: Callable[[int, int], bytes]) -> ReadSubtree:
    """Return a reader of whole subtrees from a reader of tiles (by level and number)."""

    def subtree(height: int, number: int) -> bytes:
        level, inside = divmod(height, TILE_HEIGHT)
        first = number << inside
        tile = read(level, first // TILE_WIDTH)
        start = first % TILE_WIDTH * HASH_BYTES
        hashes = tile[start : start + (HASH_BYTES << inside)]
        if len(hashes) != HASH_BYTES << inside:
            message = f"tile {level}/{first // TILE_WIDTH} is too short"
            raise ProofError(message)
        return perfect_root(hashes)

    return subtree


def _range_root(read: ReadSubtree, start: int, end: int) -> bytes:
    """Return the root over the leaves from `start` to before `end`, which must be a subtree as RFC 6962 splits trees."""
    count = end - start
    if count & (count - 1) == 0:
        height = count.bit_length() - 1
        return read(height, start >> height)
    split = start + _left_of(count)
    return node_hash(_range_root(read, start, split), _range_root(read, split, end))


def root_at(read: ReadSubtree, size: int) -> bytes:
    """Return the root that a tree had at a size."""
    return _range_root(read, 0, size) if size else EMPTY_ROOT


def prove_inclusion(read: ReadSubtree, index: int, size: int) -> list[bytes]:
    """Return the proof that a leaf is in a tree of a size (RFC 6962, 2.1.1)."""
    return list(_inclusion(read, index, 0, size))


def _inclusion(read: ReadSubtree, index: int, start: int, end: int) -> Iterator[bytes]:
    if end - start <= 1:
        return
    split = start + _left_of(end - start)
    if index < split:
        yield from _inclusion(read, index, start, split)
        yield _range_root(read, split, end)
    else:
        yield from _inclusion(read, index, split, end)
        yield _range_root(read, start, split)


def check_inclusion(*, leaf: bytes, index: int, size: int, root: bytes, proof: Iterable[bytes]) -> None:
    """Check that a leaf is in a tree (RFC 9162, 2.1.3.2).

    Raises:
        ProofError: the proof doesn't show that.
    """
    if not 0 <= index < size:
        message = f"index {index} is not in a tree of {size} leaves"
        raise ProofError(message)
    at, last, found = index, size - 1, leaf
    for step in proof:
        if last == 0:
            message = "the proof of inclusion is too long"
            raise ProofError(message)
        if at & 1 or at == last:
            found = node_hash(step, found)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            found = node_hash(found, step)
        at, last = at >> 1, last >> 1
    if last or found != root:
        message = f"the leaf of index {index} is not in the tree of {size} leaves"
        raise ProofError(message)


def prove_consistency(read: ReadSubtree, old: int, new: int) -> list[bytes]:
    """Return the proof that a tree of a size is a prefix of a later one (RFC 6962, 2.1.2)."""
    return [] if old in {0, new} else list(_consistency(read, old, 0, new, is_whole=True))


def _consistency(read: ReadSubtree, old: int, start: int, end: int, *, is_whole: bool) -> Iterator[bytes]:
    if old == end:
        if not is_whole:
            yield _range_root(read, start, end)
        return
    split = start + _left_of(end - start)
    if old <= split:
        yield from _consistency(read, old, start, split, is_whole=is_whole)
        yield _range_root(read, split, end)
    else:
        yield from _consistency(read, old, split, end, is_whole=False)
        yield _range_root(read, start, split)


def check_consistency(*, old: int, old_root: bytes, new: int, new_root: bytes, proof: Sequence[bytes]) -> None:
    """Check that a tree is a prefix of a later one (RFC 9162, 2.1.4.2).

    Raises:
        ProofError: the proof doesn't show that.
    """
    if not 0 <= old <= new:
        message = f"a tree of {new} leaves is no later one than a tree of {old}"
        raise ProofError(message)
    if old in {0, new}:
        if proof or old_root != (new_root if old == new else EMPTY_ROOT):
            message = f"two trees of {old} leaves differ"
            raise ProofError(message)
        return
    steps = [old_root, *proof] if old & (old - 1) == 0 else [*proof]
    at, last = old - 1, new - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    wrong = f"the tree of {old} leaves is not the beginning of the tree of {new}"
    if not steps:
        raise ProofError(wrong)
    found_old = found_new = steps[0]
    for step in steps[1:]:
        if last == 0:
            raise ProofError(wrong)
        if at & 1 or at == last:
            found_old, found_new = node_hash(step, found_old), node_hash(step, found_new)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            found_new = node_hash(found_new, step)
        at, last = at >> 1, last >> 1
    if last or found_old != old_root or found_new != new_root:
        raise ProofError(wrong)


def _left_of(count: int) -> int:
    """Return the largest power of two below a count above 1."""
    return 1 << (count - 1).bit_length() - 1
