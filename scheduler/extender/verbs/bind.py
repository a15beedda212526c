"""Answering /bind: bind the Pod, after checking once more what other Pods can have changed since it was filtered.

Only rules that count Pods are checked again, and only for their Pods a lock is taken that holds across replicas: the
holder leaves the resourceVersion of the Pod that it bound last, and the next holder waits until its own watch has seen
that, so that it counts every Pod that was bound under the lock, by whichever replica.
"""

import logging
import time

import msgspec

from policies.engine.decision import Answer, CompiledRuleSet, decide
from policies.engine.objects.pod import Pod
from scheduler.cluster.bind import Outcome, Target, bind, read_placed
from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIError
from scheduler.cluster.lease_lock import Held, LeaseLock, LockBusyError
from scheduler.cluster.live import LiveSnapshot
from scheduler.extender.verbs.context import RequestContexts
from scheduler.extender.verbs.in_flight import InFlight
from scheduler.metrics import BINDINGS

logger = logging.getLogger("berth.extender")

# For each call of the API server while a Pod is bound.
BIND_TIMEOUT_SECONDS = 1.0

LOCK_WAIT_SECONDS = 1.2
# For a node that kube-scheduler has seen before Berth.
NODE_WAIT_SECONDS = 0.5

_ERRORS = {
    Outcome.BOUND: "",
    Outcome.ELSEWHERE: "the Pod is on another node already",
    Outcome.GONE: "the Pod is gone",
    Outcome.REFUSED: "the API server refused the binding",
    Outcome.UNKNOWN: "the API server did not confirm the binding",
}
BUSY = "Berth could not get the lock for rules that count Pods; kube-scheduler tries again"
BEHIND = "Berth has not seen the Pods that were bound last; kube-scheduler tries again"
NO_LONGER = "a rule that counts Pods no longer allows the node; kube-scheduler tries again"
UNKNOWN_NODE = "Berth doesn't know the node yet; kube-scheduler tries again"
NOT_NOW = "Berth can't see the cluster well enough to count Pods; kube-scheduler tries again"


class Bound(msgspec.Struct):
    """What became of a /bind.

    Attributes:
        error: "" when the Pod is bound; else a constant text.
        answer: what the rules that were checked again said; None where there are none.
    """

    error: str
    answer: Answer | None = None

    @property
    def counted(self) -> list[dict[str, str]]:
        """What the rules that were asked again refused, for the record."""
        refused = self.answer.refused() if self.answer is not None else ()
        return [{"node": name, "code": status.code.value, "reason": status.reason} for name, status in refused]


class Binder:
    """Binds Pods. One object a process, used by all its threads."""

    def __init__(
        self, *, client: Client, live: LiveSnapshot, in_flight: InFlight, lock: LeaseLock, contexts: RequestContexts
    ) -> None:
        self._client = client
        self._live = live
        self._in_flight = in_flight
        self._lock = lock
        self._contexts = contexts

    def bind(self, pod: Pod, target: Target, rule_set: CompiledRuleSet | None) -> Bound:
        """Bind the Pod, or say why not."""
        counting = rule_set.only_counting() if rule_set is not None and rule_set.enforced.counts_pods else None
        if self._live.synced and not self._live.wait_for_nodes([target.node_name], NODE_WAIT_SECONDS):
            # The API server binds to any name: the Pod would never run, and nothing would try again.
            BINDINGS.labels("unknown_node").inc()
            bound = Bound(UNKNOWN_NODE)
        elif counting is None or not counting.filters:
            bound = Bound(self._bind(pod, target))
        else:
            bound = self._bind_counted(pod, target, counting)
        if bound.error and bound.error != _ERRORS[Outcome.UNKNOWN]:
            self._in_flight.refused(target.uid)
        return bound

    def _bind_counted(self, pod: Pod, target: Target, counting: CompiledRuleSet) -> Bound:
        action, _ = self._contexts.fallback(counting)
        if action == "pass":
            return Bound(self._bind(pod, target))
        if action == "refuse":
            return Bound(NOT_NOW)
        try:
            with self._lock.hold(LOCK_WAIT_SECONDS) as held:
                return self._bind_held(pod, target, counting, held)
        except (LockBusyError, APIError) as error:
            logger.warning("the lock for rules that count Pods can't be had: %s", error)
            BINDINGS.labels("busy").inc()
            return Bound(BUSY)

    def _bind_held(self, pod: Pod, target: Target, counting: CompiledRuleSet, held: Held) -> Bound:
        if held.note and not self._live.wait_for_pods_version(held.note, LOCK_WAIT_SECONDS / 2):
            BINDINGS.labels("behind").inc()
            return Bound(BEHIND)
        answer = self._count_again(pod, target, counting)
        if answer is None:
            return Bound(UNKNOWN_NODE)
        if not answer.feasible_count:
            BINDINGS.labels("no_longer").inc()
            return Bound(NO_LONGER, answer)
        if not self._lock.is_valid(held):
            return Bound(BUSY, answer)
        error = self._bind(pod, target)
        if not error:
            held.note = self._version_of(target)
        return Bound(error, answer)

    def _count_again(self, pod: Pod, target: Target, counting: CompiledRuleSet) -> Answer | None:
        """Ask the counting rules about the one node, with every Pod on it that is bound or being bound."""
        binding = self._in_flight.placements(pod.uid, only_binding=True)
        snapshot = self._live.snapshot().assume_all(binding)
        rows = snapshot.table.rows([target.node_name])
        rows = rows[rows >= 0]
        if not len(rows):
            return None
        return decide(counting, self._contexts.cycle(pod, snapshot, counting), rows, scoring=False)

    def _bind(self, pod: Pod, target: Target) -> str:
        self._in_flight.binding(pod, target.node_name)
        outcome = bind(self._client, target, timeout_seconds=BIND_TIMEOUT_SECONDS)
        BINDINGS.labels(outcome.value).inc()
        return _ERRORS[outcome]

    def _version_of(self, target: Target) -> str:
        """Return the version in which the bound Pod can be seen.

        Where it can't be read, the time is given in which a watch that works has seen it.
        """
        try:
            return read_placed(self._client, target, timeout_seconds=BIND_TIMEOUT_SECONDS).metadata.resource_version
        except APIError as error:
            logger.warning("the version of a bound Pod can't be read, its watch event is waited for: %s", error)
            time.sleep(BIND_TIMEOUT_SECONDS)
            return ""
