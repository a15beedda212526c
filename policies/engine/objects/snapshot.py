"""Nodes, Pods and usage at one moment. A Snapshot never changes; the live one is followed by another."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.columns import count_selected
from policies.engine.objects.lineage import Step
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.table import Numbers, Table
from policies.engine.selectors import Labels, selector_of

NO_LABELS: Labels = {}


class Snapshot:
    """What the engine reads of a cluster.

    Args:
        nodes: name -> NodeInfo.
        namespaces: name -> labels of the namespace.
        objects: volumes, claims, Services and the like. None where nobody watches them: rules that need them then
            leave claims to others, and no Service or owner selects any Pod.
        nominated: name -> Pods that wait for room on the node after preemption.
        step: where it stands among the Snapshots that follow from one another; a new root when it isn't given.
    """

    def __init__(
        self,
        nodes: Mapping[str, NodeInfo],
        namespaces: Mapping[str, Labels] | None = None,
        *,
        table: Table | None = None,
        objects: ClusterObjects | None = None,
        nominated: Mapping[str, Sequence[Pod]] | None = None,
        step: Step | None = None,
    ) -> None:
        self.step = step if step is not None else Step()
        self.nodes = nodes
        self.namespaces = namespaces if namespaces is not None else {}
        self.table = table if table is not None else Table(list(nodes.values()))
        self.objects = objects
        self.nominated = nominated if nominated is not None else {}

    @classmethod
    def of(
        cls,
        nodes: Iterable[Node],
        pods: Iterable[Pod] = (),
        namespaces: Mapping[str, Labels] | None = None,
        *,
        objects: ClusterObjects | None = None,
    ) -> "Snapshot":
        """Put Pods on their nodes. Pods without a node, or on one that isn't there, count nowhere."""
        by_node: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in pods:
            by_node[pod.spec.node_name].append(pod)
        infos = {node.name: NodeInfo(node, by_node[node.name]) for node in nodes}
        return cls(infos, namespaces, objects=objects)

    def changed(
        self,
        changes: Mapping[str, NodeInfo | None],
        namespaces: Mapping[str, Labels] | None = None,
        *,
        objects: ClusterObjects | None = None,
        nominated: Mapping[str, Sequence[Pod]] | None = None,
    ) -> "Snapshot":
        """Give the Snapshot that follows: other NodeInfos under these names, None for a node that is gone.

        What isn't given stays. Columns that rules have read stay for the nodes that stay.
        """
        nodes, table = self.nodes, self.table
        if changes:
            nodes = dict(self.nodes)
            rows: dict[int, NodeInfo] = {}
            same_nodes = True
            for name, info in changes.items():
                if info is None:
                    same_nodes = nodes.pop(name, None) is None and same_nodes
                    continue
                same_nodes = same_nodes and name in self.nodes
                nodes[name] = info
                if same_nodes:
                    rows[table.row_of[name]] = info
            table = table.changed(rows) if same_nodes else table.rearranged(list(nodes.values()))
        return Snapshot(
            nodes,
            self.namespaces if namespaces is None else namespaces,
            table=table,
            objects=self.objects if objects is None else objects,
            nominated=self.nominated if nominated is None else nominated,
            step=Step(changes, self.step) if changes else self.step,
        )

    def assume(self, pod: Pod, node_name: str) -> "Snapshot":
        """Give the Snapshot in which a Pod that was promised a node is on it already.

        A node that isn't known leaves everything as it is.
        """
        info = self.nodes.get(node_name)
        if info is None:
            return self
        return self.changed({node_name: NodeInfo(info.node, (*info.pods, pod))})

    def with_nominated(self, pod: Pod) -> "Snapshot | None":
        """Give the Snapshot in which Pods nominated to nodes are there already, None when there are none that count.

        Those of at least this Pod's priority count, the Pod itself doesn't. kube-scheduler v1.36.3 lets a node pass
        that passes with them and without them (framework/runtime/framework.go, RunFilterPluginsWithNominatedPods).
        """
        changes: dict[str, NodeInfo | None] = {}
        for name, nominated in self.nominated.items():
            info = self.nodes.get(name)
            counting = [other for other in nominated if other.uid != pod.uid and other.priority >= pod.priority]
            if info is not None and counting:
                changes[name] = NodeInfo(info.node, (*info.pods, *counting))
        return self.changed(changes, nominated={}) if changes else None

    def namespace_labels(self, name: str) -> Labels:
        """Give the labels of a namespace; none when it isn't known."""
        return self.namespaces.get(name, NO_LABELS)

    def counts(self, namespace: str, labels: Labels) -> Numbers:
        """Count the live Pods of a namespace that carry all these labels: a column, a number a node."""
        return count_selected(self.table, namespace, selector_of(labels), deleting=True)


class Overlay:
    """A Snapshot in which nodes of full request bodies stand in place of the ones known, kept from call to call.

    The Pods on them are the live Snapshot's. What hasn't changed since the last call isn't made again.
    """

    def __init__(self) -> None:
        self._last = Snapshot({})

    def over(self, live: Snapshot, nodes: Iterable[Node]) -> Snapshot:
        """Give the Snapshot of these nodes, and of the other nodes that are known."""
        last = self._last
        wanted = dict(live.nodes)
        for node in nodes:
            known = wanted.get(node.name)
            wanted[node.name] = _placed(node, known, last.nodes.get(node.name))
        changes: dict[str, NodeInfo | None] = {
            name: info for name, info in wanted.items() if last.nodes.get(name) is not info
        }
        changes |= {name: None for name in last.nodes if name not in wanted}
        last = last.changed(changes, live.namespaces, nominated=live.nominated)
        if last.objects is not live.objects:
            last = Snapshot(
                last.nodes,
                last.namespaces,
                table=last.table,
                objects=live.objects,
                nominated=live.nominated,
                step=last.step,
            )
        self._last = last
        return last


def _placed(node: Node, known: NodeInfo | None, last: NodeInfo | None) -> NodeInfo:
    if known is not None and known.node is node:
        return known
    pods = known.pods if known else ()
    if last is not None and last.node is node and last.pods is pods:
        return last
    return NodeInfo(node, pods)
