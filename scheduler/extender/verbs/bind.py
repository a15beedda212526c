"""Answers /bind: binds the Pod, after rechecking the rules whose result other Pods can have changed since /filter.

Only rules that count Pods are rechecked, and only their Pods take a lock across replicas, so that every Pod that was bound under the
lock is counted, by whichever replica: see `scheduler.cluster.handover`.
"""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

import msgspec

from policies.engine.decision import Answer, CompiledRuleSet, decide
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from scheduler.cluster.bind import (
    BINDING_FAILED,
    BINDING_REFUSED,
    Outcome,
    Target,
    bind,
)
from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIError
from scheduler.cluster.handover import CALL_TIMEOUT_SECONDS, LOCK_WAIT_SECONDS, leave_version, sees_former_pods
from scheduler.cluster.lease_lock import Held, LeaseLock, LockBusyError
from scheduler.cluster.live import LiveSnapshot
from scheduler.extender.verbs.context import RequestContexts, has_other_labels
from scheduler.extender.verbs.in_flight import InFlight
from scheduler.metrics import BINDINGS

logger = logging.getLogger("berth.extender")

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
    Outcome.UNAUTHENTICATED: "the API server does not accept Berth's credentials",
}
# After these the binding may still be done, by this request or by one before.
_OPEN = {"", _ERRORS[Outcome.UNKNOWN], _ERRORS[Outcome.UNAUTHENTICATED]}
BUSY = "Berth could not get the lock for rules that count Pods; kube-scheduler tries again"
BEHIND = "Berth has not seen the Pods that were bound last; kube-scheduler tries again"
NO_LONGER = "a rule that counts Pods no longer allows the node; kube-scheduler tries again"
UNKNOWN_NODE = "Berth doesn't know the node yet; kube-scheduler tries again"
NOT_NOW = "Berth can't see the cluster well enough to count Pods; kube-scheduler tries again"
RELABELLED = "the Pod's Namespace got other labels meanwhile, so other rules may apply; kube-scheduler tries again"


class _RelabelledError(Exception):
    """The Pod's Namespace got other labels after its rule set was chosen."""


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


class _Asked(NamedTuple):
    """The arguments of `Binder.bind`, but for the rule set."""

    pod: Pod
    target: Target
    seen: Snapshot
    now: datetime
    record: Record


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
        self,
        pod: Pod,
        target: Target,
        rule_set: CompiledRuleSet | None,
        *,
        seen: Snapshot,
        now: datetime,
        record: Record,
    ) -> Bound:
        """Bind the Pod, or return why not.

        Args:
            pod: the Pod.
            target: the node to bind it to.
            rule_set: the rule set that applies; None for none.
            seen: the Snapshot by which it was chosen.
            now: the current time, as rules see it.
            record: called before the binding is sent, so that no Pod is bound without its Decision.
        """
        asked = _Asked(pod, target, seen, now, record)
        try:
            bound = self._bind_checked(asked, rule_set)
        except _RelabelledError:
            BINDINGS.labels("relabelled").inc()
            bound = Bound(RELABELLED)
        if bound.error not in _OPEN:
            self._in_flight.refused(target.uid)
        return bound

    def _bind_checked(self, asked: _Asked, rule_set: CompiledRuleSet | None) -> Bound:
        counting = rule_set.only_counting() if rule_set is not None else None
        if self._live.synced and not self._live.wait_for_nodes([asked.target.node_name], NODE_WAIT_SECONDS):
            # The API server accepts any node name: the Pod would never run, and nothing would retry.
            BINDINGS.labels("unknown_node").inc()
            return Bound(UNKNOWN_NODE)
        if counting is None or not counting.filters:
            return self._bind_uncounted(asked, counting)
        return self._bind_counted(asked, counting)

    def _snapshot(self, asked: _Asked) -> Snapshot:
        """Return the current Snapshot, which the Decision refers to: a replay chooses the same rule set by it.

        Raises:
            _RelabelledError: by its labels of the Pod's Namespace, another rule set may apply.
        """
        snapshot = self._live.snapshot()
        if has_other_labels(asked.pod.namespace, snapshot, asked.seen):
            raise _RelabelledError
        return snapshot

    def _bind_uncounted(self, asked: _Asked, counting: CompiledRuleSet | None) -> Bound:
        checked = Checked(self._snapshot(asked))
        if counting is not None:
            checked.answer = _ask(asked, checked.snapshot, counting)
        return self._bind(asked, checked)

    def _bind_counted(self, asked: _Asked, counting: CompiledRuleSet) -> Bound:
        action, cause = self._contexts.fallback(counting)
        if action != "decide":
            checked = Checked(self._snapshot(asked), fallback=action, cause=cause)
            return Bound(NOT_NOW, checked) if action == "refuse" else self._bind(asked, checked)
        try:
            with self._lock.hold(LOCK_WAIT_SECONDS) as held:
                return self._bind_held(asked, counting, held)
        except (LockBusyError, APIError) as error:
            logger.warning("the lock for rules that count Pods can't be acquired: %s", error)
            BINDINGS.labels("busy").inc()
            return Bound(BUSY)

    def _bind_held(self, asked: _Asked, counting: CompiledRuleSet, held: Held) -> Bound:
        if not sees_former_pods(self._client, self._live, held):
            BINDINGS.labels("behind").inc()
            return Bound(BEHIND)
        checked = self._count_again(asked, counting)
        if checked is None:
            return Bound(UNKNOWN_NODE)
        if checked.answer is not None and not checked.answer.feasible_count:
            BINDINGS.labels("no_longer").inc()
            return Bound(NO_LONGER, checked)
        if not self._lock.is_valid(held):
            return Bound(BUSY)
        bound = self._bind(asked, checked)
        if not bound.error:
            leave_version(self._client, msgspec.structs.replace(asked.target, decision=bound.decision), held)
        return bound

    def _count_again(self, asked: _Asked, counting: CompiledRuleSet) -> Checked | None:
        """Evaluate the counting rules for the one node, with every Pod on it that is bound or being bound."""
        binding = self._in_flight.placements(asked.pod.uid, only_binding=True)
        checked = Checked(self._snapshot(asked), assumed=binding)
        checked.answer = _ask(asked, checked.snapshot.assume_all(binding), counting)
        return checked if len(checked.answer.refusal) else None

    def _bind(self, asked: _Asked, checked: Checked) -> Bound:
        decision = asked.record(checked)
        self._in_flight.binding(asked.pod, asked.target.node_name)
        target = msgspec.structs.replace(asked.target, decision=decision)
        outcome = bind(self._client, target, timeout_seconds=CALL_TIMEOUT_SECONDS)
        BINDINGS.labels(outcome.value).inc()
        return Bound(_ERRORS[outcome], checked, decision)


def _ask(asked: _Asked, snapshot: Snapshot, counting: CompiledRuleSet) -> Answer:
    """Evaluate rules for one node; for none if the Snapshot doesn't have it."""
    rows = snapshot.table.rows([asked.target.node_name])
    cycle = Cycle(pod=asked.pod, snapshot=snapshot, now=asked.now, params=counting.params)
    return decide(counting, cycle, rows[rows >= 0], scoring=False)
