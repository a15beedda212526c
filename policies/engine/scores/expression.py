"""A score written in CEL."""

from fractions import Fraction
from math import isfinite

import numpy as np

from policies.engine.cycle import Cycle
from policies.engine.expressions import EvaluationFault, Expression, Result, Value
from policies.engine.objects.table import Numbers, Rows
from policies.engine.ruleset import ScoreRule

MAX_SCORE = 100


class ExpressionScore:
    """Maps the expression's value to 0..100 by the rule's bounds; without bounds by the values of the nodes at hand.

    A node for which the expression gives no finite number scores 0.
    """

    def __init__(self, rule: ScoreRule) -> None:
        self.expression = Expression(rule.expression, Result.NUMBER)
        self._bounds = None if rule.bounds is None else (Fraction(rule.bounds[0]), Fraction(rule.bounds[1]))

    def score(self, cycle: Cycle, rows: Rows) -> Numbers:
        """Evaluate the expression over the nodes and map its values."""
        answers = self.expression.evaluate(cycle, rows)
        numbers = [_number(value) for value in answers.values]
        known = [number for number in numbers if number is not None]
        if not known:
            return np.zeros(len(rows), dtype=np.int64)
        low, high = self._bounds or (min(known), max(known))
        mapped = [0 if number is None else _map(number, low, high) for number in numbers]
        return np.array(mapped, dtype=np.int64)[answers.index]


def _number(value: Value) -> Fraction | None:
    if isinstance(value, EvaluationFault) or not isfinite(value):
        return None
    return Fraction(value)


def _map(number: Fraction, low: Fraction, high: Fraction) -> int:
    """Map low..high to 0..100, rounded half up. Where low equals high all nodes are as good as the best."""
    if low == high:
        return MAX_SCORE
    share = (min(max(number, low), high) - low) / (high - low)
    return (2 * share.numerator * MAX_SCORE + share.denominator) // (2 * share.denominator)
