"""Berth's own scheduler: one thread decides, others act.

The deciding thread takes the next Pod, decides on the live Snapshot, counts the Pod on its node from then on, and has the Decision
recorded; it never waits for the API server. It hands the resulting calls over to `APICalls`, and handles their outcomes between two
Pods. The watch is authoritative on where a Pod is: queue and Snapshot follow it, and a sweep repairs whatever was missed.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from policies.engine.decision import CompiledRevision
from policies.engine.failures import Conditions, came_back
from policies.engine.objects.namespace import Namespace
from policies.engine.objects.node import Node, Path
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.preemption.dry_run import Preemption
from policies.engine.rule import NAMESPACE, NODE, NODE_GONE, POD_CAME, POD_GONE, POD_LEAVES
from policies.engine.scheduling import usable_rows
from scheduler.binder.actions import UNSCHEDULABLE, Condition, Event
from scheduler.binder.api_calls import APICalls, Message
from scheduler.binder.counted import CountedBindings
from scheduler.binder.cycle import BUDGETS, Placement, Profile, message_of, opens_at, requeued_by
from scheduler.binder.nominator import Nominator
from scheduler.binder.preemption_executor import notes_of
from scheduler.binder.queue import REVISION, VICTIM, Queue, State, Waiting
from scheduler.cluster.client import Client
from scheduler.cluster.dispatcher import Dispatcher
from scheduler.cluster.kinds import NAMESPACES, NODES, PODS
from scheduler.cluster.live import CORE_KINDS, LiveSnapshot
from scheduler.cluster.reflection import Change, Changes
from scheduler.cluster.waiting import is_waiting
from scheduler.decisions.spool import SpoolFullError
from scheduler.decisions.time_limit import TimeLimit
from scheduler.metrics import BINDER_ATTEMPTS, BINDER_CYCLE_SECONDS, BINDER_QUEUE, DEADLINE_MISSES, TOO_LARGE
from scheduler.trouble import Trouble

logger = logging.getLogger("berth.binding")

# The time limit of one Pod's rules, and of its preemption search: others wait meanwhile. Rules cost 1 s together at 5,000 nodes.
MOST_SECONDS = 5.0

# The most Pods that are being bound at a time: more would only wait for the API server.
MOST_IN_FLIGHT = 128

SWEEP_SECONDS = 10.0

_IDLE_SECONDS = 0.5
_PUBLISH_SECONDS = 0.5


class Nomination(msgspec.Struct, frozen=True):
    """The result of `Loop.after_refusal`.

    Attributes:
        node: the node that is being freed for the Pod; "" for none.
        message: text to append to the refusal's message.
        notes: the Decision's notes on the preemption.
        requeued_by: further events that can help the Pod now.
        preemption: the victims and their node; None when no Pod has to be removed.
        met_too_large: whether an object was too large for a rule about victims to be evaluated.
        is_cut_off: whether time was up before the search for victims ended.
    """

    node: str = ""
    message: str = ""
    notes: dict[str, Any] = {}
    requeued_by: frozenset[str] = frozenset()
    preemption: Preemption | None = None
    met_too_large: bool = False
    is_cut_off: bool = False


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What the loop is doing, for pages. `pods`: the Pods that wait, at most `Loop.shown` of them, the longest-waiting first.

    `last_node` is the node that this process picked last; "" for none.
    """

    counts: dict[str, int]
    in_flight: int
    pods: list[Waiting]
    now: float
    last_node: str = ""


UNRECORDED = "the Decision can't be recorded: no room on disk, as Berth's log says"

# Records a cycle: the placement, the seconds it took, notes. Called before the placement is acted on; returns the Decision's id.
# Raises SpoolFullError where there is no room for it, and nothing may be done without a record (BERTH_SPOOL_FULL).
Record = Callable[[Placement, float, dict[str, Any]], str]

