"""Which Pod is next: the queue of the Pods that wait for Berth's own scheduler. Pure: time is an argument.

Pods are taken by priority, then by how long ago they came or were refused. One that was refused waits until something happens that can
help it, and at least as long as its backoff; so does one whose binding failed. Source of the order and of the times:
kube-scheduler v1.36.3 backend/queue/scheduling_queue.go and backoff_queue.go, framework/plugins/queuesort.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

from policies.engine.objects.pod import Pod

FIRST_BACKOFF_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 10.0
# A refused Pod is tried again after this time though nothing happened.
LONGEST_WAIT_SECONDS = 300.0

# What can help a refused Pod, besides the events of `policies.engine.rule`, kinds of objects by their names, and the causes of
# `policies.engine.failures` that are gone.
REVISION = "revision"


class State(StrEnum):
    """Where a Pod is in the queue."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    # It is decided or bound right now.
    TAKEN = "taken"


class Waiting(msgspec.Struct):
    """A Pod in the queue.

    Attributes:
        pod: as last seen.
        since: when it was put where it is.
        tried_at: when it came, or was put back last; what the order goes by. So a Pod that something helps comes before those
            that came after its refusal.
        attempts: how often it was refused, or could not be bound, since something else of it changed.
        until: the end of its backoff; for a refused one also the moment from which time alone may help it.
        requeued_by: what can help it.
        message: why it was refused last.
        first_at: when it came.
        nominated: the node that was made free for it.
        denied: the nodes to which its binding was denied, since it was last sent to one of these again.
    """

    pod: Pod
    since: float
    first_at: float
    tried_at: float
    state: State = State.ACTIVE
    attempts: int = 0
    until: float = 0.0
    opens_at: float | None = None
    requeued_by: frozenset[str] = frozenset()
    message: str = ""
    nominated: str = ""
    denied: frozenset[str] = frozenset()
    turn: int = 0


