"""What keeps kube-scheduler from starting with a configuration's plugins, times and numbers. Pure.

Sources, in k8s.io/kubernetes v1.36.3: pkg/scheduler/apis/config/validation/validation.go, apis/config/v1/default_plugins.go
(mergePluginSet), framework/runtime/framework.go (NewFramework), profile/profile.go and scheduler.go (buildExtenders); and
k8s.io/component-base v0.36.3 config/validation/validation.go. The checks are in kube-scheduler's order, each in its words.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from policies.profiles import DEFAULTS, FORMER, PLUGINS, nearest
from scheduler.doctor.arguments import Told, of_arguments
from scheduler.doctor.shape import Configuration, LeaderElection, Plugin, Plugins, PluginSet, Profile, seconds_of

_FILTER = ("preFilter", "filter")
_WHOLE = ("preFilter", "filter", "preScore", "score")
_RESERVES = ("preFilter", "filter", "reserve", "preBind", "score")
# The extension points of kube-scheduler's own plugins. A test compares them with the real one's.
POINTS: dict[str, tuple[str, ...]] = {
    "SchedulingGates": ("preEnqueue",),
    "PrioritySort": ("queueSort",),
    "NodeUnschedulable": ("filter",),
    "NodeName": ("filter",),
    "TaintToleration": ("filter", "preScore", "score"),
    "NodeAffinity": _WHOLE,
    "NodePorts": _FILTER,
    "NodeResourcesFit": (*_WHOLE, "placementScore"),
    "VolumeRestrictions": _FILTER,
    "NodeVolumeLimits": _FILTER,
    "VolumeBinding": (*_RESERVES, "preScore"),
    "VolumeZone": _FILTER,
    "PodTopologySpread": _WHOLE,
    "InterPodAffinity": _WHOLE,
    "DynamicResources": ("preEnqueue", *_RESERVES, "postFilter"),
    "DefaultPreemption": ("preEnqueue", "postFilter"),
    "NodeResourcesBalancedAllocation": ("preScore", "score"),
    "ImageLocality": ("score",),
    "DefaultBinder": ("bind",),
    "NodeDeclaredFeatures": _FILTER,
    "GangScheduling": ("preEnqueue", "permit"),
    "TopologyPlacementGenerator": ("placementGenerate",),
    "PodGroupPodsCount": ("placementScore",),
}
_WEIGHED = ("score", "placementScore")
# The other plugins of POINTS are behind feature gates that Kubernetes leaves off.
_ENABLED = {**DEFAULTS, "NodeDeclaredFeatures": 0}
_QUEUE, _BIND, _FIT = "queueSort", "bind", "NodeResourcesFit"
_EXTENSION_POINTS = {
    field.encode_name: field.name for field in msgspec.structs.fields(Plugins) if field.name != "multi_point"
}
_JITTER = 1.2
_ELECTION = {"leaseDuration": 15.0, "renewDeadline": 10.0, "retryPeriod": 2.0}


# A plugin, and its place in the file; a default plugin's place is empty.
_Placed = tuple[Plugin, str]


class _Merged(NamedTuple):
    """A profile's plugins as kube-scheduler merges them with its own."""

    # Those of multiPoint in their order.
    general: list[_Placed]
    points: dict[str, PluginSet]
    # Those of multiPoint that come to each extension point, if any.
    expanded: dict[str, list[_Placed]]

    def names(self) -> set[str]:
        """Return the plugins that kube-scheduler makes."""
        return {plugin.name for plugin, _ in self.general} | {
            plugin.name for point in self.points.values() for plugin in point.enabled
        }

    def at(self, point: str) -> list[str]:
        """Return the plugins of an extension point; those of other makes only where the file names the point."""
        named = [plugin.name for plugin in self.points[point].enabled]
        return [*named, *(plugin.name for plugin, _ in self.expanded.get(point, ()))]


