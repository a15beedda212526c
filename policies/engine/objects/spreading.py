"""Topology spread constraints, and which Pods a Pod's Services and owner select.

Sources: kube-scheduler v1.36.3 framework/plugins/podtopologyspread/common.go and plugin.go,
framework/plugins/helper/spread.go (DefaultSelector).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from policies.engine.objects.cluster_kinds import OWNERS
from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.columns import Mask, count_selected, has_label
from policies.engine.objects.matching import match_required
from policies.engine.objects.pod import Pod
from policies.engine.objects.pod_spec import TopologySpreadConstraint
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Numbers, Table
from policies.engine.objects.tolerations import match_tolerated
from policies.engine.reading import shown
from policies.engine.selectors import (
    EVERYTHING,
    Labels,
    LabelSelector,
    Selector,
    SelectorError,
    is_label_key,
    parse_selector,
    selector_of,
)

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
DO_NOT_SCHEDULE, SCHEDULE_ANYWAY = "DoNotSchedule", "ScheduleAnyway"
HONOR = "Honor"

SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(topology_key=HOSTNAME, when_unsatisfiable=SCHEDULE_ANYWAY, max_skew=3),
    TopologySpreadConstraint(topology_key=ZONE, when_unsatisfiable=SCHEDULE_ANYWAY, max_skew=5),
)


class SpreadDefaults(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    """What Pods without constraints of their own get: `System` for kube-scheduler's own defaults, `List` for these."""

    default_constraints: list[TopologySpreadConstraint] = []
    defaulting_type: Literal["System", "List"] | None = None

    def __post_init__(self) -> None:
        if self.defaulting_type == "System" and self.default_constraints:
            message = "defaultConstraints go with defaultingType List"
            raise ValueError(message)
        for constraint in self.default_constraints:
            _check_default(constraint)

    @property
    def fault(self) -> str:
        """What kube-scheduler refuses too (apis/config/validation/validation_pluginargs.go); "" for nothing."""
        seen: set[tuple[str, str]] = set()
        for index, each in enumerate(self.default_constraints):
            place = f"defaultConstraints[{index}]"
            if not is_label_key(each.topology_key):
                return f"{place}.topologyKey: {shown(each.topology_key)} is no label's key, such as {ZONE}"
            if (each.topology_key, each.when_unsatisfiable) in seen:
                return f"{place}: one before it has the same topologyKey and whenUnsatisfiable"
            seen.add((each.topology_key, each.when_unsatisfiable))
        return ""

    @property
    def is_system(self) -> bool:
        """Whether kube-scheduler's own defaults apply; they do when nothing is set."""
        return self.defaulting_type != "List" and not self.default_constraints

    @property
    def constraints(self) -> Sequence[TopologySpreadConstraint]:
        """The defaults."""
        return SYSTEM_DEFAULTS if self.is_system else self.default_constraints

    def reads(self, action: str) -> frozenset[str]:
        """Return the kinds that the defaults with this `whenUnsatisfiable` need: the owners of Pods, if there are any defaults."""
        return OWNERS if any(found.when_unsatisfiable == action for found in self.constraints) else frozenset()


def _check_default(constraint: TopologySpreadConstraint) -> None:
    if constraint.max_skew < 1 or not constraint.topology_key:
        message = "a default constraint needs a topologyKey and a maxSkew of at least 1"
        raise ValueError(message)
    if constraint.when_unsatisfiable not in {DO_NOT_SCHEDULE, SCHEDULE_ANYWAY}:
        message = f"whenUnsatisfiable must be {DO_NOT_SCHEDULE} or {SCHEDULE_ANYWAY}"
        raise ValueError(message)
    if constraint.label_selector is not None:
        message = "a default constraint has no labelSelector: it is worked out for each Pod"
        raise ValueError(message)


class Constraint(msgspec.Struct, frozen=True):
    """A constraint with its selector parsed."""

    max_skew: int
    key: str
    selector: Selector
    min_domains: int
    honors_affinity: bool
    honors_taints: bool


