"""The trees of the ledger: against the RFC's plain words, its known roots, and random sizes."""

import hashlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.ledger.tree import (
    EMPTY_ROOT,
    HASH_BYTES,
    TILE_WIDTH,
    Edge,
    ProofError,
    check_consistency,
    check_inclusion,
    leaf_hash,
    node_hash,
    prove_consistency,
    prove_inclusion,
    root_at,
    subtrees_of,
    widths,
)

# The leaves and roots that implementations of Certificate Transparency test with.
INPUTS = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def root_of(leaves: list[bytes]) -> bytes:
    """The root of a tree over hashes of leaves, as RFC 6962 defines it: slow and plain."""
    if len(leaves) < 2:
        return leaves[0] if leaves else EMPTY_ROOT
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return node_hash(root_of(leaves[:split]), root_of(leaves[split:]))


def hashes(count: int) -> list[bytes]:
    return [hashlib.sha256(b"%d" % number).digest() for number in range(count)]


class Store:
    """Keeps the tiles of a tree as the database does."""

    def __init__(self) -> None:
        self.edge = Edge()
        self.tiles: dict[tuple[int, int], bytes] = {}

    def append(self, leaves: list[bytes]) -> None:
        for tile in self.edge.append(b"".join(leaves)):
            former = self.tiles.get((tile.level, tile.number), b"")
            assert tile.hashes.startswith(former)
            self.tiles[tile.level, tile.number] = tile.hashes

    @property
    def subtree(self) -> Any:
        return subtrees_of(lambda level, number: self.tiles.get((level, number), b""))


@pytest.mark.parametrize("count", range(1, 9))
def test_known_roots_are_found(count: int) -> None:
    edge = Edge()
    edge.append(b"".join(leaf_hash(bytes.fromhex(data)) for data in INPUTS[:count]))
    assert edge.root().hex() == ROOTS[count - 1]


def test_an_empty_tree_has_the_root_of_nothing() -> None:
    assert Edge().root() == root_of([]) == EMPTY_ROOT == hashlib.sha256().digest()


@given(st.lists(st.integers(0, 700), min_size=1, max_size=5))
@settings(max_examples=25, deadline=None)
def test_appends_in_pieces_make_the_tree_of_the_whole(pieces: list[int]) -> None:
    leaves, store = hashes(sum(pieces)), Store()
    done = 0
    for piece in pieces:
        store.append(leaves[done : done + piece])
        done += piece
        again = Edge(done, [store.tiles.get((level, done >> 8 * (level + 1)), b"") for level in range(3)])
        assert again.root() == store.edge.root() == root_of(leaves[:done])
    assert root_at(store.subtree, done) == root_of(leaves)


def test_a_third_level_begins_with_the_first_whole_tile_of_the_second() -> None:
    store = Store()
    store.append(hashes(TILE_WIDTH * TILE_WIDTH + 3))
    assert {level for level, _number in store.tiles} == {0, 1, 2}
    assert list(widths(TILE_WIDTH * TILE_WIDTH + 3)) == [(0, 256, 3), (2, 0, 1)]
    assert root_at(store.subtree, TILE_WIDTH * TILE_WIDTH + 3) == store.edge.root()


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_in_a_tree_is_proved_and_nothing_else(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 600))
    index = data.draw(st.integers(0, size - 1))
    leaves, store = hashes(size), Store()
    store.append(leaves)
    proof = prove_inclusion(store.subtree, index, size)
    right: dict[str, Any] = {
        "leaf": leaves[index],
        "index": index,
        "size": size,
        "root": root_of(leaves),
        "proof": proof,
    }
    check_inclusion(**right)
    wrongs: list[dict[str, Any]] = [{"leaf": bytes(32)}, {"root": bytes(32)}, {"proof": [*proof, bytes(32)]}]
    wrongs += [{"index": size}, {"index": -1}]
    wrongs += [{"proof": proof[:-1]}, {"proof": [bytes(32), *proof[1:]]}] if proof else []
    wrongs += [{"index": (index + 1) % size}] if size > 1 else []
    for wrong in wrongs:
        with pytest.raises(ProofError):
            check_inclusion(**{**right, **wrong})


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_tree_is_proved_to_be_the_begin_of_a_later_one_and_of_no_other(data: st.DataObject) -> None:
    new = data.draw(st.integers(0, 600))
    old = data.draw(st.integers(0, new))
    leaves, store = hashes(new), Store()
    store.append(leaves)
    proof = prove_consistency(store.subtree, old, new)
    right: dict[str, Any] = {
        "old": old, "old_root": root_of(leaves[:old]), "new": new, "new_root": root_of(leaves), "proof": proof,
    }  # fmt: skip
    check_consistency(**right)
    wrongs: list[dict[str, Any]] = [{"old_root": bytes(32)}, {"proof": [*proof, bytes(32)]}, {"old": new + 1}]
    if old:
        wrongs.append({"new_root": bytes(32)})
    wrongs += [{"proof": proof[:-1]}, {"proof": [bytes(32), *proof[1:]]}] if proof else []
    for wrong in wrongs:
        with pytest.raises(ProofError):
            check_consistency(**{**right, **wrong})


def test_a_tree_with_a_tile_too_short_is_refused() -> None:
    with pytest.raises(ProofError, match="tile 0/1 has not 4 hashes, which a tree of 260 leaves needs"):
        Edge(260, [b"".join(hashes(3)), hashes(1)[0]])
    with pytest.raises(ProofError, match="tile 1/0 has not 1 hashes, which a tree of 260 leaves needs"):
        Edge(260, [b"".join(hashes(4))])
    store = Store()
    store.append(hashes(300))
    store.tiles[0, 1] = store.tiles[0, 1][: 10 * HASH_BYTES]
    with pytest.raises(ProofError, match="tile 0/1 is too short"):
        root_at(store.subtree, 300)


def test_the_root_itself_is_no_leaf_of_a_tree_of_several() -> None:
    root = node_hash(leaf_hash(b"leaf"), leaf_hash(b"other"))
    with pytest.raises(ProofError):
        check_inclusion(leaf=root, index=0, size=2, root=root, proof=[])


def test_a_leaf_of_a_deeper_tree_is_not_in_one_of_fewer_leaves() -> None:
    leaf, other = leaf_hash(b"leaf"), leaf_hash(b"other")
    deeper = node_hash(other, leaf)
    check_inclusion(leaf=leaf, index=1, size=2, root=deeper, proof=[other])
    with pytest.raises(ProofError, match="too long"):
        check_inclusion(leaf=leaf, index=0, size=1, root=deeper, proof=[other])
