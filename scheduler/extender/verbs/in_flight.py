"""Pods in flight: between Berth's answer and the watch's report of their node.

kube-scheduler binds in the background and schedules the next Pod at once, so the next call can come before the
watch shows the last Pod on its node; and it never says which node it chose, unless Berth binds. So each Pod that
passed stays here until the watch shows its outcome: bound, changed, or gone. Until then it is assumed on a node
(the one named in /bind; else the only one left; else the single one with Berth's highest score).
Rules that count Pods also wait a moment: kube-scheduler may choose another node than the one with the highest score.

Memory is bounded: beyond the limit, the Pods answered longest ago are forgotten early.
"""

import threading
import time
from collections.abc import Callable

import msgspec

from policies.engine.objects.metadata import is_later_version
from policies.engine.objects.pod import Pod
from scheduler.cluster.live import PodEvent
from scheduler.extender.request.objects import kept_bytes
from scheduler.metrics import IN_FLIGHT_FORGOTTEN

# How long a call waits at most for the outcome of Pods in flight.
SETTLE_SECONDS = 1.0

# An assumed Pod that the watch never reports (kube-scheduler gave up on it silently) counts no longer than this.
FORGET_SECONDS = 30.0

# The memory limit of all assumed Pods. A Pod of 5 kB takes some 50 kB, so this holds thousands.
MOST_BYTES = 256_000_000


class AssumedPod(msgspec.Struct):
    """One Pod in flight.

    Attributes:
        node: where it is counted; "" while the node is unknown.
        binding: whether Berth itself binds it, so that the node is certain.
        at: monotonic seconds, of the last answer.
        size_bytes: its approximate size in memory.
    """

    pod: Pod
    at: float
    size_bytes: int
    node: str = ""
    binding: bool = False


class InFlight:
    """The Pods that were answered and whose outcome isn't known yet. Safe to use from several threads."""

    def __init__(
        self,
        *,
        settle_seconds: float = SETTLE_SECONDS,
        forget_seconds: float = FORGET_SECONDS,
        most_bytes: int = MOST_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settle_seconds = settle_seconds
        self._forget_seconds = forget_seconds
        self._most_bytes = most_bytes
        self._clock = clock
        # By UID, those answered longest ago first: a call must not scan all of them.
        self._assumed: dict[str, AssumedPod] = {}
        # The assumed Pods that are counted on a node.
        self._placed: dict[str, AssumedPod] = {}
        self._bytes = 0
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._assumed)

    def passed(self, pod: Pod, node: str = "", sent: msgspec.Raw | None = None) -> None:
        """Note that nodes passed for a Pod. This replaces its previous assumed node.

        Args:
            pod: as in the call.
            node: the only node that passed, if there was only one.
            sent: the Pod's JSON, if available.
        """
        size_bytes = _size_of(pod, sent)
        with self._changed:
            self._drop_old()
            self._keep(AssumedPod(pod, self._clock(), size_bytes, node))

    def refused(self, uid: str) -> None:
        """Note that a Pod was refused on every node, or that it could not be bound: it is no longer in flight."""
        with self._changed:
            if self._drop(uid):
                self._changed.notify_all()

    def scored(self, uid: str, node: str) -> None:
        """Note the node where a Pod that passed is now expected; "" on a tie."""
        with self._changed:
            assumed = self._assumed.get(uid)
            if assumed is not None:
                assumed.node, assumed.at = node, self._clock()
                self._keep(assumed)

    def binding(self, pod: Pod, node: str) -> None:
        """Note that Berth binds a Pod to this node."""
        known = self._assumed.get(pod.uid)
        size_bytes = known.size_bytes if known is not None and known.pod is pod else _size_of(pod)
        with self._changed:
            self._keep(AssumedPod(pod, self._clock(), size_bytes, node, binding=True))
            self._changed.notify_all()

    def observe(self, event: PodEvent) -> None:
        """Follow the watch's report of a Pod: on a node, changed since it was answered, or gone."""
        with self._changed:
            assumed = self._assumed.get(event.uid)
            if assumed is not None and _is_settled(assumed, event):
                self._drop(event.uid)
                self._changed.notify_all()

    def settle(self, uid: str, timeout_seconds: float | None = None) -> bool:
        """Wait until no Pod but this one was answered a moment ago.

        It doesn't wait for a Pod that Berth binds: its node is certain.

        Returns:
            False when the time ran out. The Pods that were waited for are counted on their assumed nodes until their
            outcome is known.
        """
        with self._changed:
            self._drop_old()
            since = self._clock() - self._settle_seconds
            newest = self._newest(uid, since)
            if newest is None:
                return True
            # The newest Pod's time runs out last.
            wait = newest - since if timeout_seconds is None else min(timeout_seconds, newest - since)
            return self._changed.wait_for(lambda: self._newest(uid, since) is None, timeout=wait)

    def placements(self, uid: str, *, only_binding: bool = False) -> list[tuple[Pod, str]]:
        """Return the assumed Pods but this one, each with its node; or only those that Berth binds."""
        if not self._placed:
            return []
        with self._changed:
            self._drop_old()
            return [
                (assumed.pod, assumed.node)
                for other, assumed in self._placed.items()
                if other != uid and (assumed.binding or not only_binding)
            ]

    def pod(self, uid: str) -> Pod | None:
        """Return an assumed Pod as it was in the call."""
        assumed = self._assumed.get(uid)
        return assumed.pod if assumed else None

    def _newest(self, uid: str, since: float) -> float | None:
        """Return when the last other Pod with an uncertain node was answered; None when that was before `since`."""
        for other, assumed in reversed(self._assumed.items()):
            if assumed.at <= since:
                return None
            if other != uid and not assumed.binding:
                return assumed.at
        return None

    def _keep(self, assumed: AssumedPod) -> None:
        self._drop(assumed.pod.uid)
        self._bytes += assumed.size_bytes
        while self._assumed and self._bytes > self._most_bytes:
            self._drop(next(iter(self._assumed)))
            IN_FLIGHT_FORGOTTEN.inc()
        self._assumed[assumed.pod.uid] = assumed
        if assumed.node:
            self._placed[assumed.pod.uid] = assumed

    def _drop(self, uid: str) -> bool:
        self._placed.pop(uid, None)
        dropped = self._assumed.pop(uid, None)
        self._bytes -= dropped.size_bytes if dropped is not None else 0
        return dropped is not None

    def _drop_old(self) -> None:
        oldest = self._clock() - self._forget_seconds
        while self._assumed:
            uid, assumed = next(iter(self._assumed.items()))
            if assumed.at > oldest:
                return
            self._drop(uid)


def _size_of(pod: Pod, sent: msgspec.Raw | None = None) -> int:
    return kept_bytes(msgspec.json.encode(pod.json) if sent is None else sent)


def _is_settled(assumed: AssumedPod, event: PodEvent) -> bool:
    if event.kind == "deleted" or event.node_name:
        return True
    # The watch can still report an older state of a Pod that Berth has bound.
    answered = assumed.pod.parsed.metadata.resource_version
    return not assumed.binding and _is_newer(event.resource_version, answered)


def _is_newer(version: str, than: str) -> bool:
    """Return whether a resource version is newer than another, or just different if their order is unknown."""
    later = is_later_version(version, than)
    return version != than if later is None else later
