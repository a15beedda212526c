"""A filter written in CEL."""

import re
from collections.abc import Sequence

import numpy as np

from policies.engine.cel import EvaluationFault, Expression, Result, Seen, TooLarge, Value, seen_by, shown
from policies.engine.objects.table import Rows
from policies.engine.rule import NAMESPACE, NODE, NODE_GONE, POD_CHANGES, Cycle, Detail, Filter, Scope
from policies.engine.ruleset import DEFAULT_FAILURES, Failures, FilterRule
from policies.engine.selectors import Labels
from policies.engine.status import PASSED, Code, Status, Verdicts

_REFUSED, _FAILED, _LARGE = 0, 1, 2
# The variables of an expression that can differ from node to node.
_OF_NODES = ("node", "usage", "topology")
# What the other variables stand for.
_OF_NO_NODE = {
    "pod": "the Pod",
    "requests": "the Pod",
    "namespaceObject": "the Pod's namespace",
    "params": "params",
    "cluster": "how many Pods it counts",
    "now": "the time",
}

_REQUEUED_BY = {
    Scope.NODE: frozenset({NODE}),
    Scope.NODE_AND_PODS: POD_CHANGES | {NODE},
    Scope.CLUSTER: POD_CHANGES | {NODE, NODE_GONE},
}


class ExpressionFilter(Filter):
    """Passes the nodes on which the expression is true.

    Where it can't be evaluated the rule's onError decides: `reject` refuses the node with code Error, `pass` lets it
    pass. One node that can't be evaluated never changes the answer for another. Where the Pod or the node is too large to be
    evaluated in time, the rule set's `failures.deadline` decides.
    """

    def __init__(self, rule: FilterRule, failures: Failures = DEFAULT_FAILURES) -> None:
        self.expression = Expression(rule.expression, Result.BOOLEAN)
        self.scope = self.expression.scope
        self.requeued_by = _REQUEUED_BY[self.scope] | ({NAMESPACE} if self.expression.reads_namespace else frozenset())
        self.counts_pods = self.expression.counts_pods
        self.reads_now = self.expression.reads_now
        self.pod_paths = self.expression.pod_paths
        self.joins_params = self.expression.joins_params
        self.node_paths = frozenset(self.expression.reads["node"])
        code = Code.UNSCHEDULABLE if rule.preemption_helps else Code.UNRESOLVABLE
        refused = Status(code, rule.reason or f"refused by rule {rule.key}")
        failed = Status(Code.ERROR, f"rule {rule.key} could not be evaluated")
        large = Status(Code.ERROR, f"the Pod or the node is too large for rule {rule.key}")
        self._statuses = [refused, failed]
        self._with_large = [refused, failed, large]
        self._on_error = _FAILED if rule.on_error == "reject" else PASSED
        self._too_large = _LARGE if failures.deadline == "refuse" else PASSED

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Evaluate the expression over the nodes."""
        answers = self.expression.evaluate(cycle, rows)
        codes = np.array([self._code(value) for value in answers.values], dtype=np.int32)
        # Decisions store the statuses, so the rare one is added only where it occurs.
        statuses = self._with_large if _LARGE in codes else self._statuses
        return Verdicts(codes[answers.index], statuses, answers.faults())

    def selected(self, cycle: Cycle) -> Sequence[Labels] | None:
        """Return the labels by which its calls of `count` select."""
        return self.expression.selected(cycle)

    def _code(self, value: Value) -> int:
        if isinstance(value, TooLarge):
            return self._too_large
        if isinstance(value, EvaluationFault):
            return self._on_error
        return PASSED if value else _REFUSED

    def detail(self, cycle: Cycle, row: int, status: Status) -> Detail:
        """Return what the expression read, and the nearest node on which it is true."""
        found = self.detail_of_pass(cycle, row)
        if status.code is Code.ERROR:
            return found
        remedy = _nearest(self.expression, cycle, dict(found.seen))
        return found._replace(says=f"{found.says}; it has to be true: {found.wanted}", remedy=remedy)

    def detail_of_pass(self, cycle: Cycle, row: int) -> Detail:
        """Return what the expression read."""
        seen = seen_by(self.expression, cycle, row)
        source = " ".join(self.expression.source.split())
        (value,) = self.expression.evaluate(cycle, np.array([row], dtype=np.intp)).listed()
        if isinstance(value, EvaluationFault):
            says = f"the expression could not be evaluated: {value.message}. It reads {shown(seen)}"
            remedy = "say what holds when something is missing: .? and orValue in the expression, or onError"
            return Detail(says, source, remedy, seen)
        says = f"the expression read {shown(seen)}" if seen else "the expression reads nothing"
        return Detail(says, source, "", seen)


def _nearest(expression: Expression, cycle: Cycle, seen: Seen) -> str:
    """Return the most similar node on which the expression is true, and what is different there."""
    mine = {name: value for name, value in seen.items() if name.startswith(_OF_NODES)}
    if not mine:
        return f"it reads nothing of nodes, so it says the same of every node: {_changeable(seen)} would have to change"
    values = expression.evaluate(cycle, cycle.table.all_rows()).listed()
    found: tuple[int, str, Seen] | None = None
    for row in [row for row, value in enumerate(values) if value is True]:
        theirs = seen_by(expression, cycle, row)
        differing = {name: theirs[name] for name in mine if theirs[name] != mine[name]}
        candidate = (len(differing), cycle.table.names[row], differing)
        found = min(found or candidate, candidate, key=lambda each: each[:2])
    if found is None:
        return "it is true on no node"
    return f"it is true on {found[1]}, where {shown(found[2])}"


def _changeable(seen: Seen) -> str:
    """Return what the expression read, in words; the rule itself where it reads nothing."""
    roots = {re.split(r"\W", path, maxsplit=1)[0] for path in seen}
    return " or ".join(dict.fromkeys(what for name, what in _OF_NO_NODE.items() if name in roots)) or "the rule"
