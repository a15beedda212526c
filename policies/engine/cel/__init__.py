"""CEL, the language of expressions: compiles, checks and prices what a rule's author wrote, and evaluates it over nodes.

Other packages import this package only, not the modules inside.
"""

from policies.engine.cel.clock import LONGEST, SECOND, Clock, Crossing, Line, Period, Term
from policies.engine.cel.cost import (
    MAX_RULE_SET_MILLISECONDS,
    OF_PREEMPTION,
    Cost,
    too_costly,
    too_costly_together,
)
from policies.engine.cel.expressions import Answers, Expression, Result, Value, cost_of
from policies.engine.cel.language import EvaluationFault
from policies.engine.cel.oversize import TOO_LARGE, TooLarge
from policies.engine.cel.seen import Seen, seen_by, shown, values_at
from policies.engine.cel.victim_expression import VictimExpression

__all__ = [
    "LONGEST",
    "MAX_RULE_SET_MILLISECONDS",
    "OF_PREEMPTION",
    "SECOND",
    "TOO_LARGE",
    "Answers",
    "Clock",
    "Cost",
    "Crossing",
    "EvaluationFault",
    "Expression",
    "Line",
    "Period",
    "Result",
    "Seen",
    "Term",
    "TooLarge",
    "Value",
    "VictimExpression",
    "cost_of",
    "seen_by",
    "shown",
    "too_costly",
    "too_costly_together",
    "values_at",
]
