"""Pods as the engine reads them: the fields that rules need, and the Kubernetes JSON that expressions see."""

from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from policies.engine.errors import ObjectError, QuantityError
from policies.engine.objects.affinity import Terms, terms_of
from policies.engine.objects.metadata import Metadata, TooLargeToShareError, check_is_shared, convert_object
from policies.engine.objects.pod_spec import (
    Container,
    PodObject,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    slim_metadata,
    slim_spec,
)
from policies.engine.objects.requests import Counted, counted, scored, wanted
from policies.engine.objects.resources import CPU, MEMORY, Resources
from policies.engine.quantity import parse

__all__ = [
    "Container",
    "Metadata",
    "Pod",
    "PodObject",
    "PodSpec",
    "PodStatus",
    "Port",
    "ResourceRequirements",
    "Traits",
]

# The condition of a Pod that is about to be removed; kept for Pods that are only counted.
DISRUPTED = "DisruptionTarget"

_NO_JSON: dict[str, Any] = {}
_NO_LABELS: dict[str, str] = {}


class Port(NamedTuple):
    """A port of the host that a Pod takes."""

    ip: str
    protocol: str
    number: int


class Traits:
    """What selectors see of a Pod: namespace, labels, and whether it is being deleted. Identical Pods share one."""

    __slots__ = ("_hash", "_key", "deleting", "labels", "namespace")

    def __init__(self, namespace: str, labels: tuple[tuple[str, str], ...], deleting: bool) -> None:  # noqa: FBT001 - a cache key
        self.namespace = namespace
        self.labels = dict(labels)
        self.deleting = deleting
        self._key = (namespace, labels, deleting)
        self._hash = hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Traits) and self._key == other._key)


@lru_cache(maxsize=65536)
def _traits(namespace: str, labels: tuple[tuple[str, str], ...], deleting: bool) -> Traits:  # noqa: FBT001 - a cache key
    check_is_shared([text for label in labels for text in label])
    return Traits(namespace, labels, deleting)


