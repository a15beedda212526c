"""Conversion of a KubeSchedulerConfiguration's profile to a rule set: filter and score plugins, in order, with weights.

Format and defaults: kube-scheduler v1.36.3 config/v1/types.go and types_pluginargs.go, pkg/scheduler/apis/config/v1/default_plugins.go
(mergePluginSet) and pkg/scheduler/framework/runtime/framework.go (expandMultiPointPlugins, getValidScoreWeights). The rest of the
file isn't converted: kube-scheduler goes on doing it. Of its extenders only the resources count that kube-scheduler leaves to them.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from policies.engine.errors import Fault, RuleSetError
from policies.engine.filters.registry import BUILTIN_FILTERS, NO_BUILTIN
from policies.engine.reading import Reader, not_json
from policies.engine.ruleset import API_VERSION, RuleSet
from policies.engine.scores.registry import BUILTIN_SCORES
from policies.engine.validation import MAX_WEIGHT, read_rule_set
from policies.go_defaults import ignored_by_scheduler, with_weights, with_whole_points

CONFIGURATION_VERSION = "kubescheduler.config.k8s.io/v1"
DEFAULT_SCHEDULER = "default-scheduler"

MAX_FAULTS = 100
# The longest name of a rule set that validation accepts.
_MAX_NAME = 63

_FILTERS = frozenset(
    {
        "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit",
        "VolumeRestrictions", "NodeVolumeLimits", "VolumeZone", "PodTopologySpread", "InterPodAffinity",
    }
)  # fmt: skip
_SCORES = frozenset(
    {
        "TaintToleration", "NodeAffinity", "NodeResourcesFit", "PodTopologySpread", "InterPodAffinity",
        "NodeResourcesBalancedAllocation", "ImageLocality",
    }
)  # fmt: skip
# The default plugins in their order, with their weights; 0 for plugins that don't score.
DEFAULTS: Mapping[str, int] = {
    "SchedulingGates": 0,
    "PrioritySort": 0,
    "NodeUnschedulable": 0,
    "NodeName": 0,
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodePorts": 0,
    "NodeResourcesFit": 1,
    "VolumeRestrictions": 0,
    "NodeVolumeLimits": 0,
    "VolumeBinding": 0,
    "VolumeZone": 0,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "DynamicResources": 2,
    "DefaultPreemption": 0,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
    "DefaultBinder": 0,
}
# Plugins behind feature gates.
_GATED = ("NodeDeclaredFeatures", "GangScheduling", "TopologyPlacementGenerator", "PodGroupPodsCount")
PLUGINS = frozenset({*DEFAULTS, *_GATED})

_NOT_HERE = {
    "VolumeBinding": NO_BUILTIN["VolumeBinding"],
    "DynamicResources": "devices are chosen by kube-scheduler (its plugin DynamicResources), and Berth has no rule for them: "
    "leave it out",
    "NodeDeclaredFeatures": "kube-scheduler asks it by itself, and so does Berth's own scheduler: leave it out",
}
_ANOTHERS = (
    "is a plugin that kube-scheduler doesn't bring along: leave the entry out, and kube-scheduler goes on running it beside "
    "Berth's rules; or write what it does as an expression"
)
# Former names of plugins, in files of older releases, and the built-ins that do the same under other names.
FORMER = {
    "DefaultPodTopologySpread": "SelectorSpread",
    **dict.fromkeys(("EBSLimits", "GCEPDLimits", "AzureDiskLimits", "CinderLimits"), "NodeVolumeLimits"),
}
_TOP = {
    "apiVersion", "kind", "parallelism", "leaderElection", "clientConnection", "enableProfiling", "enableContentionProfiling",
    "percentageOfNodesToScore", "podInitialBackoffSeconds", "podMaxBackoffSeconds", "profiles", "extenders",
    "delayCacheUntilActive",
}  # fmt: skip
_PROFILE = {"schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig"}
_POINTS = {
    "preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score", "reserve", "permit", "preBind",
    "bind", "postBind", "multiPoint", "placementGenerate", "placementScore",
}  # fmt: skip
# How similar a misspelt name is; third-party plugins often have the same endings as kube-scheduler's own.
_ALIKE = 0.8
_RATIO = "requestedToCapacityRatio"
_FIT = "NodeResourcesFit"


class PluginSet(NamedTuple):
    """The plugins that an extension point enables, with weights from 1 on, and those that it disables; `*` is all."""

    enabled: Mapping[str, int]
    disabled: frozenset[str]


def enabled_at(point: PluginSet, multi_point: PluginSet, has: Callable[[str], bool]) -> dict[str, int]:
    """Return the plugins of an extension point in their order, with their weights.

    Args:
        point: the profile's plugins for the point.
        multi_point: its plugins for all points.
        has: whether a plugin implements the point.
    """
    if "*" in point.disabled:
        return dict(point.enabled)
    off = multi_point.disabled
    defaults = {} if "*" in off else {name: weight for name, weight in DEFAULTS.items() if name not in off}
    # A default plugin that is also enabled explicitly keeps its place.
    general = defaults | dict(multi_point.enabled)
    there = {name: weight for name, weight in general.items() if has(name) and name not in point.disabled}
    overridden = {name: weight for name, weight in point.enabled.items() if name in there}
    rest = {name: weight for name, weight in there.items() if name not in overridden}
    return overridden | rest | dict(point.enabled)


def import_profile(document: object, *, name: str) -> RuleSet:
    """Make a rule set from the profile of a configuration.

    Args:
        document: the configuration, decoded, with at most one profile; None in place of other profiles.
        name: the name of the rule set. The name of a scheduler other than the default one is appended.

    Raises:
        RuleSetError: with every fault, each with its path in the configuration.
    """
    faults = list(islice(not_json(document), MAX_FAULTS))
    if faults:
        raise RuleSetError(faults)
    top = Reader(document, "", faults, _TOP)
    if top.raw("apiVersion") != CONFIGURATION_VERSION:
        top.fault("apiVersion", f"must be {CONFIGURATION_VERSION}; older ones had other defaults")
    profiles = [
        (each, f"profiles[{index}]") for index, each in enumerate(top.items("profiles", _as_it_is)) if each is not None
    ]
    if len(profiles) > 1:
        top.fault("profiles", f"has {len(profiles)} profiles, and each is a rule set of its own: give one at a time")
    ignored = ignored_by_scheduler(top.raw("extenders"))
    made = _ImportedProfile(*(profiles[:1] or [({}, "profiles")])[0], faults, ignored)
    try:
        rule_set = read_rule_set(made.document(name))
    except RuleSetError as error:
        faults += [made.translate(fault) for fault in error.faults]
    if faults:
        # A plugin's filter and its score have the same arguments, and the same faults.
        raise RuleSetError(list(dict.fromkeys(faults)))
    return rule_set


def _as_it_is(value: object, _path: str) -> object:
    return value


class _ImportedProfile:
    def __init__(self, profile: object, path: str, faults: list[Fault], ignored: list[str]) -> None:
        self._faults = faults
        self._ignored = ignored
        top = Reader(profile, path, faults, _PROFILE)
        self.scheduler = top.text("schedulerName") or DEFAULT_SCHEDULER
        self._arguments: dict[str, dict[str, Any]] = {}
        self._places: dict[str, str] = {}
        top.items("pluginConfig", self._read_arguments)
        plugins = Reader(top.raw("plugins"), top.where("plugins"), faults, _POINTS)
        multi_point = self._plugin_set(plugins, "multiPoint", None)
        self.filters = self._rules(plugins, "filter", multi_point, _FILTERS, BUILTIN_FILTERS)
        self.scores = self._rules(plugins, "score", multi_point, _SCORES, BUILTIN_SCORES)

    def document(self, name: str) -> dict[str, Any]:
        """Return the rule set's document."""
        # Truncation, or a scheduler's name without letters and digits, may leave a dash at the end.
        added = f"{name}-{_plain(self.scheduler)}"[:_MAX_NAME].rstrip("-")
        called = name if self.scheduler == DEFAULT_SCHEDULER else added
        return {
            "apiVersion": API_VERSION,
            "kind": "RuleSet",
            "metadata": {
                "name": called,
                "description": f"Imported from the profile {self.scheduler} of a KubeSchedulerConfiguration",
            },
            "spec": {"filters": self.filters, "scores": self.scores},
        }

    def translate(self, fault: Fault) -> Fault:
        """Point a fault of the document at the configuration."""
        for kind, rules in (("filters", self.filters), ("scores", self.scores)):
            head, _, member = fault.path.partition("].arguments")
            if head.startswith(f"spec.{kind}["):
                plugin = rules[int(head.removeprefix(f"spec.{kind}["))]["builtin"]
                return Fault(f"{self._places[plugin]}.args{member}", fault.message)
        return fault

    def _read_arguments(self, value: object, path: str) -> None:
        reader = Reader(value, path, self._faults, {"name", "args"})
        name = reader.text("name", required=True)
        if not name:
            return
        if name in self._places:
            reader.fault("name", f"{name} has arguments at {self._places[name]} already")
        elif name not in PLUGINS:
            reader.fault("name", _unknown(name))
        elif name in _FILTERS | _SCORES:
            known = {*_members_of(BUILTIN_FILTERS, name), *_members_of(BUILTIN_SCORES, name), "apiVersion", "kind"}
            args = Reader(reader.raw("args"), reader.where("args"), self._faults, known)
            self._arguments[name] = {each: args.raw(each) for each in sorted(known) if each in args}
            if args.raw("defaultConstraints") and not args.raw("defaultingType"):
                args.fault("defaultingType", "must be List: kube-scheduler doesn't start with constraints without it")
        self._places.setdefault(name, path)

    def _rules(
        self,
        plugins: Reader,
        point: str,
        multi_point: PluginSet,
        known: frozenset[str],
        builtins: Mapping[str, Any],
    ) -> list[dict[str, Any]]:
        """Return the rules of an extension point."""
        found = enabled_at(self._plugin_set(plugins, point, known), multi_point, known.__contains__)
        rules = []
        for name, weight in found.items():
            given = _as_read(self._arguments.get(name, {}))
            strategy = given.get("scoringStrategy")
            if point == "score" and isinstance(strategy, dict) and "type" not in strategy:
                # A rule without it scores by LeastAllocated; kube-scheduler does so only without any strategy.
                message = "is needed: kube-scheduler doesn't start with a strategy without it"
                self._faults.append(Fault(f"{self._places[name]}.args.scoringStrategy.type", message))
            if name == _FIT and point == "filter" and self._ignored:
                given["ignoredResources"] = self._ignored
            arguments = {each: given[each] for each in _members_of(builtins, name) if each in given}
            rule = {"builtin": name} | ({"arguments": arguments} if arguments else {})
            rules.append(rule | {"weight": weight} if point == "score" else rule)
        return rules

    def _plugin_set(self, plugins: Reader, point: str, known: frozenset[str] | None) -> PluginSet:
        """Read an extension point; `known` are the plugins that become rules there, None for multiPoint."""
        reader = Reader(plugins.raw(point), plugins.where(point), self._faults, {"enabled", "disabled"})
        enabled: dict[str, int] = {}
        disabled: set[str] = set()

        def enable(value: object, path: str) -> None:
            entry = Reader(value, path, self._faults, {"name", "weight"})
            name = entry.text("name", required=True)
            weight = entry.integer("weight", 0, low=0, high=MAX_WEIGHT) or 1
            if name in enabled:
                entry.fault("name", f"{name} is enabled here twice")
            elif refused := name and _refused(name, point, known):
                entry.fault("name", refused)
            elif name:
                enabled[name] = weight

        def disable(value: object, path: str) -> None:
            entry = Reader(value, path, self._faults, {"name", "weight"})
            name = entry.text("name", required=True)
            if name and name != "*" and name not in PLUGINS and nearest(name):
                entry.fault("name", _unknown(name))
            disabled.add(name)

        reader.items("enabled", enable)
        reader.items("disabled", disable)
        return PluginSet(enabled, frozenset(disabled))


