"""What is on few nodes each, and the index that finds it by its keys."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.sparse import _MAX_SINCE, Index, KeysOf, Sparse
from tests.builders import make_node

# A token is a number; its keys are its two last digits.
Tokens = set[int]


def keys_of(token: int) -> Iterable[int]:
    return {token % 10, token // 10 % 10}


def by_digit(_: object) -> KeysOf:
    return keys_of


def sparse_of(tokens: list[Tokens]) -> tuple[Sparse, list[NodeInfo], dict[str, Tokens]]:
    infos = [NodeInfo(Node.from_json(make_node(f"n{place}"))) for place in range(len(tokens))]
    held = {info.name: found for info, found in zip(infos, tokens, strict=True)}
    return Sparse.of(lambda info: [("group", token) for token in held[info.name]], infos), infos, held


tokens = st.sets(st.integers(0, 60), max_size=20)


@given(st.lists(tokens, min_size=3, max_size=3), st.lists(st.tuples(st.integers(0, 2), tokens), max_size=8))
def test_an_index_finds_what_is_there_whatever_came_and_went(
    first: list[Tokens], steps: list[tuple[int, Tokens]]
) -> None:
    sparse, infos, held = sparse_of(first)
    sparse.index("group", by_digit)
    for row, found in steps:
        held[infos[row].name] = found
        sparse = sparse.renewed(lambda info: [("group", token) for token in held[info.name]], infos, [row])
        there = set().union(*held.values())
        index = sparse.index("group", by_digit)
        assert set(sparse.group("group")) == there
        for key in range(10):
            expected = sorted(token for token in there if key in keys_of(token))
            assert sorted(index.having(key)) == expected  # type: ignore[type-var] # numbers
            assert index.most(key) >= len(expected)
            assert set(expected) <= set(index.may_have([key])) <= there


def test_an_index_stays_while_few_tokens_come_and_is_made_anew_after_many() -> None:
    index = Index.of([1, 2], by_digit)
    few = index.changed(frozenset(range(100, 100 + _MAX_SINCE)), frozenset())
    assert few is not None
    assert few.changed(frozenset({1_000}), frozenset()) is None


def test_a_group_whose_last_token_went_is_gone() -> None:
    sparse, infos, held = sparse_of([{1}, {1}])
    sparse.index("group", by_digit)
    held["n0"] = held["n1"] = set()
    assert not list(
        sparse.renewed(lambda info: [("group", token) for token in held[info.name]], infos, [0, 1]).groups()
    )


def test_an_index_finds_what_is_there_after_many_came() -> None:
    sparse, infos, held = sparse_of([{1}])
    sparse.index("group", by_digit)
    held["n0"] = set(range(1_000, 1_000 + _MAX_SINCE + 1))
    sparse = sparse.renewed(lambda info: [("group", token) for token in held[info.name]], infos, [0])
    assert sorted(sparse.index("group", by_digit).having(9)) == [t for t in sorted(held["n0"]) if 9 in keys_of(t)]  # type: ignore[type-var] # numbers
