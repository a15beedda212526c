"""The custom scheduler: one thread decides, others bind.

The deciding thread takes the Pod that is next, decides on the live Snapshot, and counts the Pod on its node from then on; it never
waits for the API server. Binding threads tell the API server, and what they hear goes back to the deciding thread. The watch has the
last word on where a Pod is: queue and Snapshot follow it, and a sweep mends what was missed.
"""

import logging
import queue as queues
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import msgspec
import numpy as np

from policies.engine.decision import CompiledRevision
from policies.engine.failures import Conditions
from policies.engine.objects.columns import label
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Rows
from policies.engine.selection import Preemption
from scheduler.binding.actions import (
    SCHEDULER_ERROR,
    UNSCHEDULABLE,
    Condition,
    Event,
    condition_of,
    failed_scheduling,
    scheduled,
    write_condition,
)
from scheduler.binding.cycle import BUDGETS, Placement, Rulebook, message_of, opens_at, wakes_of
from scheduler.binding.making_room import MakingRoom
from scheduler.binding.preempt import act, notes_of
from scheduler.binding.queue import NODE, POD_CAME, POD_GONE, REVISION, Queue, State, Waiting
from scheduler.cluster.binding import Outcome, Target, bind, binding_of
from scheduler.cluster.client import Client
from scheduler.cluster.courier import Courier, Parcel
from scheduler.cluster.errors import APIError
from scheduler.cluster.kinds import NAMESPACES, NODES, PODS
from scheduler.cluster.live import LiveSnapshot
from scheduler.cluster.reflection import Change, Changes
from scheduler.cluster.waiting import is_waiting
from scheduler.metrics import (
    BINDER_ATTEMPTS,
    BINDER_BINDINGS,
    BINDER_CYCLE_SECONDS,
    BINDER_PREEMPTIONS,
    BINDER_QUEUE,
    BINDER_SECONDS,
    BINDER_VICTIMS,
)

logger = logging.getLogger("berth.binding")

BINDING_THREADS = 4
"""Those that wait for answers: conditions, and bindings that were not simply confirmed."""
MOST_IN_FLIGHT = 128
"""Pods that are being bound at a time: more would only wait for the API server."""

BIND_TIMEOUT_SECONDS = 3.0
"""For each call: with the look-up afterwards well below the 5 s between a holder's last moment and the next one's first."""

SWEEP_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 0.5
"""How soon a binding is sent again of which nobody knows what became."""

_IDLE_SECONDS = 0.5
_PUBLISH_SECONDS = 0.5
_CORE = frozenset({NODES.name, PODS.name, NAMESPACES.name})


