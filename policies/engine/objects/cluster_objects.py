"""What rules read of a cluster besides Nodes, Pods and Namespaces: volumes and the owners of Pods.

Field names and meaning: k8s.io/api v0.36.3 core/v1, apps/v1 and storage/v1 types.go.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from policies.engine.errors import ObjectError
from policies.engine.objects.metadata import AnnotatedMetadata, Int32, Metadata, without_nulls
from policies.engine.objects.volumes import VolumeSource
from policies.engine.selectors import Labels, LabelSelector

T = TypeVar("T")
Name = tuple[str, str]
"""Namespace and name."""


class ClaimSpec(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The part of PersistentVolumeClaimSpec that rules read."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: list[str] | None = None


class PersistentVolumeClaim(msgspec.Struct, frozen=True, gc=False):
    """A claim."""

    metadata: AnnotatedMetadata = AnnotatedMetadata()
    spec: ClaimSpec = ClaimSpec()

    @property
    def class_name(self) -> str:
        """The name of its StorageClass, by the beta annotation first; empty for none."""
        annotation = (self.metadata.annotations or {}).get("volume.beta.kubernetes.io/storage-class")
        return annotation if annotation is not None else self.spec.storage_class_name or ""


class CSIVolume(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""


class VolumeSpec(VolumeSource, rename="camel", frozen=True, gc=False):
    """The part of PersistentVolumeSpec that rules read."""

    csi: CSIVolume | None = None


class PersistentVolume(msgspec.Struct, frozen=True, gc=False):
    """A volume."""

    metadata: Metadata = Metadata()
    spec: VolumeSpec = VolumeSpec()

    @property
    def labels(self) -> Labels:
        """The volume's labels."""
        return self.metadata.labels or {}


class StorageClass(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """How volumes of a class are made, and when they are bound."""

    metadata: Metadata = Metadata()
    provisioner: str = ""
    volume_binding_mode: str | None = None


class VolumeNodeResources(msgspec.Struct, frozen=True, gc=False):
    """How many volumes of a driver a node takes; None for any number."""

    count: Int32 | None = None


class CSINodeDriver(msgspec.Struct, frozen=True, gc=False):
    """A CSI driver on a node."""

    name: str = ""
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(msgspec.Struct, frozen=True, gc=False):
    """The CSI drivers on a node."""

    drivers: list[CSINodeDriver] | None = None


class CSINode(msgspec.Struct, frozen=True, gc=False):
    """What a node says of its CSI drivers; it has the node's name."""

    metadata: Metadata = Metadata()
    spec: CSINodeSpec = CSINodeSpec()

    @property
    def limits(self) -> dict[str, int]:
        """How many volumes of each driver the node takes, where it says so."""
        found = {driver.name: driver.allocatable for driver in self.spec.drivers or ()}
        return {name: limit.count for name, limit in found.items() if limit is not None and limit.count is not None}


class AttachmentSource(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """What is attached."""

    persistent_volume_name: str | None = None


class AttachmentSpec(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Which volume is attached to which node, and by which driver."""

    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeAttachment(msgspec.Struct, frozen=True, gc=False):
    """A volume attached to a node."""

    metadata: Metadata = Metadata()
    spec: AttachmentSpec = AttachmentSpec()


class LabelsSelectorSpec(msgspec.Struct, frozen=True, gc=False):
    """`spec.selector` of a Service or a ReplicationController: plain labels."""

    selector: dict[str, str] | None = None


class SelectorSpec(msgspec.Struct, frozen=True, gc=False):
    """`spec.selector` of a ReplicaSet or a StatefulSet."""

    selector: LabelSelector | None = None


class PlainOwner(msgspec.Struct, frozen=True, gc=False):
    """A Service or a ReplicationController."""

    metadata: Metadata = Metadata()
    spec: LabelsSelectorSpec = LabelsSelectorSpec()


class Owner(msgspec.Struct, frozen=True, gc=False):
    """A ReplicaSet or a StatefulSet."""

    metadata: Metadata = Metadata()
    spec: SelectorSpec = SelectorSpec()


Json = Iterable[Mapping[str, Any]]


class ClusterObjects:
    """These objects by name. Never changes.

    Each argument is a list of decoded Kubernetes JSON; objects of a namespace that name none are in `default`.

    Raises:
        ObjectError: a field has the wrong type; the message says which.
    """

    def __init__(  # noqa: PLR0913 - one for each kind
        self,
        *,
        persistent_volume_claims: Json = (),
        persistent_volumes: Json = (),
        storage_classes: Json = (),
        csi_nodes: Json = (),
        volume_attachments: Json = (),
        services: Json = (),
        replication_controllers: Json = (),
        replica_sets: Json = (),
        stateful_sets: Json = (),
    ) -> None:
        self.claims = _keyed(persistent_volume_claims, PersistentVolumeClaim, _name)
        self.volumes = _keyed(persistent_volumes, PersistentVolume, _plain_name)
        self.storage_classes = _keyed(storage_classes, StorageClass, _plain_name)
        self.csi_nodes = _keyed(csi_nodes, CSINode, _plain_name)
        self.attachments = _by_node(_keyed(volume_attachments, VolumeAttachment, _plain_name).values())
        self.services = _by_namespace(_keyed(services, PlainOwner, _name))
        self.replication_controllers = _keyed(replication_controllers, PlainOwner, _name)
        self.replica_sets = _keyed(replica_sets, Owner, _name)
        self.stateful_sets = _keyed(stateful_sets, Owner, _name)

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> "ClusterObjects":
        """Read the lists `persistentVolumeClaims`, `persistentVolumes`, `storageClasses` and so on of one object.

        Raises:
            ObjectError: a field has the wrong type; the message says which.
        """
        return cls(**{argument: json.get(member) or () for member, argument in MEMBERS.items()})


MEMBERS: Mapping[str, str] = {
    "persistentVolumeClaims": "persistent_volume_claims",
    "persistentVolumes": "persistent_volumes",
    "storageClasses": "storage_classes",
    "csiNodes": "csi_nodes",
    "volumeAttachments": "volume_attachments",
    "services": "services",
    "replicationControllers": "replication_controllers",
    "replicaSets": "replica_sets",
    "statefulSets": "stateful_sets",
}
"""The members that `ClusterObjects.from_json` reads."""


def _keyed(json: Json, kind: type[T], key: Callable[[Metadata], Any]) -> dict[Any, T]:
    objects: dict[Any, T] = {}
    for index, item in enumerate(json):
        try:
            found: Any = _convert(item, kind)
        except msgspec.ValidationError as error:
            message = f"{kind.__name__} {index}: {error}"
            raise ObjectError(message) from error
        objects[key(found.metadata)] = found
    return objects


def _convert(json: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(json, kind)
    except msgspec.ValidationError:
        return msgspec.convert(without_nulls(json), kind)


def _name(metadata: Metadata) -> Name:
    return metadata.namespace or "default", metadata.name


def _plain_name(metadata: Metadata) -> str:
    return metadata.name


def _by_namespace(objects: Mapping[Name, PlainOwner]) -> dict[str, list[PlainOwner]]:
    grouped: dict[str, list[PlainOwner]] = {}
    for (namespace, _), found in objects.items():
        grouped.setdefault(namespace, []).append(found)
    return grouped


def _by_node(attachments: Iterable[VolumeAttachment]) -> dict[str, list[VolumeAttachment]]:
    grouped: dict[str, list[VolumeAttachment]] = {}
    for found in attachments:
        grouped.setdefault(found.spec.node_name, []).append(found)
    return grouped
