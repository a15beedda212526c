"""Pods between Berth's answer and their place on a node.

kube-scheduler binds in the background and asks about the next Pod at once, so the next question can come before the
last Pod is seen on its node. A rule that counts Pods would then count one too few. So before such a rule is asked, the
fate of the Pods in flight is waited for: each is bound, changed or deleted within milliseconds, and the watch says so.
"""

import threading
import time

from scheduler.cluster.live import PodEvent

SETTLE_SECONDS = 1.0
"""How long a question waits at most. A Pod whose fate isn't known by then is no longer counted as in flight."""


class InFlight:
    """The Pods that were answered and whose fate isn't known yet. Safe to use from several threads."""

    def __init__(self, settle_seconds: float = SETTLE_SECONDS) -> None:
        self._settle_seconds = settle_seconds
        self._answered: dict[str, tuple[float, str]] = {}
        self._changed = threading.Condition()

    def answered(self, uid: str, resource_version: str) -> None:
        """Note that a Pod, in this version, was told which nodes it may use."""
        with self._changed:
            self._answered[uid] = (time.monotonic(), resource_version)

    def observe(self, event: PodEvent) -> None:
        """Take notice of what the watch says of a Pod: on a node, changed since it was answered, or gone."""
        with self._changed:
            found = self._answered.get(event.uid)
            if found and (event.kind == "deleted" or event.node_name or _is_newer(event.resource_version, found[1])):
                del self._answered[event.uid]
                self._changed.notify_all()

    def settle(self, uid: str) -> bool:
        """Wait until no Pod but this one is in flight.

        Returns:
            False when the time ran out; the Pods that were waited for are no longer in flight then.
        """
        deadline = time.monotonic() + self._settle_seconds
        with self._changed:
            self._drop_old()
            self._changed.wait_for(lambda: not self._others(uid), timeout=deadline - time.monotonic())
            late = self._others(uid)
            for other in late:
                del self._answered[other]
        return not late

    def _others(self, uid: str) -> list[str]:
        return [other for other in self._answered if other != uid]

    def _drop_old(self) -> None:
        oldest = time.monotonic() - self._settle_seconds
        self._answered = {uid: found for uid, found in self._answered.items() if found[0] > oldest}


def _is_newer(version: str, than: str) -> bool:
    """Resource versions can be compared as whole numbers (Kubernetes enhancement 5504)."""
    if version.isdigit() and than.isdigit():
        return int(version) > int(than)
    return version != than