# Notes that a Pod is about to be preempted: the preemptor, the id of the Decision, the victim. May be called by any thread.
Expect = Callable[[Pod, str, Pod], None]


class Loop:
    """The queue and the deciding thread, with the threads that make the API calls.

    Args:
        client: to the API server.
        live: watches the cluster; its Pods are read as `scheduler.cluster.waiting` says.
        scheduler_names: Pods with one of these in `schedulerName` are scheduled.
        leads: returns whether this process may bind; called before each binding.
        dispatcher: sends bindings.
        post: sends an event.
        post_again: sends once more the events that the API server didn't accept for now.
        record: records Decisions.
        expect: notes that a Pod is about to be preempted.
        deciding: a context manager around each Pod's cycle, so that background work gives way to it.
        conditions: returns the dependencies that are unavailable at the moment.
        counted: binds Pods whose rules count Pods, in step with other processes; None where there are no others.
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
        dispatcher: Dispatcher,
        post: Callable[[Event], None],
        post_again: Callable[[], None] = lambda: None,
        record: Record = lambda _placement, _seconds, _notes: "",
        expect: Expect = lambda _preemptor, _decision, _victim: None,
        deciding: Callable[[], AbstractContextManager[None]] = nullcontext,
        conditions: Callable[[], Conditions | None] = lambda: None,
        counted: CountedBindings | None = None,
        node_label: tuple[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._live = live
        self._names = frozenset(scheduler_names)
        self._leads = leads
        self._post_again = post_again
        self._record = record
        self._expect = expect
        self._deciding = deciding
        self._conditions = conditions
        # The conditions when they were last checked.
        self._known_conditions: Conditions | None = None
        self._node_label = node_label
        self._clock = clock
        self._profile: Profile | None = None
        self._inbox: deque[Message] = deque()
        self._heard = threading.Event()
        self._queue = Queue()
        self._nominator = Nominator()
        self._api_calls = APICalls(
            client=client,
            dispatcher=dispatcher,
            post=post,
            leads=leads,
            tell=self._tell,
            queue=self._queue,
            live=live,
            nominator=self._nominator,
            counted=counted,
        )
        self._last_node = ""
        self._unrecorded = Trouble()
        self._stopping = False
        self._swept_at = float("-inf")
        self._published_at = float("-inf")
        # How often the queue's state was published, with every Pod of the watch in it, while Pods could be decided on.
        self.passes = 0
        self.status = Status(counts={}, in_flight=0, pods=[], now=clock())
        self._decider = threading.Thread(target=self._run, name="berth-decider", daemon=True)
        live.observe(self._observe)

    def start(self) -> None:
        """Start scheduling as soon as there is a Revision and a Snapshot and this process leads."""
        self._api_calls.start()
        self._decider.start()

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """Decide on no more Pods, wait for the bindings that were sent, and end."""
        deadline = self._clock() + timeout_seconds
        self._stopping = True
        self._heard.set()
        self._decider.join(timeout_seconds)
        self._api_calls.stop(max(0.0, deadline - self._clock()))

    @property
    def bound(self) -> int:
        """How many Pods this process has bound."""
        return self._api_calls.bound

    def serve(self, revision: CompiledRevision) -> None:
        """Use another Revision from the next Pod on. May be called by any thread."""
        profile = Profile(revision)

        def take_up(now: float) -> None:
            self._profile = profile
            self._queue.requeue(REVISION, now)

        self._tell(take_up)

    def wake(self, uids: Collection[str]) -> None:
        """Retry refused Pods at once, regardless of their backoff. May be called by any thread."""

        def activate(now: float) -> None:
            for uid in uids:
                self._queue.activate(uid, now)

        self._tell(activate)

    def look(self) -> None:
        """Wake the deciding thread to check for work: what it waited for may be available."""
        self._heard.set()

    # Messages from other threads

    def _tell(self, message: Message) -> None:
        self._inbox.append(message)
        self._heard.set()

    def _observe(self, kind: str, changes: Changes[Any]) -> None:
        if kind == PODS.name:
            self._tell(lambda now: self._on_pods(changes.changes, now))
        elif kind == NODES.name:
            paths = self._profile.node_paths if self._profile is not None else frozenset[Path]()
            helping = [change for change in changes.changes if _helps(change, paths)]
            events = {NODE_GONE if change.kind == "deleted" else NODE for change in helping}
            if events:
                self._tell(lambda now: self._requeue(events, now))
        elif kind == NAMESPACES.name:
            if any(change.kind != "deleted" and _is_relabelled(change) for change in changes.changes):
                self._tell(lambda now: self._requeue({NAMESPACE}, now))
        elif changes.changes or changes.replaced:
            self._tell(lambda now: self._requeue({kind}, now))
        if changes.replaced:
            self._heard.set()

    def _on_pods(self, changes: Sequence[Change[Pod]], now: float) -> None:
        events: set[str] = set()
        for change in changes:
            pod = change.object
            if change.kind != "deleted" and is_waiting(pod, self._names):
                self._put(pod, now)
            else:
                if change.kind == "deleted" and self._api_calls.is_binding(change.key):
                    events.add(POD_GONE)  # the node that counted it may not be in `change`: it was never seen there
                self._api_calls.let_go(change.key)
                _note_events(change, events)
                self._let_nominated_try(_left_node(change), now)
        self._requeue(events, now)

    def _let_nominated_try(self, node_name: str, now: float) -> None:
        """Retry at once the Pods that are nominated to a node: during their backoff, another scheduler could fill it."""
        for pod in self._nominator.nominated.get(node_name, ()):
            self._queue.activate(pod.uid, now)

    def _put(self, pod: Pod, now: float) -> None:
        waiting = self._queue.put(pod, now)
        self._api_calls.note_said(pod)
        if waiting.state is not State.TAKEN:
            self._nominator.nominate(pod.uid, waiting.nominated, pod)

    def _requeue(self, events: Collection[str], now: float) -> None:
        for event in events:
            self._queue.requeue(event, now)

    # The deciding thread

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except Exception:
                # The last guard of a thread that must not end: the sweep repairs whatever is left half done.
                logger.exception("a scheduling cycle failed")
                self._swept_at = float("-inf")
                time.sleep(_IDLE_SECONDS)

    def _turn(self) -> None:
        # Before the inbox is read: a message that arrives meanwhile sets the event again, so the wait below ends at once.
        self._heard.clear()
        now = self._clock()
        self._hear(now)
        if self._nominator.gave_room_back():
            self._queue.requeue(POD_GONE, now)
        if now - self._swept_at >= SWEEP_SECONDS and self._live.synced:
            self._sweep(now)
        if now - self._published_at >= _PUBLISH_SECONDS:
            self._publish(now)
        # While the API server is unavailable no binding is resent: each would only fail again.
        if self._api_calls.again and not self._is_away():
            self._api_calls.send_again(now)
        if not (self._may_decide() and self._take_next(now)):
            self._heard.wait(self._pause(now))

    def _take_next(self, now: float) -> bool:
        """Decide on the next Pod, or set it aside; False when none is ready."""
        if self._api_calls.may_count:
            self._queue.bring_back()
        waiting = self._queue.take(now)
        if waiting is None:
            return False
        with self._deciding():
            if self._may_send(waiting.pod):
                self._decide_or_say(waiting, now)
            else:
                self._queue.set_aside(waiting, now)
        return True

    def _may_send(self, pod: Pod) -> bool:
        """Return whether a Pod, once decided on, can be bound soon. Pods whose rules count Pods are bound one after another."""
        if self._api_calls.may_count or self._profile is None:
            return True
        try:
            return not self._profile.counts_pods(pod, self._live.snapshot(), datetime.now(UTC))
        except Exception:
            # A fault in one Pod's data, which deciding on it will say: scheduling of other Pods must go on.
            logger.exception("whether rules count for Pod %s/%s is unknown", pod.namespace, pod.name)
            return True

    def _hear(self, now: float) -> None:
        while self._inbox:
            self._inbox.popleft()(now)

    def _may_decide(self) -> bool:
        return (
            self._profile is not None
            and self._api_calls.awaited < MOST_IN_FLIGHT
            and self._live.synced
            and self._leads()
            and not self._is_away()
        )

    def _is_away(self) -> bool:
        """Return whether the last attempt to watch the API server failed."""
        return bool(self._live.failing() & CORE_KINDS)

    def _pause(self, now: float) -> float:
        moments = [now + _IDLE_SECONDS]
        again_at = None if self._is_away() else self._api_calls.again_at()
        if again_at is not None:
            moments.append(again_at)
        at = self._queue.next_at()
        if at is not None and self._may_decide():
            moments.append(at)
        return max(0.0, min(moments) - now)

    def _decide_or_say(self, waiting: Waiting, now: float) -> None:
        try:
            self._decide(waiting, now)
        except SpoolFullError as error:
            # Nothing was done yet: a Decision is recorded before it is acted on.
            if self._unrecorded.is_news(str(error)):
                logger.error("Pods aren't scheduled, their Decisions can't be recorded: %s", error)  # noqa: TRY400 - no fault
            BINDER_ATTEMPTS.labels("error").inc()
            self._queue.retry(waiting.pod.uid, now)
            self._api_calls.say_error(waiting, UNRECORDED)
        else:
            self._unrecorded.end()

    def _decide(self, waiting: Waiting, now: float) -> None:
        pod = waiting.pod
        started = time.perf_counter()
        placement = self._place(waiting, now)
        seconds = time.perf_counter() - started
        BINDER_CYCLE_SECONDS.observe(seconds)
        if placement is None:
            self._queue.retry(pod.uid, now)
        elif placement.row < 0:
            self._on_refusal(waiting, placement, seconds)
        else:
            denied = {"denied": sorted(waiting.denied)} if waiting.denied else {}
            # On the spool before the binding that it tells of is sent.
            placement.decision = self._record(placement, seconds, {"node": placement.node, **denied})
            self._last_node = placement.node
            if placement.node in waiting.denied:  # no other one passes: all are tried again
                waiting.denied = frozenset()
            _count_undecided(placement)
            # Before the binding is sent: the next decision counts this Pod on its node.
            self._live.assume(pod, placement.node)
            self._nominator.nominate(pod.uid, "", placed_on=placement.node)
            self._api_calls.send(placement, now)
            BINDER_ATTEMPTS.labels("scheduled").inc()

    def _place(self, waiting: Waiting, now: float) -> Placement | None:
        """Decide on a Pod; None when that fails, which the Pod's condition then says."""
        if self._profile is None:
            return None
        snapshot = self._snapshot()
        try:
            return self._profile.place(
                waiting.pod,
                snapshot,
                usable_rows(snapshot.table, self._node_label),
                now=datetime.now(UTC),
                after=self._last_node,
                conditions=self._look_at_conditions(now),
                nominated=waiting.nominated,
                denied=waiting.denied,
                give_way=TimeLimit(MOST_SECONDS).give_way,
            )
        except Exception:
            # A fault in one Pod's data, or in a rule: scheduling of other Pods must go on.
            logger.exception("deciding on Pod %s/%s failed", waiting.pod.namespace, waiting.pod.name)
            BINDER_ATTEMPTS.labels("error").inc()
            self._api_calls.say_error(waiting, "Berth could not decide on the Pod; Berth's log says why")
            return None

    def _look_at_conditions(self, now: float) -> Conditions | None:
        """Return the unavailable dependencies, and requeue the Pods refused because of one that is available again."""
        before, self._known_conditions = self._known_conditions, self._conditions()
        if before is not None and self._known_conditions is not None:
            self._requeue(came_back(before, self._known_conditions), now)
        return self._known_conditions

    def _snapshot(self) -> Snapshot:
        snapshot = self._live.snapshot()
        nominated = self._nominator.nominated
        if snapshot.nominated is nominated or not nominated:
            return snapshot
        return snapshot.changed({}, nominated=nominated)

    # Refused Pods

    def after_refusal(self, waiting: Waiting, placement: Placement) -> Nomination:
        """Try to help an unschedulable Pod by preemption.

        Args:
            waiting: the Pod in the queue, with its previous nominated node.
            placement: the cycle: `enforced` has the rule set and its Answer, `snapshot` the cluster, with `nominated`.
        """
        give_way = TimeLimit(MOST_SECONDS).give_way
        found = self._nominator.search(placement, waiting.nominated, give_way, denied=waiting.denied)
        if found is None:
            return Nomination(node=waiting.nominated, requeued_by=BUDGETS | {POD_GONE})
        message = f"preemption: {found.reason}" if found.reason else ""
        if found.preemption is None:
            waiting.denied = frozenset()  # next time, these nodes are candidates again
            is_vetoed = any(veto.drops for veto in found.vetoes)
            return Nomination(
                node=waiting.nominated if found.keeps_nomination else "",
                message=message,
                notes=notes_of(found),
                requeued_by=frozenset({VICTIM} if is_vetoed else ()),
                met_too_large=found.met_too_large,
                is_cut_off=found.is_cut_off,
            )
        return Nomination(
            node=found.preemption.node,
            notes=notes_of(found),
            requeued_by=frozenset({POD_GONE}),
            preemption=found.preemption,
            met_too_large=found.met_too_large,
        )

    def _on_refusal(self, waiting: Waiting, placement: Placement, seconds: float) -> None:
        nomination = self.after_refusal(waiting, placement)
        decision = self._record(placement, seconds, nomination.notes)
        _count_undecided(placement, nomination)
        message = message_of(placement)
        if nomination.message:
            message = f"{message} {nomination.message}"
        waiting.message = message
        waiting.nominated = nomination.node
        self._nominator.nominate(waiting.pod.uid, nomination.node, waiting.pod)
        at = opens_at(placement)
        left = None if at is None else max(0.0, (at - datetime.now(UTC)).total_seconds())
        # Read last: a Pod retried a moment too early is refused once more, and then waits for its backoff.
        now = self._clock()
        opens = None if left is None else now + left
        self._queue.refuse(
            waiting.pod.uid, now, requeued_by=requeued_by(placement) | nomination.requeued_by, opens_at=opens
        )
        BINDER_ATTEMPTS.labels("unschedulable").inc()
        condition = Condition(UNSCHEDULABLE, message, nomination.node)
        if nomination.preemption is None:
            self._api_calls.say(waiting, condition)
        else:
            expect = partial(self._expect, waiting.pod, decision)
            self._api_calls.preempt(waiting, nomination.preemption, condition, expect)

    # Repairs

    def _sweep(self, now: float) -> None:
        """Compare the queue with the watch's Pods, so that no missed event has a lasting effect."""
        self._swept_at = now
        there = {pod.uid: pod for pod in self._live.pods() if is_waiting(pod, self._names)}
        for uid in [waiting.pod.uid for waiting in self._queue.waiting() if waiting.pod.uid not in there]:
            self._api_calls.let_go(uid)
        for uid, pod in there.items():
            known = self._queue.get(uid)
            if known is None:
                self._put(pod, now)
            elif self._is_stuck(known, now):
                self._api_calls.take_back(uid, now, placed_at=known.since)
        if not self._is_away():
            self._api_calls.say_again()
            self._post_again()

    def _is_stuck(self, known: Waiting, now: float) -> bool:
        """Return whether the decision on a Pod was aborted."""
        being_bound = self._api_calls.is_binding(known.pod.uid)
        return known.state is State.TAKEN and not being_bound and now - known.since > SWEEP_SECONDS

    def _publish(self, now: float) -> None:
        self._published_at = now
        self._look_at_conditions(now)
        counts = {state.value: number for state, number in self._queue.counts().items()}
        for state, number in counts.items():
            BINDER_QUEUE.labels(state).set(number)
        oldest = sorted(self._queue.waiting(), key=lambda waiting: waiting.first_at)[: self.shown]
        pods = [msgspec.structs.replace(waiting) for waiting in oldest]
        in_flight = len(self._api_calls.in_flight)
        self.status = Status(counts=counts, in_flight=in_flight, pods=pods, now=now, last_node=self._last_node)
        # Last: who sees that a pass is over looks at its state.
        if self._swept_at > float("-inf") and self._may_decide():
            self.passes += 1