def _refused(name: str, point: str, known: frozenset[str] | None) -> str:
    """Return why an enabled plugin can't become a rule at a point; empty if it can, or is irrelevant to a rule set."""
    if name not in PLUGINS:
        return _unknown(name)
    if known is None or name in known:
        return ""
    return f"{name} has no counterpart: {_NOT_HERE[name]}" if name in _NOT_HERE else f"{name} has nothing to {point}"


def _unknown(name: str) -> str:
    builtin = FORMER.get(name, name)
    if builtin in BUILTIN_FILTERS or builtin in BUILTIN_SCORES:
        return f"{name} is no plugin of kube-scheduler any more: leave the entry out, and add a rule with the built-in {builtin}"
    near = nearest(name)
    return f"no plugin is called {name}; did you mean {near}?" if near else f"{name} {_ANOTHERS}"


def nearest(name: str) -> str:
    """Return the plugin of kube-scheduler's own that may be meant; empty if none is like it."""
    return next(iter(get_close_matches(name, PLUGINS, n=1, cutoff=_ALIKE)), "")


def _members_of(builtins: Mapping[str, Any], name: str) -> Sequence[str]:
    if name not in builtins:
        return ()
    return [field.encode_name for field in msgspec.structs.fields(builtins[name].Arguments)]


def _as_read(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with kube-scheduler's defaults: a weight of 0 is 1, no resources are the default ones, and so on."""
    made = {key: each for key, each in with_weights(arguments).items() if each != ""}
    if isinstance(strategy := made.get("scoringStrategy"), dict):
        given = {key: each for key, each in strategy.items() if each is not None}
        if isinstance(ratio := given.get(_RATIO), dict):
            given[_RATIO] = with_whole_points(ratio)
        made["scoringStrategy"] = with_weights(given)
    return made


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
