"""What follows from a decision: bindings, conditions and preemptions on their way to the API server, and what becomes of them.

The deciding thread hands them over here and never waits. The dispatcher sends bindings; threads that may wait write conditions, remove
Pods, and look into bindings that were not simply confirmed. What they hear goes back to the deciding thread, by `tell`: it alone
changes the queue and what is under way.
"""

import heapq
import logging
import queue as queues
import threading
import time
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from itertools import count, islice
from typing import NamedTuple

from policies.engine.objects.pod import Pod
from policies.engine.preemption.dry_run import Preemption
from policies.engine.rule import POD_GONE
from scheduler.binder.actions import (
    SCHEDULER_ERROR,
    Condition,
    Event,
    condition_of,
    failed_scheduling,
    scheduled,
    write_condition,
)
from scheduler.binder.cycle import Placement
from scheduler.binder.nominator import Nominator
from scheduler.binder.preemption_executor import RemovalRefusedError, act
from scheduler.binder.queue import Queue, State, Waiting
from scheduler.cluster.bind import (
    BINDING_FAILED,
    BINDING_REFUSED,
    BINDING_UNCONFIRMED,
    Outcome,
    Target,
    bind,
    binding_of,
    look_up,
)
from scheduler.cluster.client import Client
from scheduler.cluster.dispatcher import CONNECTIONS, UNANSWERED, APIRequest, Dispatcher
from scheduler.cluster.errors import APIError, APIUnavailableError
from scheduler.cluster.live import LiveSnapshot
from scheduler.metrics import BINDER_BINDINGS, BINDER_PREEMPTIONS, BINDER_SECONDS, BINDER_VICTIMS

logger = logging.getLogger("berth.binding")

# Those that wait for answers: conditions, and bindings that were not simply confirmed.
BINDING_THREADS = 4

# For each call: with the look-up afterwards well below the 5 s between a holder's last moment and the next one's first.
BIND_TIMEOUT_SECONDS = 3.0

# How soon a binding is sent again of which nobody knows what became; twice as long after each time, up to the longest.
# One that hangs for an admission webhook takes a connection each time.
LOOK_AGAIN_SECONDS = 0.5
LONGEST_AGAIN_SECONDS = 8.0
# So many are sent again at a time: half of the dispatcher's connections are left to the others. Once so many Pods of a namespace
# hang, its others are sent among them.
MOST_AGAIN = CONNECTIONS // 2
# So many conditions are sent again at a time: where a webhook is away that they have to pass, none of them gets through.
MOST_SAID_AGAIN = 100
# What isn't answered so often hangs; once it may only be lost.
_HANGS = 2
# So often until it is told: an API server that is overloaded for a moment needn't be sent an event of each Pod as well.
_TELLS = 4

# Of how many nodes that denied it a Pod is kept away: where there are more, it's not about nodes.
_MOST_DENIED = 100

# What is said of a Pod whose binding won't be done as it is, though nothing of the Pod has changed.
_NOT_DONE = {Outcome.DENIED: BINDING_REFUSED, Outcome.FAILED: BINDING_FAILED}

# What the deciding thread is to do; it is called with the moment.
Message = Callable[[float], None]


def _nothing(_: bool) -> None:  # noqa: FBT001 - stands in for what is done with an outcome
    """Do nothing."""


class _Binding(NamedTuple):
    """A Pod on its way to a node. Not the Placement, whose Snapshot has all nodes: one that hangs is kept for long."""

    pod: Pod
    target: Target
    node_uid: str
    decided_at: float