def _helps(change: Change[Node], read: Collection[Path]) -> bool:
    """Return whether a node's change can help a Pod: as k8s.io/kubernetes v1.36.3 framework/events.go, or in a field rules read."""
    before, after = change.before, change.object
    return (
        change.kind == "deleted"
        or before is None
        or before.labels != after.labels
        or before.metadata.annotations != after.metadata.annotations
        or before.parsed.spec != after.parsed.spec
        or before.allocatable != after.allocatable
        or before.parsed.status.declared_features != after.parsed.status.declared_features
        or _conditions(before) != _conditions(after)
        or any(before.trace(path).token != after.trace(path).token for path in read)
    )


def _is_relabelled(change: Change[Namespace]) -> bool:
    before = change.before
    return before is None or before.metadata.labels != change.object.metadata.labels


def _conditions(node: Node) -> list[tuple[str, str]]:
    return [(found.type, found.status) for found in node.parsed.status.conditions or ()]


def _left_node(change: Change[Pod]) -> str:
    """Return the node that a Pod left; "" for none."""
    pod, before = change.object, change.before
    if change.kind != "deleted" and pod.is_live:
        return ""
    return pod.spec.node_name or (before.spec.node_name if before is not None else "")


def _note_events(change: Change[Pod], events: set[str]) -> None:
    """Add the events that a Pod's change can mean for other waiting Pods."""
    pod, before = change.object, change.before
    if change.kind == "deleted" or not pod.is_live:
        if _left_node(change):
            events.add(POD_GONE)
        return
    if not pod.spec.node_name:
        return
    if before is None or not before.spec.node_name or before.labels != pod.labels:
        events.add(POD_CAME)
    if before is not None and before.spec.node_name and before.requests != pod.requests:
        events.add(POD_GONE)
    if before is not None and pod.is_deleting and not before.is_deleting:
        events.add(POD_LEAVES)
    if before is not None and _as_victim(before) != _as_victim(pod):
        events.add(VICTIM)


def _as_victim(pod: Pod) -> tuple[object, ...]:
    """Return what victims rules can read of a Pod on a node and somebody can change, see `engine/objects/running.py`."""
    metadata, spec, status = pod.parsed.metadata, pod.spec, pod.parsed.status
    about = metadata.labels, metadata.annotations, metadata.owner_references, metadata.deletion_timestamp
    return *about, spec.containers, spec.init_containers, status.phase, status.start_time, status.qos_class


def _count_undecided(placement: Placement, nomination: Nomination | None = None) -> None:
    """Count once a cycle in which a rule wasn't evaluated: time was up, or an object exceeded the rule's cost estimate."""
    judged = placement.enforced
    if judged is None:
        return
    if judged.answer.missed or (nomination is not None and nomination.is_cut_off):
        DEADLINE_MISSES.labels(judged.rule_set.name).inc()
    if judged.answer.met_too_large or (nomination is not None and nomination.met_too_large):
        TOO_LARGE.labels(judged.rule_set.name).inc()
