"""A filter written in CEL."""

import numpy as np

from policies.engine.cel import EvaluationFault, Expression, Result, Value
from policies.engine.objects.table import Rows
from policies.engine.rule import Cycle
from policies.engine.ruleset import FilterRule
from policies.engine.status import PASSED, Code, Status, Verdicts

_REFUSED, _FAILED = 0, 1


class ExpressionFilter:
    """Passes the nodes on which the expression is true.

    Where it can't be evaluated the rule's onError decides: `reject` refuses the node with code Error, `pass` lets it
    pass. One node that can't be evaluated never changes the answer for another.
    """

    def __init__(self, rule: FilterRule) -> None:
        self.expression = Expression(rule.expression, Result.BOOLEAN)
        code = Code.UNSCHEDULABLE if rule.preemption_helps else Code.UNRESOLVABLE
        refused = Status(code, rule.reason or f"refused by rule {rule.key}")
        failed = Status(Code.ERROR, f"rule {rule.key} could not be evaluated")
        self._statuses = [refused, failed]
        self._on_error = _FAILED if rule.on_error == "reject" else PASSED

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Evaluate the expression over the nodes."""
        answers = self.expression.evaluate(cycle, rows)
        codes = np.array([self._code(value) for value in answers.values], dtype=np.int32)
        return Verdicts(codes[answers.index], self._statuses, answers.faults())

    def _code(self, value: Value) -> int:
        if isinstance(value, EvaluationFault):
            return self._on_error
        return PASSED if value else _REFUSED
