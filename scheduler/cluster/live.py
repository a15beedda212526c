"""The live Snapshot: what the watches of the API server show, as the engine reads it, without asking anyone.

The API server may be away at start and at any time: the last Snapshot stays; `age_seconds` gives its age.
"""

import logging
import math
from collections.abc import Callable, Collection
from threading import Condition

import msgspec

from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from scheduler.cluster.building import SnapshotBuilder
from scheduler.cluster.client import Client
from scheduler.cluster.kinds import NAMESPACES, NODES, PODS, Namespace
from scheduler.cluster.reflection import Change, ChangeKind, Changes
from scheduler.cluster.watch import JOIN_SECONDS, Reflector

logger = logging.getLogger("berth.cluster")


class PodEvent(msgspec.Struct, frozen=True):
    """Something happened to a Pod.

    Attributes:
        kind: "added", "modified" or "deleted". A Pod that Succeeded or Failed is "deleted": it takes no room.
        node_name: the node it is on; "" while it waits.
        resource_version: of the change, opaque.
        deleting: whether its deletion was asked for.
    """

    kind: ChangeKind
    uid: str
    namespace: str
    name: str
    node_name: str
    resource_version: str
    deleting: bool


class LiveSnapshot:
    """The cluster as three watches show it. Every method may be called by any thread."""

    def __init__(self, client: Client) -> None:
        self._builder = SnapshotBuilder()
        self._condition = Condition()
        self._unlisted = {NODES.name, PODS.name, NAMESPACES.name}
        self._subscribers: tuple[Callable[[PodEvent], None], ...] = ()
        self._reflectors = (
            Reflector(client=client, kind=NODES, handler=self._on_nodes),
            Reflector(client=client, kind=PODS, handler=self._on_pods),
            Reflector(client=client, kind=NAMESPACES, handler=self._on_namespaces),
        )

    def start(self) -> None:
        """Begin to list and watch, in threads of their own. Once only; it waits for nothing."""
        for reflector in self._reflectors:
            reflector.start()

    def stop(self) -> None:
        """End the watches. The last Snapshot stays."""
        for reflector in self._reflectors:
            reflector.ask_to_stop()
        for reflector in self._reflectors:
            reflector.join(JOIN_SECONDS)

    def snapshot(self) -> Snapshot:
        """Give the Snapshot of now. It never changes; while nothing happens, it is the same one each time."""
        current = self._builder.current()
        if current is not None:
            return current
        with self._condition:
            return self._builder.build()

    @property
    def synced(self) -> bool:
        """Whether nodes, Pods and Namespaces have each been listed once."""
        return not self._unlisted

    def wait_until_synced(self, timeout_seconds: float) -> bool:
        """Wait until `synced`; False when the time is up."""
        with self._condition:
            return self._condition.wait_for(lambda: self.synced, timeout_seconds)

    def wait_for_nodes(self, names: Collection[str], timeout_seconds: float) -> bool:
        """Wait until all these nodes are known; False when the time is up."""
        with self._condition:
            return self._condition.wait_for(lambda: self._builder.has_nodes(names), timeout_seconds)

    def age_seconds(self) -> float:
        """Give how long ago the watch that has been silent for the longest last proved itself alive.

        A watch proves itself by an answer, an event or a bookmark. Where nothing changes, the API server sends no
        bookmarks either; then the watch is opened anew after SILENCE_SECONDS, so up to 90 s are no sign of a fault.
        Infinite until each has proved itself once.
        """
        return max((reflector.age_seconds() for reflector in self._reflectors), default=math.inf)

    def subscribe(self, callback: Callable[[PodEvent], None]) -> Callable[[], None]:
        """Have every Pod event told from now on, in order; before `start`, also "added" for each Pod there is.

        Args:
            callback: called in the watching thread once the Snapshot has the change, so it must be quick.
                What it raises is logged.

        Returns:
            A function that ends the subscription.
        """
        with self._condition:
            self._subscribers = (*self._subscribers, callback)

        def unsubscribe() -> None:
            with self._condition:
                self._subscribers = tuple(other for other in self._subscribers if other is not callback)

        return unsubscribe

    def _on_nodes(self, changes: Changes[Node]) -> None:
        with self._condition:
            self._builder.on_nodes(changes.changes)
            self._note(NODES.name, changes.replaced)
            if any(change.kind == "added" for change in changes.changes):
                self._condition.notify_all()

    def _on_pods(self, changes: Changes[Pod]) -> None:
        with self._condition:
            self._builder.on_pods(changes.changes)
            self._note(PODS.name, changes.replaced)
        if self._subscribers:
            for change in changes.changes:
                self._tell(_event_of(change))

    def _on_namespaces(self, changes: Changes[Namespace]) -> None:
        with self._condition:
            self._builder.on_namespaces(changes.changes)
            self._note(NAMESPACES.name, changes.replaced)

    def _note(self, name: str, replaced: bool) -> None:  # noqa: FBT001 - private, and the same word at each call
        if replaced and name in self._unlisted:
            self._unlisted.discard(name)
            logger.info("listed kind=%s", name)
            self._condition.notify_all()

    def _tell(self, event: PodEvent) -> None:
        for callback in self._subscribers:
            try:
                callback(event)
            except Exception:
                logger.exception("subscriber_failed event=%s", event)


def _event_of(change: Change[Pod]) -> PodEvent:
    pod = change.object
    ended = not pod.is_live
    return PodEvent(
        "deleted" if ended else change.kind,
        change.key,
        pod.namespace,
        pod.name,
        pod.spec.node_name,
        change.resource_version,
        pod.parsed.metadata.deletion_timestamp is not None,
    )
