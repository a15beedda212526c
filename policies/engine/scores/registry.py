"""The built-in scores, by their classic names and by the names of kube-scheduler's plugins."""

from policies.engine.rule import Score
from policies.engine.scores.image_locality import ImageLocalityPriority
from policies.engine.scores.inter_pod_affinity import InterPodAffinityPriority
from policies.engine.scores.node_affinity import NodeAffinityPriority
from policies.engine.scores.node_labels import EqualPriority, NodeLabelPriority, NodePreferAvoidPodsPriority
from policies.engine.scores.node_resources import (
    BalancedResourceAllocation,
    LeastRequestedPriority,
    MostRequestedPriority,
    NodeResourcesFit,
    RequestedToCapacityRatioPriority,
)
from policies.engine.scores.pod_topology_spread import EvenPodsSpreadPriority
from policies.engine.scores.selector_spread import (
    SelectorSpreadPriority,
    ServiceAntiAffinityPriority,
    ServiceSpreadingPriority,
)
from policies.engine.scores.taint_toleration import TaintTolerationPriority

# Other name -> the classic name.
SCORE_ALIASES: dict[str, str] = {
    "DefaultPodTopologySpread": "SelectorSpreadPriority",
    "ImageLocality": "ImageLocalityPriority",
    "InterPodAffinity": "InterPodAffinityPriority",
    "NodeAffinity": "NodeAffinityPriority",
    "NodeLabel": "NodeLabelPriority",
    "NodePreferAvoidPods": "NodePreferAvoidPodsPriority",
    "NodeResourcesBalancedAllocation": "BalancedResourceAllocation",
    "NodeResourcesLeastAllocated": "LeastRequestedPriority",
    "NodeResourcesMostAllocated": "MostRequestedPriority",
    "PodTopologySpread": "EvenPodsSpreadPriority",
    "RequestedToCapacityRatio": "RequestedToCapacityRatioPriority",
    "SelectorSpread": "SelectorSpreadPriority",
    "ServiceAffinity": "ServiceAntiAffinityPriority",
    "ServiceAntiAffinity": "ServiceAntiAffinityPriority",
    "TaintToleration": "TaintTolerationPriority",
}

_CLASSIC: dict[str, type[Score]] = {
    made.__name__: made
    for made in (
        BalancedResourceAllocation,
        EqualPriority,
        EvenPodsSpreadPriority,
        ImageLocalityPriority,
        InterPodAffinityPriority,
        LeastRequestedPriority,
        MostRequestedPriority,
        NodeAffinityPriority,
        NodeLabelPriority,
        NodePreferAvoidPodsPriority,
        NodeResourcesFit,
        RequestedToCapacityRatioPriority,
        SelectorSpreadPriority,
        ServiceAntiAffinityPriority,
        ServiceSpreadingPriority,
        TaintTolerationPriority,
    )
}

# Name -> class with an `Arguments` struct, made with an instance of it.
BUILTIN_SCORES: dict[str, type[Score]] = _CLASSIC | {alias: _CLASSIC[name] for alias, name in SCORE_ALIASES.items()}
