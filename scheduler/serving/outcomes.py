"""Records the outcomes of Pods as the watch shows them: that they got a node, and how they ended."""

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from policies.engine.objects.pod import DISRUPTED, Pod
from policies.engine.preemption.dry_run import BY_SCHEDULER
from scheduler.cluster.bind import decision_named
from scheduler.cluster.kinds import PODS
from scheduler.cluster.live import LiveSnapshot
from scheduler.cluster.reflection import Change, Changes
from scheduler.cluster.texts import stored
from scheduler.decisions.record import Outcome
from scheduler.decisions.recorder import Recorder
from scheduler.models import Outcome as OutcomeRow
from scheduler.models import PlacedPod

logger = logging.getLogger("berth.decisions")

_Kind = OutcomeRow.Kind

# The reason of an end that was found out later.
UNWATCHED = "nobody watched"
# What processes before this one have recorded is stored by then, while all is well.
STORED_WITHIN = timedelta(seconds=15)


def record_outcomes(recorder: Recorder, kind: str, changes: Changes[Any]) -> None:
    """Record what changes of Pods say of what became of them; an observer of the live Snapshot."""
    if kind != PODS.name:
        return
    for change in changes.changes:
        try:
            for outcome in outcomes_of(change, is_awaited=recorder.awaits(change.key), now=datetime.now(UTC)):
                recorder.record_outcome(outcome)
        except Exception:
            # The watch goes on, whatever one Pod holds; what became of it is looked for later.
            logger.exception("what became of a Pod can't be recorded: %s", change.key)


class MissedEnds:
    """Finds the Pods that ended while nobody watched: once, when a process has seen the cluster.

    Args:
        live: the process's Snapshot.
        recorder: records them.
        clock: gives the time.
    """

    def __init__(
        self, live: LiveSnapshot, recorder: Recorder, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._live = live
        self._recorder = recorder
        self._clock = clock
        self._started = clock()
        self._is_done = False

    def look(self) -> None:
        """Look, when it is time; nothing after the first time.

        Raises:
            django.db.DatabaseError: the database is away; the next look tries again.
        """
        if self._is_done or not self._live.synced or self._clock() - self._started < STORED_WITHIN:
            return
        # Bound before this process listed the Pods: one that isn't among them has ended.
        rows = list(PlacedPod.objects.filter(bound_at__lt=self._started).values_list())
        there = {pod.uid for pod in self._live.pods()} if rows else set()
        for uid, namespace, name, node_name, _ in rows:
            if uid not in there:
                self._recorder.record_outcome(
                    Outcome(
                        kind=_Kind.ENDED.value,
                        pod_uid=uid,
                        pod_namespace=namespace,
                        pod_name=name,
                        node_name=node_name,
                        at=self._clock(),
                        reason=UNWATCHED,
                    )
                )
        self._is_done = True


def outcomes_of(change: Change[Pod], *, is_awaited: bool, now: datetime) -> Iterator[Outcome]:
    """Iterate over what a change says of what became of a Pod.

    Args:
        change: of the Pod.
        is_awaited: whether this process answered about the Pod, and hasn't recorded yet where it went.
        now: when the change was seen.
    """
    pod, before = change.object, change.before
    node_name = pod.spec.node_name
    was_waiting = before is not None and not before.spec.node_name
    # Who comes late, and who missed the moment, can't tell who bound it; who answered about the Pod can say where it is.
    if node_name and (is_awaited or (was_waiting and change.kind != "deleted")):
        yield _outcome(pod, _Kind.BOUND, now, by=stored(pod.spec.scheduler_name), decision=_decision_of(pod, before))
    disruption = _disruption_of(pod)
    if change.kind == "deleted":
        yield _end(pod, disruption, now)
    elif disruption and not pod.is_live and (before is None or before.is_live):
        yield _end(pod, disruption, now)  # the kubelet ended it; the object stays


def _end(pod: Pod, disruption: str, now: datetime) -> Outcome:
    if not pod.spec.node_name:
        return _outcome(pod, _Kind.UNBOUND, now)
    if disruption == BY_SCHEDULER:
        return _outcome(pod, _Kind.PREEMPTED, now, reason=disruption)
    if disruption:
        return _outcome(pod, _Kind.EVICTED, now, reason=disruption)
    # Pods that have run to their end aren't watched: the API server then says "deleted", of the Pod as it was before.
    return _outcome(pod, _Kind.DELETED if pod.is_deleting else _Kind.ENDED, now)


def _disruption_of(pod: Pod) -> str:
    """Return why the Pod was made to go, as its condition DisruptionTarget says; "" where it doesn't."""
    conditions = (found for found in pod.parsed.status.conditions or () if found.type == DISRUPTED)
    return next((stored(found.reason) or DISRUPTED for found in conditions if found.status == "True"), "")


def _decision_of(pod: Pod, before: Pod | None) -> str:
    """Return the Decision that the binding names. What stood there before is a copy of another Pod's annotations."""
    named = decision_named(pod.parsed.metadata.annotations)
    return "" if before is not None and named == decision_named(before.parsed.metadata.annotations) else named


def _outcome(pod: Pod, kind: OutcomeRow.Kind, now: datetime, **more: Any) -> Outcome:
    return Outcome(
        kind=kind.value,
        pod_uid=pod.uid,
        pod_namespace=pod.namespace,
        pod_name=pod.name,
        node_name=pod.spec.node_name,
        at=now,
        **more,
    )
