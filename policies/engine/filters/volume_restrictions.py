"""Disks that only one Pod at a time may write to."""

from collections.abc import Hashable, Iterable
from typing import NamedTuple

import numpy as np

from policies.engine.objects.claims import NotFoundError, claim_names, claim_of
from policies.engine.objects.cluster_kinds import CLAIMS
from policies.engine.objects.node import NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Rows
from policies.engine.rule import NODE, NODE_GONE, POD_GONE, Cycle, Filter, Scope
from policies.engine.status import PASSED, Code, Status, Verdicts

TAKEN = Status(Code.UNSCHEDULABLE, "node(s) had no available disk")
ONE_POD_ONLY = Status(
    Code.UNSCHEDULABLE,
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
)


class _Use(NamedTuple):
    """How a Pod uses a disk. `monitors` are a Ceph cluster's: they must overlap for the disk to be the same."""

    read_only: bool
    monitors: frozenset[str] | None = None

    def conflicts(self, other: "_Use") -> bool:
        same = self.monitors is None or other.monitors is None or bool(self.monitors & other.monitors)
        return same and not (self.read_only and other.read_only)


class NoDiskConflict(Filter):
    """No Pod on the node uses one of the Pod's disks in a way that excludes it.

    Inline volumes: the same GCE disk, iSCSI IQN, or RBD image (pool, image, and any monitor the same) unless both
    mount it read-only; the same AWS EBS volume always. A claim with access mode ReadWriteOncePod that a Pod anywhere
    in the cluster uses keeps the Pod off all nodes. So does a claim that doesn't exist; there preemption can't help.
    Where claims aren't watched they are ignored.

    Source: kube-scheduler v1.36.3 framework/plugins/volumerestrictions/volume_restrictions.go.
    """

    scope = Scope.CLUSTER
    reads = frozenset({CLAIMS})
    requeued_by = reads | {NODE, NODE_GONE, POD_GONE}

    def looks_around(self, pod: Pod, snapshot: Snapshot, coming: Iterable[Pod]) -> bool:
        """Return whether the Pod has claims: a ReadWriteOncePod claim may be in use on any node."""
        return bool(claim_names(pod))

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Look up which Pods use the disks and the claims."""
        pod, table = cycle.pod, cycle.table
        if not pod.spec.volumes:
            return Verdicts.success(len(rows))
        try:
            is_used = _claim_is_used(cycle)
        except NotFoundError as error:
            return Verdicts(np.zeros(len(rows), dtype=np.int32), [Status(Code.UNRESOLVABLE, str(error))])
        disks = list(_disks(pod))
        if not disks and not is_used:  # nearly always: every Pod has its token as a volume
            return Verdicts.success(len(rows))
        codes = np.full(len(rows), 1 if is_used else PASSED, dtype=np.int32)
        taken = np.zeros(len(table), dtype=np.bool_)
        for disk, use in disks:
            for other, places in table.sparse("disks", _read_disks).group(disk).items():
                if isinstance(other, _Use) and use.conflicts(other):
                    taken[places.rows] = True
        codes[taken[rows]] = 0
        return Verdicts(codes, [TAKEN, ONE_POD_ONLY])


def _claim_is_used(cycle: Cycle) -> bool:
    """Return whether a ReadWriteOncePod claim is in use."""
    pod, objects = cycle.pod, cycle.snapshot.knowing(NoDiskConflict.reads)
    names = claim_names(pod)
    if objects is None or not names:
        return False
    claims = {name: claim_of(objects, pod, name) for name in names}
    alone = [name for name, claim in claims.items() if "ReadWriteOncePod" in (claim.spec.access_modes or ())]
    if not alone:
        return False
    used = cycle.table.sparse("claims", _read_claims)
    return any(used.group((pod.namespace, name)) for name in alone)


def _read_claims(info: NodeInfo) -> Iterable[tuple[Hashable, Hashable]]:
    return (((pod.namespace, name), None) for pod in info.pods for name in claim_names(pod))


def _read_disks(info: NodeInfo) -> Iterable[tuple[Hashable, Hashable]]:
    return (found for pod in info.pods for found in _disks(pod))


def _disks(pod: Pod) -> Iterable[tuple[Hashable, _Use]]:
    for volume in pod.spec.volumes or ():
        if volume.gce_persistent_disk:
            yield ("GCE", volume.gce_persistent_disk.pd_name), _Use(volume.gce_persistent_disk.read_only)
        if volume.aws_elastic_block_store:
            yield ("EBS", volume.aws_elastic_block_store.id), _Use(read_only=False)
        if volume.iscsi:
            yield ("iSCSI", volume.iscsi.iqn), _Use(volume.iscsi.read_only)
        if volume.rbd:
            rbd = volume.rbd
            yield ("RBD", rbd.pool, rbd.image), _Use(rbd.read_only, frozenset(rbd.monitors or ()))
