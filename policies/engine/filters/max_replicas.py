"""At most so many Pods of an app on a node, in a rack, in a zone."""

from collections.abc import Iterable
from typing import Annotated

import msgspec
import numpy as np

from policies.engine.objects.columns import label, sums_by
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.spreading import HOSTNAME
from policies.engine.objects.table import Numbers, Rows
from policies.engine.rule import NODE, NODE_GONE, POD_CHANGES, Cycle, Detail, Filter, Scope
from policies.engine.status import PASSED, Code, Status, Verdicts

FULL = Status(Code.UNSCHEDULABLE, "node(s) had all the replicas that their domain may have")
NOT_LABELLED = Status(Code.UNRESOLVABLE, "node(s) didn't have the label that replicas are limited by")


class MaxReplicasPerDomain(Filter):
    """The node's domain (node, rack, zone) has fewer replicas of the Pod's app than it may have.

    Replicas are the Pods of the Pod's namespace with its values of all `labels`; those that have ended don't count, terminating
    ones do. A domain is all nodes with the same value of `topologyKey`; a node without it is refused. A Pod that lacks
    one of the labels passes everywhere. Unlike EvenPodsSpread this is a fixed limit, whatever other domains have.

    Source: none in kube-scheduler; docker's --replicas-max-per-node (moby/moby#26259), kubernetes/kubernetes#40358.
    """

    class Arguments(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
        """How many replicas a domain may have, which label says the domain, and which labels make Pods replicas."""

        max_replicas: Annotated[int, msgspec.Meta(ge=1)]
        topology_key: Annotated[str, msgspec.Meta(min_length=1)] = HOSTNAME
        labels: Annotated[list[str], msgspec.Meta(min_length=1)] = msgspec.field(default_factory=lambda: ["app"])

    scope = Scope.CLUSTER
    requeued_by = POD_CHANGES | {NODE, NODE_GONE}
    # kube-scheduler has no such rule, so nothing else recounts Pods that were placed a moment ago.
    counts_pods = True

    def __init__(self, arguments: Arguments) -> None:
        self._most = arguments.max_replicas
        self._key = arguments.topology_key
        self._labels = arguments.labels

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Count the replicas of each domain."""
        if not self._is_counted(cycle.pod):
            return Verdicts.success(len(rows))
        column = label(cycle.table, self._key)
        codes = column.codes[rows]
        verdicts = np.where(self._counts(cycle)[codes] >= self._most, 0, PASSED).astype(np.int32)
        verdicts[codes == column.code_of.get(None, -1)] = 1
        return Verdicts(verdicts, [FULL, NOT_LABELLED])

    def looks_around(self, pod: Pod, snapshot: Snapshot, coming: Iterable[Pod]) -> bool:
        """Return whether the Pod has the labels that make it a replica."""
        return self._is_counted(pod)

    def detail(self, cycle: Cycle, row: int, status: Status) -> Detail:
        """Return how many replicas the node's domain has."""
        node, column = cycle.table.infos[row].node, label(cycle.table, self._key)
        app = ", ".join(f"{key}={cycle.pod.labels[key]}" for key in self._labels)
        fewer = f"fewer than {self._most} Pods" if self._most > 1 else "no Pod"
        wanted = f"{fewer} with {app} by {self._key}"
        if status == NOT_LABELLED:
            remedy = f"would pass if {node.name} were labelled so"
            return Detail(f"the node {node.name} has no label {self._key}", wanted, remedy, {self._key: None})
        count = int(self._counts(cycle)[column.codes[row]])
        domain = f"{self._key}={node.labels[self._key]}"
        says = f"the domain {domain} has {count} Pod{'' if count == 1 else 's'} with {app}, and may have {self._most}"
        leaving = count - self._most + 1
        remedy = f"would pass once {leaving} of them {'is' if leaving == 1 else 'are'} gone"
        return Detail(says, wanted, remedy, {self._key: node.labels[self._key], f"Pods with {app}": count})

    def _is_counted(self, pod: Pod) -> bool:
        return all(key in pod.labels for key in self._labels)

    def _counts(self, cycle: Cycle) -> Numbers:
        """Return the number of replicas by the code of the domain's label."""
        column = label(cycle.table, self._key)
        siblings = {key: cycle.pod.labels[key] for key in self._labels}
        on_nodes = cycle.snapshot.counts(cycle.pod.namespace, siblings)
        return sums_by(column.codes, on_nodes, len(column.values))
