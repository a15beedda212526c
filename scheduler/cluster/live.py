"""The live Snapshot: the cluster as its watches show it, in the form that the engine reads, without further calls.

The API server may be unavailable at start and at any time: the last Snapshot stays; `age_seconds` returns its age.
"""

import logging
from collections.abc import Callable, Collection
from threading import Condition, Lock
from typing import Any

import msgspec

from policies.engine.objects.cluster_kinds import ClusterObject
from policies.engine.objects.namespace import Namespace
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from scheduler.cluster.building import SnapshotBuilder
from scheduler.cluster.client import Client
from scheduler.cluster.kinds import NAMESPACES, NODES, OBJECTS, PODS, Kind
from scheduler.cluster.reflection import Change, ChangeKind, Changes
from scheduler.cluster.versions import number_of
from scheduler.cluster.watch import JOIN_SECONDS, Reflector

logger = logging.getLogger("berth.cluster")

# The kinds that are always watched. If one of these fails, the API server counts as unavailable; any other kind may just be
# forbidden by RBAC.
CORE_KINDS = frozenset({NODES.name, PODS.name, NAMESPACES.name})


class PodEvent(msgspec.Struct, frozen=True):
    """Something happened to a Pod.

    Attributes:
        kind: "added", "modified" or "deleted". A Pod that Succeeded or Failed is "deleted": it uses no resources.
        node_name: the node it is on; "" while it waits.
        resource_version: of the change, opaque.
    """

    kind: ChangeKind
    uid: str
    namespace: str
    name: str
    node_name: str
    resource_version: str


