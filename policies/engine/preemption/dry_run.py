"""Preemption in Berth's own scheduler: which Pods must be removed, and from which node, so that a Pod fits. Pure.

The order is kube-scheduler v1.36.3's: framework/preemption/preemption.go (Preempt, DryRunPreemption,
pickOneNodeForPreemption) and framework/plugins/defaultpreemption/default_preemption.go (PodEligibleToPreemptOthers,
SelectVictimsOnNode, filterPodsWithPDBViolation). Where kube-scheduler calls extenders, the rule set's victims rules are evaluated.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import compress
from typing import NamedTuple

import msgspec

from policies.engine.decision import Answer, CompiledRuleSet
from policies.engine.errors import DeadlineError
from policies.engine.objects.cluster_kinds import PodDisruptionBudget
from policies.engine.objects.columns import lowest_priority
from policies.engine.objects.node import NodeInfo
from policies.engine.objects.pod import DISRUPTED, Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.preemption.budgets import Budgets, budgets_by_namespace, split_by_budgets
from policies.engine.preemption.fit import Fitting
from policies.engine.preemption.vetoes import Candidate, Veto, narrow
from policies.engine.rule import Cycle
from policies.engine.status import Code, Status
from policies.engine.victims import Victim

NEVER = "not eligible due to preemptionPolicy=Never."
STILL_LEAVING = "not eligible due to a terminating pod on the nominated node."
NO_VICTIMS = "No preemption victims found for incoming pod"
NO_HELP = "Preemption is not helpful for scheduling"
NO_TIME = "Preemption victims could not be looked for in time"
# kube-scheduler's own words, as its Pods' condition shows them.
NOBODY_IN_THE_WAY = "expected at least one victim pod"
UNDELETABLE = "the API server refused to delete a Pod in the way"
UNBINDABLE = "the API server refused the binding"

# The reason of the condition DisruptionTarget of a Pod that a scheduler preempts.
BY_SCHEDULER = "PreemptionByScheduler"

LEAST_CANDIDATES_PERCENT = 10
# How many candidates to look for, out of the nodes that may be freed: DefaultPreemptionArgs' defaults.
LEAST_CANDIDATES = 100

# Added to each priority in a sum, so that more victims never make a smaller one.
_PRIORITY_OFFSET = 2**31


class Preemption(NamedTuple):
    """The node to free and the Pods to remove from it, the most important first.

    Attributes:
        pdb_violations: how many of the victims a PodDisruptionBudget would keep.
        yielding: less important Pods nominated to the node, which lose their nomination.
        candidates: the nodes that it was chosen from, itself included.
    """

    node: str
    victims: list[Pod]
    pdb_violations: int
    yielding: list[Pod]
    candidates: list[Candidate]


class Search(msgspec.Struct, frozen=True):
    """The result of the search for a node to free.

    Attributes:
        preemption: None where no node was found.
        candidates: the nodes that could be freed, including those that a victims rule vetoes.
        vetoes: the vetoes of victims rules; then, of the candidates left, those of rules in mode shadow if there was time for them.
        reason: why no node was found, in kube-scheduler's words; "" with a preemption.
        keeps_nomination: whether the Pod's nominatedNodeName stays as it is. Else it becomes the preemption's node, or
            is cleared.
    """

    preemption: Preemption | None = None
    candidates: list[Candidate] = []
    vetoes: list[Veto] = []
    reason: str = ""
    keeps_nomination: bool = False

    @property
    def met_too_large(self) -> bool:
        """Whether a victim, the Pod or a node was too large for a rule to be evaluated."""
        return any(veto.met_too_large for veto in self.vetoes)

    @property
    def is_cut_off(self) -> bool:
        """Whether time was up before it ended."""
        return self.reason == NO_TIME


def search(
    *,
    cycle: Cycle,
    rule_set: CompiledRuleSet,
    budgets: Iterable[PodDisruptionBudget],
    answer: Answer,
    offset: int = 0,
    nomination: str | None = None,
    kept: Collection[str] = (),
    denied: Collection[str] = (),
) -> Search:
    """Look for the node to free for a Pod that fits nowhere.

    Args:
        cycle: the Pod that finds no room; the Snapshot, with assumed Pods on their nodes already, and with nominated Pods; and
            the moment. Where its `give_way` ends a filter or an enforced victims rule, no node is freed.
        rule_set: all the filters that a node has to pass, and the victims rules.
        budgets: the PodDisruptionBudgets of all namespaces.
        answer: the filters' results for the nodes; those refused as Unschedulable may be freed.
        offset: the node to begin with, counted among those that may be freed. In a cluster so big that not all of them are
            tried, a different offset each time spreads the burden.
        nomination: the node that is being freed for the Pod already, "" for none; None for what its status says.
        kept: the uids of Pods that can't be removed, however unimportant.
        denied: the names of nodes to which the Pod may not be bound.
    """
    pod, snapshot, now = cycle.pod, cycle.snapshot, cycle.now
    refusals = dict(answer.refused())
    node = pod.parsed.status.nominated_node_name if nomination is None else nomination
    if ineligible := why_not_eligible(pod, node, snapshot, refusals):
        return Search(reason=ineligible, keeps_nomination=True)
    dry_run = DryRun(cycle, budgets, Fitting(rule_set, cycle), kept)
    preemptible = [name for name, status in refusals.items() if status.code is Code.UNSCHEDULABLE]
    potential = [name for name in preemptible if name not in denied]
    dry_run.reasons |= dict.fromkeys((name for name in preemptible if name in denied), UNBINDABLE)
    try:
        candidates = dry_run.candidates(potential, offset, wanted(len(potential)))
        narrowed = narrow(rule_set, pod, snapshot, candidates, now, cycle.give_way, modes=("enforce",))
    except DeadlineError:
        return Search(reason=NO_TIME, keeps_nomination=True)
    vetoes = narrowed.vetoes + _shadow_vetoes(cycle, rule_set, narrowed.kept)
    chosen = pick(narrowed.kept, now)
    if chosen is None:
        reasons = dry_run.reasons | {veto.node: veto.reason for veto in narrowed.vetoes if veto.drops}
        reason = _no_candidate(reasons.values(), len(snapshot.table))
        return Search(candidates=candidates, vetoes=vetoes, reason=reason)
    yielding = [other for other in snapshot.nominated.get(chosen.node, ()) if other.priority < pod.priority]
    victims = pods_of(chosen)
    preemption = Preemption(chosen.node, victims, chosen.pdb_violations, yielding, narrowed.kept)
    return Search(preemption, candidates, vetoes)


def _shadow_vetoes(cycle: Cycle, rule_set: CompiledRuleSet, kept: Sequence[Candidate]) -> list[Veto]:
    """Return the vetoes of rules in mode shadow; none if time is up, since a shadow keeps no Pod waiting."""
    try:
        return narrow(rule_set, cycle.pod, cycle.snapshot, kept, cycle.now, cycle.give_way, modes=("shadow",)).vetoes
    except DeadlineError:
        return []


def why_not_eligible(pod: Pod, nomination: str, snapshot: Snapshot, refusals: Mapping[str, Status]) -> str:
    """Return why the Pod may not preempt others now; "" when it may.

    While Pods that were preempted for it are still leaving the node that it is nominated to, no others are preempted,
    unless the Pod can no longer run on that node.
    """
    if pod.spec.preemption_policy == "Never":
        return NEVER
    info = snapshot.node(nomination)
    status = refusals.get(info.name) if info is not None else None
    if info is None or (status is not None and status.code is Code.UNRESOLVABLE):
        return ""
    leaving = any(other.priority < pod.priority and is_leaving(other) for other in info.pods)
    return STILL_LEAVING if leaving else ""


def is_leaving(pod: Pod) -> bool:
    """Return whether a Pod is being deleted because a scheduler preempted it."""
    conditions = (found for found in pod.parsed.status.conditions or () if found.type == DISRUPTED)
    first = next(conditions, None)
    return pod.is_deleting and first is not None and (first.status, first.reason) == ("True", BY_SCHEDULER)


def wanted(nodes: int) -> int:
    """Return how many candidates are enough, given the number of nodes that may be freed."""
    return min(nodes, max(nodes * LEAST_CANDIDATES_PERCENT // 100, LEAST_CANDIDATES))


class _Trial:
    """A node to which Pods are added back one after another: those that could stay, and those that couldn't."""

    def __init__(self, left: NodeInfo, violating: Sequence[Pod], others: Sequence[Pod]) -> None:
        self.left = left
        self.waiting = [*violating, *others]
        self.victims: list[Pod] = []
        self.violations = 0
        self._kept_by_budget = len(violating)

    def settle(self, number: int, back: NodeInfo, refusal: Status | None) -> None:
        """Add the Pod with this number back, or leave it out because of a refusal."""
        if refusal is None:
            self.left = back
        else:
            self.victims.append(self.waiting[number])
            self.violations += number < self._kept_by_budget


