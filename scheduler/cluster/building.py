"""What the watches show, put together as Snapshots as it changes: no threads, no sockets.

A change costs the same however many Pods there are; the next Snapshot costs a copy of the dict of nodes.
"""

from collections.abc import Iterable

from policies.engine.objects.cluster_kinds import ClusterObject
from policies.engine.objects.cluster_objects import Change as ObjectChange
from policies.engine.objects.cluster_objects import ClusterObjects, differs
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.selectors import Labels
from scheduler.cluster.kinds import Namespace
from scheduler.cluster.reflection import Change


class SnapshotBuilder:
    """Follows changes and gives the Snapshot they lead to. For one thread at a time."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._pods_on: dict[str, dict[str, Pod]] = {}
        self._namespaces: dict[str, Labels] = {}
        self._objects: dict[str, list[ObjectChange]] = {}
        self._known: set[str] = set()
        self._given_up: set[str] = set()
        self._objects_stale = False
        self._last = Snapshot({}, {})
        self._outdated = self._namespaces_stale = False
        # In the order of the changes, so that nodes stand in the same order wherever the same is seen.
        self._stale: dict[str, None] = {}

    def has_nodes(self, names: Iterable[str]) -> bool:
        """Tell whether all these nodes are known."""
        return all(name in self._nodes for name in names)

    def on_nodes(self, changes: Iterable[Change[Node]]) -> None:
        """Follow changes of Nodes."""
        for change in changes:
            if change.kind == "deleted":
                self._nodes.pop(change.key, None)
            else:
                self._nodes[change.key] = change.object
            self._touch(change.key)

    def on_pods(self, changes: Iterable[Change[Pod]]) -> None:
        """Follow changes of Pods. Those without a node, and those that ended, take up no room."""
        for change in changes:
            old_name = change.before.spec.node_name if change.before else ""
            counts = change.kind != "deleted" and change.object.is_live
            new_name = change.object.spec.node_name if counts else ""
            if old_name and old_name != new_name:
                self._take(old_name, change.key)
            if new_name:
                self._pods_on.setdefault(new_name, {})[change.key] = change.object
                self._touch(new_name)

    def on_namespaces(self, changes: Iterable[Change[Namespace]]) -> None:
        """Follow changes of Namespaces."""
        for change in changes:
            if change.kind == "deleted":
                self._namespaces.pop(change.key, None)
            else:
                self._namespaces[change.key] = change.object.metadata.labels or {}
            self._namespaces_stale = self._outdated = True

    def on_objects(self, kind: str, changes: Iterable[Change[ClusterObject]]) -> None:
        """Follow changes of another kind, which is known from here on: the first ones are a complete list."""
        if kind not in self._known:
            self._known.add(kind)
            self._objects_stale = self._outdated = True
        for change in changes:
            after = None if change.kind == "deleted" else change.object
            # Most changes are of a status that no rule reads.
            if change.before is None or after is None or differs(change.before, after):
                self._objects.setdefault(kind, []).append((change.before, after))
                self._objects_stale = self._outdated = True

    def give_up(self, kind: str) -> None:
        """Forget all objects of a kind: it isn't known any more."""
        self._objects.pop(kind, None)
        if kind in self._known:
            self._known.discard(kind)
            self._given_up.add(kind)
            self._objects_stale = self._outdated = True

    def current(self) -> Snapshot | None:
        """Give the last Snapshot when nothing changed since. May be called by any thread."""
        return None if self._outdated else self._last

    def build(self) -> Snapshot:
        """Give the Snapshot of now: a new one when something changed, with new NodeInfos where needed."""
        if self._outdated:
            changed = {name: self._info(name) for name in self._stale}
            namespaces = dict(self._namespaces) if self._namespaces_stale else None
            self._last = self._last.changed(changed, namespaces, objects=self._next_objects())
            self._stale.clear()
            self._namespaces_stale = self._outdated = False
        return self._last

    def _next_objects(self) -> ClusterObjects | None:
        """Give the other objects as they are now; None when they are as they were."""
        if not self._objects_stale:
            return None
        objects = self._last.objects or ClusterObjects.unknown()
        if self._given_up:
            # Apart from what follows: a kind may have been listed anew since.
            objects = objects.changed({}, known=objects.known - self._given_up)
        objects = objects.changed(self._objects, known=frozenset(self._known))
        self._objects, self._given_up, self._objects_stale = {}, set(), False
        return objects

    def _info(self, node_name: str) -> NodeInfo | None:
        node = self._nodes.get(node_name)
        return None if node is None else NodeInfo(node, tuple(self._pods_on.get(node_name, {}).values()))

    def _take(self, node_name: str, uid: str) -> None:
        pods = self._pods_on.get(node_name)
        if pods is None or pods.pop(uid, None) is None:
            return
        if not pods:
            del self._pods_on[node_name]
        self._touch(node_name)

    def _touch(self, node_name: str) -> None:
        self._stale[node_name] = None
        self._outdated = True