def constraints_of(*, pod: Pod, snapshot: Snapshot, defaults: SpreadDefaults, action: str) -> list[Constraint]:
    """Return the constraints of a Pod with this `whenUnsatisfiable`, or the defaults if it has none at all.

    Raises:
        SelectorError: Kubernetes can't parse a selector.
    """
    own = pod.spec.topology_spread_constraints
    # Constraints of the Pod's own disable all defaults, even if none of them has this action.
    if own:
        return [_constraint(found, pod.labels) for found in own if found.when_unsatisfiable == action]
    found = [constraint for constraint in defaults.constraints if constraint.when_unsatisfiable == action]
    selector = default_selector(pod, snapshot.objects) if found else EVERYTHING
    # It isn't known which Pods belong together, so there is nothing to spread.
    if selector.is_empty:
        return []
    return [msgspec.structs.replace(_constraint(default, pod.labels), selector=selector) for default in found]


def _constraint(constraint: TopologySpreadConstraint, labels: Labels) -> Constraint:
    selector = parse_selector(constraint.label_selector)
    same = {key: labels[key] for key in constraint.match_label_keys or () if key in labels}
    return Constraint(
        max_skew=constraint.max_skew,
        key=constraint.topology_key,
        selector=selector_of(same).joined(selector) if same and not selector.nothing else selector,
        min_domains=1 if constraint.min_domains is None else constraint.min_domains,
        honors_affinity=constraint.node_affinity_policy in {None, HONOR},
        honors_taints=constraint.node_taints_policy == HONOR,
    )


def default_selector(pod: Pod, objects: ClusterObjects | None) -> Selector:
    """Return the selector of the Pods that belong together with this one, by its Services and its controller.

    It is empty when neither is known.
    """
    if objects is None:
        return EVERYTHING
    return _owner_selector(pod, objects, services_labels(pod, objects))


def services_labels(pod: Pod, objects: ClusterObjects) -> dict[str, str]:
    """Return all labels by which the Services of a Pod select."""
    labels: dict[str, str] = {}
    for selector in service_selectors(pod, objects):
        labels |= selector
    return labels


def service_selectors(pod: Pod, objects: ClusterObjects) -> list[Mapping[str, str]]:
    """Return the selector of each Service that selects a Pod, in the order of their names. A Service without a selector selects none.

    Not in the order in which they came: that is another one in each process, and in a replay.
    """
    found = ((name, service.spec.selector) for name, service in objects.services.get(pod.namespace, {}).items())
    selecting = {name: each for name, each in found if each is not None and each.items() <= pod.labels.items()}
    return [selecting[name] for name in sorted(selecting)]


def _owner_selector(pod: Pod, objects: ClusterObjects, labels: dict[str, str]) -> Selector:
    owner = pod.parsed.metadata.controller
    if owner is None:
        return selector_of(labels)
    name = (pod.namespace, owner.name)
    match owner.api_version, owner.kind:
        case "v1" | "/v1", "ReplicationController":  # ParseGroupVersion reads both as version v1 of no group
            controller = objects.replication_controllers.get(name)
            return selector_of(labels | ((controller.spec.selector if controller else None) or {}))
        case "apps/v1", "ReplicaSet":
            owners = objects.replica_sets
        case "apps/v1", "StatefulSet":
            owners = objects.stateful_sets
        case _:
            return selector_of(labels)
    found = owners.get(name)
    return _joined(selector_of(labels), found.spec.selector if found else None)


def _joined(selector: Selector, more: LabelSelector | None) -> Selector:
    try:
        other = parse_selector(more)
    except SelectorError:
        # kube-scheduler ignores an owner's selector that it can't parse, too.
        return selector
    return selector if other.nothing else selector.joined(other)


def has_all_keys(table: Table, constraints: Sequence[Constraint], give_way: Callable[[], None]) -> Mask:
    """Return which nodes of a table have a label for each constraint."""
    has = np.ones(len(table), dtype=np.bool_)
    for key in {constraint.key for constraint in constraints}:
        give_way()
        has &= has_label(table, key)
    return has


def counts_on(table: Table, constraint: Constraint, pod: Pod, give_way: Callable[[], None]) -> Mask:
    """Return on which nodes of a table Pods count for a constraint, by its nodeAffinityPolicy and nodeTaintsPolicy."""
    counts = np.ones(len(table), dtype=np.bool_)
    rows = table.all_rows()
    if constraint.honors_affinity:
        counts &= match_required(table, rows, pod.spec, give_way)
    if constraint.honors_taints:
        counts &= match_tolerated(table, rows, pod.spec)
    return counts


def count_matching(table: Table, selector: Selector, namespace: str) -> Numbers:
    """Count the matching Pods on each node that aren't terminating; an empty selector counts none."""
    if selector.is_empty:
        return np.zeros(len(table), dtype=np.int64)
    return count_selected(table, namespace, selector, deleting=False)
