"""Filters that only a scheduler which binds Pods itself needs: for volumes and claims that would have to be bound first."""

from collections.abc import Collection, Iterable

import numpy as np

from policies.engine.objects.cluster_kinds import CLAIMS, CSI_NODES, STORAGE_CLASSES, VOLUMES, PersistentVolume
from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.columns import Mask
from policies.engine.objects.csi import VolumeFaultError, migrated
from policies.engine.objects.matching import match_selector
from policies.engine.objects.migration import affinity_of, migrated_affinity_of, plugin_of
from policies.engine.objects.pod import Pod
from policies.engine.objects.table import Rows
from policies.engine.rule import NODE, Cycle, Filter, Scope
from policies.engine.selectors import NodeSelector
from policies.engine.status import PASSED, Code, Status, Verdicts

NOT_SEEN = Status(Code.UNRESOLVABLE, "Berth has not seen claims and volumes yet")
NO_CLAIM = Status(Code.UNRESOLVABLE, "a PersistentVolumeClaim of the Pod was not found")
CLAIM_GOES = Status(Code.UNRESOLVABLE, "a PersistentVolumeClaim of the Pod is being deleted")
CLAIM_LOST = Status(Code.UNRESOLVABLE, "a PersistentVolumeClaim of the Pod has lost its PersistentVolume")
NOT_OWNER = Status(Code.UNRESOLVABLE, "a PersistentVolumeClaim of the Pod was not created for it (pod is not owner)")
UNBOUND = Status(Code.UNRESOLVABLE, "pod has unbound immediate PersistentVolumeClaims")
WAITING = Status(
    Code.UNRESOLVABLE, "a PersistentVolumeClaim of the Pod waits for its first consumer, which Berth doesn't bind"
)
NO_VOLUME = Status(Code.UNRESOLVABLE, "a PersistentVolume of the Pod was not found")
OUT_OF_REACH = Status(Code.UNRESOLVABLE, "node(s) didn't match PersistentVolume's node affinity")
# As long as a claim is refused for itself, it has to change. Its volume's change helps nobody, and comes right before it.
_OF_CLAIMS = (NO_CLAIM, CLAIM_GOES, CLAIM_LOST, NOT_OWNER, UNBOUND, WAITING)
# Of several refusals of a Pod's claims the lowest is said, all others are 0. kube-scheduler finds all claims first, and then refuses those
# that aren't bound; those that wait for their consumer it doesn't refuse at all.
_RANK = {UNBOUND: 1, WAITING: 2}
DEVICES = Status(Code.UNRESOLVABLE, "the Pod has resourceClaims (DRA), which Berth doesn't allocate")


class CheckVolumeBinding(Filter):
    """The Pod's claims are bound, and the node reaches their volumes.

    A claim that isn't bound yet refuses all nodes: one that waits for its first consumer has to be bound to a node by the
    scheduler, which Berth doesn't do. So does a claim or a volume that is missing, a claim that is being deleted, one that
    has lost its volume, and one that has the name for an ephemeral volume of the Pod and wasn't made for it. What a
    volume's affinity asks of a node's name (matchFields) isn't asked, as in upstream. An in-tree volume is taken for its
    CSI driver's on nodes whose CSINode says that the driver is in its place; one that can't be is reached from none of
    them.

    Source: kube-scheduler v1.36.3 framework/plugins/volumebinding/volume_binding.go (PreFilter, Filter) and binder.go;
    component-helpers v0.36.3 storage/volume/helpers.go (CheckNodeAffinity, which is given the node's labels alone) and
    storage/ephemeral/ephemeral.go (VolumeIsForPod).
    """

    scope = Scope.NODE
    reads = frozenset({CLAIMS, VOLUMES, STORAGE_CLASSES, CSI_NODES})
    requeued_by = reads | {NODE}

    def __init__(self, *, binds_late: bool = False) -> None:
        """Take whether another scheduler binds claims that wait for their first consumer: then these refuse no node."""
        self._binds_late = binds_late

    def helped_by(self, refusals: Collection[Status]) -> frozenset[str]:
        """Return claims alone where one was refused for itself.

        A Pod that were tried when its volume is bound would have to sit out a backoff when its claim is, a moment later
        (k8s.io/kubernetes v1.36.3 pkg/controller/volume/persistentvolume/pv_controller.go, bind).
        """
        return frozenset({CLAIMS}) if all(refusal in _OF_CLAIMS for refusal in refusals) else self.requeued_by

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Look at each claim."""
        claims = _claims_of(cycle.pod)
        if not claims:
            return Verdicts.success(len(rows))
        objects = cycle.snapshot.knowing(self.reads)
        if objects is None:
            return _refuse_all(rows, NOT_SEEN)
        refusals, bound = [], []
        for name, is_ephemeral in claims:
            cycle.give_way()
            refusal = _refusal_of(objects, cycle.pod, name, is_ephemeral=is_ephemeral)
            if refusal is None:
                bound.append(objects.claims[cycle.pod.namespace, name].spec.volume_name)
            elif refusal is not WAITING or not self._binds_late:
                refusals.append(refusal)
        if refusals:
            return _refuse_all(rows, min(refusals, key=lambda refusal: _RANK.get(refusal, 0)))
        return _refuse_by_volumes(cycle, rows, objects, bound)


class CheckResourceClaims(Filter):
    """The Pod has no resourceClaims (dynamic resource allocation): Berth doesn't allocate devices."""

    # Only another spec of the Pod helps, so `requeued_by` is empty.
    scope = Scope.NODE

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Refuse all nodes or none."""
        spec = cycle.pod.json.get("spec") or {}
        return _refuse_all(rows, DEVICES) if spec.get("resourceClaims") else Verdicts.success(len(rows))


def _claims_of(pod: Pod) -> list[tuple[str, bool]]:
    """Return the names of the Pod's claims, each with whether it is made for an ephemeral volume of the Pod."""
    found = []
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            found.append((volume.persistent_volume_claim.claim_name, False))
        elif volume.ephemeral is not None:
            found.append((f"{pod.name}-{volume.name}", True))
    return found


