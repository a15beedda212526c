"""Compares a recorded answer with other rules' answer about the same Pod and nodes, and finds the first cause. Pure."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from policies.engine.decision import Answer, to_points
from policies.engine.objects.table import Rows
from policies.engine.status import PASSED
from scheduler.decisions.columns import Packed, StoredAnswer

_Mask = npt.NDArray[np.bool_]
_Numbers = npt.NDArray[np.int64]


class Kind(StrEnum):
    """How a Decision differs; if in several ways, the first of these."""

    NO_NODE = "no-node"
    ALLOWED = "allowed"
    OTHER_BEST = "other-best"
    OTHER_NODES = "other-nodes"
    OTHER_POINTS = "other-points"


class Difference(NamedTuple):
    """A difference and its cause.

    Attributes:
        rule: the first cause: for nodes that are lost or gained, the rule that refuses most of them; for scores, the one that
            favours the other node most. "" if no rule set applies any more.
        reason: the rule's reason for refusing.
        before: the recorded best node.
        after: the best node by the other rules.
        nodes: how many nodes were feasible.
        gained: how many nodes would become feasible.
        lost: how many nodes would no longer be feasible.
        points: the largest change of a node's points.
        of_then: whether the rule is one of the recorded ones: nodes that it refused would pass.
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
    """The recorded answer about the known candidate nodes, in order.

    Args:
        stored: the recorded answer.
        best: the name of the best node, or of the one that the Pod got; "" if there was none.

    Raises:
        ValueError: the answer is damaged: its columns don't fit together.
    """

    def __init__(self, stored: StoredAnswer, best: str) -> None:
        self.size, self.best = stored.size, best
        self._stored = stored
        self.passed = np.ones(stored.size, dtype=np.bool_)
        for column in stored.filters:
            if column.verdicts is not None and column.mode == "enforce":
                self.passed &= _whole(column.verdicts, stored.size, below=len(column.statuses)) < 0
        self.scored: _Numbers = np.empty(0, dtype=np.int64)
        self.totals: _Numbers = np.empty(0, dtype=np.int64)
        self.weights = 0
        if stored.scores:
            self.scored = np.flatnonzero(self.passed)
            if stored.scored is not None:
                self.scored = _whole(stored.scored, stored.scored.size, below=stored.size)
                if self.scored.min(initial=0) < 0 or (np.diff(self.scored) <= 0).any():
                    message = "the positions of its scored nodes aren't in order"
                    raise ValueError(message)
            self.totals = np.zeros(len(self.scored), dtype=np.int64)
            for score in stored.scores:
                if score.mode == "enforce":
                    self.weights += score.weight
                    self.totals += score.weight * _whole(score.raw, len(self.scored))

    @property
    def ranks(self) -> bool:
        """Whether scores were given."""
        return bool(self._stored.scores)

    @property
    def points(self) -> _Numbers:
        """0..10 for each node; -1 for one that wasn't ranked. Without scores all nodes that pass have 0."""
        if not self.ranks:
            return _of_each(self.size, np.flatnonzero(self.passed), 0)
        return _of_each(self.size, self.scored, to_points(self.totals, self.weights))

    def refusing(self, among: _Mask) -> tuple[str, str]:
        """Return the rule that refused most of these nodes in the record, and its reason."""
        counts: dict[tuple[str, str], int] = {}
        for column in self._stored.filters:
            if column.verdicts is not None and column.mode == "enforce":
                _count(counts, column.rule, [reason for _, reason in column.statuses], column.verdicts.numbers()[among])
        return _most(counts)

    def spoke_for(self, one: int, other: int) -> dict[str, int]:
        """Return by how much each rule favoured one of two feasible nodes, with its weight."""
        here, there = np.searchsorted(self.scored, [one, other])
        return {
            score.rule: score.weight * int(score.raw.numbers()[here] - score.raw.numbers()[there])
            for score in self._stored.scores
            if score.mode == "enforce"
        }


def _whole(column: Packed, size: int, *, below: int | None = None) -> _Numbers:
    """Return the numbers of a column.

    Raises:
        ValueError: they aren't as many, or one of them is too large.
    """
    found = column.numbers()
    if len(found) != size or (below is not None and found.max(initial=-1) >= below):
        message = f"a column holds something else than {size} numbers" + ("" if below is None else f" below {below}")
        raise ValueError(message)
    return found


def compare(
    then: Recorded,
    now: Answer | None,
    place_of: Callable[[str], int | None],
    best: Rows,
    *,
    best_alone: bool = False,
    with_points: bool = True,
) -> Difference | None:
    """Return how an answer differs from the recorded one; None if it doesn't.

    Args:
        then: the recorded answer.
        now: the other rules' answer about the same nodes; None if no rule set applies, so that all nodes pass.
        place_of: returns a node's position among the candidates.
        best: the positions of the best nodes now; empty if none are ranked.
        best_alone: whether only the best node and the points are compared: nodes that were scored had passed before.
        with_points: whether points are compared: if they were requested, a node that no score ranks has 0.
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
        return None  # the preceding Decision of /filter shows it
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
    """Return the difference if another node is the best now; None if the recorded best still is one, or a side ranks none."""
    place = place_of(then.best) if then.best and len(best) else None
    # A record may have been tampered with, and name a node as best that it also refuses.
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
    """Return the score that favours a node over the recorded best one more than before. Both nodes are feasible in both answers.

    Weights are compared directly, not as shares of all weights: an unchanged score's share shrinks when another score is added.
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
    """Return each node's points by the other rules; -1 for one that isn't ranked. Without scores all nodes that pass have 0."""
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
    """Return the largest change of a node's points, among nodes that both sides ranked."""
    both = (then >= 0) & (now >= 0)
    return int(np.abs(then - now)[both].max(initial=0))


def _refusing(now: Answer | None, among: _Mask) -> tuple[str, str]:
    """Return the rule that refuses most of these nodes now, and its reason."""
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
    """Return the key with the largest count; on a tie the first in the rules' order."""
    return max(counts, key=counts.__getitem__, default=("", ""))


def _only(place: int, size: int) -> _Mask:
    found = np.zeros(size, dtype=np.bool_)
    found[place] = True
    return found
