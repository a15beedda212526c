"""Labels of nodes, and Services that keep their Pods together by them."""

import msgspec
import numpy as np

from policies.engine.objects.cluster_kinds import SERVICES
from policies.engine.objects.columns import has_label, label, traits_in
from policies.engine.objects.spreading import service_selectors
from policies.engine.objects.table import Rows
from policies.engine.rule import NODE, NODE_GONE, POD_CHANGES, Cycle, Filter, Scope
from policies.engine.status import Code, Status, Verdicts

NOT_LABELLED = Status(Code.UNRESOLVABLE, "node(s) didn't have the requested labels")
NOT_WITH_SERVICE = Status(Code.UNSCHEDULABLE, "node(s) didn't match service affinity")


class CheckNodeLabelPresence(Filter):
    """The node has all of the labels given, whatever their values; with presence false, none of them.

    Source: Kubernetes v1.15 pkg/scheduler/algorithm/predicates/predicates.go (NodeLabelChecker) and kube-scheduler
    v1.22 framework/plugins/nodelabel/node_label.go, whose presentLabels and absentLabels are understood too.
    """

    scope = Scope.NODE
    requeued_by = frozenset({NODE})

    class Arguments(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
        """Keys of labels, and whether the node must have them or must not."""

        labels: list[str] = []
        presence: bool = True
        present_labels: list[str] = []
        absent_labels: list[str] = []

    def __init__(self, arguments: Arguments) -> None:
        self._present = [*arguments.present_labels, *(arguments.labels if arguments.presence else ())]
        self._absent = [*arguments.absent_labels, *(() if arguments.presence else arguments.labels)]

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Look for the keys."""
        refused = np.zeros(len(rows), dtype=np.bool_)
        for key in self._present:
            refused |= ~has_label(cycle.table, key)[rows]
        for key in self._absent:
            refused |= has_label(cycle.table, key)[rows]
        return Verdicts.refusing(refused, NOT_LABELLED)


class ServiceAffinity(Filter):
    """The Pods of a Service go to nodes that have the same values of the labels given.

    The values are those of the Pod's nodeSelector. If a Service selects the Pod, missing values are taken from the node of
    another Pod with all of this Pod's labels in its namespace. Of several such nodes the first in the order of the
    Snapshot is taken: kube-scheduler took any.

    Source: kube-scheduler v1.22 framework/plugins/serviceaffinity/service_affinity.go.
    """

    scope = Scope.CLUSTER
    reads = frozenset({SERVICES})
    requeued_by = POD_CHANGES | reads | {NODE, NODE_GONE}

    class Arguments(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
        """Keys of labels."""

        labels: list[str] = []
        affinity_labels: list[str] = []

    def __init__(self, arguments: Arguments) -> None:
        self._keys = [*arguments.labels, *arguments.affinity_labels]

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Compare the labels of nodes with the values that are wanted."""
        refused = np.zeros(len(rows), dtype=np.bool_)
        for key, value in self._values(cycle).items():
            column = label(cycle.table, key)
            refused |= column.codes[rows] != column.code_of.get(value, -1)
        return Verdicts.refusing(refused, NOT_WITH_SERVICE)

    def _values(self, cycle: Cycle) -> dict[str, str]:
        pod, objects = cycle.pod, cycle.snapshot.objects
        selector = pod.spec.node_selector or {}
        values = {key: selector[key] for key in self._keys if key in selector}
        if len(values) == len(self._keys) or objects is None or not service_selectors(pod, objects):
            return values
        alike = [
            int(places.rows.min())
            for traits, places in traits_in(cycle.table, pod.namespace).items()
            if pod.labels.items() <= traits.labels.items()
        ]
        found = cycle.table.infos[min(alike)].node.labels if alike else {}
        return {key: found[key] for key in self._keys if key in found} | values