def _refusal_of(objects: ClusterObjects, pod: Pod, name: str, *, is_ephemeral: bool) -> Status | None:
    claim = objects.claims.get((pod.namespace, name))
    if claim is None:
        return NO_CLAIM
    if claim.is_lost:
        return CLAIM_LOST
    if claim.metadata.deletion_timestamp is not None:
        return CLAIM_GOES
    if is_ephemeral and ((owner := claim.metadata.controller) is None or owner.uid != pod.uid):
        return NOT_OWNER
    if claim.is_bound:
        return None
    if claim.spec.volume_name:  # set by hand: the volume controller binds it without waiting for a consumer
        return UNBOUND
    found = objects.storage_classes.get(claim.class_name)
    waits = found is not None and found.volume_binding_mode == "WaitForFirstConsumer"
    return WAITING if waits else UNBOUND


def _refuse_by_volumes(cycle: Cycle, rows: Rows, objects: ClusterObjects, names: Iterable[str]) -> Verdicts:
    """Refuse the nodes that one of the volumes is out of reach of; the first one that is missing refuses all others."""
    refusals = [OUT_OF_REACH, NO_VOLUME]
    codes = np.full(len(rows), PASSED, dtype=np.int32)
    for name in names:
        cycle.give_way()
        volume = objects.volumes.get(name)
        if volume is None:
            codes[codes == PASSED] = refusals.index(NO_VOLUME)
            break
        codes[(codes == PASSED) & ~_reaching(cycle, rows, objects, volume)] = refusals.index(OUT_OF_REACH)
    return Verdicts(codes, refusals)


def _reaching(cycle: Cycle, rows: Rows, objects: ClusterObjects, volume: PersistentVolume) -> Mask:
    """Return which nodes reach a volume."""
    reached = _matching(cycle, rows, affinity_of(volume))
    plugin = plugin_of(volume.spec)
    if not plugin:
        return reached
    at = np.flatnonzero([_has_migrated(objects, cycle.table.names[row], plugin) for row in rows])
    if len(at):
        reached[at] = _matching(cycle, rows[at], migrated_affinity_of(volume)) if _may_migrate(volume) else False
    return reached


def _matching(cycle: Cycle, rows: Rows, required: NodeSelector | None) -> Mask:
    if required is None:
        return np.ones(len(rows), dtype=np.bool_)
    return match_selector(cycle.table, rows, required, cycle.give_way, with_fields=False)


def _has_migrated(objects: ClusterObjects, node: str, plugin: str) -> bool:
    found = objects.csi_nodes.get(node)
    return found is not None and plugin in found.migrated_plugins


def _may_migrate(volume: PersistentVolume) -> bool:
    try:
        migrated(volume)
    except VolumeFaultError:
        return False
    return True


def _refuse_all(rows: Rows, status: Status) -> Verdicts:
    return Verdicts.refusing(np.ones(len(rows), dtype=np.bool_), status)