def starting(configuration: Configuration) -> Iterator[Told]:
    """Yield what keeps kube-scheduler from starting, except what stands in `extenders`, in names and in percentages.

    Beside that, arguments that nothing reads.
    """
    yield from _numbers(configuration)
    yield from _election(configuration.leader_election)
    profiles = configuration.profiles or [Profile()]
    merged = [
        _merge(profile.plugins, f"profiles[{index}].plugins") if profile.plugins != Plugins() else _UNCHANGED
        for index, profile in enumerate(profiles)
    ]
    for index, (profile, plugins) in enumerate(zip(profiles, merged, strict=True)):
        place = f"profiles[{index}]"
        yield from _arguments(profile, plugins, place)
        if plugins is not _UNCHANGED:
            yield from _plugins(plugins, f"{place}.plugins")
            yield from _weights(plugins, f"{place}.plugins")
    if _ignores_resources(configuration):
        for index, (profile, plugins) in enumerate(zip(profiles, merged, strict=True)):
            if _FIT not in {each.name for each in profile.plugin_config} | plugins.names():
                yield "ignored-without-fit", f"profiles[{index}].plugins", ""
    yield from _queue(profiles, merged)


def _numbers(configuration: Configuration) -> Iterator[Told]:
    first, last = configuration.pod_initial_backoff_seconds, configuration.pod_max_backoff_seconds
    if configuration.parallelism <= 0:
        yield "value-refused", "parallelism", "It has to be 1 or more."
    if configuration.client_connection.burst < 0:
        yield "value-refused", "clientConnection.burst", "It has to be 0 or more."
    if first <= 0:
        yield "value-refused", "podInitialBackoffSeconds", "It has to be 1 or more."
    if last < first:
        yield "value-refused", "podMaxBackoffSeconds", f"It has to be podInitialBackoffSeconds, {first}, or more."


def _election(election: LeaderElection) -> Iterator[Told]:
    if not election.leader_elect:
        return
    given = {
        "leaseDuration": election.lease_duration,
        "renewDeadline": election.renew_deadline,
        "retryPeriod": election.retry_period,
    }
    seconds = {name: seconds_of(text) or _ELECTION[name] for name, text in given.items()}
    for name, each in seconds.items():
        if each < 0:
            yield "value-refused", f"leaderElection.{name}", "It has to be longer than 0s."
    if seconds["leaseDuration"] <= seconds["renewDeadline"]:
        detail = f"It has to be longer than renewDeadline, {seconds['renewDeadline']:g}s."
        yield "value-refused", "leaderElection.leaseDuration", detail
    elif seconds["renewDeadline"] <= _JITTER * seconds["retryPeriod"]:
        detail = f"It has to be longer than {_JITTER:g} times retryPeriod, {seconds['retryPeriod']:g}s."
        yield "election-never-starts", "leaderElection.renewDeadline", detail
    if election.resource_lock not in {"", "leases"}:
        yield "value-refused", "leaderElection.resourceLock", "It has to be leases."


# Plugins


def _merge(plugins: Plugins, place: str) -> _Merged:
    given = plugins.multi_point
    own = {plugin.name: (plugin, f"{place}.multiPoint.enabled[{i}]") for i, plugin in enumerate(given.enabled)}
    off = {plugin.name for plugin in given.disabled}
    defaults = [] if "*" in off else [name for name in _ENABLED if name not in off]
    general = [own.get(name) or (Plugin(name=name, weight=_ENABLED[name]), "") for name in defaults]
    taken = {at for _, at in general}
    for index, plugin in enumerate(given.enabled):
        if (at := f"{place}.multiPoint.enabled[{index}]") not in taken:
            general.append((plugin, at))
    points = {name: getattr(plugins, attribute) for name, attribute in _EXTENSION_POINTS.items()}
    return _Merged(general, points, _expanded(general, points))


def _expanded(general: list[_Placed], points: dict[str, PluginSet]) -> dict[str, list[_Placed]]:
    off = {
        point: {plugin.name for plugin in (*given.enabled, *given.disabled)}
        for point, given in points.items()
        if given.enabled or given.disabled
    }
    made: dict[str, list[_Placed]] = {}
    for plugin, at in general:
        for point in POINTS.get(plugin.name, ()):
            if point not in off or not off[point] & {plugin.name, "*"}:
                made.setdefault(point, []).append((plugin, at))
    return made


# Those of a profile that changes none. Merging takes most of the lint's time, and a short text can have very many profiles.
_UNCHANGED = _merge(Plugins(), "")


def _has(name: str, point: str) -> bool:
    return point in POINTS.get(name, ())


