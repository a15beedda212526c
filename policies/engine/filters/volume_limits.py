"""How many volumes a node takes."""

from collections import Counter

import numpy as np

from policies.engine.objects.claims import NotFoundError
from policies.engine.objects.cluster_kinds import ATTACHMENTS, CLAIMS, CSI_NODES, STORAGE_CLASSES, VOLUMES
from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.columns import Mask
from policies.engine.objects.csi import (
    CSIVolumeID,
    VolumeFaultError,
    attached_volumes,
    rows_since,
    used_volumes,
    volumes_of,
)
from policies.engine.objects.node import NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.table import Beside, Numbers, Rows, Table
from policies.engine.rule import NODE, POD_GONE, Cycle, Filter, Scope
from policies.engine.status import Code, Status, Verdicts

TOO_MANY = Status(Code.UNSCHEDULABLE, "node(s) exceed max volume count")
_FAULTY = -1
# More than any node has. Not a number below 0: CSINodes may state one, which takes no volume at all.
_NO_LIMIT = 2**63 - 1


class MaxVolumeCount(Filter):
    """The node takes the Pod's volumes: no CSI driver gets more of them than its CSINode allows.

    For each driver of the Pod's volumes for which the CSINode states a count: volumes of Pods on the node and attached
    ones (each once) + new ones <= count. A claim that isn't bound yet counts for its class's provisioner. In-tree
    AWS, Azure, Cinder, GCE and Portworx disks count for the drivers that replaced them. A claim that doesn't exist
    keeps the Pod off all nodes. Where claims, volumes, classes, CSINodes and attachments aren't watched, all nodes pass.

    Source: kube-scheduler v1.36.3 framework/plugins/nodevolumelimits/csi.go.
    """

    scope = Scope.NODE_AND_PODS
    reads = frozenset({CLAIMS, VOLUMES, STORAGE_CLASSES, CSI_NODES, ATTACHMENTS})
    requeued_by = reads | {NODE, POD_GONE}

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Count the volumes of each driver."""
        pod, objects = cycle.pod, cycle.snapshot.knowing(self.reads)
        if objects is None or not pod.spec.volumes:
            return Verdicts.success(len(rows))
        # Without a CSINode there are no limits; with one, in-tree disks count too, and may be invalid.
        limited = _has_node(cycle.table, objects)[rows]
        new, fault = _new_volumes(pod, objects, on_csi_node=True)
        if fault is not None:
            _, elsewhere = _new_volumes(pod, objects, on_csi_node=False)
            return _refused(limited, fault, elsewhere)
        return _verdicts(cycle.table, rows, objects, new) if new and limited.any() else Verdicts.success(len(rows))


def _has_node(table: Table, objects: ClusterObjects) -> Mask:
    def read(info: NodeInfo) -> int:
        return info.name in objects.csi_nodes

    return np.asarray(table.numbers("has CSINode", read, beside=Beside(objects, rows_since)) != 0)


def _new_volumes(pod: Pod, objects: ClusterObjects, *, on_csi_node: bool) -> tuple[set[CSIVolumeID], Status | None]:
    """Return the Pod's volumes, and the refusal for the first that can't be read."""
    try:
        return volumes_of(pod, objects, on_csi_node=on_csi_node, is_new=True), None
    except NotFoundError as error:
        return set(), Status(Code.UNRESOLVABLE, str(error))
    except VolumeFaultError as error:
        return set(), Status(Code.ERROR, str(error))


def _refused(limited: Mask, fault: Status, elsewhere: Status | None) -> Verdicts:
    """Refuse nodes with a CSINode for one reason, and the others for another, or not at all."""
    if elsewhere is None or elsewhere == fault:
        return Verdicts.refusing(limited | (elsewhere == fault), fault)
    return Verdicts(np.where(limited, 0, 1).astype(np.int32), [fault, elsewhere])


def _verdicts(table: Table, rows: Rows, objects: ClusterObjects, new: set[CSIVolumeID]) -> Verdicts:
    """Compare counts; only where they seem to exceed a limit, check whether the node has one of the volumes already."""
    wanted = Counter(volume.driver for volume in new)
    doubtful = np.zeros(len(rows), dtype=np.bool_)
    for driver, number in wanted.items():
        attached = _attached_count(table, objects, driver)[rows]
        limit = _limit(table, objects, driver)[rows]
        doubtful |= (attached == _FAULTY) & _has_limits(table, objects)[rows]
        doubtful |= attached > limit - number
    statuses: list[Status | None] = [None] * len(rows)
    for position in np.flatnonzero(doubtful).tolist():
        statuses[position] = _look_closely(table.infos[rows[position]], objects, new)
    return Verdicts.listed(statuses)


def _attached_count(table: Table, objects: ClusterObjects, driver: str) -> Numbers:
    def read(info: NodeInfo) -> int:
        try:
            return sum(volume.driver == driver for volume in attached_volumes(info, objects))
        except VolumeFaultError:
            return _FAULTY

    return table.numbers(("attached", driver), read, beside=Beside(objects, rows_since))


def _limit(table: Table, objects: ClusterObjects, driver: str) -> Numbers:
    def read(info: NodeInfo) -> int:
        node = objects.csi_nodes.get(info.name)
        return node.limits.get(driver, _NO_LIMIT) if node else _NO_LIMIT

    return table.numbers(("volume limit", driver), read, beside=Beside(objects, rows_since))


def _has_limits(table: Table, objects: ClusterObjects) -> Mask:
    def read(info: NodeInfo) -> int:
        node = objects.csi_nodes.get(info.name)
        return bool(node and node.limits)

    return np.asarray(table.numbers("has volume limits", read, beside=Beside(objects, rows_since)) != 0)


def _look_closely(info: NodeInfo, objects: ClusterObjects, new: set[CSIVolumeID]) -> Status | None:
    try:
        attached = attached_volumes(info, objects)
    except VolumeFaultError as error:
        return Status(Code.ERROR, str(error))
    counts = Counter(volume.driver for volume in attached)
    more = Counter(volume.driver for volume in new - used_volumes(info, objects))
    limits = objects.csi_nodes[info.name].limits
    exceeded = any(driver in limits and counts[driver] + number > limits[driver] for driver, number in more.items())
    return TOO_MANY if exceeded else None
