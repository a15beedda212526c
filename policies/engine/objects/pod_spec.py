"""Pods as they are decoded: the fields that rules read.

Field names and meaning: k8s.io/api v0.36.3 core/v1 types.go. Unknown members are ignored.
"""

from functools import lru_cache
from sys import intern

import msgspec
from msgspec import structs

from policies.engine.objects.metadata import (
    AnnotatedMetadata,
    Int32,
    OwnerReference,
    TooLargeToShareError,
    check_is_shared,
)
from policies.engine.objects.resources import Quantities
from policies.engine.objects.volumes import Volume
from policies.engine.quantity import Text
from policies.engine.selectors import LabelSelector, NodeSelector, NodeSelectorTerm, fault_of_term

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class ResourceRequirements(msgspec.Struct, frozen=True, gc=False):
    """`resources` of a container or a Pod. Limits don't count for scheduling."""

    requests: dict[str, Text] | None = None


class ContainerPort(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A port of a container."""

    host_port: Int32 = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""


class ContainerRestartRule(msgspec.Struct, frozen=True, gc=False):
    """What happens to a container, or to its Pod, after the container ends in some way."""

    action: str = ""


class Container(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A container or an init container; `restart_policy` Always makes an init container a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[ContainerRestartRule] | None = None
    ports: list[ContainerPort] | None = None

    @property
    def requests(self) -> Quantities:
        """The container's own requests, as in JSON."""
        return (self.resources.requests if self.resources else None) or {}

    @property
    def is_sidecar(self) -> bool:
        """Whether an init container keeps running beside the others."""
        return self.restart_policy == "Always"


class PreferredSchedulingTerm(msgspec.Struct, frozen=True, gc=False):
    """A preference for nodes, and how much it weighs."""

    weight: Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(msgspec.Struct, frozen=True, gc=False):
    """Which nodes a Pod needs, and which it prefers."""

    required: NodeSelector | None = msgspec.field(default=None, name=REQUIRED)
    preferred: list[PreferredSchedulingTerm] | None = msgspec.field(default=None, name=PREFERRED)

    @property
    def fault(self) -> str:
        """Why Kubernetes can't parse it; empty if it can."""
        terms = [*((self.required.node_selector_terms if self.required else None) or ())]
        terms += [each.preference for each in self.preferred or () if each.weight]
        return next(filter(None, map(fault_of_term, terms)), "")


class PodAffinityTerm(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Other Pods, and the topology in which they count."""

    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    topology_key: str = ""
    namespace_selector: LabelSelector | None = None


class WeightedPodAffinityTerm(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A preference about other Pods, and how much it weighs."""

    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(msgspec.Struct, frozen=True, gc=False):
    """Which Pods a Pod wants to be near; or, as anti-affinity, far from."""

    required: list[PodAffinityTerm] | None = msgspec.field(default=None, name=REQUIRED)
    preferred: list[WeightedPodAffinityTerm] | None = msgspec.field(default=None, name=PREFERRED)


class Affinity(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """`spec.affinity`."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(msgspec.Struct, frozen=True, gc=False):
    """Taints that a Pod tolerates."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class TopologySpreadConstraint(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """How evenly Pods must, or should, spread over a topology."""

    max_skew: Int32 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class PodSpec(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The part of PodSpec that rules read."""

    node_name: str = ""
    scheduler_name: str = ""
    host_network: bool = False
    host_users: bool | None = None
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: dict[str, Text] | None = None
    resources: ResourceRequirements | None = None
    volumes: list[Volume] | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None


_NO_VOLUME = Volume()


def slim_spec(spec: PodSpec) -> PodSpec:
    """Return a copy of the spec with tolerations and requests shared, and without volumes and ports that no rule reads."""
    volumes = [volume for volume in spec.volumes or () if structs.replace(volume, name="") != _NO_VOLUME]
    return structs.replace(
        spec,
        volumes=volumes or None,
        tolerations=spec.tolerations and _share_tolerations(spec.tolerations),
        containers=spec.containers and [_slim_container(container) for container in spec.containers],
    )


def _slim_container(container: Container) -> Container:
    ports = [port for port in container.ports or () if port.host_port > 0]
    resources = container.resources
    if resources is not None and resources.requests:
        resources = _share_requests(resources.requests)
    return structs.replace(container, ports=ports or None, resources=resources)


def _share_requests(requests: Quantities) -> ResourceRequirements:
    try:
        return _shared_requests(tuple(requests.items()))
    except TooLargeToShareError:
        return ResourceRequirements(dict(requests))


@lru_cache(maxsize=8192)
def _shared_requests(requests: tuple[tuple[str, Text], ...]) -> ResourceRequirements:
    check_is_shared([str(text) for request in requests for text in request])
    return ResourceRequirements(dict(requests))


def _share_tolerations(tolerations: list[Toleration]) -> list[Toleration]:
    try:
        return _shared_tolerations(tuple(tolerations))
    except TooLargeToShareError:
        return tolerations


@lru_cache(maxsize=4096)
def _shared_tolerations(tolerations: tuple[Toleration, ...]) -> list[Toleration]:
    check_is_shared([text for found in tolerations for text in structs.astuple(found)])
    return list(tolerations)


def slim_metadata(metadata: AnnotatedMetadata, namespace: str, labels: dict[str, str]) -> AnnotatedMetadata:
    """Return a copy of the metadata with this namespace and these labels, and with owners and names of annotations shared."""
    annotations = metadata.annotations
    owners = metadata.owner_references
    return structs.replace(
        metadata,
        namespace=namespace,
        labels=labels,
        annotations=annotations and {intern(name): value for name, value in annotations.items()},
        owner_references=owners and _share_owners(owners),
    )


def _share_owners(owners: list[OwnerReference]) -> list[OwnerReference]:
    try:
        return _shared_owners(tuple(owners))
    except TooLargeToShareError:
        return owners


@lru_cache(maxsize=65536)
def _shared_owners(owners: tuple[OwnerReference, ...]) -> list[OwnerReference]:
    check_is_shared([text for found in owners for text in (found.api_version, found.kind, found.name, found.uid)])
    return list(owners)


class ContainerStatus(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A container's actual resources: `resources` as actuated, `allocated_resources` as granted by the kubelet."""

    name: str = ""
    allocated_resources: dict[str, Text] | None = None
    resources: ResourceRequirements | None = None


class PodCondition(msgspec.Struct, frozen=True, gc=False):
    """A condition of a Pod."""

    type: str = ""
    status: str = ""
    reason: str = ""


class PodStatus(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The part of PodStatus that rules read."""

    phase: str = ""
    nominated_node_name: str = ""
    qos_class: str = ""
    start_time: str | None = None
    conditions: list[PodCondition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, Text] | None = None


class PodObject(msgspec.Struct, frozen=True, gc=False):
    """A Pod as it is decoded from Kubernetes JSON."""

    metadata: AnnotatedMetadata = AnnotatedMetadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
