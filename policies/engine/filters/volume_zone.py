"""Volumes that exist in one zone or region only."""

import numpy as np

from policies.engine.objects.claims import NotFoundError, claim_names, claim_of, class_of, volume_of
from policies.engine.objects.cluster_kinds import CLAIMS, STORAGE_CLASSES, VOLUMES, PersistentVolume
from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.columns import Mask, has_label, label
from policies.engine.objects.pod import Pod
from policies.engine.objects.table import Rows, Table
from policies.engine.rule import NODE, Cycle, Filter, Scope
from policies.engine.status import Code, Status, Verdicts

WRONG_ZONE = Status(Code.UNRESOLVABLE, "node(s) had no available volume zone")

_GA_KEY = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
_KEYS = (*_GA_KEY, *_GA_KEY.values())

# The key of a label, and the values; a node must have one of them.
_Topology = tuple[str, frozenset[str]]


class NoVolumeZoneConflict(Filter):
    """The node is in the zone and the region of the volumes that the Pod's claims are bound to.

    The volume's labels topology.kubernetes.io/zone and region (and their beta names) hold one value or several
    joined by `__`; the node's value must be among them. Its GA label is used where it lacks the beta one. A node with
    none of these labels passes. An unbound claim passes if its class waits for the first consumer; otherwise, and when a
    claim, class or volume is missing, all nodes are refused. Where these objects aren't watched, all nodes pass.

    Source: kube-scheduler v1.36.3 framework/plugins/volumezone/volume_zone.go.
    """

    scope = Scope.NODE
    reads = frozenset({CLAIMS, VOLUMES, STORAGE_CLASSES})
    requeued_by = reads | {NODE}

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Compare the labels of volumes and nodes."""
        objects = cycle.snapshot.knowing(self.reads)
        if objects is None or not claim_names(cycle.pod):
            return Verdicts.success(len(rows))
        try:
            topologies = _topologies(objects, cycle.pod)
        except NotFoundError as error:
            return Verdicts(np.zeros(len(rows), dtype=np.int32), [Status(Code.UNRESOLVABLE, str(error))])
        if not topologies:
            return Verdicts.success(len(rows))
        table = cycle.table
        labelled = np.zeros(len(table), dtype=np.bool_)
        for key in _KEYS:
            labelled |= has_label(table, key)
        matching = np.ones(len(table), dtype=np.bool_)
        for key, values in topologies:
            matching &= _has_any(table, key, values)
        return Verdicts.refusing((labelled & ~matching)[rows], WRONG_ZONE)


def _has_any(table: Table, key: str, values: frozenset[str]) -> Mask:
    fallback = _GA_KEY.get(key)
    has = _is_among(table, key, values)
    if fallback is None:
        return has
    return np.where(has_label(table, key), has, _is_among(table, fallback, values))


def _is_among(table: Table, key: str, values: frozenset[str]) -> Mask:
    column = label(table, key)
    among: Mask = np.isin(column.codes, [column.code_of[value] for value in values if value in column.code_of])
    return among


def _topologies(objects: ClusterObjects, pod: Pod) -> list[_Topology]:
    found: list[_Topology] = []
    for name in claim_names(pod):
        if not name:
            message = "PersistentVolumeClaim had no name"
            raise NotFoundError(message)
        claim = claim_of(objects, pod, name)
        if claim.spec.volume_name:
            found += _labels_of(volume_of(objects, claim.spec.volume_name))
        else:
            _check_unbound(objects, claim.class_name)
    return found


def _check_unbound(objects: ClusterObjects, name: str) -> None:
    if not name:
        message = "PersistentVolumeClaim had no pv name and storageClass name"
        raise NotFoundError(message)
    mode = class_of(objects, name).volume_binding_mode
    if mode is None:
        message = f'VolumeBindingMode not set for StorageClass "{name}"'
        raise NotFoundError(message)
    if mode != "WaitForFirstConsumer":
        message = "PersistentVolume had no name"
        raise NotFoundError(message)


def _labels_of(volume: PersistentVolume) -> list[_Topology]:
    found: list[_Topology] = []
    for key in _KEYS:
        values = [value.strip() for value in volume.labels[key].split("__")] if key in volume.labels else []
        if values and all(values):  # a label with an empty part is ignored
            found.append((key, frozenset(values)))
    return found
