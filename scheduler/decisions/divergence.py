"""How a shadow's answer differs from the enforced one, for the Pod. Pure.

Both are about the same nodes in the same order. The comparison is about the Pod's outcome: whether it could have gone
to the node that it got. Behind kube-scheduler, that node isn't known yet when the shadow is evaluated: if the result depends
on the node, the comparison stays open until the watch shows the Pod on one.
"""

from enum import StrEnum

import msgspec
import numpy as np
import numpy.typing as npt

from policies.engine.decision import NOT_EVALUATED, Answer, to_points
from policies.engine.status import PASSED

_Mask = npt.NDArray[np.bool_]


class Divergence(StrEnum):
    """What the shadow would have done, compared with what was done."""

    # The Pod could have had the same node; or it had none, and would have had none.
    AGREED = "agreed"
    # No node passes, though some did.
    REFUSED_ALL = "refused all"
    # Some nodes pass, but not the one that the Pod got.
    REFUSED_NODE = "refused the node"
    # The Pod's node is allowed, but another is better.
    ANOTHER_NODE = "another node"
    # Some node passes for a Pod that had none.
    LET_PASS = "let pass"  # noqa: S105 - no password
    # It depends on the node that the Pod gets.
    OPEN = "open"


class Subject(msgspec.Struct, frozen=True, order=True):
    """The shadow's Assignment, rule set and verb: the key by which divergences are counted."""

    revision: int
    assignment: str
    rule_set: str
    rule_set_version: int
    verb: str


class Side(msgspec.Struct, frozen=True):
    """One of two answers that are compared, as masks over the candidate nodes.

    Attributes:
        passes: the nodes that the Pod may use.
        best: the ones that it gets, or may get; None if the answer doesn't say.
    """

    passes: _Mask
    best: _Mask | None = None


def given(answer: Answer | None, size: int) -> Side:
    """Return the answer that kube-scheduler got: its one node, or the best ones, or all that pass.

    Args:
        answer: the rules' answer; None if no Assignment matched the Pod, so that all nodes passed.
        size: the number of candidate nodes.
    """
    if answer is None:
        passes = np.ones(size, dtype=np.bool_)
    else:
        passes = answer.refusal == PASSED
        if answer.scores and len(answer.scored):
            return Side(passes, _spread(answer.are_best, answer))
    return Side(passes, passes if np.add.reduce(passes) == 1 else None)


def placed(answer: Answer, position: int) -> Side:
    """Return the answer of a cycle: the node that the Pod got, by its position; -1 for none."""
    passes = answer.refusal == PASSED
    best = np.zeros(len(passes), dtype=np.bool_)
    if position < 0:
        return Side(best, best)
    best[position] = True
    return Side(passes, best)


def would_be(answer: Answer, *, is_inside: bool, is_exact: bool) -> Side:
    """Return what a shadow would have answered, had it been enforced.

    Args:
        answer: the answer of its rules.
        is_inside: whether this is about the rules in mode shadow of an enforced rule set. They would count too.
        is_exact: whether nodes are ranked by their totals, as in Berth's own scheduler, or by points, as in kube-scheduler.
    """
    passes = answer.refusal == PASSED
    totals, points = answer.totals, answer.points
    if is_inside:
        for column in answer.filters:
            passes &= (column.codes == PASSED) | (column.codes == NOT_EVALUATED)
        if answer.scores:
            totals = sum((column.rule.weight * column.raw for column in answer.scores), np.zeros_like(totals))
            points = to_points(totals, sum(column.rule.weight for column in answer.scores))
    numbers = totals if is_exact else points
    allowed = passes[answer.scored]
    if not answer.scores or not np.logical_or.reduce(allowed):
        return Side(passes)
    return Side(passes, _spread(allowed & (numbers == np.maximum.reduce(numbers[allowed])), answer))


def compare(real: Side, shadow: Side) -> Divergence:
    """Return what a shadow would have done, compared with what was done."""
    if not np.logical_or.reduce(real.passes):
        return Divergence.LET_PASS if np.logical_or.reduce(shadow.passes) else Divergence.AGREED
    if not np.logical_or.reduce(shadow.passes):
        return Divergence.REFUSED_ALL
    if real.best is not None:
        return _compare_best(real.best, shadow)
    allowed = shadow.passes if shadow.best is None else shadow.best
    return Divergence.OPEN if np.logical_or.reduce(real.passes & ~allowed) else Divergence.AGREED


def settled(shadow: Side, position: int) -> Divergence:
    """Return the result of an open comparison once the Pod is on a node; `position` is the node's among the candidates."""
    node = np.zeros(len(shadow.passes), dtype=np.bool_)
    node[position] = True
    return _compare_best(node, shadow)


def _compare_best(best: _Mask, shadow: Side) -> Divergence:
    if not np.logical_or.reduce(best & shadow.passes):
        return Divergence.REFUSED_NODE
    if shadow.best is not None and not np.logical_or.reduce(best & shadow.best):
        return Divergence.ANOTHER_NODE
    return Divergence.AGREED


def _spread(of_scored: _Mask, answer: Answer) -> _Mask:
    """Spread a mask over the scored nodes to all nodes."""
    spread = np.zeros(len(answer.refusal), dtype=np.bool_)
    spread[answer.scored] = of_scored
    return spread
