"""Assignments: the live ones with changes applied, and the rows of the live ones."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from django.utils import timezone

from policies import compiler
from policies.engine import ruleset as engine
from policies.engine.errors import Fault
from policies.models import Assignment, RuleSet
from policies.publishing.errors import PublishingError
from policies.publishing.parts import Key, Kind, batches


def with_assignments(
    before: engine.Revision, wanted: Iterable[engine.Assignment], published: Collection[str]
) -> list[engine.Assignment]:
    """Return the live Assignments with some replaced or added; each of these must name a published rule set."""
    given = {each.name: each for each in wanted}
    faults = [_unpublished(each.name, each.rule_set) for each in given.values() if each.rule_set not in published]
    if faults:
        raise PublishingError(faults)
    return list(({each.name: each for each in before.assignments} | given).values())


def in_order(assignments: Iterable[engine.Assignment]) -> list[engine.Assignment]:
    """Return Assignments in the order of evaluation: by their order, then by name."""
    return sorted(assignments, key=_place)


class Orders(NamedTuple):
    """Two sides that want Assignments in incompatible orders. Of many Assignments, the lists hold those that would come out wrong.

    Attributes:
        live: their live order.
        mine: the order that a Change wants.
        both: the order by the numbers of both sides, which neither wants.
        wanted: all of them in the order that the Change wants; those added since are where they are live.
    """

    live: list[str]
    mine: list[str]
    both: list[str]
    wanted: list[str]

    @property
    def sentences(self) -> list[str]:
        """The three orders, in words."""
        said = (("asked now", self.live), ("asked as this edit has them", self.mine), ("by both's numbers", self.both))
        return [f"{what}: {', '.join(names[:_NAMED])}{', …' * (len(names) > _NAMED)}" for what, names in said]


# The most Assignments of an order that are named.
_NAMED = 20


def orders_apart(base: Mapping[str, int], live: Mapping[str, int], edits: Mapping[str, int | None]) -> Orders | None:
    """Compare the order of pairs of Assignments on the three sides; None where each pair is in the order wanted by whoever moved it. Pure.

    Args:
        base: the order of each Assignment when the edits were made, by name.
        live: the live order of each.
        edits: the order of each in the edits; None for an Assignment that they remove.
    """
    if base == live:
        return None
    sides = [_by_place(each) for each in (base, live, _edited(base, edits), _edited(live, edits))]
    bits = {name: 1 << place for place, name in enumerate(sides[3])}
    was, now, mine, both = (_Asked(names, bits) for names in sides)
    found = 0
    for name in (name for name in edits if name in bits and edits[name] != base.get(name)):
        # The Change's order for pairs that it reverses; the live order for pairs that it leaves alone.
        as_live = ~mine.all
        if name in was.before and name in now.before:
            as_live |= was.all & now.all & ~(was.before[name] ^ mine.before[name])
        wrong = mine.all & ~as_live & (mine.before[name] ^ both.before[name])
        if name in now.before:
            wrong |= now.all & as_live & (now.before[name] ^ both.before[name])
        if wrong & ~bits[name]:
            found |= wrong | bits[name]
    if not found:
        return None
    apart = {name for name, bit in bits.items() if found & bit}
    wanted_order = _with_new(sides[2], sides[1], bits.keys())
    shown = bits.keys() if len(bits) <= _NAMED else apart
    now_asked, my_order, by_both = (
        [name for name in names if name in shown] for names in (sides[1], wanted_order, sides[3])
    )
    return Orders(now_asked, my_order, by_both, wanted_order)


class _Asked:
    """An order of Assignments as bit sets, one bit for each: comparing one with all others takes a few operations.

    Attributes:
        all: those in this order.
        before: for each, those before it.
    """

    def __init__(self, names: Iterable[str], bits: Mapping[str, int]) -> None:
        self.before: dict[str, int] = {}
        self.all = 0
        for name in names:
            self.before[name] = self.all
            self.all |= bits.get(name, 0)


def _by_place(orders: Mapping[str, int]) -> list[str]:
    return sorted(orders, key=lambda name: (orders[name], name))


def _edited(orders: Mapping[str, int], edits: Mapping[str, int | None]) -> dict[str, int]:
    return {name: order for name, order in {**orders, **edits}.items() if order is not None}


def _with_new(mine: Sequence[str], live: Sequence[str], wanted: Collection[str]) -> list[str]:
    """Return my order of all future Assignments; each one added since comes after those that it comes after live."""
    known = {name for name in mine if name in wanted}
    behind: dict[str | None, list[str]] = {}
    last = None
    for name in live:
        if name in known:
            last = name
        elif name in wanted:
            behind.setdefault(last, []).append(name)
    found = behind.get(None, [])
    for name in (name for name in mine if name in known):
        found += [name, *behind.get(name, ())]
    return found


def _place(assignment: engine.Assignment) -> tuple[int, str]:
    return assignment.order, assignment.name


def orders_for(assignments: Iterable[engine.Assignment], names: Sequence[str]) -> dict[str, int]:
    """Return new orders, of as few Assignments as possible, so that they are evaluated in the order of these names. Pure.

    Assignments that needn't move keep theirs, and the others get numbers in between. Where there is no room, those from the old
    place to the new one exchange their numbers, or all are renumbered if that changes no more.
    """
    by_name = {each.name: each for each in assignments}
    wanted = [by_name[name] for name in names]
    kept = {each.name for each in _longest_rising(wanted)}
    found: dict[str, int] = {}
    run: list[engine.Assignment] = []
    low = -1
    for each in wanted:
        if each.name not in kept:
            run.append(each)
            continue
        if not _number(found, run, low, each.order):
            return _without_room(wanted)
        run, low = [], each.order
    if not _number(found, run, low, min(low + _STEP * (len(run) + 1), _LARGEST + 1)):
        return _without_room(wanted)
    return found


# The step between renumbered Assignments, and the largest order allowed.
_STEP, _LARGEST = 10, 1_000_000


def _number(found: dict[str, int], run: Sequence[engine.Assignment], low: int, high: int) -> bool:
    """Number those that moved between two others; return whether there was room."""
    step = (high - low) // (len(run) + 1)
    if run and step < 1:
        return False
    found |= {each.name: low + step * place for place, each in enumerate(run, 1)}
    return not run or low + step * len(run) < high


def _without_room(wanted: Sequence[engine.Assignment]) -> dict[str, int]:
    """Return the numbers that there are in the wanted order, or new ones for all if as few change by these."""
    anew, numbers = _all_anew(wanted), sorted(each.order for each in wanted)
    if len(set(numbers)) < len(numbers):
        return anew  # of equal numbers, names decide
    pairs = zip(wanted, numbers, strict=True)
    exchanged = {each.name: number for each, number in pairs if each.order != number}
    return exchanged if len(exchanged) < len(anew) else anew


def _all_anew(wanted: Sequence[engine.Assignment]) -> dict[str, int]:
    step = max(1, min(_STEP, _LARGEST // max(len(wanted), 1)))
    numbers = {each.name: step * place for place, each in enumerate(wanted, 1)}
    return {each.name: numbers[each.name] for each in wanted if each.order != numbers[each.name]}


def _longest_rising(wanted: Sequence[engine.Assignment]) -> list[engine.Assignment]:
    """Return the longest subsequence that is in the right order already (patience sorting)."""
    tops: list[tuple[int, str]] = []
    piles: list[int] = []
    behind: list[int | None] = []
    for index, each in enumerate(wanted):
        pile = bisect_left(tops, _place(each))
        behind.append(piles[pile - 1] if pile else None)
        tops[pile : pile + 1], piles[pile : pile + 1] = [_place(each)], [index]
    found: list[engine.Assignment] = []
    last = piles[-1] if piles else None
    while last is not None:
        found.append(wanted[last])
        last = behind[last]
    return found[::-1]


def follow_assignments(before: engine.Revision, target: engine.Revision, authors: Mapping[Key, str]) -> None:
    """Update the rows, which lists and filters read, to the new live state."""
    live = {assignment.name: assignment for assignment in before.assignments}
    wanted = {assignment.name: assignment for assignment in target.assignments}
    _write({name: each for name, each in wanted.items() if live.get(name) != each}, authors)
    for batch in batches([name for name in live if name not in wanted]):
        Assignment.objects.filter(name__in=batch).delete()


def _write(wanted: Mapping[str, engine.Assignment], authors: Mapping[Key, str]) -> None:
    rule_sets: dict[str, RuleSet] = {}
    for batch in batches(sorted({each.rule_set for each in wanted.values()})):
        rule_sets |= RuleSet.objects.in_bulk(batch, field_name="name")
    now = timezone.now()
    rows = [
        Assignment(
            **compiler.assignment_fields(each, rule_set=rule_sets[each.rule_set]),
            name=name,
            author=authors.get((Kind.ASSIGNMENT, name), ""),
            updated_at=now,
        )
        for name, each in wanted.items()
    ]
    # One statement for rows that exist and for new ones: an update of each row to values of its own takes ten times as long.
    Assignment.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["name"], update_fields=_WRITTEN, batch_size=_BATCH
    )


# The columns of an Assignment's row that follow the live state.
_WRITTEN = [field.name for field in Assignment._meta.concrete_fields if field.name not in ("id", "name")]  # noqa: SLF001 - Django's API

# The most rows that one statement writes.
_BATCH = 100


def _unpublished(name: str, rule_set: str) -> Fault:
    return Fault(name, f"rule set {rule_set} has no published version; publish it first")
