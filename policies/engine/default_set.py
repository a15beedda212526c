"""The classic default set: the rules for Pods of Berth's own scheduler that no Assignment takes.

Names, order of the filters and weights are those of kube-scheduler v1.36.3's default profile
(apis/config/v1/default_plugins.go), under the classic names.
"""

from policies.engine.decision import CompiledRuleSet
from policies.engine.ruleset import FilterRule, RuleSet, RuleSetSpec, ScoreRule

FILTERS = (
    "CheckNodeUnschedulable",
    "PodFitsHost",
    "PodToleratesNodeTaints",
    "MatchNodeSelector",
    "PodFitsHostPorts",
    "PodFitsResources",
    "NoDiskConflict",
    "MaxVolumeCount",
    "NoVolumeZoneConflict",
    "EvenPodsSpread",
    "MatchInterPodAffinity",
)
SCORES = {
    "TaintTolerationPriority": 3,
    "NodeAffinityPriority": 2,
    "EvenPodsSpreadPriority": 2,
    "InterPodAffinityPriority": 2,
    "LeastRequestedPriority": 1,
    "BalancedResourceAllocation": 1,
    "ImageLocalityPriority": 1,
}
NAME = "classic-default"


def default_document() -> RuleSet:
    """Return the classic default set as a document."""
    spec = RuleSetSpec(
        filters=[FilterRule(builtin=name) for name in FILTERS],
        scores=[ScoreRule(builtin=name, weight=weight) for name, weight in SCORES.items()],
    )
    return RuleSet(name=NAME, spec=spec)


def default_rule_set() -> CompiledRuleSet:
    """Compile the classic default set."""
    return CompiledRuleSet(default_document())