class Nomination(msgspec.Struct, frozen=True):
    """What `Loop.after_refusal` came to.

    Attributes:
        node: the node that is being made free for the Pod; "" for none.
        message: what is said behind the message of the refusal.
        notes: what the Decision says of it.
        wakes: what else can help the Pod now.
        preemption: who has to go for that; None for nobody.
    """

    node: str = ""
    message: str = ""
    notes: dict[str, Any] = {}
    wakes: frozenset[str] = frozenset()
    preemption: Preemption | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What the loop is doing, for pages. `pods`: those that wait, at most `Loop.shown` of them, the longest first."""

    counts: dict[str, int]
    in_flight: int
    pods: list[Waiting]
    now: float


Record = Callable[[Placement, float, dict[str, Any]], None]
"""Records a cycle: the placement, the seconds it took, notes. Called before anything is done about it."""


def _no_record(_placement: Placement, _seconds: float, _notes: dict[str, Any]) -> None:
    """Record nothing."""


def _nothing(_: bool) -> None:  # noqa: FBT001 - stands in for what is done with an outcome
    """Do nothing."""


class Loop:
    """The queue, the deciding thread and the binding threads.

    Args:
        client: to the API server.
        live: watches the cluster; its Pods are read as `scheduler.cluster.waiting` says.
        scheduler_names: whose Pods are scheduled.
        leads: says whether this process may bind; asked before each binding.
        courier: sends bindings.
        post: tells an event.
        record: records Decisions.
        conditions: what is away at the moment.
        node_label: key and value of the label that nodes must have to be used; None for all nodes.
        clock: monotonic seconds.
    """

    shown = 500

    def __init__(  # noqa: PLR0913 - what it acts on
        self,
        *,
        client: Client,
        live: LiveSnapshot,
        scheduler_names: Collection[str],
        leads: Callable[[], bool],
        courier: Courier,
        post: Callable[[Event], None],
        record: Record = _no_record,
        conditions: Callable[[], Conditions | None] = lambda: None,
        node_label: tuple[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._live = live
        self._names = frozenset(scheduler_names)
        self._leads = leads
        self._courier = courier
        self._post = post
        self._record = record
        self._conditions = conditions
        self._node_label = node_label
        self._clock = clock
        self._rules: Rulebook | None = None
        self._queue = Queue()
        self._inbox: deque[Callable[[float], None]] = deque()
        self._heard = threading.Event()
        self._work: queues.SimpleQueue[Callable[[], None] | None] = queues.SimpleQueue()
        self._in_flight: dict[str, str] = {}
        self._bound: set[str] = set()
        self._again: list[tuple[float, Placement]] = []
        self._conditions_written: dict[str, Condition] = {}
        self._nominations: dict[str, tuple[str, Pod]] = {}
        self._nominated: dict[str, list[Pod]] = {}
        self._room = MakingRoom()
        self._last_row = -1
        self._stopping = False
        self._swept_at = float("-inf")
        self._published_at = float("-inf")
        self.passes = 0
        """How often the state of the queue was published with every Pod decided on that was there before."""
        self.bound = 0
        """How many Pods this process has bound."""
        self.status = Status(counts={}, in_flight=0, pods=[], now=clock())
        self._decider = threading.Thread(target=self._run, name="berth-decider", daemon=True)
        self._binders = [
            threading.Thread(target=self._act, name=f"berth-binder-{number}", daemon=True)
            for number in range(BINDING_THREADS)
        ]
        live.observe(self._observe)

    def start(self) -> None:
        """Begin to schedule, as soon as there is a Revision, a Snapshot and the lead."""
        for thread in (*self._binders, self._decider):
            thread.start()

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """Decide on no more Pods, wait for the bindings that were sent, and end."""
        deadline = self._clock() + timeout_seconds
        self._stopping = True
        self._heard.set()
        self._decider.join(timeout_seconds)
        for _ in self._binders:
            self._work.put(None)
        for thread in self._binders:
            thread.join(max(0.0, deadline - self._clock()))

    def serve(self, revision: CompiledRevision) -> None:
        """Go by another Revision from the next Pod on. May be called by any thread."""
        rules = Rulebook(revision)

        def take_up(now: float) -> None:
            self._rules = rules
            self._queue.wake(REVISION, now)

        self._tell(take_up)

    def look(self) -> None:
        """Have the deciding thread look whether there is something to do: what it waited for may be there."""
        self._heard.set()

    # What comes from other threads

    def _tell(self, message: Callable[[float], None]) -> None:
        self._inbox.append(message)
        self._heard.set()

    def _observe(self, kind: str, changes: Changes[Any]) -> None:
        if kind == PODS.name:
            self._tell(lambda now: self._on_pods(changes.changes, now))
        elif kind == NODES.name:
            if any(_helps(change) for change in changes.changes):
                self._tell(lambda now: self._wake({NODE}, now))
        elif changes.changes or changes.replaced:
            self._tell(lambda now: self._wake({kind}, now))
        if changes.replaced:
            self._heard.set()

    def _on_pods(self, changes: Sequence[Change[Pod]], now: float) -> None:
        events: set[str] = set()
        for change in changes:
            pod = change.object
            if change.kind != "deleted" and is_waiting(pod, self._names):
                self._put(pod, now)
            else:
                self._let_go(change.key)
                _note_events(change, events)
        self._wake(events, now)

    def _put(self, pod: Pod, now: float) -> None:
        waiting = self._queue.put(pod, now)
        if waiting.nominated and waiting.state is not State.TAKEN:
            self._nominate(pod.uid, waiting.nominated, pod)

    def _let_go(self, uid: str) -> None:
        """Forget a Pod that doesn't wait any more."""
        self._bound.discard(uid)
        if self._queue.forget(uid):
            self._room.end(uid)
            self._conditions_written.pop(uid, None)
            self._nominate(uid, "")

    def _wake(self, events: Collection[str], now: float) -> None:
        for event in events:
            self._queue.wake(event, now)

    # The deciding thread

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except Exception:
                # The last guard of a thread that must not end: the sweep puts right what is left half done.
                logger.exception("scheduling broke off")
                self._swept_at = float("-inf")
                time.sleep(_IDLE_SECONDS)

    def _turn(self) -> None:
        self._heard.clear()
        now = self._clock()
        self._hear(now)
        if now - self._swept_at >= SWEEP_SECONDS and self._live.synced:
            self._sweep(now)
        if now - self._published_at >= _PUBLISH_SECONDS:
            self._publish(now)
        self._send_again(now)
        if self._may_decide():
            waiting = self._queue.take(now)
            if waiting is not None:
                self._decide(waiting, now)
                return
        self._heard.wait(self._pause(now))

    def _hear(self, now: float) -> None:
        while self._inbox:
            self._inbox.popleft()(now)

    def _may_decide(self) -> bool:
        return (
            self._rules is not None
            and len(self._in_flight) < MOST_IN_FLIGHT
            and self._live.synced
            and self._leads()
            and not self._is_away()
        )

    def _is_away(self) -> bool:
        """Tell whether the API server couldn't be watched when that was tried last."""
        return bool(self._live.failing() & _CORE)

    def _pause(self, now: float) -> float:
        moments = [now + _IDLE_SECONDS]
        if not self._is_away():
            moments += [at for at, _ in self._again]
        at = self._queue.next_at()
        if at is not None and self._may_decide():
            moments.append(at)
        return max(0.0, min(moments) - now)

    def _decide(self, waiting: Waiting, now: float) -> None:
        pod = waiting.pod
        started = time.perf_counter()
        placement = self._place(waiting)
        seconds = time.perf_counter() - started
        BINDER_CYCLE_SECONDS.observe(seconds)
        if placement is None:
            self._queue.retry(pod.uid, now)
        elif placement.row < 0:
            self._on_refusal(waiting, placement, seconds)
        else:
            self._last_row = placement.row
            self._live.assume(pod, placement.node)
            self._nominate(pod.uid, "")
            self._record(placement, seconds, {"node": placement.node})
            self._send(placement)
            BINDER_ATTEMPTS.labels("scheduled").inc()

    def _place(self, waiting: Waiting) -> Placement | None:
        """Decide on a Pod; None when that can't be done, which is said at the Pod."""
        if self._rules is None:
            return None
        snapshot = self._snapshot()
        try:
            return self._rules.place(
                waiting.pod,
                snapshot,
                self._rows(snapshot),
                now=datetime.now(UTC),
                after=self._last_row,
                conditions=self._conditions(),
                nominated=waiting.nominated,
            )
        except Exception:
            # A fault in one Pod's data, or in a rule: the others must go on.
            logger.exception("a Pod can't be decided on: %s/%s", waiting.pod.namespace, waiting.pod.name)
            BINDER_ATTEMPTS.labels("error").inc()
            message = "Berth could not decide on the Pod; its log says why"
            self._say(waiting, Condition(SCHEDULER_ERROR, message, waiting.nominated))
            return None

    def _snapshot(self) -> Snapshot:
        snapshot = self._live.snapshot()
        if snapshot.nominated is self._nominated or not self._nominated:
            return snapshot
        return snapshot.changed({}, nominated=self._nominated)

    def _rows(self, snapshot: Snapshot) -> Rows:
        table = snapshot.table
        if self._node_label is None:
            return table.all_rows()
        key, value = self._node_label
        column = label(table, key)
        return np.flatnonzero(column.codes == column.code_of.get(value, -1))

    def _nominate(self, uid: str, node_name: str, pod: Pod | None = None) -> None:
        """Note which node is kept free for a Pod that waits; "" for none."""
        known = self._nominations.pop(uid, None)
        if pod is not None and node_name:
            self._nominations[uid] = (node_name, pod)
        if known is None and not node_name:
            return
        nominated: dict[str, list[Pod]] = {}
        for name, other in self._nominations.values():
            nominated.setdefault(name, []).append(other)
        self._nominated = nominated

    # What becomes of a refused Pod

    def after_refusal(self, waiting: Waiting, placement: Placement) -> Nomination:
        """Do what can be done for a Pod that no node takes: this is where preemption comes in.

        Args:
            waiting: the Pod in the queue, with the node that was nominated for it before.
            placement: the cycle: `enforced` has the rule set and its Answer, `snapshot` what was decided on, with `nominated`.
        """
        found = self._room.search(placement, waiting.nominated)
        if found is None:
            return Nomination(node=waiting.nominated, wakes=BUDGETS | {POD_GONE})
        message = f"preemption: {found.reason}" if found.reason else ""
        if found.preemption is None:
            node = waiting.nominated if found.keeps_nomination else ""
            return Nomination(node=node, message=message, notes=notes_of(found))
        return Nomination(
            node=found.preemption.node, notes=notes_of(found), wakes=frozenset({POD_GONE}), preemption=found.preemption
        )

    def _make_room(self, waiting: Waiting, preemption: Preemption, condition: Condition) -> None:
        """Have the victims removed once the nomination is written, and let those that yield look elsewhere.

        So whoever takes over after a crash knows for whom they were removed, and removes no others.
        """
        pod = waiting.pod
        self._room.begin(pod, preemption)
        for other in preemption.yielding:
            yielding = self._queue.get(other.uid)
            if yielding is not None:
                yielding.nominated = ""
            self._nominate(other.uid, "")
            self._conditions_written.pop(other.uid, None)
        BINDER_PREEMPTIONS.labels("begun").inc()
        BINDER_VICTIMS.inc(len(preemption.victims))
        self._say(waiting, condition, lambda written: self._preempt(pod, preemption, written))

    def _preempt(self, pod: Pod, preemption: Preemption, written: bool) -> None:  # noqa: FBT001 - private
        done = False
        try:
            done = written and act(
                self._client, preemption, pod, pod.spec.scheduler_name, post=self._post, leads=self._leads
            )
        except APIError as error:
            logger.warning("a Pod can't be preempted for %s/%s: %s", pod.namespace, pod.name, error)
        finally:
            self._tell(lambda now: self._on_preempted(pod, preemption, done, now))

    def _on_preempted(self, pod: Pod, preemption: Preemption, done: bool, now: float) -> None:  # noqa: FBT001 - private
        if not done:
            BINDER_PREEMPTIONS.labels("failed").inc()
            self._room.end(pod.uid)
            waiting = self._queue.get(pod.uid)
            if waiting is not None and waiting.state is State.UNSCHEDULABLE:
                self._queue.retry(pod.uid, now)
        for other in preemption.yielding:
            self._queue.activate(other.uid, now)

    def _on_refusal(self, waiting: Waiting, placement: Placement, seconds: float) -> None:
        nomination = self.after_refusal(waiting, placement)
        self._record(placement, seconds, nomination.notes)
        message = message_of(placement)
        if nomination.message:
            message = f"{message} {nomination.message}"
        waiting.message = message
        waiting.nominated = nomination.node
        self._nominate(waiting.pod.uid, nomination.node, waiting.pod)
        now, at = self._clock(), opens_at(placement)
        opens = None if at is None else now + max(0.0, (at - datetime.now(UTC)).total_seconds())
        self._queue.refuse(waiting.pod.uid, now, wakes=wakes_of(placement) | nomination.wakes, opens_at=opens)
        BINDER_ATTEMPTS.labels("unschedulable").inc()
        condition = Condition(UNSCHEDULABLE, message, nomination.node)
        if nomination.preemption is None:
            self._say(waiting, condition)
        else:
            self._make_room(waiting, nomination.preemption, condition)

    def _say(self, waiting: Waiting, condition: Condition, then: Callable[[bool], None] = _nothing) -> None:
        """Write the condition and tell the event, when it isn't what the Pod says already.

        `then` is called by a thread that may wait, with whether the Pod says so now.
        """
        pod = waiting.pod
        said = self._conditions_written.get(pod.uid) or condition_of(pod)
        if is_said := said == condition:
            self._work.put(lambda: then(is_said))
            return
        self._conditions_written[pod.uid] = condition
        if said is None or said.message != condition.message:
            self._post(failed_scheduling(pod, condition.message, pod.spec.scheduler_name))
        self._work.put(lambda: then(self._write_condition(pod, condition)))

    def _write_condition(self, pod: Pod, condition: Condition) -> bool:
        if not self._leads():
            return False
        written = write_condition(self._client, pod, condition)
        if not written:
            self._tell(lambda _: self._unsay(pod.uid, condition))
        return written

    def _unsay(self, uid: str, condition: Condition) -> None:
        """Have a condition that could not be written be written after the next refusal."""
        if self._conditions_written.get(uid) == condition:
            del self._conditions_written[uid]

    # Binding

    def _send(self, placement: Placement) -> None:
        """Have a Pod bound. What isn't simply confirmed is looked into by the threads that may wait."""
        pod = placement.pod
        target = _target_of(placement)  # first: what it refuses must not count as being bound
        self._in_flight[pod.uid] = placement.node

        def done(status: int, _: bytes) -> None:
            if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
                self._tell(lambda now: self._on_outcome(placement, Outcome.BOUND, now))
            else:
                self._work.put(lambda: self._bind(placement))

        self._courier.send(Parcel(f"{target.path}/binding", binding_of(target), done, self._if_leading(placement)))

    def _if_leading(self, placement: Placement) -> Callable[[], bool]:
        def ready() -> bool:
            leads = self._leads()
            if not leads:
                self._tell(lambda now: self._on_not_leading(placement, now))
            return leads

        return ready

    def _act(self) -> None:
        while (task := self._work.get()) is not None:
            try:
                task()
            except Exception:
                logger.exception("what was to be told to the API server broke off")

    def _bind(self, placement: Placement) -> None:
        if not self._leads():
            self._tell(lambda now: self._on_not_leading(placement, now))
            return
        outcome = Outcome.UNKNOWN
        try:
            outcome = bind(self._client, _target_of(placement), timeout_seconds=BIND_TIMEOUT_SECONDS)
        finally:
            self._tell(lambda now: self._on_outcome(placement, outcome, now))

    def _on_not_leading(self, placement: Placement, now: float) -> None:
        uid = placement.pod.uid
        self._in_flight.pop(uid, None)
        self._live.forget(uid)
        self._retry(uid, now)

    def _on_outcome(self, placement: Placement, outcome: Outcome, now: float) -> None:
        pod, uid = placement.pod, placement.pod.uid
        if uid not in self._in_flight:
            return
        BINDER_BINDINGS.labels(outcome.value).inc()
        if outcome is Outcome.UNKNOWN:
            self._again.append((now + LOOK_AGAIN_SECONDS, placement))
            return
        del self._in_flight[uid]
        if outcome is Outcome.BOUND:
            self.bound += 1
            waiting = self._queue.get(uid)
            if waiting is not None:  # else it was seen on its node before
                self._bound.add(uid)
                BINDER_SECONDS.observe(now - waiting.first_at)
            self._post(scheduled(pod, placement.node, pod.spec.scheduler_name))
            return
        logger.info("a Pod was not bound: %s/%s, %s", pod.namespace, pod.name, outcome.value)
        self._live.forget(uid)
        if outcome is Outcome.GONE:
            self._let_go(uid)
        else:
            self._retry(uid, now)
            waiting = self._queue.get(uid)
            if outcome is Outcome.REFUSED and waiting is not None and waiting.pod is not pod:
                self._queue.activate(uid, now)  # it was changed since it was decided on
        self._queue.wake(POD_GONE, now)

    def _retry(self, uid: str, now: float) -> None:
        self._queue.retry(uid, now)
        waiting = self._queue.get(uid)
        if waiting is not None and waiting.nominated:
            self._nominate(uid, waiting.nominated, waiting.pod)

    def _send_again(self, now: float) -> None:
        """Send bindings again of which nobody knows what became. It is the same node, so it does no harm if it was done.

        While the API server is away none is sent: each would only be said to have failed again.
        """
        if self._again and not self._is_away():
            due = [placement for at, placement in self._again if at <= now]
            self._again = [(at, placement) for at, placement in self._again if at > now]
            for placement in due:
                self._send(placement)

    # What mends

    def _sweep(self, now: float) -> None:
        """Compare the queue with what the watch knows: nothing is lost for good by an event that was missed."""
        self._swept_at = now
        there = {pod.uid: pod for pod in self._live.pods() if is_waiting(pod, self._names)}
        for uid in [waiting.pod.uid for waiting in self._queue.waiting() if waiting.pod.uid not in there]:
            self._let_go(uid)
        for uid, pod in there.items():
            known = self._queue.get(uid)
            if known is None:
                self._put(pod, now)
            elif self._is_stuck(known, now):
                self._live.forget(uid)
                self._retry(uid, now)

    def _is_stuck(self, known: Waiting, now: float) -> bool:
        """Tell whether deciding on a Pod broke off. One that is bound is only not seen on its node yet, however long that takes."""
        uid = known.pod.uid
        being_bound = uid in self._in_flight or uid in self._bound
        return known.state is State.TAKEN and not being_bound and now - known.since > SWEEP_SECONDS

    def _publish(self, now: float) -> None:
        self._published_at = now
        counts = {state.value: number for state, number in self._queue.counts().items()}
        for state, number in counts.items():
            BINDER_QUEUE.labels(state).set(number)
        oldest = sorted(self._queue.waiting(), key=lambda waiting: waiting.first_at)[: self.shown]
        pods = [msgspec.structs.replace(waiting) for waiting in oldest]
        if self._swept_at > float("-inf") and self._may_decide():
            self.passes += 1
        self.status = Status(counts=counts, in_flight=len(self._in_flight), pods=pods, now=now)


