"""Answering /preempt: which of the candidates may be preempted for a Pod.

A candidate stays as kube-scheduler made it (its victims, their order, the violated budgets) or goes: taking one victim
away would leave too little room. It goes where a rule protects one of its victims, and where the rules would refuse the
node even without the victims: kube-scheduler asks no filter of ours while it looks for candidates, so Pods would be
preempted for nothing.
"""

import time
from collections.abc import Callable

import msgspec

from policies.engine.decision import CompiledRuleSet, decide
from policies.engine.errors import DeadlineError
from policies.engine.objects.node import NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.preemption.vetoes import Candidate, Veto, narrow
from policies.engine.victims import Victim
from scheduler.cluster.live import LiveSnapshot
from scheduler.extender.request.objects import read_pod
from scheduler.extender.request.wire import PreemptionArgs, SentVictim
from scheduler.extender.verbs.context import RequestContexts

UNKNOWN_NODE = "the node is not known to Berth yet"
NOT_NOW = "Berth can't see the cluster well enough to judge"
STILL_REFUSED = "the rules refuse the node even without the victims"
NOT_IN_TIME = "could not be evaluated in time"


class Dropped(msgspec.Struct, frozen=True):
    """A candidate that goes, for a reason that no rule about victims gave."""

    node: str
    reason: str


class Narrowing(msgspec.Struct):
    """Which candidates stay, by name in the order sent, and which go.

    Attributes:
        vetoes: what rules about victims said, those in mode shadow too.
        dropped: the candidates that go for another reason.
    """

    kept: list[str]
    vetoes: list[Veto] = []
    dropped: list[Dropped] = []

    @property
    def top_reason(self) -> str:
        """The reason of the first candidate that goes; "" when none does."""
        reasons = [veto.reason for veto in self.vetoes if veto.drops]
        return next(iter(reasons + [gone.reason for gone in self.dropped]), "")

    @property
    def met_too_large(self) -> bool:
        """Whether a victim, the Pod or a node was too large for a rule to be evaluated."""
        return any(veto.met_too_large for veto in self.vetoes)


def keep_all(args: PreemptionArgs) -> Narrowing:
    """Return the narrowing of a Pod that no rule set takes."""
    return Narrowing(list(args.victims))


def keep_none(args: PreemptionArgs, reason: str) -> Narrowing:
    """Return the narrowing that vetoes every candidate."""
    return Narrowing([], dropped=[Dropped(node, reason) for node in args.victims])


def narrowing(
    args: PreemptionArgs,
    pod: Pod,
    rule_set: CompiledRuleSet,
    *,
    live: LiveSnapshot,
    contexts: RequestContexts,
    until: float,
) -> Narrowing:
    """Return what the rule set leaves of the candidates. `until` is in seconds of `time.perf_counter()`."""
    snapshot = live.snapshot()
    candidates = [
        Candidate(node, [_victim(victim, live) for victim in sent.pods], sent.pdb_violations)
        for node, sent in args.victims.items()
    ]
    now = contexts.clock()

    def end_in_time() -> None:
        if time.perf_counter() > until:
            raise DeadlineError

    found = Narrowing([])
    for candidate in candidates:
        try:
            narrowed = narrow(rule_set, pod, snapshot, [candidate], now, end_in_time)
            found.vetoes += narrowed.vetoes
            if not narrowed.kept:
                continue
            refusal = _refusal(candidate, pod, rule_set, snapshot=snapshot, contexts=contexts, end_in_time=end_in_time)
        except DeadlineError:
            refusal = NOT_IN_TIME if rule_set.failures.deadline == "refuse" else ""
        if refusal:
            found.dropped.append(Dropped(candidate.node, refusal))
        else:
            found.kept.append(candidate.node)
    return found


def _victim(sent: SentVictim, live: LiveSnapshot) -> Victim:
    return Victim(sent.uid, live.pod(sent.uid) if sent.raw is None else read_pod(sent.raw))


def _refusal(
    candidate: Candidate,
    pod: Pod,
    rule_set: CompiledRuleSet,
    *,
    snapshot: Snapshot,
    contexts: RequestContexts,
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
    gone = {victim.uid for victim in candidate.victims}
    left = NodeInfo(info.node, tuple(other for other in info.pods if other.uid not in gone))
    without = snapshot.changed({candidate.node: left})
    rows = without.table.rows([candidate.node])
    answer = decide(rule_set, contexts.cycle(pod, without, rule_set), rows, scoring=False)
    return "" if answer.feasible_count else STILL_REFUSED
