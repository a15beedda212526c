"""What comes out wrong of two orders of Assignments: by comparing each pair, which takes long, and as `orders_apart` does it."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from hypothesis import example, given
from hypothesis import strategies as st

from policies.publishing.assignments import Orders, orders_apart

Places = Mapping[str, int]

names = st.sampled_from("abcdefgh")
orders = st.dictionaries(names, st.integers(0, 6))


def is_first(places: Places, one: str, other: str) -> bool | None:
    return places[one] < places[other] if one in places and other in places else None


def by_place(of: Places) -> list[str]:
    return sorted(of, key=lambda name: (of[name], name))


def edited(of: Places, edits: Mapping[str, int | None]) -> dict[str, int]:
    return {name: order for name, order in {**of, **edits}.items() if order is not None}


def by_pairs(base: Places, live: Places, edits: Mapping[str, int | None]) -> tuple[set[str], list[list[str]]]:
    """Compare each pair as the three sides ask it: who comes out wrong, and the orders."""
    sides = [by_place(each) for each in (base, live, edited(base, edits), edited(live, edits))]
    was, now, mine, both = ({name: place for place, name in enumerate(each)} for each in sides)
    apart: set[str] = set()
    for name in (name for name in edits if name in both and edits[name] != base.get(name)):
        for other in both.keys() - {name}:
            wanted = is_first(mine, name, other)
            if wanted is None or (wanted == is_first(was, name, other) and name in now and other in now):
                wanted = is_first(now, name, other)
            if wanted is not None and wanted != is_first(both, name, other):
                apart |= {name, other}
    return apart, sides


def with_new(mine: Sequence[str], live: Sequence[str], wanted: set[str]) -> list[str]:
    """The order of one side, with what is new of the other behind whatever it stands behind there, put in one by one."""
    found = [name for name in mine if name in wanted]
    known, before = set(found), -1
    for name in live:
        if name in known:
            before = found.index(name)
        elif name in wanted:
            before += 1
            found.insert(before, name)
    return found


@given(orders, orders, st.dictionaries(names, st.one_of(st.none(), st.integers(0, 6))))
@example({"a": 1, "b": 2}, {"a": 1, "b": 0}, {"a": 3})
@example({}, {"a": 1, "b": 2}, {"c": 1})
def test_it_finds_what_comparing_each_pair_finds(base: Places, live: Places, edits: Mapping[str, int | None]) -> None:
    apart, (_, now, mine, both) = by_pairs(base, live, edits)
    wanted = with_new(mine, now, set(both))
    shown = set(both)  # of few all are shown
    expected = Orders(*([name for name in each if name in shown] for each in (now, wanted, both)), wanted)
    assert orders_apart(base, live, edits) == (expected if apart and base != live else None)


@given(st.data())
def test_of_many_it_shows_those_that_come_out_wrong(data: st.DataObject) -> None:
    many = [f"a{number:02}" for number in range(24)]
    base = {name: 10 * place for place, name in enumerate(many)}
    of_some = st.dictionaries(st.sampled_from(many), st.integers(0, 240), max_size=4)
    live = base | data.draw(of_some)
    edits = data.draw(of_some)
    apart, (_, now, _, both) = by_pairs(base, live, edits)
    found = orders_apart(base, live, edits)
    assert (set(found.live), set(found.both)) == (apart & set(now), apart & set(both)) if found else not apart


def test_two_thousand_that_both_sides_number_anew_take_steps_for_each_and_not_for_each_pair() -> None:
    many = [f"a{number:04}" for number in range(2_000)]
    base = {name: 10 * place for place, name in enumerate(many)}
    live = {name: 5 * place + 3 for place, name in enumerate(reversed(many))}
    edits: dict[str, int | None] = {name: 7 * place for place, name in enumerate(many)}
    with counted_lines() as lines:
        found = orders_apart(base, live, edits)
    assert found is not None
    assert found.wanted == many
    assert lines[0] < 100 * len(many)


@contextmanager
def counted_lines() -> Iterator[list[int]]:
    """Count the lines of Python that are run meanwhile: the same on each machine, as a clock isn't."""
    lines = [0]

    def count(_frame: FrameType, event: str, _more: object) -> Callable[..., object]:
        lines[0] += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        yield lines
    finally:
        sys.settrace(before)
