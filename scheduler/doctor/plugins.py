"""The weight of kube-scheduler's own score plugins in comparison with an extender.

Source: k8s.io/kubernetes v1.36.3, as `policies.profiles` says.
"""

from policies import profiles
from scheduler.doctor.shape import PluginSet, Profile

# Plugins that never score. VolumeBinding scores only behind a feature gate, and isn't counted.
_NEVER_SCORE = frozenset(name for name in profiles.PLUGINS if not profiles.DEFAULTS.get(name))

# The most points that a plugin gives a node, before its weight.
_PLUGIN_POINTS = 100

# kube-scheduler multiplies an extender's points 0..10 by this and by the extender's weight.
_EXTENDER_FACTOR = 10

# The most points that Berth gives a node.
EXTENDER_POINTS = 10


def score_weights(profile: Profile) -> dict[str, int]:
    """Return the plugins that score in a profile with their weights.

    A third party's plugin that is enabled at all extension points is counted: whether it scores isn't known here.
    """
    plugins = profile.plugins
    return profiles.enabled_at(
        _set_of(plugins.score), _set_of(plugins.multi_point), lambda name: name not in _NEVER_SCORE
    )


def _set_of(given: PluginSet) -> profiles.PluginSet:
    enabled = {plugin.name: plugin.weight or 1 for plugin in given.enabled}
    return profiles.PluginSet(enabled, frozenset(plugin.name for plugin in given.disabled))


def most_points(profile: Profile) -> int:
    """Return the most points that a profile's own plugins can give a node together."""
    return _PLUGIN_POINTS * sum(score_weights(profile).values())


def points_of(weight: int) -> int:
    """Return the value of one point of an extender."""
    return _EXTENDER_FACTOR * weight