class DryRun:
    """Finds which Pods must be removed from nodes so that the Pod fits.

    Attributes:
        reasons: name of a node -> why it can't be freed, for the nodes that were tried without success.
    """

    def __init__(
        self, cycle: Cycle, budgets: Iterable[PodDisruptionBudget], fitting: Fitting, kept: Collection[str] = ()
    ) -> None:
        self.reasons: dict[str, str] = {}
        self._pod = cycle.pod
        self._snapshot = cycle.snapshot
        self._now = cycle.now
        self._given = budgets
        self._fitting = fitting
        self._kept = kept

    @cached_property
    def _budgets(self) -> Budgets:
        return budgets_by_namespace(self._given)

    def candidates(self, nodes: Sequence[str], offset: int, enough: int) -> list[Candidate]:
        """Return the nodes that can be freed, those without a violated budget first.

        The search ends once there are enough of both together, with at least one that violates no budget.

        Args:
            nodes: the names of those that may be freed.
            offset: the node to begin with; the first follows the last.
            enough: how many to look for.
        """
        kind: list[Candidate] = []
        violating: list[Candidate] = []
        for found in self._tried(nodes, offset, max(enough, 1)):
            if not found.pdb_violations:
                kind.append(found)
            elif len(violating) < enough:
                violating.append(found)
            if kind and len(kind) + len(violating) >= enough:
                break
        return kind + violating

    def _tried(self, nodes: Sequence[str], offset: int, at_once: int) -> Iterator[Candidate]:
        first = offset % len(nodes) if nodes else 0
        hopeful = self._with_less_important([*nodes[first:], *nodes[:first]])
        for start in range(0, len(hopeful), at_once):
            yield from self._try_on(hopeful[start : start + at_once])

    def _with_less_important(self, nodes: Sequence[str]) -> list[NodeInfo]:
        """Return the nodes that have Pods which could be removed: for most refused Pods there are none, and this is cheap."""
        table = self._snapshot.table
        rows = table.rows(nodes)
        has = lowest_priority(table)[rows] < self._pod.priority
        self.reasons |= dict.fromkeys(compress(nodes, (~has).tolist()), NO_VICTIMS)
        return [table.infos[row] for row in rows[has].tolist()]

    def _try_on(self, infos: Sequence[NodeInfo]) -> list[Candidate]:
        """Find on each node the fewest and least important Pods that must leave it so that the Pod fits there.

        All less important Pods are removed first. Where the Pod then fits, as many as possible are added back: first those
        that a budget keeps, and the more important before the others. Nodes where removal can't help are left out.
        """
        trials = self._trials(infos)
        for number in range(max((len(trial.waiting) for trial in trials), default=0)):
            going_on = [trial for trial in trials if number < len(trial.waiting)]
            back = [trial.left.joined([trial.waiting[number]]) for trial in going_on]
            for trial, info, refusal in zip(going_on, back, self._fitting.refusals(back), strict=True):
                trial.settle(number, info, refusal)
        self.reasons |= {trial.left.name: NOBODY_IN_THE_WAY for trial in trials if not trial.victims}
        return [self._candidate(trial) for trial in trials if trial.victims]

    def _trials(self, infos: Sequence[NodeInfo]) -> list[_Trial]:
        """Remove all less important Pods, and return the nodes on which the Pod then fits."""
        emptied = [
            NodeInfo(info.node, tuple(other for other in info.pods if not self._may_go(other))) for info in infos
        ]
        trials = []
        for info, left, refusal in zip(infos, emptied, self._fitting.refusals(emptied), strict=True):
            if refusal is not None:
                self.reasons[info.name] = UNDELETABLE if self._keeps_any(info) else refusal.reason
                continue
            less = [other for other in info.pods if self._may_go(other)]
            less.sort(key=lambda other: importance(other, self._now))
            trials.append(_Trial(left, *split_by_budgets(less, self._budgets)))
        return trials

    def _may_go(self, other: Pod) -> bool:
        return other.priority < self._pod.priority and other.uid not in self._kept

    def _keeps_any(self, info: NodeInfo) -> bool:
        return any(other.uid in self._kept for other in info.pods)

    def _candidate(self, trial: _Trial) -> Candidate:
        victims = sorted(trial.victims, key=lambda other: importance(other, self._now))
        return Candidate(trial.left.name, [Victim(other.uid, other) for other in victims], trial.violations)


