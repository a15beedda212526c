"""Whether a Pod fits nodes if other Pods were on them: what preemption asks again and again. Pure.

Each node is asked about as if it alone were different. For most rules that is the same as if all were different at
once, so that they are asked about all nodes together; the others are asked about one node after another.
"""

import copy
from collections.abc import Iterable, Sequence
from datetime import datetime

from policies.engine.decision import CompiledRuleSet, decide
from policies.engine.filters.bound_volumes import CheckResourceClaims, CheckVolumeBinding
from policies.engine.filters.expression import ExpressionFilter
from policies.engine.filters.inter_pod_affinity import MatchInterPodAffinity
from policies.engine.filters.node_affinity import MatchNodeSelector
from policies.engine.filters.node_conditions import (
    CheckNodeCondition,
    CheckNodeDiskPressure,
    CheckNodeMemoryPressure,
    CheckNodePIDPressure,
    CheckNodeUnschedulable,
)
from policies.engine.filters.node_labels import CheckNodeLabelPresence
from policies.engine.filters.node_name import PodFitsHost
from policies.engine.filters.node_ports import PodFitsHostPorts
from policies.engine.filters.node_resources import PodFitsResources
from policies.engine.filters.pod_topology_spread import EvenPodsSpread
from policies.engine.filters.taint_toleration import PodToleratesNodeTaints
from policies.engine.filters.volume_limits import MaxVolumeCount
from policies.engine.filters.volume_restrictions import NoDiskConflict
from policies.engine.filters.volume_zone import NoVolumeZoneConflict
from policies.engine.objects.claims import claim_names
from policies.engine.objects.columns import required_anti_terms
from policies.engine.objects.inter_pod import tokens_for
from policies.engine.objects.node import NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle, Filter
from policies.engine.status import Status

# The built-ins that never look at Pods on other nodes than the one they are asked about.
_NEAR = (
    CheckNodeCondition,
    CheckNodeDiskPressure,
    CheckNodeLabelPresence,
    CheckNodeMemoryPressure,
    CheckNodePIDPressure,
    CheckNodeUnschedulable,
    CheckResourceClaims,
    CheckVolumeBinding,
    MatchNodeSelector,
    MaxVolumeCount,
    NoVolumeZoneConflict,
    PodFitsHost,
    PodFitsHostPorts,
    PodFitsResources,
    PodToleratesNodeTaints,
)


def counted_nominated(pod: Pod, nominated: Iterable[Pod]) -> list[Pod]:
    """Return the nominated Pods that count against this one: others that are at least as important."""
    return [other for other in nominated if other.uid != pod.uid and other.priority >= pod.priority]


def looks_around(made: Filter, pod: Pod, snapshot: Snapshot, coming: Iterable[Pod]) -> bool:
    """Return whether what the filter says of a node may depend on the Pods on other nodes.

    Args:
        made: the filter. Of one that isn't known here, it may.
        pod: the Pod asked about.
        snapshot: has all the Pods that may be on nodes, but for those coming.
        coming: the Pods that may come to nodes.
    """
    match made:
        case ExpressionFilter():
            return made.expression.counts_pods
        case EvenPodsSpread():
            return bool(pod.spec.topology_spread_constraints or made.reads)
        case MatchInterPodAffinity():
            own = pod.terms.required or pod.terms.required_anti or not pod.terms.valid
            others = any(other.terms.required_anti or not other.terms.valid for other in coming)
            return bool(own or others or any(tokens_for(required_anti_terms(snapshot.table), pod)))
        case NoDiskConflict():
            return bool(claim_names(pod))
    return not isinstance(made, _NEAR)


class Fitting:
    """Says whether enforced filters let a Pod be on nodes, each of them with other Pods than in the Snapshot.

    Pods of at least the same priority that are nominated to a node count as if they were there; and the Pod must fit without
    them too, for they may end elsewhere (kube-scheduler v1.36.3 framework/runtime/framework.go,
    RunFilterPluginsWithNominatedPods).
    """

    def __init__(self, rule_set: CompiledRuleSet, pod: Pod, snapshot: Snapshot, now: datetime) -> None:
        counting = {name: counted_nominated(pod, waiting) for name, waiting in snapshot.nominated.items()}
        self._nominated = {name: waiting for name, waiting in counting.items() if waiting}
        self._pod = pod
        self._snapshot = snapshot
        self._now = now
        coming = [other for waiting in self._nominated.values() for other in waiting]
        self._near, self._far = copy.copy(rule_set), copy.copy(rule_set)
        self._near.filters, self._far.filters = [], []
        for rule, made in rule_set.filters:
            if rule.mode == "enforce":
                part = self._far if looks_around(made, pod, snapshot, coming) else self._near
                part.filters.append((rule, made))

    def refusals(self, infos: Sequence[NodeInfo]) -> list[Status | None]:
        """Return for each of these nodes, of different names, why the Pod can't be on it; None where it can.

        The status is of one of the rules that refuse, not always of the first in the rule set's order.
        """
        joined = {info.name: info.joined(self._nominated[info.name]) for info in infos if info.name in self._nominated}
        found = self._ask(list(joined.values()))
        found |= self._ask([info for info in infos if found.get(info.name) is None])
        return [found[info.name] for info in infos]

    def _ask(self, infos: Sequence[NodeInfo]) -> dict[str, Status | None]:
        found = self._ask_together(self._near, infos)
        if self._far.filters:
            for info in infos:
                if found[info.name] is None:
                    found |= self._ask_together(self._far, [info])
        return found

    def _ask_together(self, rules: CompiledRuleSet, infos: Sequence[NodeInfo]) -> dict[str, Status | None]:
        found: dict[str, Status | None] = {info.name: None for info in infos}
        if infos and rules.filters:
            changed = self._snapshot.changed({info.name: info for info in infos})
            cycle = Cycle(pod=self._pod, snapshot=changed, now=self._now, params=rules.params)
            found |= decide(rules, cycle, changed.table.rows(found), scoring=False).refused()
        return found
