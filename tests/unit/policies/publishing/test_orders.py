"""Numbers for another order of Assignments: as few as possible change, and the order that comes out is the one that is wanted."""

import random

import pytest

from policies.publishing.assignments import in_order, orders_for
from tests.builders import make_assignment


def made(orders: dict[str, int]) -> list[object]:
    return [make_assignment(name, order=order) for name, order in orders.items()]


@pytest.mark.parametrize(
    ("orders", "wanted", "changed"),
    [
        ({"a": 10, "b": 20, "c": 30}, "abc", {}),
        ({"a": 10, "b": 20, "c": 30}, "acb", {"c": 15}),
        ({"a": 10, "b": 20, "c": 30}, "cab", {"c": 4}),
        ({"a": 10, "b": 20, "c": 30}, "bac", {"b": 4}),
        ({"a": 1, "b": 2, "c": 3}, "bac", {"b": 0}),
        ({"a": 0, "b": 5}, "ba", {"b": 10, "a": 20}),
        ({"a": 1_000_000, "b": 5}, "ab", {"a": 2}),
        ({}, "", {}),
        ({"a": 1, "b": 2, "c": 3, "d": 4}, "acbd", {"c": 2, "b": 3}),
        ({"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}, "adbce", {"d": 2, "b": 3, "c": 4}),
        ({"a": 1, "b": 1, "c": 2}, "bac", {"b": 0}),
        ({"a": 0, "b": 0, "c": 1}, "bac", {"b": 10, "a": 20, "c": 30}),
    ],
)
def test_those_that_move_get_a_number_between_their_neighbours(
    orders: dict[str, int], wanted: str, changed: dict[str, int]
) -> None:
    assert orders_for(made(orders), list(wanted)) == changed  # type: ignore[arg-type]


def test_a_move_among_numbers_without_gaps_changes_few_of_many() -> None:
    """All of 2,000 renumbered are 2,000 edits: somebody reviews them, and other people's edits of these conflict."""
    names = [f"a{number}" for number in range(2_000)]
    before = [make_assignment(name, order=number) for number, name in enumerate(names)]
    names[700], names[701] = names[701], names[700]
    assert orders_for(before, names) == {"a701": 700, "a700": 701}


def test_whatever_is_wanted_comes_out_within_bounds() -> None:
    chance = random.Random(5)
    for _ in range(300):
        number = chance.randrange(1, 9)
        high = chance.choice([3, 40, 1_000_000])
        before = [make_assignment(f"a{each}", order=chance.randrange(high + 1)) for each in range(number)]
        names = [each.name for each in before]
        chance.shuffle(names)
        orders = orders_for(before, names)
        after = [make_assignment(each.name, order=orders.get(each.name, each.order)) for each in before]
        assert [each.name for each in in_order(after)] == names
        assert all(0 <= order <= 1_000_000 for order in orders.values())