def importance(pod: Pod, now: datetime) -> tuple[int, str]:
    """Return the sort key of Pods, the most important first: priority, then how long they have been running.

    A Pod that hasn't started counts as started now (util/utils.go, MoreImportantPod). Times are compared as the texts that
    the API server writes: RFC 3339 in UTC, whole seconds. So now sorts after all Pods that started within its second.
    """
    return (-pod.priority, pod.parsed.status.start_time or f"{now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}~")


def pick(candidates: Sequence[Candidate], now: datetime) -> Candidate | None:
    """Choose the node whose victims matter least; among equals the first. None without candidates.

    kube-scheduler chooses among equals at random.
    """
    return min(candidates, key=lambda candidate: cost(candidate, now), default=None)


def cost(candidate: Candidate, now: datetime) -> "Cost":
    """Return the cost by which candidates are compared: the first difference counts, less is better."""
    victims = pods_of(candidate)
    highest = victims[0].priority
    return Cost(
        candidate.pdb_violations,
        highest,
        sum(pod.priority + _PRIORITY_OFFSET for pod in victims),
        len(victims),
        _Later(min(importance(pod, now)[1] for pod in victims if pod.priority == highest)),
    )


class _Later(str):
    """A time that sorts before another when it is later."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)


class Cost(NamedTuple):
    """How costly the removal of a candidate's victims is.

    Attributes:
        pdb_violations: victims that a budget would keep.
        highest: the highest priority of a victim.
        total: the sum of the priorities.
        number: how many victims there are.
        started: when the longest running of the most important victims started; later is less.
    """

    pdb_violations: int
    highest: int
    total: int
    number: int
    started: _Later


def pods_of(candidate: Candidate) -> list[Pod]:
    """Return the victims of a candidate that are known."""
    return [victim.pod for victim in candidate.victims if victim.pod is not None]


def _no_candidate(reasons: Iterable[str], nodes: int) -> str:
    """Return kube-scheduler's message that no node can be freed (framework/types.go, FitError.Error)."""
    counts = Counter(reasons)
    counts[NO_HELP] += nodes - counts.total()
    listed = ", ".join(sorted(f"{number} {reason}" for reason, number in counts.items() if number))
    return f"0/{nodes} nodes are available: {listed}."
