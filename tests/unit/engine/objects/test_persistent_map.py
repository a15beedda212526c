"""A mapping that is changed by giving another one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.objects.persistent_map import PersistentMap

CHANGES = st.lists(st.dictionaries(st.integers(0, 30), st.none() | st.integers(0, 5), max_size=6), max_size=8)


@given(changes=CHANGES)
def test_changes_end_where_a_dict_ends_and_leave_earlier_states_alone(changes: list[dict[int, int | None]]) -> None:
    truth: dict[int, int] = {}
    kept: PersistentMap[int, int] = PersistentMap()
    states = [(kept, dict(truth))]
    for change in changes:
        truth |= change  # type: ignore[arg-type] # None is taken out below
        truth = {key: value for key, value in truth.items() if value is not None}
        kept = kept.changed(change)
        states.append((kept, dict(truth)))
    for state, expected in states:
        assert state == expected
        assert len(state) == len(expected)
        assert sorted(state) == sorted(expected)


def test_a_key_that_is_not_there_is_refused_as_a_dict_does() -> None:
    kept = PersistentMap({"a": 1})
    assert kept["a"] == 1
    assert "b" not in kept
    assert kept.get("b", 2) == 2
    with pytest.raises(KeyError):
        kept["b"]


def test_a_change_of_one_key_shares_all_other_shards() -> None:
    kept = PersistentMap({number: number for number in range(5_000)})
    after = kept.changed({7: 8})
    shared = [one is other for one, other in zip(kept._shards, after._shards, strict=True)]
    assert shared.count(False) == 1
