"""Finds what keeps a Pod from nodes: which single rule, if left out, would free a node, and which nodes are nearest. Pure.

Rules are evaluated in order, and not for nodes that an earlier rule has refused. So the verdicts of later rules are known only
if every rule was evaluated for every node; a recorded answer alone shows them only for the last rules.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec
import numpy as np

from policies.engine.decision import NOT_EVALUATED, Answer, FilterColumn
from policies.engine.status import PASSED
from scheduler.decisions.matrix import Refusal

# How many nearest nodes are named.
_MOST_NEAREST = 3


class NearNode(msgspec.Struct, frozen=True):
    """A node, and all the rules that refuse it with their reasons."""

    node: str
    refusals: list[tuple[str, str]]


class NearMisses(msgspec.Struct, frozen=True, kw_only=True):
    """The result.

    Attributes:
        nodes: the number of candidate nodes.
        allowed: the nodes that no rule refuses.
        alone: the rules that are the only ones to refuse some nodes, with their reason: without the rule these would be allowed. The
            most nodes first.
        nearest: some of the nodes that the fewest rules refuse.
        fewest: the number of those rules.
        is_whole: whether every rule was evaluated for every node; else only what is certain is listed.
    """

    nodes: int
    allowed: list[str]
    alone: list[Refusal]
    nearest: list[NearNode]
    fewest: int
    is_whole: bool


def near_misses_of(answer: Answer) -> NearMisses:
    """Return what keeps a Pod from the nodes of an answer; everything for an answer with `whole`."""
    size = len(answer.names)
    columns = [column for column in answer.filters if column.rule.mode == "enforce"]
    refusing, unknown = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.bool_)
    for column in columns:
        codes = _codes(column, size)
        refusing += codes >= 0
        unknown |= codes == NOT_EVALUATED
    # A node with rules that weren't evaluated may be as near as any: it is left out.
    known = (refusing > 0) & ~unknown
    fewest = int(refusing[known].min()) if known.any() else 0
    # By name: kube-scheduler sends nodes in a different order each time.
    nearest = (
        sorted(np.flatnonzero(known & (refusing == fewest)).tolist(), key=answer.names.__getitem__) if fewest else []
    )
    return NearMisses(
        nodes=size,
        allowed=sorted(
            answer.names[place] for place in np.flatnonzero((refusing == 0) & (answer.refusal == PASSED)).tolist()
        ),
        alone=list(_alone(answer, columns, known & (refusing == 1))),
        nearest=[NearNode(answer.names[place], _refusals(columns, place)) for place in nearest[:_MOST_NEAREST]],
        fewest=fewest,
        is_whole=not unknown.any(),
    )


def _alone(
    answer: Answer, columns: Iterable[FilterColumn], only: "np.ndarray[tuple[int], np.dtype[np.bool_]]"
) -> list[Refusal]:
    """Return each rule with the nodes that it alone refuses, the most nodes first; for the reason that most of them have."""
    found = []
    for column in columns:
        codes = _codes(column, len(answer.names))
        places = np.flatnonzero(only & (codes >= 0)).tolist()
        if places:
            code, _ = Counter(codes[places].tolist()).most_common(1)[0]
            status = column.statuses[code]
            nodes = sorted(answer.names[place] for place in places)
            found.append(Refusal(column.rule.key, status.code.value, status.reason, nodes))
    return sorted(found, key=lambda each: -len(each.nodes))


def _refusals(columns: Iterable[FilterColumn], place: int) -> list[tuple[str, str]]:
    return [
        (column.rule.key, column.statuses[code].reason or column.statuses[code].code.value)
        for column in columns
        if place < len(column.codes) and (code := int(column.codes[place])) >= 0
    ]


def _codes(column: FilterColumn, size: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Return a verdict for each node; a truncated record says nothing about the remaining nodes."""
    found = np.full(size, NOT_EVALUATED, dtype=np.int64)
    found[: len(column.codes)] = column.codes[:size]
    return found
