"""How much kube-scheduler's own score plugins weigh beside an extender.

Source: k8s.io/kubernetes v1.36.3 pkg/scheduler/apis/config/v1/default_plugins.go (defaults and how a profile changes
them), pkg/scheduler/framework/runtime/framework.go (expandMultiPointPlugins, getValidScoreWeights).
"""

from scheduler.doctor.shape import PluginSet, Profile

# The default score plugins with their weights. VolumeBinding scores behind a feature gate only, and isn't counted.
DEFAULT_WEIGHTS = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "DynamicResources": 2,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}

NEVER_SCORE = frozenset(
    {
        "SchedulingGates", "PrioritySort", "NodeUnschedulable", "NodeName", "NodePorts", "VolumeRestrictions",
        "NodeVolumeLimits", "VolumeBinding", "VolumeZone", "DefaultPreemption", "DefaultBinder", "NodeDeclaredFeatures",
        "GangScheduling", "TopologyPlacementGenerator", "PodGroupPodsCount",
    }
)  # fmt: skip

# The most that a plugin gives a node, before its weight.
PLUGIN_POINTS = 100

# kube-scheduler multiplies an extender's points 0..10 by this and by the extender's weight.
EXTENDER_FACTOR = 10

# The most that Berth gives a node.
EXTENDER_POINTS = 10


def score_weights(profile: Profile) -> dict[str, int]:
    """Return the plugins that score in a profile with their weights.

    A plugin of another make that is enabled at all points is counted: whether it scores isn't known here.
    """
    multi_point = _of_multi_point(profile.plugins.multi_point)
    score = profile.plugins.score
    disabled = {plugin.name for plugin in score.disabled}
    kept = {} if "*" in disabled else {name: weight for name, weight in multi_point.items() if name not in disabled}
    return kept | {plugin.name: plugin.weight or 1 for plugin in score.enabled}


def _of_multi_point(custom: PluginSet) -> dict[str, int]:
    disabled = {plugin.name for plugin in custom.disabled}
    defaults = {} if "*" in disabled else {n: w for n, w in DEFAULT_WEIGHTS.items() if n not in disabled}
    own = {plugin.name: plugin.weight or 1 for plugin in custom.enabled if plugin.name not in NEVER_SCORE}
    return defaults | own


def most_points(profile: Profile) -> int:
    """Return the most that a profile's own plugins give a node together."""
    return PLUGIN_POINTS * sum(score_weights(profile).values())


def points_of(weight: int) -> int:
    """Return what one point of an extender's counts."""
    return EXTENDER_FACTOR * weight
