"""Preemption: the candidates of kube-scheduler that a rule set keeps. Pure.

A candidate is kept as kube-scheduler made it (its victims, their order, the violated budgets) or dropped: without one of
the victims there would be too little room. It is dropped where a rule protects one of its victims, and where the rules would
refuse the node even without the victims. kube-scheduler doesn't call Berth's filters while it looks for candidates, so in
that case Pods would be preempted for nothing.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime

import msgspec

from policies.engine.decision import CompiledRuleSet, decide
from policies.engine.errors import DeadlineError
from policies.engine.objects.node import NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.preemption.vetoes import Candidate, Veto, narrow
from policies.engine.rule import Cycle, go_on

UNKNOWN_NODE = "the node is not known to Berth yet"
STILL_REFUSED = "the rules refuse the node even without the victims"
NOT_IN_TIME = "could not be evaluated in time"


class Dropped(msgspec.Struct, frozen=True):
    """A candidate that is dropped for another reason than a victims rule."""

    node: str
    reason: str


class Narrowing(msgspec.Struct):
    """Which candidates are kept, by name in the order of the request, and which are dropped.

    Attributes:
        vetoes: the vetoes of victims rules, also of those in mode shadow.
        dropped: the candidates dropped for another reason.
        timed_out: the candidates that weren't judged before the deadline.
    """

    kept: list[str]
    vetoes: list[Veto] = []
    dropped: list[Dropped] = []
    timed_out: list[str] = []

    @property
    def top_reason(self) -> str:
        """The reason of the first candidate that is dropped; "" when none is."""
        reasons = [veto.reason for veto in self.vetoes if veto.drops]
        return next(iter(reasons + [gone.reason for gone in self.dropped]), "")

    @property
    def met_too_large(self) -> bool:
        """Whether a victim, the Pod or a node was too large for a rule to be evaluated."""
        return any(veto.met_too_large for veto in self.vetoes)


def narrowing(
    rule_set: CompiledRuleSet,
    pod: Pod,
    snapshot: Snapshot,
    candidates: Sequence[Candidate],
    now: datetime,
    *,
    end_in_time: Callable[[], None] = go_on,
    timed_out: Collection[str] = (),
) -> Narrowing:
    """Return which candidates the rule set keeps.

    Args:
        rule_set: the rules.
        pod: the one that finds no room.
        snapshot: has the nodes that are known.
        candidates: what kube-scheduler found.
        now: the moment, aware of its time zone.
        end_in_time: called before each evaluation; it does nothing, or raises DeadlineError.
        timed_out: nodes of candidates for which there was no time when this was decided first.
    """
    found = Narrowing([])
    for candidate in candidates:
        try:
            vetoes, refusal = _judge(candidate, pod, rule_set, snapshot, now, end_in_time, timed_out)
        except DeadlineError:
            found.timed_out.append(candidate.node)
            vetoes, refusal = [], NOT_IN_TIME if rule_set.failures.deadline == "refuse" else ""
        found.vetoes += vetoes
        if refusal:
            found.dropped.append(Dropped(candidate.node, refusal))
        elif refusal is not None:
            found.kept.append(candidate.node)
    return found


def _judge(
    candidate: Candidate,
    pod: Pod,
    rule_set: CompiledRuleSet,
    snapshot: Snapshot,
    now: datetime,
    end_in_time: Callable[[], None],
    timed_out: Collection[str],
) -> tuple[list[Veto], str | None]:
    """Return the vetoes, and another reason to drop the candidate: "" for none, None where a veto drops it."""
    # In a replay: the original decision had no time for it, however fast it would be now.
    if candidate.node in timed_out:
        raise DeadlineError
    narrowed = narrow(rule_set, pod, snapshot, [candidate], now, end_in_time)
    if not narrowed.kept:
        return narrowed.vetoes, None
    return narrowed.vetoes, _refusal(candidate, pod, rule_set, snapshot, now, end_in_time)


def _refusal(
    candidate: Candidate,
    pod: Pod,
    rule_set: CompiledRuleSet,
    snapshot: Snapshot,
    now: datetime,
    end_in_time: Callable[[], None],
) -> str:
    """Return why preempting these victims would be for nothing; "" when it wouldn't."""
    rule_set = rule_set.enforced
    if not rule_set.filters:
        return ""
    end_in_time()
    info = snapshot.node(candidate.node)
    if info is None:
        return UNKNOWN_NODE
    # The filters are evaluated as if the victims were gone. The Snapshot itself still has them.
    gone = {victim.uid for victim in candidate.victims}
    left = NodeInfo(info.node, tuple(other for other in info.pods if other.uid not in gone))
    without = snapshot.changed({candidate.node: left})
    rows = without.table.rows([candidate.node])
    cycle = Cycle(pod=pod, snapshot=without, now=now, params=rule_set.params)
    return "" if decide(rule_set, cycle, rows, scoring=False).feasible_count else STILL_REFUSED
