"""The CSI driver and volume of a Pod's volume; in-tree disks are mapped to the drivers that replace them.

Sources: kube-scheduler v1.36.3 framework/plugins/nodevolumelimits/csi.go and utils.go; k8s.io/csi-translation-lib
v0.36.3 plugins (aws_ebs.go, azure_disk.go, gce_pd.go, openstack_cinder.go, portworx.go).
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from policies.engine.objects.claims import NotFoundError, claim_of
from policies.engine.objects.cluster_kinds import PersistentVolume, PersistentVolumeClaim
from policies.engine.objects.cluster_objects import ClusterObjects, Name
from policies.engine.objects.lineage import names_between
from policies.engine.objects.node import NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.table import Table
from policies.engine.objects.volumes import Volume, VolumeSource
from policies.engine.selectors import Labels

# In-tree provisioner -> the driver that replaced it.
_DRIVER_OF = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}

_NOT_MIGRATED = {"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"}
_ZONES = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
_EBS_ID = re.compile(r"vol-[^/]*")


class CSIVolumeID(NamedTuple):
    """A driver, and its handle of a volume."""

    driver: str
    handle: str


class VolumeFaultError(Exception):
    """A volume of a Pod is in an invalid state; kube-scheduler gives up on the Pod."""


def volumes_of(pod: Pod, objects: ClusterObjects, *, on_csi_node: bool, is_new: bool) -> set[CSIVolumeID]:
    """Return the CSI volumes that a Pod uses.

    Args:
        pod: the Pod.
        objects: where claims and volumes are looked up.
        on_csi_node: whether the node has a CSINode; without one, in-tree disks aren't counted.
        is_new: whether the Pod is being scheduled: then all its claims must exist.

    Raises:
        NotFoundError: a claim of a new Pod doesn't exist.
        VolumeFaultError: a claim has no name, or belongs to another Pod, or an inline disk is invalid.
    """
    found: set[CSIVolumeID] = set()
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is None and volume.ephemeral is None:
            if on_csi_node:
                found |= _inline(volume)
            continue
        claim = _claim(pod, volume, objects, is_new=is_new)
        if claim is not None:
            found |= _claimed(claim, objects, on_csi_node=on_csi_node)
    return found


def used_volumes(info: NodeInfo, objects: ClusterObjects) -> set[CSIVolumeID]:
    """Return the CSI volumes that the Pods on a node use.

    Raises:
        VolumeFaultError: see `volumes_of`.
    """
    on_csi_node = info.name in objects.csi_nodes
    found: set[CSIVolumeID] = set()
    for pod in info.pods:
        if pod.spec.volumes:
            found |= volumes_of(pod, objects, on_csi_node=on_csi_node, is_new=False)
    return found


def attached_volumes(info: NodeInfo, objects: ClusterObjects) -> set[CSIVolumeID]:
    """Return the CSI volumes that a node has: those that its Pods use, and those that are attached to it.

    Raises:
        VolumeFaultError: see `volumes_of`.
    """
    found = used_volumes(info, objects)
    for attachment in objects.attachments.get(info.name, {}).values():
        volume = objects.volumes.get(attachment.spec.source.persistent_volume_name or "")
        if attachment.spec.attacher and volume is not None and volume.spec.csi is not None:
            found.add(CSIVolumeID(attachment.spec.attacher, volume.spec.csi.volume_handle))
    return found


def claims_in_use(info: NodeInfo) -> Iterator[tuple[Name, None]]:
    """Iterate over the claims of the Pods on a node, including those for ephemeral volumes: each is a group, for Table.sparse."""
    for pod in info.pods:
        for volume in pod.spec.volumes or ():
            if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
                yield (pod.namespace, _claim_name(pod, volume)), None


def rows_since(table: Table, earlier: ClusterObjects, objects: ClusterObjects) -> set[int] | None:
    """Return the rows of the nodes whose volumes or limits may have changed with the objects; None when it may be any node."""
    names = names_between(earlier.step, objects.step)
    if names is None:
        return None
    rows = {table.row_of[name] for name in names if isinstance(name, str) and name in table.row_of}
    claims = [name for name in names if isinstance(name, tuple)]
    used = table.sparse("claims in use", claims_in_use) if claims else None
    for claim in claims:
        for places in used.group(claim).values() if used is not None else ():
            rows.update(places.rows.tolist())
    return rows


def _claim_name(pod: Pod, volume: Volume) -> str:
    source = volume.persistent_volume_claim
    return source.claim_name if source is not None else f"{pod.name}-{volume.name}"


def _claim(pod: Pod, volume: Volume, objects: ClusterObjects, *, is_new: bool) -> PersistentVolumeClaim | None:
    source = volume.persistent_volume_claim
    name = _claim_name(pod, volume)
    if not name:
        message = "PersistentVolumeClaim had no name"
        raise VolumeFaultError(message)
    try:
        claim = claim_of(objects, pod, name)
    except NotFoundError as error:
        if not is_new:
            return None
        message = f"looking up PVC {pod.namespace}/{name}: {error}"
        raise NotFoundError(message) from error
    if source is None:
        owner = claim.metadata.controller
        if owner is None or owner.uid != pod.uid:
            where = f"{pod.namespace}/{pod.name}"
            message = f"PVC {pod.namespace}/{name} was not created for pod {where} (pod is not owner)"
            raise VolumeFaultError(message)
    return claim


def _claimed(claim: PersistentVolumeClaim, objects: ClusterObjects, *, on_csi_node: bool) -> set[CSIVolumeID]:
    volume = objects.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is None:
        return _promised(claim, objects, on_csi_node=on_csi_node)
    if volume.spec.csi is not None:
        found = CSIVolumeID(volume.spec.csi.driver, volume.spec.csi.volume_handle)
        return {found} if found.driver and found.handle else set()
    try:
        return migrated(volume) if on_csi_node else set()
    except VolumeFaultError:
        return set()


def _promised(claim: PersistentVolumeClaim, objects: ClusterObjects, *, on_csi_node: bool) -> set[CSIVolumeID]:
    """Return the volume that an unbound claim will get, by its class: it counts as a volume of its own."""
    storage_class = objects.storage_classes.get(claim.class_name) if claim.class_name else None
    if storage_class is None or storage_class.provisioner in _NOT_MIGRATED:
        return set()
    driver = storage_class.provisioner
    if driver in _DRIVER_OF:
        if not on_csi_node:
            return set()
        driver = _DRIVER_OF[driver]
    handle = f"unbound {claim.metadata.namespace or 'default'}/{claim.metadata.name}"
    return {CSIVolumeID(driver, handle)} if driver else set()


def _inline(volume: Volume) -> set[CSIVolumeID]:
    disk = volume.gce_persistent_disk
    handle = f"projects/UNSPECIFIED/zones/UNSPECIFIED/disks/{disk.pd_name}" if disk else ""
    return _migrated(volume, handle)


def migrated(volume: PersistentVolume) -> set[CSIVolumeID]:
    """Return the CSI volume that an in-tree volume was migrated to.

    Raises:
        VolumeFaultError: it can't be migrated.
    """
    return _migrated(volume.spec, _gce_handle(volume))


def _migrated(source: VolumeSource, gce_handle: str) -> set[CSIVolumeID]:
    """Return the CSI volume that an in-tree disk was migrated to."""
    if source.gce_persistent_disk is not None:
        return {CSIVolumeID(_DRIVER_OF["kubernetes.io/gce-pd"], gce_handle)}
    if source.aws_elastic_block_store is not None:
        handle = _ebs_handle(source.aws_elastic_block_store.id)
        return {CSIVolumeID(_DRIVER_OF["kubernetes.io/aws-ebs"], handle)}
    if source.cinder is not None:
        return {CSIVolumeID(_DRIVER_OF["kubernetes.io/cinder"], source.cinder.id)}
    if source.azure_disk is not None:
        if source.azure_disk.kind is not None and source.azure_disk.kind.lower() != "managed":
            message = "an Azure disk is of a kind that is not supported in csi migration"
            raise VolumeFaultError(message)
        return {CSIVolumeID(_DRIVER_OF["kubernetes.io/azure-disk"], source.azure_disk.uri)}
    if source.portworx_volume is not None:
        return {CSIVolumeID(_DRIVER_OF["kubernetes.io/portworx-volume"], source.portworx_volume.id)}
    return set()


def _ebs_handle(name: str) -> str:
    """Read aws://zone/vol-1234 or a bare vol-1234."""
    if not name.startswith("aws://"):
        return name
    handle = name.removeprefix("aws://").partition("/")[2].strip("/")
    if not _EBS_ID.fullmatch(handle):
        message = "an AWS EBS volume has an invalid id"
        raise VolumeFaultError(message)
    return handle


def _gce_handle(volume: PersistentVolume) -> str:
    disk = volume.spec.gce_persistent_disk
    if disk is None:
        return ""
    zones = _zones(volume.labels)
    if len(zones) < 2:  # noqa: PLR2004 - of several zones the disk is the region's
        return f"projects/UNSPECIFIED/zones/{zones[0] or 'UNSPECIFIED'}/disks/{disk.pd_name}"
    # A zone is written as locale-region-zone.
    regions = {zone.rpartition("-")[0] for zone in zones}
    if len(regions) != 1 or any(zone.count("-") != 2 for zone in zones):  # noqa: PLR2004 - as written above
        message = "a GCE disk is not in zones of one region"
        raise VolumeFaultError(message)
    return f"projects/UNSPECIFIED/regions/{regions.pop()}/disks/{disk.pd_name}"


def _zones(labels: Labels) -> list[str]:
    found: Mapping[str, str] = labels
    return (found.get(_ZONES[0]) or found.get(_ZONES[1]) or "").split("__")