class Pod:
    """A Pod, with the values that are computed from it once.

    `json` is the Kubernetes JSON that expressions see as `pod`. Pods that are only counted (those already on nodes)
    carry an empty one.
    """

    __slots__ = ("_counted", "_terms", "_traits", "json", "labels", "name", "namespace", "parsed", "spec", "uid")

    def __init__(self, parsed: PodObject, json: dict[str, Any] | None = None) -> None:
        self.parsed = parsed
        self.json: dict[str, Any] = json if json is not None else _NO_JSON
        self.name = parsed.metadata.name
        self.namespace = parsed.metadata.namespace or "default"
        self.uid = parsed.metadata.uid
        self.labels = parsed.metadata.labels or _NO_LABELS
        self.spec = parsed.spec
        self._counted: Counted | None = None
        self._terms: Terms | None = None
        self._traits: Traits | None = None

    @classmethod
    def from_json(cls, json: object) -> "Pod":
        """Make a Pod of decoded Kubernetes JSON.

        Raises:
            ObjectError: a field has the wrong type; the message says which.
        """
        if not isinstance(json, dict):
            message = f"a Pod is an object, not {type(json).__name__}"
            raise ObjectError(message)
        try:
            pod = cls(convert_object(json, PodObject), json)
            _ = pod.requests, pod.nonzero_requests
        except (msgspec.ValidationError, QuantityError) as error:
            message = f"Pod: {error}"
            raise ObjectError(message) from error
        return pod

    @classmethod
    def counting(cls, parsed: PodObject, known: Counted | None = None) -> "Pod":
        """Make a Pod that is only counted; `known` is what it counts for, where its typed part doesn't have it."""
        pod = cls(parsed)
        pod._counted = known
        _ = pod.requests
        return pod

    @property
    def metadata(self) -> Metadata:
        """The metadata of the Pod."""
        return self.parsed.metadata

    @property
    def is_live(self) -> bool:
        """Whether the Pod still takes up room: Succeeded and Failed ones don't."""
        return self.parsed.status.phase not in {"Succeeded", "Failed"}

    @property
    def is_deleting(self) -> bool:
        """Whether the Pod's deletion was requested."""
        return self.parsed.metadata.deletion_timestamp is not None

    @property
    def is_gated(self) -> bool:
        """Whether the Pod has schedulingGates, which somebody else takes away when it may be scheduled."""
        return bool((self.json.get("spec") or {}).get("schedulingGates"))

    @property
    def priority(self) -> int:
        """The Pod's priority, 0 when it has none."""
        return self.spec.priority or 0

    @property
    def requests(self) -> Resources:
        """The requests that the Pod counts for on its node, including its containers' actual resources during a resize. Read-only."""
        return self._count().requests

    @property
    def nonzero_requests(self) -> Resources:
        """The requests as scores count them: with 100m cpu and 200 MiB for each container that states none. Read-only."""
        return self._count().nonzero

    def _count(self) -> Counted:
        if self._counted is None:
            self._counted = counted(self.spec, self.parsed.status)
            # The rest of a Pod that is only counted is never read; a Pod to be scheduled keeps all.
            if self.json is _NO_JSON:
                self._slim()
        return self._counted

    def _slim(self) -> None:
        """Drop the fields that only counting needed, and share equal values among Pods: there are very many Pods."""
        parsed = self.parsed
        metadata, status = parsed.metadata, parsed.status
        # Identical Pods have one `traits`, so its labels are shared too.
        self.labels, self.namespace = self.traits.labels, self.traits.namespace
        self.spec = slim_spec(self.spec)
        self.parsed = PodObject(
            metadata=slim_metadata(metadata, self.namespace, self.labels),
            spec=self.spec,
            status=PodStatus(
                phase=status.phase,
                nominated_node_name=status.nominated_node_name,
                qos_class=status.qos_class,
                start_time=status.start_time,
                conditions=[found for found in status.conditions or () if found.type == DISRUPTED] or None,
            ),
        )

    @property
    def wanted(self) -> Resources:
        """The Pod's requests, by its spec alone."""
        return wanted(self.spec)

    @property
    def amounts(self) -> dict[str, int]:
        """The value that expressions see as `requests`: cpu in millicores, memory in bytes, any other resource in whole units."""
        return {CPU: 0, MEMORY: 0} | self.wanted.amounts

    @property
    def score_requests(self) -> Resources:
        """The requests that resource scores count for the incoming Pod, see `requests.scored`."""
        return scored(self.spec)

    @property
    def terms(self) -> Terms:
        """The Pod's affinity to other Pods."""
        if self._terms is None:
            self._terms = terms_of(self.namespace, self.spec.affinity)
        return self._terms

    @property
    def traits(self) -> Traits:
        """What selectors see of the Pod."""
        if self._traits is None:
            labels = tuple(sorted(self.labels.items()))
            try:
                self._traits = _traits(self.namespace, labels, self.is_deleting)
            except TooLargeToShareError:
                self._traits = Traits(self.namespace, labels, self.is_deleting)
        return self._traits

    @property
    def host_ports(self) -> list[Port]:
        """The ports of the host that containers and sidecars take (util/utils.go, GetHostPorts)."""
        spec = self.spec
        sidecars = [container for container in spec.init_containers or () if container.is_sidecar]
        return [
            Port(port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)  # noqa: S104 - a name for "all"
            for container in (*sidecars, *(spec.containers or ()))
            for port in container.ports or ()
            if port.host_port > 0
        ]

    @property
    def is_best_effort(self) -> bool:
        """Whether no container has a request or a limit for cpu or memory (v1 helper/qos, GetPodQOS).

        Raises:
            ObjectError, QuantityError: the limits, which nothing else reads, aren't as an API server gives them.
        """
        if self.parsed.status.qos_class:
            return self.parsed.status.qos_class == "BestEffort"
        spec = self.json.get("spec") or msgspec.to_builtins(self.spec)
        holders = [spec, *(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
        return not any(_asks_for_compute(holder.get("resources") or {}) for holder in holders)


def _asks_for_compute(resources: dict[str, Any]) -> bool:
    for kind in ("requests", "limits"):
        amounts = resources.get(kind) or {}
        if not isinstance(amounts, dict):
            message = f"{kind} of resources are no object"
            raise ObjectError(message)
        if any(parse(amounts.get(name)).unscaled > 0 for name in (CPU, MEMORY)):
            return True
    return False
