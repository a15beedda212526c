"""Which Pods would have to go so that a Pod fits, node by node, and which node is the best choice. Pure.

The order is kube-scheduler v1.36.3's: framework/preemption/preemption.go (findCandidates, pickOneNodeForPreemption) and
framework/plugins/defaultpreemption/default_preemption.go (SelectVictimsOnNode, filterPodsWithPDBViolation).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from policies.engine.objects.cluster_objects import PodDisruptionBudget
from policies.engine.objects.node import NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.selectors import matches_labels

Fits = Callable[[Snapshot, str], bool]
"""Whether the Pod passes all filters on the node of this name in this Snapshot."""

_PRIORITY_OFFSET = 2**31
"""Added to each priority in a sum, so that more victims never make a smaller one."""

_NEVER_STARTED = "9999-12-31T23:59:59Z"


class Selected(NamedTuple):
    """A node and the Pods that would have to go, the most important first."""

    node: str
    victims: list[Pod]
    pdb_violations: int


def importance(pod: Pod) -> tuple[int, str]:
    """Give what Pods are ordered by, the most important first: priority, then how long they have been there.

    Times are RFC 3339 in UTC and compare as text. A Pod that hasn't started yet counts as started now.
    """
    return (-pod.priority, pod.parsed.status.start_time or _NEVER_STARTED)


def select_victims(
    pod: Pod, node_name: str, snapshot: Snapshot, budgets: Sequence[PodDisruptionBudget], fits: Fits
) -> Selected | None:
    """Find the fewest and least important Pods that must leave a node so that the Pod fits; None where that can't help.

    Every less important Pod is taken away first. Where the Pod fits then, as many as possible stay, those protected
    by a budget first, the more important before the others.
    """
    info = snapshot.nodes.get(node_name)
    if info is None:
        return None
    lower = [other for other in info.pods if other.priority < pod.priority]
    if not lower:
        return None
    left = [other for other in info.pods if other.priority >= pod.priority]
    if not fits(_with(snapshot, info, left), node_name):
        return None
    violating, others = split_by_budgets(sorted(lower, key=importance), budgets)
    victims: list[Pod] = []
    violations = 0
    for protected, group in ((True, violating), (False, others)):
        for other in group:
            if fits(_with(snapshot, info, [*left, other]), node_name):
                left.append(other)
            else:
                victims.append(other)
                violations += protected
    return Selected(node_name, sorted(victims, key=importance), violations) if victims else None


def _with(snapshot: Snapshot, info: NodeInfo, pods: Sequence[Pod]) -> Snapshot:
    return snapshot.changed({info.node.name: NodeInfo(info.node, tuple(pods))})


def split_by_budgets(pods: Iterable[Pod], budgets: Sequence[PodDisruptionBudget]) -> tuple[list[Pod], list[Pod]]:
    """Split Pods into those whose removal would violate a budget, and the others; each in the order given.

    Every Pod counts against each budget that covers it, in that order; once a budget is used up, the Pods after that
    violate it. A Pod that a budget knows to be disrupted already counts against it no more.
    """
    allowed = [budget.disruptions_allowed for budget in budgets]
    violating: list[Pod] = []
    others: list[Pod] = []
    for pod in pods:
        violates = False
        for place, budget in enumerate(budgets):
            if pod.labels and covers(budget, pod) and pod.name not in budget.disrupted_pods:
                allowed[place] -= 1
                violates = violates or allowed[place] < 0
        (violating if violates else others).append(pod)
    return violating, others


def covers(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Tell whether a budget is about a Pod. An empty selector covers nobody here, as in kube-scheduler."""
    selector = budget.selector
    if budget.namespace != pod.namespace or not (selector.match_labels or selector.match_expressions):
        return False
    return matches_labels(selector, pod.labels)


def pick(candidates: Sequence[Selected]) -> Selected | None:
    """Choose the node whose victims are missed least; of equals the first. None without candidates.

    In order: fewest violated budgets, lowest highest priority of a victim, lowest sum of priorities, fewest victims,
    and the latest start of the longest running of its most important victims. kube-scheduler chooses among equals at
    random.
    """
    return min(candidates, key=_cost, default=None)


def _cost(candidate: Selected) -> tuple[int, int, int, int, "_Later"]:
    highest = candidate.victims[0].priority
    earliest = min(importance(pod)[1] for pod in candidate.victims if pod.priority == highest)
    total = sum(pod.priority + _PRIORITY_OFFSET for pod in candidate.victims)
    return (candidate.pdb_violations, highest, total, len(candidate.victims), _Later(earliest))


class _Later(str):
    """A time that is less than another when it is later."""

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)
