"""The kinds that rules read besides Nodes, Pods and Namespaces: volumes, the owners of Pods, disruption budgets.

There may be a hundred thousand objects of each, so only the fields that rules read are decoded.
Field names and meaning: k8s.io/api v0.36.3 core/v1, apps/v1, storage/v1 and policy/v1 types.go.
"""

from collections.abc import Mapping

import msgspec

from policies.engine.objects.metadata import Int32, OwnerReference, controller_of
from policies.engine.objects.volumes import VolumeSource
from policies.engine.selectors import Labels, LabelSelector, NodeSelector

CLAIMS = "persistentvolumeclaims"
VOLUMES = "persistentvolumes"
STORAGE_CLASSES = "storageclasses"
CSI_NODES = "csinodes"
ATTACHMENTS = "volumeattachments"
SERVICES = "services"
REPLICATION_CONTROLLERS = "replicationcontrollers"
REPLICA_SETS = "replicasets"
STATEFUL_SETS = "statefulsets"
DISRUPTION_BUDGETS = "poddisruptionbudgets"

# The kinds that say which Pods belong together.
OWNERS = frozenset({SERVICES, REPLICATION_CONTROLLERS, REPLICA_SETS, STATEFUL_SETS})


class NamedMetadata(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The name of an object, and its version."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class LabelledMetadata(NamedMetadata, rename="camel", frozen=True, gc=False):
    """The metadata of an object whose labels are read."""

    labels: dict[str, str] | None = None


class ClaimAnnotations(msgspec.Struct, frozen=True, gc=False):
    """The annotations of a claim that rules read."""

    storage_class: str | None = msgspec.field(default=None, name="volume.beta.kubernetes.io/storage-class")
    bind_completed: str | None = msgspec.field(default=None, name="pv.kubernetes.io/bind-completed")


class ClaimMetadata(NamedMetadata, rename="camel", frozen=True, gc=False):
    """The metadata of a claim."""

    annotations: ClaimAnnotations | None = None
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReference] | None = None

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages the claim."""
        return controller_of(self.owner_references)


class ClaimSpec(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The part of PersistentVolumeClaimSpec that rules read."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: list[str] | None = None


class ClaimStatus(msgspec.Struct, frozen=True, gc=False):
    """The part of PersistentVolumeClaimStatus that rules read."""

    phase: str = ""


class PersistentVolumeClaim(msgspec.Struct, frozen=True, gc=False):
    """A claim."""

    metadata: ClaimMetadata = ClaimMetadata()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def class_name(self) -> str:
        """The name of its StorageClass, by the beta annotation first; empty for none."""
        annotation = self.metadata.annotations.storage_class if self.metadata.annotations else None
        return annotation if annotation is not None else self.spec.storage_class_name or ""

    @property
    def is_bound(self) -> bool:
        """Whether it is bound to a volume: the volume is named, and the binding is complete."""
        annotations = self.metadata.annotations
        return bool(self.spec.volume_name) and annotations is not None and annotations.bind_completed is not None

    @property
    def is_lost(self) -> bool:
        """Whether its volume was deleted, or belongs to another claim. This stays true when a volume of that name is created."""
        return self.status.phase == "Lost"


class CSIVolume(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(msgspec.Struct, frozen=True, gc=False):
    """Which nodes reach a volume."""

    required: NodeSelector | None = None


class VolumeSpec(VolumeSource, rename="camel", frozen=True, gc=False):
    """The part of PersistentVolumeSpec that rules read."""

    csi: CSIVolume | None = None
    node_affinity: VolumeNodeAffinity | None = None


class PersistentVolume(msgspec.Struct, frozen=True, gc=False):
    """A volume."""

    metadata: LabelledMetadata = LabelledMetadata()
    spec: VolumeSpec = VolumeSpec()

    @property
    def labels(self) -> Labels:
        """The volume's labels."""
        return self.metadata.labels or {}


class StorageClass(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """How volumes of a class are provisioned, and when they are bound."""

    metadata: NamedMetadata = NamedMetadata()
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


class CSINodeAnnotations(msgspec.Struct, frozen=True, gc=False):
    """The annotations of a CSINode that rules read."""

    migrated_plugins: str | None = msgspec.field(default=None, name="storage.alpha.kubernetes.io/migrated-plugins")


class CSINodeMetadata(NamedMetadata, rename="camel", frozen=True, gc=False):
    """The metadata of a CSINode."""

    annotations: CSINodeAnnotations | None = None


class CSINode(msgspec.Struct, frozen=True, gc=False):
    """The CSI drivers of a node; it has the node's name."""

    metadata: CSINodeMetadata = CSINodeMetadata()
    spec: CSINodeSpec = CSINodeSpec()

    @property
    def migrated_plugins(self) -> list[str]:
        """The in-tree plugins that CSI drivers have replaced on the node."""
        annotations = self.metadata.annotations
        return (annotations.migrated_plugins or "").split(",") if annotations else []

    @property
    def limits(self) -> dict[str, int]:
        """How many volumes of each driver the node takes, for the drivers that state it."""
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

    metadata: NamedMetadata = NamedMetadata()
    spec: AttachmentSpec = AttachmentSpec()


class LabelsSelectorSpec(msgspec.Struct, frozen=True, gc=False):
    """`spec.selector` of a Service or a ReplicationController: plain labels."""

    selector: dict[str, str] | None = None


class SelectorSpec(msgspec.Struct, frozen=True, gc=False):
    """`spec.selector` of a ReplicaSet or a StatefulSet."""

    selector: LabelSelector | None = None


class PlainOwner(msgspec.Struct, frozen=True, gc=False):
    """A Service or a ReplicationController."""

    metadata: NamedMetadata = NamedMetadata()
    spec: LabelsSelectorSpec = LabelsSelectorSpec()


class Owner(msgspec.Struct, frozen=True, gc=False):
    """A ReplicaSet or a StatefulSet."""

    metadata: NamedMetadata = NamedMetadata()
    spec: SelectorSpec = SelectorSpec()


class BudgetSpec(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The part of PodDisruptionBudgetSpec that rules read. `min_available` is a number or a share ("50%")."""

    selector: LabelSelector | None = None
    min_available: int | str | None = None


class BudgetStatus(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """How many disruptions are allowed now, and the names of the Pods that are being disrupted (with the time of the grant)."""

    disruptions_allowed: Int32 = 0
    disrupted_pods: dict[str, str | None] | None = None


class PodDisruptionBudget(msgspec.Struct, frozen=True, gc=False):
    """How many Pods of an app must stay."""

    metadata: NamedMetadata = NamedMetadata()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


ClusterObject = (
    PersistentVolumeClaim
    | PersistentVolume
    | StorageClass
    | CSINode
    | VolumeAttachment
    | PlainOwner
    | Owner
    | PodDisruptionBudget
)

# Each kind, by its name in the paths of the API server.
TYPES: Mapping[str, type[ClusterObject]] = {
    CLAIMS: PersistentVolumeClaim,
    VOLUMES: PersistentVolume,
    STORAGE_CLASSES: StorageClass,
    CSI_NODES: CSINode,
    ATTACHMENTS: VolumeAttachment,
    SERVICES: PlainOwner,
    REPLICATION_CONTROLLERS: PlainOwner,
    REPLICA_SETS: Owner,
    STATEFUL_SETS: Owner,
    DISRUPTION_BUDGETS: PodDisruptionBudget,
}

ALL_KINDS = frozenset(TYPES)