def _target_of(placement: Placement) -> Target:
    """Say what is to be bound: the very version of the Pod that was decided on."""
    pod = placement.pod
    return Target(pod.namespace, pod.name, pod.uid, placement.node, pod.metadata.resource_version)


def _helps(change: Change[Node]) -> bool:
    """Tell whether a change of a node can help a Pod (k8s.io/kubernetes v1.36.3 framework/events.go)."""
    before, after = change.before, change.object
    if change.kind == "deleted" or before is None:
        return change.kind != "deleted"
    return (
        before.labels != after.labels
        or before.metadata.annotations != after.metadata.annotations
        or before.parsed.spec != after.parsed.spec
        or before.allocatable != after.allocatable
        or _conditions(before) != _conditions(after)
    )


def _conditions(node: Node) -> list[tuple[str, str]]:
    return [(found.type, found.status) for found in node.parsed.status.conditions or ()]


def _note_events(change: Change[Pod], events: set[str]) -> None:
    """Note what a change of a Pod can mean to others that wait."""
    pod, before = change.object, change.before
    if change.kind == "deleted" or not pod.is_live:
        if pod.spec.node_name or (before is not None and before.spec.node_name):
            events.add(POD_GONE)
        return
    if not pod.spec.node_name:
        return
    if before is None or not before.spec.node_name or before.labels != pod.labels:
        events.add(POD_CAME)
    elif before.requests != pod.requests:
        events.add(POD_GONE)
