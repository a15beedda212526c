"""Nodes, Pods and usage at one moment. A Snapshot never changes; the live one is followed by another."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.columns import count_selected
from policies.engine.objects.lineage import Step
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.placed import NOWHERE
from policies.engine.objects.pod import Pod
from policies.engine.objects.table import Numbers, Table
from policies.engine.selectors import Labels, selector_of

NO_LABELS: Labels = {}


class Snapshot:
    """What the engine reads of a cluster.

    Args:
        nodes: name -> NodeInfo. None with a table, which then has the nodes.
        namespaces: name -> labels of the namespace.
        objects: volumes, claims, Services and the like, of the kinds that are watched. Where a kind isn't known (with None, no
            kind is), rules that need it leave claims to kube-scheduler, and no Service or owner selects any Pod.
        nominated: name -> Pods that wait for room on the node after preemption.
    """

    def __init__(
        self,
        nodes: Mapping[str, NodeInfo] | None,
        namespaces: Mapping[str, Labels] | None = None,
        *,
        table: Table | None = None,
        objects: ClusterObjects | None = None,
        nominated: Mapping[str, Sequence[Pod]] | None = None,
    ) -> None:
        self._nodes = nodes
        self.namespaces = namespaces if namespaces is not None else {}
        self.table = table if table is not None else Table(list((nodes or {}).values()))
        self.objects = objects
        self.nominated = nominated if nominated is not None else {}

    @property
    def step(self) -> Step[str]:
        """Its step in the log of Snapshots."""
        return self.table.step

    @property
    def nodes(self) -> Mapping[str, NodeInfo]:
        """Name -> NodeInfo. Made on first use: decisions use the table."""
        if self._nodes is None:
            self._nodes = dict(zip(self.table.names, self.table.infos, strict=True))
        return self._nodes

    def node(self, name: str) -> NodeInfo | None:
        """Return one node, None when it isn't known."""
        row = self.table.row_of.get(name)
        return None if row is None else self.table.infos[row]

    @classmethod
    def of(
        cls,
        nodes: Iterable[Node],
        pods: Iterable[Pod] = (),
        namespaces: Mapping[str, Labels] | None = None,
        *,
        objects: ClusterObjects | None = None,
    ) -> "Snapshot":
        """Put Pods on their nodes. Pods without a node, or on an unknown one, count nowhere."""
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
        """Return the next Snapshot: other NodeInfos under these names, None for a node that was removed.

        Arguments that aren't given leave their part unchanged. Columns that rules have read are kept for the nodes that stay.
        """
        nodes, table = self._nodes, self.table
        if changes or (objects is not None and objects is not self.objects):
            # Also when only the objects differ: columns that depend on them belong to this Snapshot alone.
            nodes, table = None, table.changed(changes)
        return Snapshot(
            nodes,
            self.namespaces if namespaces is None else namespaces,
            table=table,
            objects=self.objects if objects is None else objects,
            nominated=self.nominated if nominated is None else nominated,
        )

    def branched(self, changes: Mapping[str, NodeInfo | None]) -> "Snapshot":
        """Return a temporary next Snapshot, while others follow this one, see `Table.branched`."""
        table = self.table.branched(changes)
        return Snapshot(None, self.namespaces, table=table, objects=self.objects, nominated=self.nominated)

    def assume(self, pod: Pod, node_name: str) -> "Snapshot":
        """Return the Snapshot in which a Pod that is assumed on a node is on it already.

        With an unknown node nothing changes.
        """
        info = self.node(node_name)
        if info is None:
            return self
        return self.changed({node_name: info.joined([pod])})

    def assume_all(self, placements: Iterable[tuple[Pod, str]]) -> "Snapshot":
        """Return the Snapshot in which Pods that are assumed on nodes are on them already.

        Skipped are unknown nodes, Pods that are on any node of this Snapshot already, and all but the first of several Pods
        with the same uid. Pods without a uid are always placed.

        Args:
            placements: each Pod with the name of its node.
        """
        placed, row_of = self.table.placed(), self.table.row_of
        coming: dict[str, list[Pod]] = {}
        assumed: set[str] = set()
        for pod, name in placements:
            # The watch may have shown a Pod on its node already, or on another one: it counts once, where it is seen.
            if name not in row_of or pod.uid in assumed or placed.row_of(pod.uid) != NOWHERE:
                continue
            coming.setdefault(name, []).append(pod)
            if pod.uid:
                assumed.add(pod.uid)
        infos = self.table.infos
        if not coming:
            return self
        return self.branched({name: infos[row_of[name]].joined(pods) for name, pods in coming.items()})

    def counted_nominated(self, pod: Pod) -> dict[str, list[Pod]]:
        """Return by node the nominated Pods that count against this one: others of at least its priority."""
        counting = {
            name: [other for other in nominated if other.uid != pod.uid and other.priority >= pod.priority]
            for name, nominated in self.nominated.items()
        }
        return {name: pods for name, pods in counting.items() if pods}

    def with_nominated(self, pod: Pod) -> "Snapshot | None":
        """Return the Snapshot in which Pods nominated to nodes are on them already, None when there are none that count.

        kube-scheduler v1.36.3 passes a node only if it passes with them and without them (framework/runtime/framework.go,
        RunFilterPluginsWithNominatedPods).
        """
        changes: dict[str, NodeInfo | None] = {}
        for name, counting in self.counted_nominated(pod).items():
            info = self.node(name)
            if info is not None:
                changes[name] = info.joined(counting)
        return self.changed(changes, nominated={}) if changes else None

    def knowing(self, kinds: frozenset[str]) -> ClusterObjects | None:
        """Return the objects if all these kinds are known; None when one of them isn't."""
        return self.objects if self.objects is not None and kinds <= self.objects.known else None

    def namespace_labels(self, name: str) -> Labels:
        """Return the labels of a namespace; none when it isn't known."""
        return self.namespaces.get(name, NO_LABELS)

    def counts(self, namespace: str | None, labels: Labels) -> Numbers:
        """Count the live Pods of a namespace, or of ALL_NAMESPACES, with all these labels: a column with a number for each node."""
        return count_selected(self.table, namespace, selector_of(labels), deleting=True)
