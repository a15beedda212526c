"""Nodes by their labels and annotations, and nodes all alike."""

from typing import Any

import msgspec
import numpy as np

from policies.engine.objects.columns import has_label
from policies.engine.objects.node import NodeInfo
from policies.engine.objects.table import Numbers, Rows
from policies.engine.rule import Cycle, Scope, Score
from policies.engine.scores.arithmetic import MAX_SCORE

AVOID_PODS = "scheduler.alpha.kubernetes.io/preferAvoidPods"


class NodeLabelPriority(Score):
    """Nodes with a label score 100, those without it 0; with presence false the other way round.

    With the plugin's presentLabelsPreference and absentLabelsPreference: the mean over all labels, integer division.

    Source: Kubernetes v1.15 pkg/scheduler/algorithm/priorities/node_label.go; kube-scheduler v1.22
    framework/plugins/nodelabel/node_label.go.
    """

    scope = Scope.NODE

    class Arguments(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
        """The label's key, and whether nodes should have it."""

        label: str = ""
        presence: bool = True
        present_labels_preference: list[str] = []
        absent_labels_preference: list[str] = []

        def __post_init__(self) -> None:
            if not (self.label or self.present_labels_preference or self.absent_labels_preference):
                message = "label is needed: the key that nodes are to have, or not"
                raise ValueError(message)

    def __init__(self, arguments: Arguments) -> None:
        one = [arguments.label] if arguments.label else []
        self._present = [*arguments.present_labels_preference, *(one if arguments.presence else ())]
        self._absent = [*arguments.absent_labels_preference, *(() if arguments.presence else one)]

    def score(self, cycle: Cycle, rows: Rows) -> Numbers:
        """Look for the keys."""
        total = np.zeros(len(rows), dtype=np.int64)
        for key in self._present:
            total += MAX_SCORE * has_label(cycle.table, key)[rows]
        for key in self._absent:
            total += MAX_SCORE * ~has_label(cycle.table, key)[rows]
        return np.asarray(total // (len(self._present) + len(self._absent)))


class NodePreferAvoidPodsPriority(Score):
    """Nodes that ask by annotation to be spared the Pods of this Pod's controller score 0, all others 100.

    The annotation scheduler.alpha.kubernetes.io/preferAvoidPods lists controllers by kind and uid; only
    ReplicationControllers and ReplicaSets count. An annotation that can't be read asks for nothing.

    Source: kube-scheduler v1.22 framework/plugins/nodepreferavoidpods/node_prefer_avoid_pods.go.
    """

    scope = Scope.NODE

    def score(self, cycle: Cycle, rows: Rows) -> Numbers:
        """Look for the Pod's controller in each node's annotation."""
        owner = cycle.pod.parsed.metadata.controller
        if owner is None or owner.kind not in {"ReplicationController", "ReplicaSet"}:
            return np.full(len(rows), MAX_SCORE, dtype=np.int64)
        column = cycle.table.coded("avoided Pods", _read_avoided)
        avoids = [(owner.kind, owner.uid) in avoided for avoided in column.values]  # type: ignore[operator] # sets
        return np.where(np.array(avoids, dtype=np.bool_)[column.codes[rows]], 0, MAX_SCORE)


class _Controller(msgspec.Struct, frozen=True):
    kind: str = ""
    uid: str = ""


class _Signature(msgspec.Struct, rename="camel", frozen=True):
    pod_controller: _Controller | None = None


class _Avoided(msgspec.Struct, rename="camel", frozen=True):
    pod_signature: _Signature = _Signature()


class _Annotation(msgspec.Struct, rename="camel", frozen=True):
    prefer_avoid_pods: list[_Avoided] | None = None


def _read_avoided(info: NodeInfo) -> tuple[str, Any]:
    text = (info.node.parsed.metadata.annotations or {}).get(AVOID_PODS, "")
    if not text:
        return "", frozenset()
    try:
        annotation = msgspec.json.decode(text, type=_Annotation)
    except (msgspec.DecodeError, RecursionError):  # anyone who may annotate a node chooses how deep it is nested
        return "", frozenset()
    controllers = [avoided.pod_signature.pod_controller for avoided in annotation.prefer_avoid_pods or ()]
    return text, frozenset((found.kind, found.uid) for found in controllers if found is not None)


class EqualPriority(Score):
    """All nodes score the same: 1.

    Source: Kubernetes v1.15 pkg/scheduler/core/generic_scheduler.go (EqualPriorityMap).
    """

    scope = Scope.NODE

    def score(self, cycle: Cycle, rows: Rows) -> Numbers:
        """Return 1."""
        return np.ones(len(rows), dtype=np.int64)
