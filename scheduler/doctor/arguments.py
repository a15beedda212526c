"""Arguments of kube-scheduler's own plugins: their form, and the values with which it doesn't start. Pure.

Sources: k8s.io/kube-scheduler v0.36.3 config/v1/types_pluginargs.go, and in k8s.io/kubernetes v1.36.3 pkg/scheduler/apis/config
v1/defaults.go and validation/validation_pluginargs.go. Arguments of other plugins are left to these.
"""

from collections.abc import Callable, Iterator
from typing import Any

from policies.engine.objects.metadata import Int32, Int64
from policies.engine.objects.pod_spec import NodeAffinity, TopologySpreadConstraint
from policies.engine.selectors import is_label_key
from scheduler.doctor.shape import API_VERSION, Duration, Members, PluginConfig, read_part, seconds_of

# A finding's name, its place and its detail.
Told = tuple[str, str, str]
# The member that is wrong, and what kube-scheduler takes there.
_Refused = tuple[str, str]

_MOST_PERCENT = 100
_MOST_POINTS = 10
_KEY = "It has to be a label's key, such as example.com/rack."


class _Args(Members, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""


class _DefaultPreemption(_Args, frozen=True, kw_only=True):
    min_candidate_nodes_percentage: Int32 = 10
    min_candidate_nodes_absolute: Int32 = 100


class _DynamicResources(_Args, frozen=True, kw_only=True):
    filter_timeout: Duration | None = None
    binding_timeout: Duration | None = None


class _InterPodAffinity(_Args, frozen=True, kw_only=True):
    hard_pod_affinity_weight: Int32 = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class _NodeAffinity(_Args, frozen=True, kw_only=True):
    added_affinity: NodeAffinity | None = None


class _Resource(Members, frozen=True, kw_only=True):
    name: str = ""
    weight: Int64 = 0


class _NodeResourcesBalancedAllocation(_Args, frozen=True, kw_only=True):
    resources: list[_Resource] = []


class _Point(Members, frozen=True, kw_only=True):
    utilization: Int32 = 0
    score: Int32 = 0


class _Ratio(Members, frozen=True, kw_only=True):
    shape: list[_Point] = []


class _Strategy(Members, frozen=True, kw_only=True):
    type: str = ""
    resources: list[_Resource] = []
    requested_to_capacity_ratio: _Ratio | None = None


class _NodeResourcesFit(_Args, frozen=True, kw_only=True):
    ignored_resources: list[str] = []
    ignored_resource_groups: list[str] = []
    scoring_strategy: _Strategy = _Strategy(type="LeastAllocated")


class _PodTopologySpread(_Args, frozen=True, kw_only=True):
    default_constraints: list[TopologySpreadConstraint] = []
    defaulting_type: str = ""


class _VolumeBinding(_Args, frozen=True, kw_only=True):
    bind_timeout_seconds: Int64 = 600
    shape: list[_Point] | None = None


def of_arguments(plugin: PluginConfig, place: str, *, is_made: bool) -> Iterator[Told]:
    """Yield what keeps kube-scheduler from starting with a plugin's arguments.

    Args:
        plugin: the plugin's arguments, as they stand in the file.
        place: the path of them in the file.
        is_made: whether the profile uses the plugin. Only then kube-scheduler looks at the values of NodeResourcesFit.
    """
    if plugin.name not in _OWN or plugin.args is None:
        return
    kind, check = _OWN[plugin.name]
    args, misfits = read_part(kind, plugin.args, place)
    for misfit in misfits:
        yield misfit.kind, misfit.path, misfit.detail
    if args.kind not in {"", f"{plugin.name}Args"}:
        yield "value-refused", f"{place}.kind", f"It has to be {plugin.name}Args, or left out."
    if args.api_version not in {"", API_VERSION}:
        yield "value-refused", f"{place}.apiVersion", f"It has to be {API_VERSION}, or left out."
    if isinstance(args, _VolumeBinding) and args.shape is not None:
        yield "feature-gate-needed", f"{place}.shape", "The gate is StorageCapacityScoring."
    for member, detail in check(args) if is_made or kind is not _NodeResourcesFit else ():
        yield "value-refused", f"{place}.{member}", detail


def _preemption(args: _DefaultPreemption) -> Iterator[_Refused]:
    percentage, absolute = args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute
    if not 0 <= percentage <= _MOST_PERCENT:
        yield "minCandidateNodesPercentage", "It has to be 0 to 100."
    if absolute < 0:
        yield "minCandidateNodesAbsolute", "It has to be 0 or more."
    if percentage == absolute == 0:
        yield "minCandidateNodesAbsolute", "It and minCandidateNodesPercentage can't both be 0."


def _dynamic_resources(args: _DynamicResources) -> Iterator[_Refused]:
    if (seconds_of(args.filter_timeout or "") or 0) < 0:
        yield "filterTimeout", "It has to be 0s or longer."
    if args.binding_timeout is not None and (seconds_of(args.binding_timeout) or 0) < 1:
        yield "bindingTimeout", "It has to be 1s or longer."


def _inter_pod_affinity(args: _InterPodAffinity) -> Iterator[_Refused]:
    if not 0 <= args.hard_pod_affinity_weight <= _MOST_PERCENT:
        yield "hardPodAffinityWeight", "It has to be 0 to 100."


def _node_affinity(args: _NodeAffinity) -> Iterator[_Refused]:
    if args.added_affinity and args.added_affinity.fault:
        yield "addedAffinity", f"{args.added_affinity.fault}."


def _balanced(args: _NodeResourcesBalancedAllocation) -> Iterator[_Refused]:
    seen: set[str] = set()
    for index, each in enumerate(args.resources):
        if each.weight not in {0, 1}:
            yield f"resources[{index}].weight", "It has to be 1, or left out."
        if each.name in seen:
            yield f"resources[{index}].name", f"{each.name or 'A resource without a name'} is listed already."
        seen.add(each.name)


def _fit(args: _NodeResourcesFit) -> Iterator[_Refused]:
    for index, name in enumerate(args.ignored_resources):
        if not is_label_key(name):
            yield f"ignoredResources[{index}]", "It has to be a resource's name, such as example.com/gpu."
    for index, group in enumerate(args.ignored_resource_groups):
        if "/" in group or not is_label_key(group):
            yield f"ignoredResourceGroups[{index}]", "It has to be a domain without a slash, such as example.com."
    strategy = args.scoring_strategy
    if strategy.type not in _STRATEGIES:
        yield "scoringStrategy.type", f"It has to be {' or '.join(_STRATEGIES)}."
    for index, each in enumerate(strategy.resources):
        if not 0 <= each.weight <= _MOST_PERCENT:
            yield f"scoringStrategy.resources[{index}].weight", "It has to be 1 to 100, or left out."
    ratio = strategy.requested_to_capacity_ratio
    if strategy.type == _RATIO:
        for member, detail in _shape(ratio.shape if ratio else []):
            yield f"scoringStrategy.requestedToCapacityRatio.{member}", detail
    elif ratio is not None:
        yield "scoringStrategy.requestedToCapacityRatio", f"It can stand only with type {_RATIO}."


_RATIO = "RequestedToCapacityRatio"
_STRATEGIES = ("LeastAllocated", "MostAllocated", _RATIO)


def _shape(points: list[_Point]) -> Iterator[_Refused]:
    if not points:
        yield "shape", "It needs at least one point."
    for index, point in enumerate(points):
        if not 0 <= point.utilization <= _MOST_PERCENT:
            yield f"shape[{index}].utilization", "It has to be 0 to 100."
        elif index and points[index - 1].utilization >= point.utilization:
            yield f"shape[{index}].utilization", "It has to be more than that of the point before."
        if not 0 <= point.score <= _MOST_POINTS:
            yield f"shape[{index}].score", "It has to be 0 to 10."


def _spread(args: _PodTopologySpread) -> Iterator[_Refused]:
    if args.defaulting_type not in {"", "System", "List"}:
        yield "defaultingType", "It has to be System or List."
    elif args.default_constraints and args.defaulting_type != "List":
        yield "defaultingType", "It has to be List where there are defaultConstraints."
    seen = set()
    for index, each in enumerate(args.default_constraints):
        place = f"defaultConstraints[{index}]"
        if each.max_skew <= 0:
            yield f"{place}.maxSkew", "It has to be 1 or more."
        if not is_label_key(each.topology_key):
            yield f"{place}.topologyKey", _KEY
        if each.when_unsatisfiable not in {"DoNotSchedule", "ScheduleAnyway"}:
            yield f"{place}.whenUnsatisfiable", "It has to be DoNotSchedule or ScheduleAnyway."
        if each.label_selector is not None:
            yield f"{place}.labelSelector", "It can't stand here: each Pod's own Service or ReplicaSet says it."
        if (each.topology_key, each.when_unsatisfiable) in seen:
            yield place, "One before it has the same topologyKey and whenUnsatisfiable."
        seen.add((each.topology_key, each.when_unsatisfiable))


def _volume_binding(args: _VolumeBinding) -> Iterator[_Refused]:
    if args.bind_timeout_seconds < 0:
        yield "bindTimeoutSeconds", "It has to be 0 or more."


# The form of each plugin's arguments, and the check of their values.
_OWN: dict[str, tuple[type[_Args], Callable[[Any], Iterator[_Refused]]]] = {
    "DefaultPreemption": (_DefaultPreemption, _preemption),
    "DynamicResources": (_DynamicResources, _dynamic_resources),
    "InterPodAffinity": (_InterPodAffinity, _inter_pod_affinity),
    "NodeAffinity": (_NodeAffinity, _node_affinity),
    "NodeResourcesBalancedAllocation": (_NodeResourcesBalancedAllocation, _balanced),
    "NodeResourcesFit": (_NodeResourcesFit, _fit),
    "PodTopologySpread": (_PodTopologySpread, _spread),
    "VolumeBinding": (_VolumeBinding, _volume_binding),
}
