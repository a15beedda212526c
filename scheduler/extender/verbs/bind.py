"""Answers /bind: binds the Pod, after rechecking the rules whose result other Pods can have changed since /filter.

Only rules that count Pods are rechecked, and only their Pods take a lock across replicas: the holder leaves the
resourceVersion of the Pod that it bound last, and the next holder waits until its own watch has reached that version,
so that it counts every Pod that was bound under the lock, by any replica.
"""

import logging
import time
from collections.abc import Callable
from datetime import datetime

import msgspec

from policies.engine.decision import Answer, CompiledRuleSet, decide
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from scheduler.cluster.bind import BINDING_FAILED, BINDING_REFUSED, Outcome, Target, bind, read_placed
from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIError
from scheduler.cluster.lease_lock import Held, LeaseLock, LockBusyError
from scheduler.cluster.live import LiveSnapshot
from scheduler.extender.verbs.context import RequestContexts
from scheduler.extender.verbs.in_flight import InFlight
from scheduler.metrics import BINDINGS

logger = logging.getLogger("berth.extender")

# For each API call while a Pod is bound.
BIND_TIMEOUT_SECONDS = 1.0

LOCK_WAIT_SECONDS = 1.2
# How long to wait for a node that kube-scheduler has seen before Berth.
NODE_WAIT_SECONDS = 0.5

_ERRORS = {
    Outcome.BOUND: "",
    Outcome.ELSEWHERE: "the Pod is on another node already",
    Outcome.GONE: "the Pod is gone",
    Outcome.REFUSED: BINDING_REFUSED,
    Outcome.DENIED: BINDING_REFUSED,
    Outcome.FAILED: BINDING_FAILED,
    Outcome.UNKNOWN: "the API server did not confirm the binding",
}
BUSY = "Berth could not get the lock for rules that count Pods; kube-scheduler tries again"
BEHIND = "Berth has not seen the Pods that were bound last; kube-scheduler tries again"
NO_LONGER = "a rule that counts Pods no longer allows the node; kube-scheduler tries again"
UNKNOWN_NODE = "Berth doesn't know the node yet; kube-scheduler tries again"
NOT_NOW = "Berth can't see the cluster well enough to count Pods; kube-scheduler tries again"


class Checked(msgspec.Struct):
    """The check before a Pod is bound, and its input.

    Attributes:
        snapshot: the Snapshot that the rules read, without `assumed`.
        answer: the answer for the node of the rules that count Pods; None if no rule set applies to the Pod.
        assumed: the Pods that are being bound, each with its node.
        fallback: the rule set's fallback when a dependency was unavailable; "" when the rules were evaluated.
        cause: the reason for the fallback.
    """

    snapshot: Snapshot
    answer: Answer | None = None
    assumed: list[tuple[Pod, str]] = []
    fallback: str = ""
    cause: str = ""

    @property
    def refused(self) -> list[dict[str, str]]:
        """The refusals of the rechecked rules, for the record."""
        found = self.answer.refused() if self.answer is not None else ()
        return [{"node": name, "code": status.code.value, "reason": status.reason} for name, status in found]


class Bound(msgspec.Struct):
    """The outcome of a /bind.

    Attributes:
        error: "" when the Pod is bound; else a constant text.
        checked: the check; None if there was none.
        decision: the id of the Decision recorded before the binding was sent; "" when it wasn't sent.
    """

    error: str
    checked: Checked | None = None
    decision: str = ""