class APICalls:
    """What is under way for Pods that were decided on. All that is public is for the deciding thread.

    Args:
        client: to the API server.
        dispatcher: sends bindings.
        post: tells an event.
        leads: says whether this process may act; asked before each act.
        tell: hands a message to the deciding thread.
        queue: the Pods that wait.
        live: where they are counted.
        nominator: the nodes that are made free for them, and for whom.
    """

    def __init__(
        self,
        *,
        client: Client,
        dispatcher: Dispatcher,
        post: Callable[[Event], None],
        leads: Callable[[], bool],
        tell: Callable[[Message], None],
        queue: Queue,
        live: LiveSnapshot,
        nominator: Nominator,
    ) -> None:
        self._client = client
        self._dispatcher = dispatcher
        self._post = post
        self._leads = leads
        self._tell = tell
        self._queue = queue
        self._live = live
        self._nominator = nominator
        self._work: queues.SimpleQueue[Callable[[], None] | None] = queues.SimpleQueue()
        self._unseen: set[str] = set()
        self._conditions_written: dict[str, Condition] = {}
        # Those that couldn't be written for now, by the Pod's UID.
        self._unwritten: dict[str, Condition] = {}
        # What was told last of each Pod that waits, whether or not its condition could be written.
        self._told: dict[str, str] = {}
        # The Pods that are being bound, by UID, each with its node.
        self.in_flight: dict[str, str] = {}
        # Bindings of which nobody knows what became, each with when to send it again and a number of its own: a heap.
        self.again: list[tuple[float, int, _Binding]] = []
        self._numbers = count()
        # How often each was sent of which that isn't known, by the Pod's UID; and how many of a namespace's Pods hang.
        self._unknown: Counter[str] = Counter()
        self._hanging: Counter[str] = Counter()
        self._sent_again: set[str] = set()
        # How many Pods this process has bound.
        self.bound = 0
        self._threads = [
            threading.Thread(target=self._run, name=f"berth-binder-{number}", daemon=True)
            for number in range(BINDING_THREADS)
        ]

    def start(self) -> None:
        """Start the threads that may wait."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_seconds: float) -> None:
        """Let the threads finish what they were given, and end."""
        deadline = time.monotonic() + timeout_seconds
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while (task := self._work.get()) is not None:
            try:
                task()
            except Exception:
                logger.exception("what was to be told to the API server broke off")

    # Bindings

    def send(self, placement: Placement, now: float) -> None:
        """Bind a Pod. What isn't simply confirmed is looked into by the threads that may wait."""
        # First: what it refuses must not count as being bound.
        binding = _Binding(placement.pod, _target_of(placement), placement.node_uid, now)
        if self._hanging[placement.pod.namespace] < MOST_AGAIN:
            self._send(binding)
        else:  # it would hang as well, most likely, and take a connection from others
            self.in_flight[placement.pod.uid] = placement.node
            self._send_later(binding, now)

    def _send(self, binding: _Binding, *, may_be_done: bool = False) -> None:
        """Send a binding; `may_be_done` says that it was sent before, and nobody knows what became of that."""
        target = binding.target
        self.in_flight[binding.pod.uid] = target.node_name

        def done(status: int, _: bytes) -> None:
            if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
                self._tell(lambda now: self._on_outcome(binding, Outcome.BOUND, now))
            elif status == HTTPStatus.TOO_MANY_REQUESTS:
                # Nothing was done. To ask at once again, and look, would be two more requests of a server that has too many.
                self._tell(lambda now: self._on_outcome(binding, Outcome.UNKNOWN, now, request.retry_after_seconds))
            elif status == UNANSWERED:
                self._work.put(lambda: self._look_into(binding, look_up))
            else:
                self._work.put(lambda: self._look_into(binding, bind))

        request = APIRequest(
            f"{target.path}/binding", binding_of(target), done, self._if_leading(binding, may_be_done=may_be_done)
        )
        self._dispatcher.send(request)

    def send_again(self, now: float) -> None:
        """Send bindings again of which nobody knows what became. It is the same node, so it does no harm if it was done.

        Where the node went meanwhile, or another has its name, the Pod is decided on anew: there is no room to be kept any more.
        """
        while self.again and self.again[0][0] <= now and len(self._sent_again) < MOST_AGAIN:
            *_, binding = heapq.heappop(self.again)
            if self._live.node_uid(binding.target.node_name) != binding.node_uid:
                self._no_longer_in_flight(binding.pod)
                self.take_back(binding.pod.uid, now)
                continue
            self._sent_again.add(binding.pod.uid)
            self._send(binding, may_be_done=True)

    def again_at(self) -> float | None:
        """Return when the next binding is to be sent again; None when that depends on an answer."""
        return self.again[0][0] if self.again and len(self._sent_again) < MOST_AGAIN else None

    def _send_later(self, binding: _Binding, at: float) -> None:
        heapq.heappush(self.again, (at, next(self._numbers), binding))

    @property
    def awaited(self) -> int:
        """How many bindings are on their way; without those that are sent again later, which hang or were lost."""
        return len(self.in_flight) - len(self.again)

    def _no_longer_in_flight(self, pod: Pod) -> None:
        self.in_flight.pop(pod.uid, None)
        if self._unknown.pop(pod.uid, 0) >= _HANGS:
            self._hanging[pod.namespace] -= 1
            self._hanging = +self._hanging  # without those of which none hangs any more

    def is_binding(self, uid: str) -> bool:
        """Return whether a Pod is being bound, or is bound and only not seen on its node yet, however long that takes."""
        return uid in self.in_flight or uid in self._unseen

    def take_back(self, uid: str, now: float) -> None:
        """Forget a Pod's assumed placement, and try the Pod again."""
        self._live.forget(uid)
        self._queue.retry(uid, now)
        waiting = self._queue.get(uid)
        if waiting is not None and waiting.nominated:
            self._nominator.nominate(uid, waiting.nominated, waiting.pod)

    def let_go(self, uid: str) -> None:
        """Forget a Pod that doesn't wait any more."""
        self._unseen.discard(uid)
        if self._queue.forget(uid):
            self._conditions_written.pop(uid, None)
            self._unwritten.pop(uid, None)
            self._told.pop(uid, None)
            self._nominator.forget(uid)

    def _if_leading(self, binding: _Binding, *, may_be_done: bool) -> Callable[[], bool]:
        def ready() -> bool:
            leads = self._leads()
            if not leads:
                self._tell(lambda now: self._on_not_leading(binding, now, may_be_done=may_be_done))
            return leads

        return ready

    def _look_into(self, binding: _Binding, find_out: Callable[..., Outcome]) -> None:
        if not self._leads():
            self._tell(lambda now: self._on_not_leading(binding, now, may_be_done=True))
            return
        outcome = Outcome.UNKNOWN
        try:
            outcome = find_out(self._client, binding.target, timeout_seconds=BIND_TIMEOUT_SECONDS)
        finally:
            self._tell(lambda now: self._on_outcome(binding, outcome, now))

    def _on_not_leading(self, binding: _Binding, now: float, *, may_be_done: bool) -> None:
        uid = binding.pod.uid
        self._sent_again.discard(uid)
        if may_be_done and uid in self._queue:
            # The API server may have the Pod on its node, and the watch may be late. Were it counted there no more, its room
            # would be used twice by this process, once it leads again.
            self._send_later(binding, now + LOOK_AGAIN_SECONDS)
            return
        self._no_longer_in_flight(binding.pod)
        self.take_back(uid, now)

    def _on_outcome(self, binding: _Binding, outcome: Outcome, now: float, retry_after_seconds: float = 0.0) -> None:
        uid = binding.pod.uid
        self._sent_again.discard(uid)
        # Taken back meanwhile, since this process doesn't lead any more.
        if uid not in self.in_flight:
            return
        BINDER_BINDINGS.labels(outcome.value).inc()
        if outcome is Outcome.UNKNOWN:
            self._on_unknown(binding, now, retry_after_seconds)
            return
        self._no_longer_in_flight(binding.pod)
        if outcome is Outcome.BOUND:
            self._on_bound(binding, now)
        else:
            self._on_not_bound(binding, outcome, now)

    def _on_unknown(self, binding: _Binding, now: float, retry_after_seconds: float) -> None:
        pod, uid = binding.pod, binding.pod.uid
        wait = max(min(LOOK_AGAIN_SECONDS * 2.0 ** self._unknown[uid], LONGEST_AGAIN_SECONDS), retry_after_seconds)
        self._unknown[uid] = min(self._unknown[uid] + 1, 10)
        if self._unknown[uid] == _HANGS:
            self._hanging[pod.namespace] += 1
        waiting = self._queue.get(uid)
        if self._unknown[uid] == _TELLS and waiting is not None:
            # No condition: the Pod may be bound in the same moment, and would say that it isn't.
            waiting.message = BINDING_UNCONFIRMED
            self._post(failed_scheduling(pod, BINDING_UNCONFIRMED, pod.spec.scheduler_name))
        self._send_later(binding, now + wait)

    def _on_bound(self, binding: _Binding, now: float) -> None:
        pod = binding.pod
        self.bound += 1
        waiting = self._queue.get(pod.uid)
        if waiting is not None:  # else it was seen on its node before
            self._unseen.add(pod.uid)
            BINDER_SECONDS.observe(now - waiting.first_at)
        self._post(scheduled(pod, binding.target.node_name, pod.spec.scheduler_name))

    def _on_not_bound(self, binding: _Binding, outcome: Outcome, now: float) -> None:
        pod, uid = binding.pod, binding.pod.uid
        logger.info(
            "a Pod was not bound: %s/%s, %s",
            pod.namespace,
            pod.name,
            outcome.value,
            extra={"decision": binding.target.decision},
        )
        if outcome is Outcome.GONE:
            self._live.forget(uid)
            self.let_go(uid)
        else:
            self.take_back(uid, now)
            waiting = self._queue.get(uid)
            if outcome is Outcome.REFUSED and waiting is not None and waiting.pod is not pod:
                self._queue.activate(uid, now)  # it was changed since it was decided on
            elif outcome in _NOT_DONE and waiting is not None:
                if outcome is Outcome.DENIED and len(waiting.denied) < _MOST_DENIED:
                    waiting.denied |= {binding.target.node_name}
                waiting.message = _NOT_DONE[outcome]
                self.say(waiting, Condition(SCHEDULER_ERROR, _NOT_DONE[outcome], waiting.nominated))
        # What was refused before the Pod had the room finds nothing that wasn't there then.
        self._queue.requeue(POD_GONE, now, refused_since=binding.decided_at)

    # Conditions

    def say(self, waiting: Waiting, condition: Condition, then: Callable[[bool], None] = _nothing) -> None:
        """Write the condition and tell the event, when it isn't what the Pod says already.

        `then` is called by a thread that may wait, with whether the Pod says so now.
        """
        pod = waiting.pod
        self._unwritten.pop(pod.uid, None)
        said = self._conditions_written.get(pod.uid) or condition_of(pod)
        if is_said := said == condition:
            self._work.put(lambda: then(is_said))
            return
        self._conditions_written[pod.uid] = condition
        if self._told.get(pod.uid, said.message if said else None) != condition.message:
            self._told[pod.uid] = condition.message
            self._post(failed_scheduling(pod, condition.message, pod.spec.scheduler_name))
        self._work.put(lambda: then(self._write_condition(pod, condition)))

    def say_again(self) -> None:
        """Write the conditions that couldn't be written, of the Pods that would else say nothing until their next refusal."""
        if not self._work.empty():  # once the threads have nothing else to do
            return
        for uid in list(islice(self._unwritten, MOST_SAID_AGAIN)):
            condition, waiting = self._unwritten.pop(uid), self._queue.get(uid)
            if waiting is not None and waiting.state is State.UNSCHEDULABLE:
                self.say(waiting, condition)

    def note_said(self, pod: Pod) -> None:
        """Go by what a Pod says itself once what was written is seen at it: others may overwrite that."""
        said = self._conditions_written.get(pod.uid)
        if said is not None and said == condition_of(pod):
            del self._conditions_written[pod.uid]

    def _write_condition(self, pod: Pod, condition: Condition) -> bool:
        if not self._leads():
            return False
        may_be_written_later = False
        try:
            written = write_condition(self._client, pod, condition)
        except APIUnavailableError:
            written, may_be_written_later = False, True
        if not written:
            self._tell(lambda _: self._unsay(pod.uid, condition, may_be_written_later=may_be_written_later))
        return written

    def _unsay(self, uid: str, condition: Condition, *, may_be_written_later: bool) -> None:
        """Write a condition that could not be written after the next refusal, or by the next `say_again`."""
        if self._conditions_written.get(uid) == condition:
            del self._conditions_written[uid]
            if may_be_written_later:
                self._unwritten[uid] = condition

    # Preemptions

    def preempt(self, waiting: Waiting, preemption: Preemption, condition: Condition) -> None:
        """Remove the victims once the nomination is written, and let those that yield look elsewhere.

        So whoever takes over after a crash knows for whom they were removed, and removes no others.
        """
        pod = waiting.pod
        self._nominator.begin(pod, preemption)
        for other in preemption.yielding:
            yielding = self._queue.get(other.uid)
            if yielding is not None:
                yielding.nominated = ""
            self._nominator.nominate(other.uid, "")
            self._conditions_written.pop(other.uid, None)
        BINDER_PREEMPTIONS.labels("begun").inc()
        BINDER_VICTIMS.inc(len(preemption.victims))
        self.say(waiting, condition, lambda written: self._preempt(pod, preemption, written))

    def _preempt(self, pod: Pod, preemption: Preemption, written: bool) -> None:  # noqa: FBT001 - private
        done = False
        try:
            done = written and act(
                self._client, preemption, pod, pod.spec.scheduler_name, post=self._post, leads=self._leads
            )
        except RemovalRefusedError as error:
            kept = error.uid
            logger.warning("a Pod may not be preempted for %s/%s: %s", pod.namespace, pod.name, error)
            self._tell(lambda _: self._nominator.keep(pod.uid, kept))
        except APIError as error:
            logger.warning("a Pod can't be preempted for %s/%s: %s", pod.namespace, pod.name, error)
        finally:
            self._tell(lambda now: self._on_preempted(pod, preemption, done, now))

    def _on_preempted(self, pod: Pod, preemption: Preemption, done: bool, now: float) -> None:  # noqa: FBT001 - private
        if not done:
            BINDER_PREEMPTIONS.labels("failed").inc()
            self._nominator.end(pod.uid)
            waiting = self._queue.get(pod.uid)
            if waiting is not None and waiting.state is State.UNSCHEDULABLE:
                self._queue.retry(pod.uid, now)
        for other in preemption.yielding:
            self._queue.activate(other.uid, now)


def _target_of(placement: Placement) -> Target:
    """Return what is to be bound: the very version of the Pod that was decided on."""
    pod = placement.pod
    return Target(
        pod.namespace, pod.name, pod.uid, placement.node, pod.metadata.resource_version, decision=placement.decision
    )
