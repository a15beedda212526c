"""The queue of the Pods that wait for Berth's own scheduler. Pure: time is an argument.

Pods are taken by priority, then by how long ago they arrived or were refused. A refused Pod waits until an event that can help it,
and at least until its backoff ends; a Pod whose binding failed waits for its backoff. An active Pod can be set aside until others
are bound. Source of the order and of the times:
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
# A refused Pod is retried after this time even if nothing happened.
LONGEST_WAIT_SECONDS = 300.0

# Further events that can help a refused Pod. The others are those of `policies.engine.rule`, kinds of objects by their names, and
# causes of `policies.engine.failures` that have ended.
REVISION = "revision"
# A Pod on a node changes in something that victims rules read: it may not be protected any more.
VICTIM = "victim"


class State(StrEnum):
    """Where a Pod is in the queue."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    # It is being decided on or bound right now.
    TAKEN = "taken"


class Waiting(msgspec.Struct):
    """A Pod in the queue.

    Attributes:
        pod: as last seen.
        since: when it entered its current state.
        tried_at: when it arrived or was last put back; the queue is ordered by this. So a requeued Pod comes before Pods
            that arrived after its refusal.
        attempts: how often it was refused, or could not be bound, since anything but its status changed.
        until: the end of its backoff.
        opens_at: for a refused Pod, the moment from which time alone may help it; None when it can't.
        requeued_by: the events that can help it.
        message: why it was refused last.
        first_at: when it arrived.
        nominated: its nominated node.
        denied: the nodes that denied its binding. Emptied when no other node is left, so that they are tried again.
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


# A Pod's negated priority and its `tried_at`, which are the order; then its `turn` at that moment, and its UID.
_Entry = tuple[int, float, int, str]


class Queue:
    """The Pods that wait. For one thread; all times are in seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._pods: dict[str, Waiting] = {}
        self._active: list[_Entry] = []
        self._aside: list[_Entry] = []
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
        """Return how many Pods are in each state."""
        return {state: self._counts[state] for state in State}

    def waiting(self) -> Iterator[Waiting]:
        """Return all Pods, in no order."""
        return iter(self._pods.values())

    def put(self, pod: Pod, now: float) -> Waiting:
        """Add a Pod that waits for a node, or update one that is in the queue already."""
        known = self._pods.get(pod.uid)
        if known is None:
            known = self._pods[pod.uid] = Waiting(pod, now, now, now, nominated=pod.parsed.status.nominated_node_name)
            self._counts[State.ACTIVE] += 1
            self._move(known, State.GATED if pod.is_gated else State.ACTIVE, now)
            return known
        before, known.pod = known.pod, pod
        nominated = pod.parsed.status.nominated_node_name
        if nominated != before.parsed.status.nominated_node_name:  # another leader changed it meanwhile, or a person
            known.nominated = nominated
        if known.state is State.GATED:
            if not pod.is_gated:
                self._move(known, State.ACTIVE, now)
        elif known.state is State.UNSCHEDULABLE and _differs(before, pod):
            known.attempts = 0
            self._move(known, State.ACTIVE, now)
        return known

    def forget(self, uid: str) -> bool:
        """Remove a Pod: it is bound, deleted, or another scheduler's. False when it isn't in the queue."""
        known = self._pods.pop(uid, None)
        if known is None:
            return False
        self._leave(known)
        self._counts[known.state] -= 1
        return True

    def take(self, now: float) -> Waiting | None:
        """Return the next Pod, None when none is ready. It stays in the queue, as TAKEN, until its outcome is known."""
        self._release(now)
        entry = self._first_of(self._active)
        if entry is None:
            return None
        found = self._pods[entry[-1]]
        self._move(found, State.TAKEN, now)
        return found

    def set_aside(self, known: Waiting, now: float) -> None:
        """Put back a Pod that was taken and not tried: it waits for `bring_back`, and keeps its place."""
        self._move(known, State.ACTIVE, now, aside=True)

    def bring_back(self) -> None:
        """Let the first of the Pods that were set aside be taken again."""
        entry = self._first_of(self._aside)
        if entry is not None:
            heapq.heappush(self._active, entry)

    def _first_of(self, heap: list[_Entry]) -> _Entry | None:
        while heap:
            entry = heapq.heappop(heap)
            *_, turn, uid = entry
            found = self._pods.get(uid)
            # Entries stay in the heap when their Pod changes state: their old turn shows that they are stale.
            if found is not None and found.turn == turn and found.state is State.ACTIVE:
                return entry
        return None

    def refuse(self, uid: str, now: float, *, requeued_by: Iterable[str], opens_at: float | None = None) -> None:
        """Put back an unschedulable Pod.

        Args:
            uid: the Pod.
            now: the current time.
            requeued_by: the events that can help it.
            opens_at: when time alone may help it.
        """
        known = self._attempted(uid, now)
        if known is None:
            return
        known.requeued_by = frozenset(requeued_by) | {REVISION}
        known.opens_at = opens_at
        self._move(known, State.GATED if known.pod.is_gated else State.UNSCHEDULABLE, now)

    def retry(self, uid: str, now: float) -> None:
        """Put back a Pod whose binding failed: it is retried after its backoff, whatever happens."""
        if known := self._attempted(uid, now):
            self._move(known, State.BACKOFF, now)

    def _attempted(self, uid: str, now: float) -> Waiting | None:
        """Count an attempt, and let the backoff begin; None for a Pod that isn't in the queue."""
        known = self._pods.get(uid)
        if known is not None:
            known.attempts += 1
            known.tried_at = now
            known.until = now + backoff_seconds(known.attempts)
        return known

    def requeue(self, event: str, now: float, *, refused_since: float = float("-inf")) -> int:
        """Requeue the refused Pods that an event can help, each after its backoff. Return how many.

        Args:
            event: what happened.
            now: the current time.
            refused_since: Pods that were refused before this time are not requeued.
        """
        waiting = [self._pods[uid] for uid in self._by_event.get(event, ())]
        requeued = [found for found in waiting if found.tried_at >= refused_since]
        for found in requeued:
            self._move(found, State.BACKOFF if now < found.until else State.ACTIVE, now)
        return len(requeued)

    def activate(self, uid: str, now: float) -> None:
        """Move a refused Pod to the active queue at once."""
        known = self._pods.get(uid)
        if known is not None and known.state in {State.UNSCHEDULABLE, State.BACKOFF}:
            self._move(known, State.ACTIVE, now)

    def next_at(self) -> float | None:
        """Return when the next Pod becomes ready by time alone; None when none does. A time in the past means now."""
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

    def _move(self, known: Waiting, state: State, now: float, *, aside: bool = False) -> None:
        self._leave(known)
        self._counts[known.state] -= 1
        self._counts[state] += 1
        self._turns += 1
        known.state, known.turn, known.since = state, self._turns, now
        if state is State.ACTIVE:
            # The heap's smallest entry comes first, so the highest priority does.
            heap = self._aside if aside else self._active
            heapq.heappush(heap, (-known.pod.priority, known.tried_at, known.turn, known.pod.uid))
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
    """Return the backoff of a Pod after this many attempts."""
    return min(FIRST_BACKOFF_SECONDS * 2.0 ** min(attempts - 1, 10), LONGEST_BACKOFF_SECONDS)


def _differs(before: Pod, after: Pod) -> bool:
    """Return whether anything but the status of a Pod changed."""
    return before.json.get("spec") != after.json.get("spec") or _meaning(before) != _meaning(after)


def _meaning(pod: Pod) -> tuple[object, ...]:
    """Return what else rules, Assignments and Exemptions look at. A controller may adopt a Pod after its creation."""
    metadata = pod.json.get("metadata") or {}
    return metadata.get("labels"), metadata.get("annotations"), metadata.get("ownerReferences")
