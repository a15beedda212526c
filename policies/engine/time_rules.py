"""When rules that read `now` can next change their answer: the earliest moment for one Pod on some nodes. Pure.

Only enforced filters are considered: a score refuses no Pod. Moments are whole microseconds, as `Cycle.now` is. They are never
later than the true change, except for rules that use `now` elsewhere than in a comparison or a part of the clock
(`string(now)`): these are taken to change at the next full second.
"""

import re
from collections.abc import Container, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import product
from math import prod

from policies.engine.cel import LONGEST, SECOND, Crossing, EvaluationFault, Expression, Line, Period, Term
from policies.engine.decision import CompiledRuleSet
from policies.engine.filters.expression import ExpressionFilter
from policies.engine.objects.table import Rows
from policies.engine.rule import Cycle

# The most combinations of values that are looked at: those of one loop's values grow with the power of the terms, and take time
# that nothing priced.
_MOST_COMBINATIONS = 50_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = 1000
_QUARTER_HOUR = 900 * SECOND
# 1 May 1972. Since then every zone of the tz database has differed from UTC by whole quarters of an hour.
_ZONES_BY_QUARTERS = 73_526_400 * SECOND
_OFFSET = re.compile(r"([+-]?)(\d{1,2}):(\d{1,2})")
_DURATION = re.compile(r"(-?)(\d+)(?:\.(\d+))?s")
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?Z")


class _UnknownError(Exception):
    """A value isn't available, or can't be computed with."""


def time_filters(rule_set: CompiledRuleSet) -> dict[str, Expression]:
    """Return the enforced filters that read `now`, by their keys."""
    return {
        rule.key: made.expression
        for rule, made in rule_set.filters
        if rule.mode == "enforce" and isinstance(made, ExpressionFilter) and made.expression.reads_now
    }


def next_change(
    rule_set: CompiledRuleSet, cycle: Cycle, rows: Rows, *, rules: Container[str] | None = None
) -> datetime | None:
    """Return the earliest moment after `cycle.now` at which a filter can change its answer by itself.

    Args:
        rule_set: the rules; only its enforced filters that read `now` are considered.
        cycle: the Pod, the Snapshot and the moment.
        rows: the nodes asked about, as rows of the Snapshot's table.
        rules: the keys of the filters to consider; all of them when None.

    Returns:
        The moment, in UTC; None when no answer ever changes by itself.
    """
    asked = [made for key, made in time_filters(rule_set).items() if rules is None or key in rules]
    found = [moment for made in asked if (moment := _next_of(made, cycle, rows)) is not None]
    return min(found, default=None)


def _next_of(expression: Expression, cycle: Cycle, rows: Rows) -> datetime | None:
    if not len(rows):
        return None
    now = (cycle.now - _EPOCH) // timedelta(microseconds=1)
    reads_nodes = expression.reads["node"] or expression.reads["usage"] or expression.counts_pods
    asked = _Asked(expression, cycle, rows if reads_nodes else rows[:1], now * _MICROSECOND)
    found = [moment for moment in asked.moments() if moment > now]
    try:
        return _EPOCH + timedelta(microseconds=min(found)) if found else None
    except OverflowError:  # beyond the year 9999
        return None


