"""Volumes of Pods, with the fields that rules read. Source: k8s.io/api v0.36.3 core/v1 types.go."""

import msgspec


class ClaimSource(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A PersistentVolumeClaim of the Pod's namespace."""

    claim_name: str = ""


class GCEDisk(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A Google persistent disk."""

    pd_name: str = ""
    read_only: bool = False


class VolumeID(msgspec.Struct, frozen=True, gc=False):
    """A volume identified by its id alone: AWS EBS, Cinder, Portworx."""

    id: str = msgspec.field(default="", name="volumeID")


class ISCSIVolume(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """An iSCSI disk."""

    iqn: str = ""
    read_only: bool = False


class RBDVolume(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A Ceph RBD image."""

    monitors: list[str] | None = None
    pool: str = ""
    image: str = ""
    read_only: bool = False


class AzureDisk(msgspec.Struct, frozen=True, gc=False):
    """An Azure disk."""

    uri: str = msgspec.field(default="", name="diskURI")
    kind: str | None = None


class ImageVolume(msgspec.Struct, frozen=True, gc=False):
    """An image mounted as a volume."""

    reference: str = ""


class Present(msgspec.Struct, frozen=True, gc=False):
    """A source of which only its presence matters."""


class VolumeSource(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The in-tree disk sources that Pods' volumes and PersistentVolumes have in common."""

    gce_persistent_disk: GCEDisk | None = None
    aws_elastic_block_store: VolumeID | None = None
    azure_disk: AzureDisk | None = None
    cinder: VolumeID | None = None
    portworx_volume: VolumeID | None = None
    azure_file: Present | None = None
    vsphere_volume: Present | None = None


class Volume(VolumeSource, rename="camel", frozen=True, gc=False):
    """A volume of a Pod. Of the sources at most one is set; those that rules don't read are left out."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: Present | None = None
    iscsi: ISCSIVolume | None = None
    rbd: RBDVolume | None = None
    image: ImageVolume | None = None
