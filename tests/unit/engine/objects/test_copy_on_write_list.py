"""A list of which entries change again and again."""

from hypothesis import given
from hypothesis import strategies as st

from policies.engine.objects.copy_on_write_list import _MAX_PATCHES, CopyOnWriteList

changes = st.lists(st.dictionaries(st.integers(0, 599), st.integers(), max_size=200), max_size=6)


@given(changes)
def test_a_changed_list_holds_what_a_copied_one_would(steps: list[dict[int, int]]) -> None:
    following, copied = CopyOnWriteList(list(range(600))), list(range(600))
    for step in steps:
        following = following.changed(step)
        for position, entry in step.items():
            copied[position] = entry
    assert list(following) == following.listed() == copied
    assert [following[position] for position in range(len(following))] == copied
    assert list(following[10:20]) == copied[10:20]


def test_an_earlier_list_stays_as_it_was() -> None:
    first = CopyOnWriteList(["a", "b"])
    assert list(first.changed({1: "c"})) == ["a", "c"]
    assert list(first) == ["a", "b"]


def test_many_patches_become_a_list_again() -> None:
    following = CopyOnWriteList(list(range(600))).changed(dict.fromkeys(range(_MAX_PATCHES), -1))
    assert len(following._patches) == _MAX_PATCHES
    assert not following.changed({_MAX_PATCHES: -1})._patches
