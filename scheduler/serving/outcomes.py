"""Records the outcomes of Pods as the watch shows them: that they got a node, and how they ended."""

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from policies.engine.objects.pod import DISRUPTED, Pod
from policies.engine.preemption.dry_run import BY_SCHEDULER
from scheduler.cluster.bind import decision_named
from scheduler.cluster.kinds import PODS
from scheduler.cluster.live import LiveSnapshot
from scheduler.cluster.reflection import Change, Changes
from scheduler.cluster.texts import stored
from scheduler.decisions.record import UNWATCHED, Outcome
from scheduler.decisions.recorder import Recorder
from scheduler.models import Outcome as OutcomeRow
from scheduler.models import PlacedPod

logger = logging.getLogger("berth.decisions")

_Kind = OutcomeRow.Kind

# Records of earlier processes are stored by then, in normal operation.
STORED_WITHIN = timedelta(seconds=15)


def record_outcomes(recorder: Recorder, kind: str, changes: Changes[Any]) -> None:
    """Record the outcomes that changes of Pods show; an observer of the live Snapshot."""
    if kind != PODS.name:
        return
    for change in changes.changes:
        awaited, now = recorder.awaits(change.key), datetime.now(UTC)
        try:
            for outcome in outcomes_of(change, is_awaited=awaited, now=now, was_watched=not changes.replaced):
                recorder.record_outcome(outcome)
        except Exception:
            # The watch must go on, whatever one Pod contains; the Pod's outcome is looked up later.
            logger.exception("the outcome of a Pod can't be recorded: %s", change.key)


class MissedEnds:
    """Finds the Pods that ended while no process watched: once, after a process has listed the cluster.

    Args:
        live: the process's Snapshot.
        recorder: records them.
        clock: returns the time.
    """

    def __init__(
        self, live: LiveSnapshot, recorder: Recorder, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._live = live
        self._recorder = recorder
        self._clock = clock
        self._started = clock()
        self._is_done = False
        # The UIDs in the first list: whatever became of these Pods since, this process watched it.
        self._listed: frozenset[str] | None = None
        live.observe(self._note_first_list)

    def _note_first_list(self, kind: str, changes: Changes[Any]) -> None:
        if kind == PODS.name and self._listed is None:
            self._listed = frozenset(change.key for change in changes.changes)

    def look(self) -> None:
        """Look once, when it is time; later calls do nothing.

        Raises:
            django.db.DatabaseError: the database is unavailable; the next call tries again.
        """
        if self._is_done or not self._live.synced or self._clock() - self._started < STORED_WITHIN:
            return
        # Bound before this process listed the Pods: a Pod that wasn't listed had ended by then.
        rows = list(PlacedPod.objects.filter(bound_at__lt=self._started).values_list())
        seen = {pod.uid for pod in self._live.pods()} | (self._listed or frozenset()) if rows else set()
        for uid, namespace, name, node_name, _ in rows:
            if uid not in seen:
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
        self._is_done, self._listed = True, frozenset()


def outcomes_of(change: Change[Pod], *, is_awaited: bool, now: datetime, was_watched: bool = True) -> Iterator[Outcome]:
    """Iterate over the outcomes that a Pod's change shows.

    Args:
        change: of the Pod.
        is_awaited: whether this process answered about the Pod, and hasn't recorded its node yet.
        now: when the change was seen.
        was_watched: whether an event showed the change, and not a new list after a watch that was broken off.
    """
    pod, before = change.object, change.before
    node_name = pod.spec.node_name
    was_waiting = before is not None and not before.spec.node_name
    # A process that missed the binding can't tell who bound the Pod; the one that answered about the Pod records its node.
    if node_name and (is_awaited or (was_waiting and change.kind != "deleted")):
        yield _outcome(pod, _Kind.BOUND, now, by=stored(pod.spec.scheduler_name), decision=_decision_of(pod, before))
    disruption = _disruption_of(pod)
    if change.kind == "deleted":
        yield _end(pod, disruption, now) if was_watched else _unwatched_end(pod, disruption, now)
    elif disruption and not pod.is_live and (before is None or before.is_live):
        yield _end(pod, disruption, now)  # the kubelet ended it; the object stays


def _end(pod: Pod, disruption: str, now: datetime) -> Outcome:
    if not pod.spec.node_name:
        return _outcome(pod, _Kind.UNBOUND, now)
    if disruption == BY_SCHEDULER:
        return _outcome(pod, _Kind.PREEMPTED, now, reason=disruption)
    if disruption:
        return _outcome(pod, _Kind.EVICTED, now, reason=disruption)
    # Terminated Pods aren't watched: the API server then sends "deleted", with the Pod's previous state.
    return _outcome(pod, _Kind.DELETED if pod.is_deleting else _Kind.ENDED, now)


def _unwatched_end(pod: Pod, disruption: str, now: datetime) -> Outcome:
    """Return the end of a Pod that a new list lacks: its last known state may be old, and says only what had begun by then."""
    if not pod.spec.node_name:
        return _outcome(pod, _Kind.GONE, now)  # it may have got a node meanwhile
    end = _end(pod, disruption, now)
    return msgspec.structs.replace(end, reason=UNWATCHED) if end.kind == _Kind.ENDED else end


def _disruption_of(pod: Pod) -> str:
    """Return why the Pod was disrupted, from its condition DisruptionTarget; "" without one."""
    conditions = (found for found in pod.parsed.status.conditions or () if found.type == DISRUPTED)
    return next((stored(found.reason) or DISRUPTED for found in conditions if found.status == "True"), "")


def _decision_of(pod: Pod, before: Pod | None) -> str:
    """Return the Decision that the binding names. An annotation from before the binding is a copy of another Pod's."""
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
