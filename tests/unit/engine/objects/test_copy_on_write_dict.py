"""A dict of which entries change again and again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.objects.copy_on_write_dict import _MAX_PATCHES, CopyOnWriteDict

changes = st.lists(st.dictionaries(st.integers(0, 599), st.none() | st.integers(), max_size=200), max_size=6)


@given(changes)
def test_a_changed_dict_holds_what_a_copied_one_would(steps: list[dict[int, int | None]]) -> None:
    copied: dict[int, int] = {number: number for number in range(0, 600, 2)}
    following = CopyOnWriteDict(dict(copied))
    for step in steps:
        following = following.changed(step)
        for key, value in step.items():
            if value is None:
                copied.pop(key, None)
            else:
                copied[key] = value
    assert dict(following.items()) == copied
    assert set(following) == set(following.keys()) == set(copied)
    assert sorted(following.values()) == sorted(copied.values())
    assert len(following) == len(copied)
    assert [following.get(key) for key in range(600)] == [copied.get(key) for key in range(600)]


def test_an_earlier_dict_stays_as_it_was() -> None:
    first = CopyOnWriteDict({"a": 1, "b": 2})
    assert dict(first.changed({"a": None, "c": 3})) == {"b": 2, "c": 3}
    assert dict(first) == {"a": 1, "b": 2}


def test_what_was_taken_away_is_not_there() -> None:
    with pytest.raises(KeyError):
        CopyOnWriteDict({"a": 1}).changed({"a": None})["a"]


def test_many_patches_become_a_dict_again() -> None:
    following = CopyOnWriteDict({0: 0}).changed(dict.fromkeys(range(_MAX_PATCHES), 1))
    assert len(following._patches) == _MAX_PATCHES
    assert not following.changed({_MAX_PATCHES: 1})._patches