def _plugins(plugins: _Merged, place: str) -> Iterator[Told]:
    for plugin, at in plugins.general:
        yield from _unknown(plugin.name, at)
    twice: dict[str, str] = {}
    for point, given in plugins.points.items():
        seen: set[str] = set()
        for index, plugin in enumerate(given.enabled):
            at = f"{place}.{point}.enabled[{index}].name"
            if plugin.name in seen:
                yield "plugin-twice", at, f"It is {plugin.name}."
            elif plugin.name not in POINTS:
                yield from _unknown(plugin.name, at.removesuffix(".name"))
            elif not _has(plugin.name, point):
                yield "plugin-misplaced", at, f"{plugin.name} belongs to {', '.join(POINTS[plugin.name])}."
            seen.add(plugin.name)
    for placed in plugins.expanded.values():
        counts = Counter(plugin.name for plugin, _ in placed)
        twice |= {plugin.name: at for plugin, at in placed if counts[plugin.name] > 1}
    for name, at in twice.items():
        yield "plugin-twice", f"{at}.name", f"It is {name}."
    if not plugins.at(_BIND) and not _is_open(plugins, _BIND):
        yield "no-bind-plugin", f"{place}.bind", ""


def _unknown(name: str, place: str) -> Iterator[Told]:
    if name in POINTS:
        return
    is_slip = nearest(name) or name in FORMER or not name
    yield "plugin-unknown" if is_slip else "plugin-of-another-make", f"{place}.name", _meant(name)


def _meant(name: str) -> str:
    near = nearest(name)
    return f"Did you mean {near}?" if near else f"It is {name or '(none)'}."


def _is_open(plugins: _Merged, point: str) -> bool:
    """Return whether plugins of other makes may come to an extension point: their points aren't known here."""
    off = {plugin.name for plugin in plugins.points[point].disabled}
    return "*" not in off and any(plugin.name not in PLUGINS for plugin, _ in plugins.general)


def _weights(plugins: _Merged, place: str) -> Iterator[Told]:
    """Go through the weights as kube-scheduler does: after a negative sum, its check for an overflow overflows itself."""
    for point in _WEIGHED:
        total = 0
        given = [(plugin, f"{place}.{point}.enabled[{i}]") for i, plugin in enumerate(plugins.points[point].enabled)]
        counted: set[str] = set()
        lowest = ""
        for plugin, at in [*given, *plugins.general]:
            if plugin.name in counted or not _has(plugin.name, point):
                continue
            if total < 0:
                yield "weight-negative", f"{lowest}.weight", ""
                break
            counted.add(plugin.name)
            lowest = at if plugin.weight < 0 else lowest
            total += plugin.weight or 1


def _queue(profiles: list[Profile], merged: list[_Merged]) -> Iterator[Told]:
    first: tuple[Any, ...] = ()
    for index, (profile, plugins) in enumerate(zip(profiles, merged, strict=True)):
        place = f"profiles[{index}].plugins.queueSort"
        names = plugins.at(_QUEUE)
        if len(names) > 1 or not (names or _is_open(plugins, _QUEUE)):
            yield "queue-sort-not-one", place, f"There are: {', '.join(names) or '(none)'}."
            continue
        given = plugins.points[_QUEUE]
        settings = (
            [(plugin.name, plugin.weight) for plugin in given.enabled],
            [plugin.name for plugin in given.disabled],
            names,
            next((each.args for each in profile.plugin_config if each.name in names), None),
        )
        first = first or settings
        if settings != first:
            yield "queue-sort-differs", place, ""


# Arguments


def _arguments(profile: Profile, plugins: _Merged, place: str) -> Iterator[Told]:
    made = plugins.names()
    seen: set[str] = set()
    for index, plugin in enumerate(profile.plugin_config):
        at = f"{place}.pluginConfig[{index}]"
        if plugin.name in seen:
            yield "arguments-twice", at, f"They are those of {plugin.name or '(none)'}."
        if plugin.name in _LIMITS or plugin.name == "NodeResourcesFitArgs":
            yield "plugin-unknown", f"{at}.name", f"It is {plugin.name}."
        elif plugin.name not in POINTS and plugin.name not in made:
            yield "arguments-unread", f"{at}.name", _meant(plugin.name)
        yield from of_arguments(plugin, f"{at}.args", is_made=plugin.name in made)
        seen.add(plugin.name)


_LIMITS = {name for name, now in FORMER.items() if now == "NodeVolumeLimits"}


def _ignores_resources(configuration: Configuration) -> bool:
    """Extenders' ignoredByScheduler is written into the arguments of NodeResourcesFit, which have to be there."""
    return any(each.ignored_by_scheduler for extender in configuration.extenders for each in extender.managed_resources)
