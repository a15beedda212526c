"""How an answer that was recorded differs from what other rules say of the same Pod and nodes, and which rule is the first cause. Pure."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from policies.engine.decision import Answer, to_points
from policies.engine.objects.table import Rows
from policies.engine.status import PASSED
from scheduler.decisions.columns import StoredAnswer

_Mask = npt.NDArray[np.bool_]
_Numbers = npt.NDArray[np.int64]


class Kind(StrEnum):
    """How a Decision differs; where in several ways, by the first of these."""

    NO_NODE = "no-node"
    ALLOWED = "allowed"
    OTHER_BEST = "other-best"
    OTHER_NODES = "other-nodes"
    OTHER_POINTS = "other-points"


class Difference(NamedTuple):
    """What is different, and why.

    Attributes:
        rule: the first cause: of nodes that are refused or let pass, the rule that refuses most of them; of scores, the one that
            speaks most for the other node. "" where no rule set applies any more.
        reason: what a rule says where it refuses.
        before: the best node of then.
        after: the best node by the other rules.
        nodes: how many nodes would do then.
        gained: how many nodes would do that didn't.
        lost: how many nodes wouldn't do any more.
        points: by how much the points of a node change at most.
        of_then: whether the rule is one of those that answered then: what it had refused would pass.
    """

    kind: Kind
    rule: str = ""
    reason: str = ""
    before: str = ""
    after: str = ""
    nodes: int = 0
    gained: int = 0
    lost: int = 0
    points: int = 0
    of_then: bool = False


class Recorded:
    """What was answered then, about the nodes that were known, in the order asked.

    Args:
        stored: the recorded answer.
        best: the name of the node that was best, or that the Pod got; "" where there was none.
    """

    def __init__(self, stored: StoredAnswer, best: str) -> None:
        self.size, self.best = stored.size, best
        self._stored = stored
        self.passed = np.ones(stored.size, dtype=np.bool_)
        for column in stored.filters:
            if column.verdicts is not None and column.mode == "enforce":
                self.passed &= column.verdicts.numbers() < 0
        self.scored: _Numbers = np.empty(0, dtype=np.int64)
        self.totals: _Numbers = np.empty(0, dtype=np.int64)
        self.weights = 0
        if stored.scores:
            self.scored = np.flatnonzero(self.passed) if stored.scored is None else stored.scored.numbers()
            self.totals = np.zeros(len(self.scored), dtype=np.int64)
            for score in stored.scores:
                if score.mode == "enforce":
                    self.weights += score.weight
                    self.totals += score.weight * score.raw.numbers()

    @property
    def ranks(self) -> bool:
        """Whether scores were given."""
        return bool(self._stored.scores)

    @property
    def points(self) -> _Numbers:
        """0..10 for each node; -1 for one that wasn't ranked. Without scores all that pass have 0."""
        if not self.ranks:
            return _of_each(self.size, np.flatnonzero(self.passed), 0)
        return _of_each(self.size, self.scored, to_points(self.totals, self.weights))

    def refusing(self, among: _Mask) -> tuple[str, str]:
        """Return which rule refused most of these nodes then, and its reason."""
        counts: dict[tuple[str, str], int] = {}
        for column in self._stored.filters:
            if column.verdicts is not None and column.mode == "enforce":
                _count(counts, column.rule, [reason for _, reason in column.statuses], column.verdicts.numbers()[among])
        return _most(counts)

    def spoke_for(self, one: int, other: int) -> dict[str, int]:
        """Return by how much each rule had one node before another one, by its weight: of two that could be used."""
        here, there = np.searchsorted(self.scored, [one, other])
        return {
            score.rule: score.weight * int(score.raw.numbers()[here] - score.raw.numbers()[there])
            for score in self._stored.scores
            if score.mode == "enforce"
        }