class LiveSnapshot:
    """The cluster as watches show it: Nodes, Pods, Namespaces, and other required kinds.

    Every method may be called by any thread.

    Args:
        client: to the API server.
        pods: how Pods are decoded: `scheduler.cluster.waiting` has an alternative.
    """

    def __init__(self, client: Client, *, pods: Kind[Pod] = PODS) -> None:
        self._client = client
        self._builder = SnapshotBuilder()
        self._condition = Condition()
        self._listed: set[str] = set()
        self._subscribers: tuple[Callable[[PodEvent], None], ...] = ()
        self._observers: tuple[Callable[[str, Changes[Any]], None], ...] = ()
        self._pods = Reflector(client=client, kind=pods, handler=self._on_pods, heard=self._on_heard)
        self._always: dict[str, Reflector[Any]] = {
            NODES.name: Reflector(client=client, kind=NODES, handler=self._on_nodes, heard=self._on_heard),
            PODS.name: self._pods,
            NAMESPACES.name: Reflector(
                client=client, kind=NAMESPACES, handler=self._on_namespaces, heard=self._on_heard
            ),
        }
        # Held while the set of reflectors changes, or reflectors start or stop.
        self._requiring = Lock()
        self._required: dict[str, Reflector[Any]] = {}
        self._retired: list[Reflector[Any]] = []
        self._running = False

    def start(self) -> None:
        """Start to list and watch, in separate threads. Call it only once; it doesn't block."""
        with self._requiring:
            self._running = True
            for reflector in self._reflectors().values():
                reflector.start()

    def stop(self) -> None:
        """End the watches. The last Snapshot stays."""
        with self._requiring:
            self._running = False
            reflectors = [*self._reflectors().values(), *self._retired]
            for reflector in reflectors:
                reflector.ask_to_stop()
            for reflector in reflectors:
                reflector.join(JOIN_SECONDS)

    def require(self, kinds: frozenset[str]) -> None:
        """Watch these kinds besides Nodes, Pods and Namespaces, and no others. Doesn't block.

        Kinds that are already watched stay so. The objects of kinds that are no longer required are dropped.

        Args:
            kinds: by the names of `policies.engine.objects.cluster_kinds`.

        Raises:
            ValueError: there is no such kind.
        """
        strange = kinds - OBJECTS.keys()
        if strange:
            message = f"these kinds can't be watched: {', '.join(sorted(strange))}"
            raise ValueError(message)
        with self._requiring:
            for name in self._required.keys() - kinds:
                self._drop(name)
            for name in sorted(kinds - self._required.keys()):
                self._add(name)

    def missing(self, kinds: frozenset[str]) -> frozenset[str]:
        """Return the kinds among these that haven't been listed yet, or aren't watched."""
        return kinds - self._listed

    def wait_until_listed(self, kinds: frozenset[str], timeout_seconds: float) -> frozenset[str]:
        """Wait until these kinds are listed, or can't be because the API server refuses or is unavailable.

        Returns:
            The missing kinds.
        """
        with self._condition:
            self._condition.wait_for(lambda: self.missing(kinds) <= self.failing(), timeout_seconds)
            return self.missing(kinds)

    def snapshot(self) -> Snapshot:
        """Return the current Snapshot. It is immutable; while nothing changes, this returns the same one each time."""
        current = self._builder.current()
        if current is not None:
            return current
        with self._condition:
            return self._builder.build()

    def node_uid(self, name: str) -> str | None:
        """Return the UID of the node that has this name now; None when there is none."""
        with self._condition:
            return self._builder.node_uid(name)

    @property
    def synced(self) -> bool:
        """Whether nodes, Pods and Namespaces have each been listed once."""
        return self._listed >= CORE_KINDS

    def wait_until_synced(self, timeout_seconds: float) -> bool:
        """Wait until `synced`; False when the time is up."""
        with self._condition:
            return self._condition.wait_for(lambda: self.synced, timeout_seconds)

    def wait_for_nodes(self, names: Collection[str], timeout_seconds: float) -> bool:
        """Wait until all these nodes are known; False when the time is up."""
        with self._condition:
            return self._condition.wait_for(lambda: self._builder.has_nodes(names), timeout_seconds)

    def wait_for_pods_version(self, resource_version: str, timeout_seconds: float) -> bool:
        """Wait until all changes of Pods up to this resourceVersion are seen; False when the time is up.

        A version that isn't a number is never reached.
        """
        wanted = number_of(resource_version)
        if wanted < 0:
            return False
        with self._condition:
            return self._condition.wait_for(lambda: number_of(self._pods.version) >= wanted, timeout_seconds)

    def age_seconds(self) -> float:
        """Return the time since the last sign of life of the most silent watch among Nodes, Pods and Namespaces.

        A sign of life is an answer, an event or a bookmark. If nothing changes, the API server sends no bookmarks
        either; then the watch is reopened after SILENCE_SECONDS, so up to 90 s are no sign of a fault.
        Infinite until each watch has shown a first sign of life.
        """
        return max(reflector.age_seconds() for reflector in self._always.values())

    def ages(self) -> dict[str, float]:
        """Return `age_seconds` of each kind's watch, by the kind's name."""
        return {name: reflector.age_seconds() for name, reflector in self._reflectors().items()}

    def failing(self) -> frozenset[str]:
        """Return the kinds whose last request failed: the API server is unavailable, or refuses."""
        return frozenset(name for name, reflector in self._reflectors().items() if reflector.failing)

    def subscribe(self, callback: Callable[[PodEvent], None]) -> None:
        """Call back with every Pod event from now on, in order; if called before `start`, also "added" for each existing Pod.

        Args:
            callback: called in the watching thread once the Snapshot has the change, so it must be quick.
                Exceptions that it raises are logged.
        """
        with self._condition:
            self._subscribers = (*self._subscribers, callback)

    def observe(self, callback: Callable[[str, Changes[Any]], None]) -> None:
        """Call back with the changes of every kind from now on, in order, once the Snapshot has them. Call it before `start`.

        Args:
            callback: gets the kind's name and its changes; called in the watching threads, so it must be quick.
        """
        self._observers = (*self._observers, callback)

    def pods(self) -> list[Pod]:
        """Return all Pods as last seen, on nodes or waiting."""
        return self._pods.objects()

    def assume(self, pod: Pod, node_name: str) -> None:
        """Count a waiting Pod on a node, until the watch shows where it is or that it is gone, or `forget` is called."""
        with self._condition:
            self._builder.assume(pod, node_name)

    def forget(self, uid: str) -> None:
        """Stop counting a Pod on its assumed node; does nothing if it was seen there."""
        with self._condition:
            self._builder.forget(uid)

    def _on_nodes(self, changes: Changes[Node]) -> None:
        with self._condition:
            self._builder.on_nodes(changes.changes)
            self._note(NODES.name, changes.replaced)
            if any(change.kind == "added" for change in changes.changes):
                self._condition.notify_all()
        self._show(NODES.name, changes)

    def _on_pods(self, changes: Changes[Pod]) -> None:
        with self._condition:
            self._builder.on_pods(changes.changes)
            self._note(PODS.name, changes.replaced)
        if self._subscribers:
            for change in changes.changes:
                self._tell(_event_of(change))
        self._show(PODS.name, changes)

    def _on_namespaces(self, changes: Changes[Namespace]) -> None:
        with self._condition:
            self._builder.on_namespaces(changes.changes)
            self._note(NAMESPACES.name, changes.replaced)
        self._show(NAMESPACES.name, changes)

    def _on_heard(self) -> None:
        with self._condition:
            self._condition.notify_all()

    def _note(self, name: str, replaced: bool) -> None:  # noqa: FBT001 - private, and the same word at each call
        if replaced and name not in self._listed:
            self._listed.add(name)
            logger.info("listed kind=%s", name)
            self._condition.notify_all()

    def _reflectors(self) -> dict[str, Reflector[Any]]:
        return self._always | self._required

    def _add(self, name: str) -> None:
        def follow(changes: Changes[ClusterObject]) -> None:
            with self._condition:
                if self._required.get(name) is reflector:  # otherwise it was dropped in the middle of an answer
                    self._builder.on_objects(name, changes.changes)
                    self._note(name, changes.replaced)
            self._show(name, changes)

        reflector = Reflector(client=self._client, kind=OBJECTS[name], handler=follow, heard=self._on_heard)
        self._required = self._required | {name: reflector}
        if self._running:
            reflector.start()

    def _drop(self, name: str) -> None:
        dropped = self._required[name]
        with self._condition:
            self._required = {other: reflector for other, reflector in self._required.items() if other != name}
            self._listed.discard(name)
            self._builder.give_up(name)
        dropped.ask_to_stop()
        self._retired = [reflector for reflector in self._retired if not reflector.ended] + [dropped]
        logger.info("dropped kind=%s", name)

    def _show(self, name: str, changes: Changes[Any]) -> None:
        for callback in self._observers:
            callback(name, changes)

    def _tell(self, event: PodEvent) -> None:
        for callback in self._subscribers:
            try:
                callback(event)
            except Exception:
                logger.exception("subscriber_failed event=%s", event)


def _event_of(change: Change[Pod]) -> PodEvent:
    pod = change.object
    return PodEvent(
        change.kind if pod.is_live else "deleted",
        change.key,
        pod.namespace,
        pod.name,
        pod.spec.node_name,
        change.resource_version,
    )
