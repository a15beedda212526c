"""PodDisruptionBudgets in preemption: the Pods whose removal they don't allow. Pure.

Source: kube-scheduler v1.36.3 framework/plugins/defaultpreemption/default_preemption.go (filterPodsWithPDBViolation).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from policies.engine.objects.cluster_kinds import PodDisruptionBudget
from policies.engine.objects.pod import Pod
from policies.engine.selectors import Selector, SelectorError, parse_selector


class Budget(msgspec.Struct, frozen=True, eq=False):
    """The part of a PodDisruptionBudget that preemption reads: the Pods it covers, how many may be disrupted, and which are already."""

    selector: Selector
    allowed: int
    disrupted: Mapping[str, object]

    def covers(self, pod: Pod) -> bool:
        """Return whether it covers this Pod of its namespace. Pods without labels are skipped.

        A Pod that the budget knows to be disrupted already isn't counted again.
        """
        return bool(pod.labels) and self.selector.matches(pod.labels) and pod.name not in self.disrupted


# Namespace -> its budgets.
Budgets = Mapping[str, Sequence[Budget]]


def budgets_by_namespace(budgets: Iterable[PodDisruptionBudget]) -> Budgets:
    """Read budgets. Those with an empty selector, or one that Kubernetes can't parse, cover no Pods and are left out."""
    found: defaultdict[str, list[Budget]] = defaultdict(list)
    for budget in budgets:
        try:
            selector = parse_selector(budget.spec.selector)
        except SelectorError:
            continue
        if not selector.is_empty:
            status = budget.status
            made = Budget(selector, status.disruptions_allowed, status.disrupted_pods or {})
            found[budget.metadata.namespace or "default"].append(made)
    return found


def split_by_budgets(pods: Iterable[Pod], budgets: Budgets) -> tuple[list[Pod], list[Pod]]:
    """Split Pods into those whose removal would violate a budget, and the others; each in the order given.

    Every Pod counts against each budget that covers it. Once a budget is used up, later Pods violate it.
    """
    left: dict[Budget, int] = {}
    violating: list[Pod] = []
    others: list[Pod] = []
    for pod in pods:
        covering = [budget for budget in budgets.get(pod.namespace, ()) if budget.covers(pod)]
        for budget in covering:
            left[budget] = left.get(budget, budget.allowed) - 1
        (violating if any(left[budget] < 0 for budget in covering) else others).append(pod)
    return violating, others