class _Asked:
    """One expression, evaluated for one Pod on some nodes. `now` is in nanoseconds since 1970; moments are in microseconds."""

    def __init__(self, expression: Expression, cycle: Cycle, rows: Rows, now: int) -> None:
        self._expression = expression
        self._cycle = cycle
        self._rows = rows
        self._now = now

    def moments(self) -> Iterator[int]:
        """Iterate over the moments at which the answer can change; of repeating ones, those near `now`."""
        clock = self._expression.clock
        if clock.each_second:
            yield self._next_second()
        for crossing in clock.crossings:
            yield from self._or_each_second(self._crossings(crossing))
        for period in clock.periods:
            yield from self._or_each_second(self._boundaries(period))

    def _next_second(self) -> int:
        return (self._now // SECOND + 1) * (SECOND // _MICROSECOND)

    def _or_each_second(self, moments: Iterator[int]) -> Iterator[int]:
        try:
            yield from moments
        except _UnknownError:
            yield self._next_second()

    def _crossings(self, crossing: Crossing) -> Iterator[int]:
        slope = crossing.line.slope
        if slope == 0:
            return  # `now` stands on both sides
        for constant, _ in self._constants(crossing.line, None):
            zero, unit = (-constant if slope > 0 else constant), abs(slope) * _MICROSECOND
            if crossing.at_zero:
                yield -(-zero // unit)
            if crossing.after_zero:
                yield zero // unit + 1

    def _boundaries(self, period: Period) -> Iterator[int]:
        slope = period.line.slope
        if slope == 0:
            return
        if abs(slope) != 1:
            raise _UnknownError
        for constant, zone in self._constants(period.line, period.zone):
            value = slope * self._now + constant
            unit, offset = (
                _unit_in(zone, period.unit_nanoseconds, value) if period.clock else (period.unit_nanoseconds, 0)
            )
            boundary = self._now - slope * ((value + offset) % unit)
            # A clock changes at a multiple of the unit; one that runs backwards, just after it. Durations are cut towards zero.
            for near in (boundary - unit, boundary, boundary + unit):
                if slope > 0 or not period.clock:
                    yield -(-near // _MICROSECOND)
                if slope < 0 or not period.clock:
                    yield near // _MICROSECOND + 1

    def _constants(self, line: Line, zone: Term | None) -> Iterator[tuple[int, str]]:
        """Iterate over the constant part of a line (without slope x now) and the zone: each distinct pair among the nodes.

        Raises:
            _UnknownError: a loop's values have too many combinations.
        """
        signs = [sign for sign, _ in line.terms]
        terms = [term for _, term in line.terms] + ([zone] if zone else [])
        combinations = _combinations([self._texts(term) for term in terms])
        if sum(prod(map(len, chosen)) for chosen in combinations) > _MOST_COMBINATIONS:
            raise _UnknownError
        for texts in {choice for chosen in combinations for choice in product(*chosen)}:
            numbers = [_nanoseconds(text) for text in texts[: len(signs)]]
            if None not in numbers:
                total = sum(sign * number for sign, number in zip(signs, numbers, strict=True) if number is not None)
                yield line.offset_nanoseconds + total, texts[-1] if zone else ""

    def _texts(self, term: Term) -> tuple[list[Sequence[str]], list[int]]:
        """Return the distinct values of a term, each as the texts that it yields, and which of them each node has.

        A node on which the term can't be evaluated has no value: there, time never changes the outcome of the comparison.
        """
        values, index = self._expression.sub_expression(term.serialized).values(self._cycle, self._rows)
        if term.in_loop and any(isinstance(value, EvaluationFault) for value in values):
            raise _UnknownError  # other iterations of the loop may still have a value
        return [tuple(dict.fromkeys(_flat(value))) for value in values], index.tolist()


def _flat(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for inner in value:
            yield from _flat(inner)


def _combinations(columns: list[tuple[list[Sequence[str]], list[int]]]) -> Sequence[tuple[Sequence[str], ...]]:
    """Return the distinct combinations of values that nodes have."""
    if not columns:
        return [()]
    codes = zip(*(index for _, index in columns), strict=True)
    return [
        tuple(values[code] for (values, _), code in zip(columns, combination, strict=True))
        for combination in set(codes)
    ]


def _nanoseconds(text: str) -> int | None:
    """Read a time or a duration as CEL writes it, None for another text.

    Raises:
        _UnknownError: CEL doesn't compute correctly with a duration this long (292 years).
    """
    if found := _TIMESTAMP.fullmatch(text):
        seconds = (datetime.fromisoformat(f"{found[1]}+00:00") - _EPOCH) // timedelta(seconds=1)
        return seconds * SECOND + int((found[2] or "").ljust(9, "0"))
    if found := _DURATION.fullmatch(text):
        amount = int(found[2]) * SECOND + int((found[3] or "").ljust(9, "0"))
        if amount >= LONGEST:
            raise _UnknownError
        return -amount if found[1] else amount
    return None


def _unit_in(zone: str, unit: int, value: int) -> tuple[int, int]:
    """Return the unit at whose multiples a part of the clock can change in a zone, and the offset to add to UTC first."""
    offset = _OFFSET.fullmatch(zone)
    if zone in {"", "UTC"}:
        return unit, 0
    if offset:
        seconds = int(offset[2]) * 3600 + int(offset[3]) * 60
        return unit, (-seconds if offset[1] == "-" else seconds) * SECOND
    if value < _ZONES_BY_QUARTERS:
        return min(unit, SECOND), 0
    return min(unit, _QUARTER_HOUR), 0