class Queue:
    """The Pods that wait. For one thread; every moment is in seconds of the same clock, which never goes back."""

    def __init__(self) -> None:
        self._pods: dict[str, Waiting] = {}
        self._active: list[tuple[int, float, int, str]] = []
        self._timed: list[tuple[float, int, str]] = []
        self._by_event: dict[str, dict[str, None]] = {}
        self._counts: Counter[State] = Counter()
        self._turns = 0

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: object) -> bool:
        return uid in self._pods

    def get(self, uid: str) -> Waiting | None:
        """Return a Pod that waits; None when there is none."""
        return self._pods.get(uid)

    def counts(self) -> dict[State, int]:
        """Return how many Pods are where."""
        return {state: self._counts[state] for state in State}

    def waiting(self) -> Iterator[Waiting]:
        """Return all Pods, in no order."""
        return iter(self._pods.values())

    def put(self, pod: Pod, now: float) -> Waiting:
        """Take in a Pod that waits for a node, or what has become of one that is here already."""
        known = self._pods.get(pod.uid)
        if known is None:
            known = self._pods[pod.uid] = Waiting(pod, now, now, now, nominated=pod.parsed.status.nominated_node_name)
            self._counts[State.ACTIVE] += 1
            self._move(known, State.GATED if pod.is_gated else State.ACTIVE, now)
            return known
        before, known.pod = known.pod, pod
        nominated = pod.parsed.status.nominated_node_name
        if nominated != before.parsed.status.nominated_node_name:  # by who led meanwhile, or by a person
            known.nominated = nominated
        if known.state is State.GATED:
            if not pod.is_gated:
                self._move(known, State.ACTIVE, now)
        elif known.state is State.UNSCHEDULABLE and _differs(before, pod):
            known.attempts = 0
            self._move(known, State.ACTIVE, now)
        return known

    def forget(self, uid: str) -> bool:
        """Let go of a Pod: it is bound, deleted, or another scheduler's. False when it isn't here."""
        known = self._pods.pop(uid, None)
        if known is None:
            return False
        self._leave(known)
        self._counts[known.state] -= 1
        return True

    def take(self, now: float) -> Waiting | None:
        """Return the Pod that is next, None when none is ready. It stays in the queue, as TAKEN, until something becomes of it."""
        self._release(now)
        while self._active:
            *_, turn, uid = heapq.heappop(self._active)
            found = self._pods.get(uid)
            # Entries stay in the heap when their Pod moves on: they are known by an old turn.
            if found is not None and found.turn == turn and found.state is State.ACTIVE:
                self._move(found, State.TAKEN, now)
                return found
        return None

    def refuse(self, uid: str, now: float, *, requeued_by: Iterable[str], opens_at: float | None = None) -> None:
        """Put back a Pod that no node takes.

        Args:
            uid: the Pod.
            now: the moment.
            requeued_by: what can help it.
            opens_at: when time alone may help it.
        """
        known = self._pods.get(uid)
        if known is None:
            return
        known.attempts += 1
        known.tried_at = now
        known.until = now + backoff_seconds(known.attempts)
        known.requeued_by = frozenset(requeued_by) | {REVISION}
        known.opens_at = opens_at
        self._move(known, State.GATED if known.pod.is_gated else State.UNSCHEDULABLE, now)

    def retry(self, uid: str, now: float) -> None:
        """Put back a Pod whose binding failed: it is tried again after its backoff, whatever happens."""
        known = self._pods.get(uid)
        if known is None:
            return
        known.attempts += 1
        known.tried_at = now
        known.until = now + backoff_seconds(known.attempts)
        self._move(known, State.BACKOFF, now)

    def requeue(self, event: str, now: float, *, refused_since: float = float("-inf")) -> int:
        """Let the refused Pods be tried again that an event can help, each after its backoff. Return how many.

        Args:
            event: what happened.
            now: the moment.
            refused_since: those that were refused before it aren't helped.
        """
        waiting = [self._pods[uid] for uid in self._by_event.get(event, ())]
        requeued = [found for found in waiting if found.tried_at >= refused_since]
        for found in requeued:
            self._move(found, State.BACKOFF if now < found.until else State.ACTIVE, now)
        return len(requeued)

    def activate(self, uid: str, now: float) -> None:
        """Let a refused Pod be tried again at once."""
        known = self._pods.get(uid)
        if known is not None and known.state in {State.UNSCHEDULABLE, State.BACKOFF}:
            self._move(known, State.ACTIVE, now)

    def next_at(self) -> float | None:
        """Return when a Pod becomes ready by time alone; None when none does. A moment that is past means now."""
        while self._timed:
            at, turn, uid = self._timed[0]
            found = self._pods.get(uid)
            if found is not None and found.turn == turn:
                return at
            heapq.heappop(self._timed)
        return None

    def _release(self, now: float) -> None:
        while (at := self.next_at()) is not None and at <= now:
            _, _, uid = heapq.heappop(self._timed)
            self._move(self._pods[uid], State.ACTIVE, now)

    def _move(self, known: Waiting, state: State, now: float) -> None:
        self._leave(known)
        self._counts[known.state] -= 1
        self._counts[state] += 1
        self._turns += 1
        known.state, known.turn, known.since = state, self._turns, now
        if state is State.ACTIVE:
            # The smallest comes first, so the highest priority does.
            heapq.heappush(self._active, (-known.pod.priority, known.tried_at, known.turn, known.pod.uid))
        elif state is State.BACKOFF:
            heapq.heappush(self._timed, (known.until, known.turn, known.pod.uid))
        elif state is State.UNSCHEDULABLE:
            self._await(known, now)

    def _await(self, known: Waiting, now: float) -> None:
        for event in known.requeued_by:
            self._by_event.setdefault(event, {})[known.pod.uid] = None
        at = now + LONGEST_WAIT_SECONDS
        if known.opens_at is not None:
            at = min(at, max(known.opens_at, known.until))
        heapq.heappush(self._timed, (at, known.turn, known.pod.uid))

    def _leave(self, known: Waiting) -> None:
        if known.state is State.UNSCHEDULABLE:
            for event in known.requeued_by:
                uids = self._by_event.get(event)
                if uids is not None:
                    uids.pop(known.pod.uid, None)


def backoff_seconds(attempts: int) -> float:
    """Return how long a Pod waits at least after so many attempts."""
    return min(FIRST_BACKOFF_SECONDS * 2.0 ** min(attempts - 1, 10), LONGEST_BACKOFF_SECONDS)


def _differs(before: Pod, after: Pod) -> bool:
    """Return whether anything but the status of a Pod changed."""
    return before.json.get("spec") != after.json.get("spec") or _meaning(before) != _meaning(after)


def _meaning(pod: Pod) -> tuple[object, object]:
    metadata = pod.json.get("metadata") or {}
    return metadata.get("labels"), metadata.get("annotations")
