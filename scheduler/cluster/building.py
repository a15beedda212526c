"""Builds Snapshots from the changes that watches report: no threads, no sockets.

The cost of a change doesn't depend on the number of Pods; the next Snapshot costs a copy of the dict of nodes.
"""

from collections.abc import Iterable

from policies.engine.objects.cluster_kinds import ClusterObject
from policies.engine.objects.cluster_objects import Change as ObjectChange
from policies.engine.objects.cluster_objects import ClusterObjects, differs
from policies.engine.objects.namespace import Namespace
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.selectors import Labels
from scheduler.cluster.reflection import Change


class SnapshotBuilder:
    """Applies changes and builds the resulting Snapshot. For one thread at a time."""

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
        self._assumed: dict[str, str] = {}
        self._joining: dict[str, list[Pod]] = {}
        # In the order of the changes, so that every process that sees the same changes has nodes in the same order.
        self._stale: dict[str, None] = {}

    def has_nodes(self, names: Iterable[str]) -> bool:
        """Return whether all these nodes are known."""
        return all(name in self._nodes for name in names)

    def node_uid(self, name: str) -> str | None:
        """Return the UID of a node; None when it isn't known."""
        node = self._nodes.get(name)
        return None if node is None else node.parsed.metadata.uid

    def on_nodes(self, changes: Iterable[Change[Node]]) -> None:
        """Apply changes of Nodes."""
        for change in changes:
            if change.kind == "deleted":
                self._nodes.pop(change.key, None)
            else:
                before = self._nodes.get(change.key)
                shared = before.after_heartbeat(change.object.text) if before is not None else None
                self._nodes[change.key] = change.object if shared is None else shared
            self._touch(change.key)

    def on_pods(self, changes: Iterable[Change[Pod]]) -> None:
        """Apply changes of Pods. Pods without a node and terminated Pods use no resources."""
        for change in changes:
            old_name = change.before.spec.node_name if change.before else ""
            counts = change.kind != "deleted" and change.object.is_live
            new_name = change.object.spec.node_name if counts else ""
            if not old_name and change.key in self._assumed:
                if not new_name and counts:
                    continue  # the event is older than the Pod's binding
                old_name = self._assumed.pop(change.key)
                if old_name == new_name and self._confirm(new_name, change.key, change.object):
                    continue
            if old_name and old_name != new_name:
                self._take(old_name, change.key)
            if new_name:
                self._pods_on.setdefault(new_name, {})[change.key] = change.object
                self._touch(new_name)

    def assume(self, pod: Pod, node_name: str) -> None:
        """Count a waiting Pod on a node from now on, until a change shows where it is, or `forget` is called.

        Does nothing if it was seen on the node meanwhile: `forget` would then take away what is really there.
        """
        if pod.uid not in self._pods_on.get(node_name, {}):
            self.forget(pod.uid)
            self._assumed[pod.uid] = node_name
            self._pods_on.setdefault(node_name, {})[pod.uid] = pod
            # A node that is rebuilt anyway takes its Pods from `_pods_on`; otherwise this Pod is added to the existing NodeInfo.
            if node_name not in self._stale:
                self._joining.setdefault(node_name, []).append(pod)
            self._outdated = True

    def forget(self, uid: str) -> None:
        """Stop counting a Pod on its assumed node. Does nothing if it isn't assumed, or was seen on the node."""
        node_name = self._assumed.pop(uid, None)
        if node_name is not None:
            self._take(node_name, uid)

    def _confirm(self, node_name: str, uid: str, pod: Pod) -> bool:
        """Replace the assumed Pod by the observed one; True when that makes no difference to any rule."""
        pods = self._pods_on.get(node_name, {})
        before = pods.get(uid)
        if before is None or before.is_deleting != pod.is_deleting or before.requests != pod.requests:
            return False
        if before.labels != pod.labels:
            return False  # a binding can add labels
        pods[uid] = pod
        return True

    def on_namespaces(self, changes: Iterable[Change[Namespace]]) -> None:
        """Apply changes of Namespaces."""
        for change in changes:
            if change.kind == "deleted":
                self._namespaces.pop(change.key, None)
            else:
                self._namespaces[change.key] = change.object.metadata.labels or {}
            self._namespaces_stale = self._outdated = True

    def on_objects(self, kind: str, changes: Iterable[Change[ClusterObject]]) -> None:
        """Apply changes of another kind, which is known from now on: the first changes are a complete list."""
        if kind not in self._known:
            self._known.add(kind)
            self._objects_stale = self._outdated = True
        for change in changes:
            after = None if change.kind == "deleted" else change.object
            # Most changes are in a status that no rule reads.
            if change.before is None or after is None or differs(change.before, after):
                self._objects.setdefault(kind, []).append((change.before, after))
                self._objects_stale = self._outdated = True

    def give_up(self, kind: str) -> None:
        """Forget all objects of a kind, which is no longer known."""
        self._objects.pop(kind, None)
        if kind in self._known:
            self._known.discard(kind)
            self._given_up.add(kind)
            self._objects_stale = self._outdated = True

    def current(self) -> Snapshot | None:
        """Return the last Snapshot when nothing changed since. May be called by any thread."""
        # Without the lock: `build` stores the new Snapshot before it resets `_outdated`.
        return None if self._outdated else self._last

    def build(self) -> Snapshot:
        """Return the current Snapshot: a new one if something changed, with new NodeInfos where needed."""
        if self._outdated:
            changed = {name: self._info(name) for name in self._stale} | self._joined()
            namespaces = dict(self._namespaces) if self._namespaces_stale else None
            self._last = self._last.changed(changed, namespaces, objects=self._next_objects())
            self._stale.clear()
            self._joining.clear()
            self._namespaces_stale = self._outdated = False
        return self._last

    def _next_objects(self) -> ClusterObjects | None:
        """Return the other objects as they are now; None if they haven't changed."""
        if not self._objects_stale:
            return None
        objects = self._last.objects or ClusterObjects.unknown()
        if self._given_up:
            # Separate from the step below: the kind may have been listed again since.
            objects = objects.changed({}, known=objects.known - self._given_up)
        objects = objects.changed(self._objects, known=frozenset(self._known))
        self._objects, self._given_up, self._objects_stale = {}, set(), False
        return objects

    def _joined(self) -> dict[str, NodeInfo | None]:
        """Return the nodes to which Pods were only added: their sums needn't be recomputed."""
        found: dict[str, NodeInfo | None] = {}
        for name, pods in self._joining.items():
            info = self._last.node(name) if name not in self._stale else None
            if info is not None:
                found[name] = info.joined(pods)
        return found

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
