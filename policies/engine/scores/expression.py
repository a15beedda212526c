"""A score written in CEL."""

import sys
from fractions import Fraction
from math import isfinite

import numpy as np
import numpy.typing as npt

from policies.engine.cel import EvaluationFault, Expression, Result, Value, seen_by, shown
from policies.engine.objects.table import Numbers, Rows
from policies.engine.rule import Cycle, Detail, Scope, Score
from policies.engine.ruleset import ScoreRule

MAX_SCORE = 100
# 64-bit numbers are below this, and while the bounds are at most this far apart, intermediate results are, too.
_LIMIT = 2**63
_MAX_SPAN = 2**53
# A score computed in doubles that lies this close to a half is recomputed in fractions.
_NEAR = 1e-9


class ExpressionScore(Score):
    """Maps the expression's value to 0..100 by the rule's bounds; without bounds, by the values of the nodes at hand.

    A node for which the expression gives no finite number scores 0.
    """

    def __init__(self, rule: ScoreRule) -> None:
        self.expression = Expression(rule.expression, Result.NUMBER)
        self.counts_pods = self.expression.counts_pods
        self.reads_now = self.expression.reads_now
        self.pod_paths = self.expression.pod_paths
        self.joins_params = self.expression.joins_params
        self._given = rule.bounds
        self._bounds = None if rule.bounds is None else (Fraction(rule.bounds[0]), Fraction(rule.bounds[1]))
        # Without bounds the values of other nodes are the bounds, and these depend on the Pods there.
        relative = rule.bounds is None and self.expression.scope is Scope.NODE_AND_PODS
        self.scope = Scope.CLUSTER if relative else self.expression.scope

    def score(self, cycle: Cycle, rows: Rows) -> Numbers:
        """Evaluate the expression over the nodes and map its values."""
        return self.score_with_faults(cycle, rows)[0]

    def score_with_faults(self, cycle: Cycle, rows: Rows) -> tuple[Numbers, dict[str, int]]:
        """Return the scores, and on how many nodes the expression could not be evaluated, by message."""
        answers = self.expression.evaluate(cycle, rows)
        return self._mapped(answers.values)[answers.index], answers.faults()

    def detail(self, cycle: Cycle, row: int, scored: Rows) -> Detail:
        """Return what the expression read, its value, and the bounds."""
        seen = seen_by(self.expression, cycle, row)
        source = " ".join(self.expression.source.split())
        (value,) = self._numbers(cycle, np.array([row], dtype=np.intp))
        known = [number for number in self._numbers(cycle, scored) if number is not None]
        bounds = self._given or ((min(known), max(known)) if known else None)
        read = f"; it read {shown(seen)}" if seen else ""
        if value is None or bounds is None:
            says = f"the expression gave no number, which counts as the least{read}"
            return Detail(says, source, "", seen, None, bounds)
        whose = "its bounds" if self._given else "the lowest and highest of the nodes scored"
        says = f"the expression gave {value} between {bounds[0]} and {bounds[1]}, {whose}{read}"
        remedy = "" if value >= bounds[1] else f"{bounds[1]} and more would give {MAX_SCORE}"
        return Detail(says, source, remedy, seen, value, bounds)

    def _numbers(self, cycle: Cycle, rows: Rows) -> list[float | int | None]:
        """Return the value of each row as it is; None for a value that isn't a finite number."""
        values = self.expression.evaluate(cycle, rows).listed()
        return [None if isinstance(value, EvaluationFault) or not isfinite(value) else value for value in values]

    def _mapped(self, values: list[Value]) -> Numbers:
        numbers = [_number(value) for value in values]
        known = [number for number in numbers if number is not None]
        mapped = np.zeros(len(values), dtype=np.int64)
        if known:
            low, high = self._bounds or (Fraction(min(known)), Fraction(max(known)))
            mapped[[number is not None for number in numbers]] = _map_all(known, low, high)
        return mapped


def _number(value: Value) -> int | float | None:
    return None if isinstance(value, EvaluationFault) or not isfinite(value) else value


def _map_all(numbers: list[int | float], low: Fraction, high: Fraction) -> Numbers:
    """Map low..high to 0..100, with a fast path for numbers of one kind."""
    kinds = set(map(type, numbers))
    if kinds == {float} and _are_doubles(low, high):
        return _map_doubles(np.array(numbers, dtype=np.float64), low, high)
    # uint() may give a larger number on one node.
    if kinds == {int} and _are_whole(low, high) and high - low < _MAX_SPAN and max(numbers) < _LIMIT:
        return _map_whole(np.array(numbers, dtype=np.int64), int(low), int(high))
    return np.array([_map(Fraction(number), low, high) for number in numbers], dtype=np.int64)


def _are_whole(low: Fraction, high: Fraction) -> bool:
    """Return whether both bounds are whole numbers of 64 bits."""
    return low.denominator == high.denominator == 1 and low >= -_LIMIT and high < _LIMIT


def _map_whole(numbers: Numbers, low: int, high: int) -> Numbers:
    """Map many whole numbers at once, as `_map` maps one."""
    span = high - low
    if span == 0:
        return np.full(len(numbers), MAX_SCORE, dtype=np.int64)
    return (2 * MAX_SCORE * (np.clip(numbers, low, high) - low) + span) // (2 * span)


def _are_doubles(low: Fraction, high: Fraction) -> bool:
    """Return whether both bounds are exact doubles, and their distance is finite."""
    most = Fraction(sys.float_info.max)
    return (
        max(abs(low), abs(high), high - low) <= most and Fraction(float(low)) == low and Fraction(float(high)) == high
    )


def _map_doubles(numbers: npt.NDArray[np.float64], low: Fraction, high: Fraction) -> Numbers:
    """Map many doubles at once, as `_map` maps one."""
    if low == high:
        return np.full(len(numbers), MAX_SCORE, dtype=np.int64)
    lowest, span = float(low), float(high - low)
    shares = (np.clip(numbers, lowest, float(high)) - lowest) / span * MAX_SCORE
    mapped = np.floor(shares + 0.5).astype(np.int64)
    near = np.flatnonzero(~(np.abs(shares - np.floor(shares) - 0.5) > _NEAR))
    mapped[near] = [_map(Fraction(number), low, high) for number in numbers[near].tolist()]
    return mapped


def _map(number: Fraction, low: Fraction, high: Fraction) -> int:
    """Map low..high to 0..100, rounded half up. Where low equals high all nodes get the best score."""
    if low == high:
        return MAX_SCORE
    share = (min(max(number, low), high) - low) / (high - low)
    return (2 * share.numerator * MAX_SCORE + share.denominator) // (2 * share.denominator)