def compare(
    then: Recorded,
    now: Answer | None,
    place_of: Callable[[str], int | None],
    best: Rows,
    *,
    best_alone: bool = False,
    with_points: bool = True,
) -> Difference | None:
    """Return how an answer differs from what was recorded; None where it doesn't.

    Args:
        then: what was recorded.
        now: what the other rules say of the same nodes; None where no rule set applies, so that all of them do.
        place_of: returns where a node stands among those asked about.
        best: where the best nodes stand now; empty where none are ranked.
        best_alone: whether only the best node and the points count: nodes that were scored had passed before.
        with_points: whether points count: where they were asked for, a node that no score ranks has 0.
    """
    passed = np.ones(then.size, dtype=np.bool_) if now is None else now.refusal == PASSED
    gained, lost = passed & ~then.passed, then.passed & ~passed
    many = int(np.count_nonzero(then.passed))
    counts: dict[str, Any] = {
        "nodes": many,
        "gained": int(np.count_nonzero(gained)),
        "lost": int(np.count_nonzero(lost)),
    }
    if not best_alone:
        if many and counts["lost"] == many and not counts["gained"]:
            return Difference(Kind.NO_NODE, *_refusing(now, lost), before=then.best, **counts)
        if not many and counts["gained"]:
            after = now.best if now else ""
            return Difference(Kind.ALLOWED, *then.refusing(gained), after=after, **counts, of_then=True)
    elif not passed.any():
        return None  # the Decision before it, of /filter, says so
    if now is not None and (found := _other_best(then, now, place_of, best, lost, counts)):
        return found
    if not best_alone and (counts["gained"] or counts["lost"]):
        of_then = not counts["lost"]
        why = then.refusing(gained) if of_then else _refusing(now, lost)
        return Difference(Kind.OTHER_NODES, *why, **counts, of_then=of_then)
    points = _most_points(then.points, _points(now, then.size)) if with_points else 0
    return Difference(Kind.OTHER_POINTS, points=points, **counts) if points else None


def _other_best(
    then: Recorded, now: Answer, place_of: Callable[[str], int | None], best: Rows, lost: _Mask, counts: dict[str, Any]
) -> Difference | None:
    """Return the difference where another node is the best now; None where the former best still is one, or a side ranks none."""
    place = place_of(then.best) if then.best and len(best) else None
    # A record may have been changed since, and name a node that it says was refused.
    if place is None or place in best or not then.passed[place]:
        return None
    other = min(best.tolist(), key=now.name_at)
    of_then = not lost[place] and not then.passed[other]
    if lost[place]:
        why = _refusing(now, _only(place, then.size))
    elif of_then:
        why = then.refusing(_only(other, then.size))
    else:
        why = _preferring(then, now, place, other), ""
    after = now.name_at(other)
    return Difference(Kind.OTHER_BEST, *why, before=then.best, after=after, **counts, of_then=of_then)


def _preferring(then: Recorded, now: Answer, place: int, other: int) -> str:
    """Return which score speaks most for a node, against then, before the one that was best. Both may be used, then and now.

    By their weights alone: of the share of all weights, one that didn't change has less where another is added.
    """
    was = then.spoke_for(other, place)
    here, there = np.searchsorted(now.scored, [place, other])
    says = dict.fromkeys(was, 0) | {
        column.rule.key: column.rule.weight * int(column.raw[there] - column.raw[here])
        for column in now.scores
        if column.rule.mode == "enforce"
    }
    return max(says, key=lambda rule: (says[rule] - was.get(rule, 0), rule), default="")


def _points(now: Answer | None, size: int) -> _Numbers:
    """Return the points of each node by the other rules; -1 for one that isn't ranked. Without scores all that pass have 0."""
    if now is None:
        return np.zeros(size, dtype=np.int64)
    if not now.scores:
        return _of_each(size, np.flatnonzero(now.refusal == PASSED), 0)
    return _of_each(size, now.scored, now.points)


def _of_each(size: int, places: Rows | _Numbers, points: _Numbers | int) -> _Numbers:
    found = np.full(size, -1, dtype=np.int64)
    found[places] = points
    return found


def _most_points(then: _Numbers, now: _Numbers) -> int:
    """Return by how much the points of a node change at most, of those that both sides ranked."""
    both = (then >= 0) & (now >= 0)
    return int(np.abs(then - now)[both].max(initial=0))


def _refusing(now: Answer | None, among: _Mask) -> tuple[str, str]:
    """Return which rule refuses most of these nodes now, and its reason."""
    counts: dict[tuple[str, str], int] = {}
    for column in now.filters if now else ():
        if column.rule.mode == "enforce" and column.statuses:
            _count(counts, column.rule.key, [status.reason for status in column.statuses], column.codes[among])
    return _most(counts)


def _count(counts: dict[tuple[str, str], int], rule: str, reasons: list[str], codes: npt.NDArray[np.integer]) -> None:
    refused = codes[codes >= 0]
    for code, number in enumerate(np.bincount(refused).tolist()):
        if number:
            counts[rule, reasons[code]] = counts.get((rule, reasons[code]), 0) + number


def _most(counts: dict[tuple[str, str], int]) -> tuple[str, str]:
    """Return what has the most; of equals the first in the rules' order."""
    return max(counts, key=counts.__getitem__, default=("", ""))


def _only(place: int, size: int) -> _Mask:
    found = np.zeros(size, dtype=np.bool_)
    found[place] = True
    return found
