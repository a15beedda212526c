"""A score written in CEL."""

from fractions import Fraction
from math import isfinite

import numpy as np

from policies.engine.cel import EvaluationFault, Expression, Result, Value
from policies.engine.objects.table import Numbers, Rows
from policies.engine.rule import Cycle
from policies.engine.ruleset import ScoreRule

MAX_SCORE = 100
# Up to this distance of the bounds the arithmetic fits into 64 bits.
_MAX_SPAN = 2**53


class ExpressionScore:
    """Maps the expression's value to 0..100 by the rule's bounds; without bounds by the values of the nodes at hand.

    A node for which the expression gives no finite number scores 0.
    """

    def __init__(self, rule: ScoreRule) -> None:
        self.expression = Expression(rule.expression, Result.NUMBER)
        self._bounds = None if rule.bounds is None else (Fraction(rule.bounds[0]), Fraction(rule.bounds[1]))

    def score(self, cycle: Cycle, rows: Rows) -> Numbers:
        """Evaluate the expression over the nodes and map its values."""
        return self.score_with_faults(cycle, rows)[0]

    def score_with_faults(self, cycle: Cycle, rows: Rows) -> tuple[Numbers, dict[str, int]]:
        """Return the scores, and on how many nodes the expression could not be evaluated, by message."""
        answers = self.expression.evaluate(cycle, rows)
        return self._mapped(answers.values)[answers.index], answers.faults()

    def _mapped(self, values: list[Value]) -> Numbers:
        numbers = [_number(value) for value in values]
        known = [number for number in numbers if number is not None]
        if not known:
            return np.zeros(len(values), dtype=np.int64)
        low, high = self._bounds or (Fraction(min(known)), Fraction(max(known)))
        if len(known) == len(values) and _is_whole([*known, low, high]) and high - low < _MAX_SPAN:
            return _map_whole(np.array(known, dtype=np.int64), int(low), int(high))
        return np.array([0 if number is None else _map(number, low, high) for number in numbers], dtype=np.int64)


def _number(value: Value) -> int | Fraction | None:
    if isinstance(value, EvaluationFault) or not isfinite(value):
        return None
    return value if isinstance(value, int) else Fraction(value)


def _is_whole(numbers: list[int | Fraction]) -> bool:
    return all(isinstance(number, int) or number.denominator == 1 for number in numbers)


def _map_whole(numbers: Numbers, low: int, high: int) -> Numbers:
    """Do what `_map` does for many whole numbers at once."""
    span = high - low
    if span == 0:
        return np.full(len(numbers), MAX_SCORE, dtype=np.int64)
    return (2 * MAX_SCORE * (np.clip(numbers, low, high) - low) + span) // (2 * span)


def _map(number: int | Fraction, low: Fraction, high: Fraction) -> int:
    """Map low..high to 0..100, rounded half up. Where low equals high all nodes are as good as the best."""
    if low == high:
        return MAX_SCORE
    share = (min(max(Fraction(number), low), high) - low) / (high - low)
    return (2 * share.numerator * MAX_SCORE + share.denominator) // (2 * share.denominator)