# Records that a Pod is about to be bound, and returns the Decision's id.
Record = Callable[[Checked], str]


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

    def bind(
        self, pod: Pod, target: Target, rule_set: CompiledRuleSet | None, *, now: datetime, record: Record
    ) -> Bound:
        """Bind the Pod, or return why not.

        Args:
            pod: the Pod.
            target: the node to bind it to.
            rule_set: the rule set that applies; None for none.
            now: the current time, as rules see it.
            record: called before the binding is sent, so that no Pod is bound without its Decision.
        """
        counting = rule_set.only_counting() if rule_set is not None else None
        if self._live.synced and not self._live.wait_for_nodes([target.node_name], NODE_WAIT_SECONDS):
            # The API server accepts any node name: the Pod would never run, and nothing would retry.
            BINDINGS.labels("unknown_node").inc()
            bound = Bound(UNKNOWN_NODE)
        elif counting is None or not counting.filters:
            bound = self._bind_uncounted(pod, target, counting, now, record)
        else:
            bound = self._bind_counted(pod, target, counting, now, record)
        if bound.error and bound.error != _ERRORS[Outcome.UNKNOWN]:
            self._in_flight.refused(target.uid)
        return bound

    def _bind_uncounted(
        self, pod: Pod, target: Target, counting: CompiledRuleSet | None, now: datetime, record: Record
    ) -> Bound:
        checked = Checked(self._live.snapshot())
        if counting is not None:
            checked.answer = _ask(pod, checked.snapshot, counting, target.node_name, now)
        return self._bind(pod, target, checked, record)

    def _bind_counted(
        self, pod: Pod, target: Target, counting: CompiledRuleSet, now: datetime, record: Record
    ) -> Bound:
        action, cause = self._contexts.fallback(counting)
        if action != "decide":
            checked = Checked(self._live.snapshot(), fallback=action, cause=cause)
            return Bound(NOT_NOW, checked) if action == "refuse" else self._bind(pod, target, checked, record)
        try:
            with self._lock.hold(LOCK_WAIT_SECONDS) as held:
                return self._bind_held(pod, target, counting, held, now, record)
        except (LockBusyError, APIError) as error:
            logger.warning("the lock for rules that count Pods can't be acquired: %s", error)
            BINDINGS.labels("busy").inc()
            return Bound(BUSY)

    def _bind_held(
        self, pod: Pod, target: Target, counting: CompiledRuleSet, held: Held, now: datetime, record: Record
    ) -> Bound:
        if held.note and not self._live.wait_for_pods_version(held.note, LOCK_WAIT_SECONDS / 2):
            BINDINGS.labels("behind").inc()
            return Bound(BEHIND)
        checked = self._count_again(pod, target, counting, now)
        if checked is None:
            return Bound(UNKNOWN_NODE)
        if checked.answer is not None and not checked.answer.feasible_count:
            BINDINGS.labels("no_longer").inc()
            return Bound(NO_LONGER, checked)
        if not self._lock.is_valid(held):
            return Bound(BUSY)
        bound = self._bind(pod, target, checked, record)
        if not bound.error:
            held.note = self._version_of(msgspec.structs.replace(target, decision=bound.decision))
        return bound

    def _count_again(self, pod: Pod, target: Target, counting: CompiledRuleSet, now: datetime) -> Checked | None:
        """Evaluate the counting rules for the one node, with every Pod on it that is bound or being bound."""
        binding = self._in_flight.placements(pod.uid, only_binding=True)
        checked = Checked(self._live.snapshot(), assumed=binding)
        checked.answer = _ask(pod, checked.snapshot.assume_all(binding), counting, target.node_name, now)
        return checked if len(checked.answer.refusal) else None

    def _bind(self, pod: Pod, target: Target, checked: Checked, record: Record) -> Bound:
        decision = record(checked)
        self._in_flight.binding(pod, target.node_name)
        target = msgspec.structs.replace(target, decision=decision)
        outcome = bind(self._client, target, timeout_seconds=BIND_TIMEOUT_SECONDS)
        BINDINGS.labels(outcome.value).inc()
        return Bound(_ERRORS[outcome], checked, decision)

    def _version_of(self, target: Target) -> str:
        """Return the resourceVersion in which the Pod is bound.

        If it can't be read, this waits long enough for a working watch to have seen it.
        """
        try:
            return read_placed(self._client, target, timeout_seconds=BIND_TIMEOUT_SECONDS).metadata.resource_version
        except APIError as error:
            logger.warning(
                "the resourceVersion of a bound Pod can't be read; Berth waits for its watch event: %s",
                error,
                extra={"decision": target.decision},
            )
            time.sleep(BIND_TIMEOUT_SECONDS)
            return ""


def _ask(pod: Pod, snapshot: Snapshot, counting: CompiledRuleSet, node_name: str, now: datetime) -> Answer:
    """Evaluate rules for one node; for none if the Snapshot doesn't have it."""
    rows = snapshot.table.rows([node_name])
    cycle = Cycle(pod=pod, snapshot=snapshot, now=now, params=counting.params)
    return decide(counting, cycle, rows[rows >= 0], scoring=False)
