"""API calls that follow from a decision: bindings, conditions and preemptions, and how their outcomes are handled.

The deciding thread hands the calls over to this module and never waits. The dispatcher sends bindings; threads that may block write
conditions, delete Pods, and look up bindings that were not simply confirmed. They return outcomes to the deciding thread by `tell`:
that thread alone changes the queue and the calls in flight.
"""

import heapq
import logging
import queue as queues
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from itertools import count, islice
from typing import NamedTuple

import msgspec

from policies.engine.decision import CompiledRuleSet
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
from scheduler.binder.counted import MESSAGES, CountedBindings, Recount, counting_rules
from scheduler.binder.cycle import Placement
from scheduler.binder.nominator import Nominator
from scheduler.binder.preemption_executor import BindingRefusedError, RemovalRefusedError, act
from scheduler.binder.queue import Queue, State, Waiting
from scheduler.cluster.bind import (
    BINDING_FAILED,
    BINDING_REFUSED,
    BINDING_UNAUTHENTICATED,
    BINDING_UNCONFIRMED,
    Outcome,
    Target,
    bind,
    binding_of,
    look_up,
)
from scheduler.cluster.client import Client
from scheduler.cluster.dispatcher import CONNECTIONS, UNANSWERED, APIRequest, Dispatcher
from scheduler.cluster.errors import DENIED_BY_WEBHOOK, APIError, APITimeoutError
from scheduler.cluster.live import LiveSnapshot
from scheduler.metrics import BINDER_BINDINGS, BINDER_PREEMPTIONS, BINDER_SECONDS, BINDER_VICTIMS

logger = logging.getLogger("berth.binding")

# Threads that wait for responses: to conditions, and to look-ups of bindings that were not simply confirmed.
_BINDING_THREADS = 4
# Threads that bind Pods whose rules count Pods, one at a time: while one binds, the other waits, for which a process keeps the lock.
_COUNTING_THREADS = 2
# The most Pods that wait for these threads: they take room on their nodes meanwhile, which kube-scheduler doesn't see.
MOST_COUNTING = 16
# When such a Pod's binding is sent again while another is: each may hang for a second while it has the lock.
_COUNTING_AGAIN_SECONDS = 1.0

# For each call. With the look-up that follows, it stays well below the 5 s between the end of one leader and the start of the next.
BIND_TIMEOUT_SECONDS = 3.0

# How soon a binding with an unknown outcome is sent again; the delay doubles each time, up to the longest.
# A binding that hangs on an admission webhook takes up a connection each time.
LOOK_AGAIN_SECONDS = 0.5
LONGEST_AGAIN_SECONDS = 8.0
# The most bindings that are resent at a time: half of the dispatcher's connections are left for others. Once this many Pods of a
# namespace hang, the namespace's other Pods are sent from among these.
MOST_AGAIN = CONNECTIONS // 2
# The most conditions that are resent at a time: while an admission webhook for them is down, none of them succeeds.
MOST_SAID_AGAIN = 100
# The same for conditions that got no answer: as long as they get none, each takes a thread for five seconds.
MOST_UNANSWERED_AGAIN = _BINDING_THREADS // 2
# A binding that gets no answer this many times counts as hanging; a single one may just be lost.
_HANGS = 2
# Unknown outcomes before an event is sent: an API server that is overloaded for a moment shouldn't get an event for each Pod too.
_TELLS = 4

# The most nodes a Pod avoids because they denied its binding: if more do, the node isn't the reason.
_MOST_DENIED = 100

# Messages for a Pod whose binding won't succeed as it stands, though nothing about the Pod has changed.
_NOT_DONE = {Outcome.DENIED: BINDING_REFUSED, Outcome.FAILED: BINDING_FAILED}
_SENT_AGAIN = {Outcome.UNKNOWN: BINDING_UNCONFIRMED, Outcome.UNAUTHENTICATED: BINDING_UNAUTHENTICATED}

# Work for the deciding thread; it is called with the current time.
Message = Callable[[float], None]


class _Binding(NamedTuple):
    """A Pod being bound to a node. It holds no Placement, whose Snapshot has all nodes: a hanging binding is kept for long."""

    pod: Pod
    target: Target
    node_uid: str
    decided_at: float
    counting: CompiledRuleSet | None = None


class APICalls:
    """The API calls in flight for Pods that were decided on. All public members are for the deciding thread.

    Args:
        client: to the API server.
        dispatcher: sends bindings.
        post: sends an event.
        leads: returns whether this process may act; called before each action.
        tell: hands a message to the deciding thread.
        queue: the Pods that wait.
        live: the live Snapshot, where assumed Pods are counted on their nodes.
        nominator: the nodes that preemption frees, and the Pods they are freed for.
        counted: binds Pods whose rules count Pods; None where nobody else binds Pods by such rules.
    """

    def __init__(  # noqa: PLR0913 - what it acts on
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
        counted: CountedBindings | None = None,
    ) -> None:
        self._client = client
        self._dispatcher = dispatcher
        self._post = post
        self._leads = leads
        self._tell = tell
        self._queue = queue
        self._live = live
        self._nominator = nominator
        self._counted = counted
        self._work: queues.SimpleQueue[Callable[[], None] | None] = queues.SimpleQueue()
        self._counted_work: queues.SimpleQueue[Callable[[], None] | None] = queues.SimpleQueue()
        # The Pods that these bind for the first time, or that wait for it, by UID; and those whose binding they send again.
        self._counting: set[str] = set()
        self._counting_again: set[str] = set()
        self._unseen: set[str] = set()
        self._conditions_written: dict[str, Condition] = {}
        # Conditions that couldn't be written for now, by the Pod's UID; and those that got no answer.
        self._unwritten: dict[str, Condition] = {}
        self._unanswered: dict[str, Condition] = {}
        # The message of the last event of each waiting Pod, whether or not its condition could be written.
        self._told: dict[str, str] = {}
        # The Pods that are being bound, by UID, each with its node.
        self.in_flight: dict[str, str] = {}
        # Bindings with an unknown outcome, each with the time to send it again and a unique number: a heap.
        self.again: list[tuple[float, int, _Binding]] = []
        self._numbers = count()
        # How many times each of these bindings was sent, by the Pod's UID; and how many of each namespace's Pods hang.
        self._unknown: Counter[str] = Counter()
        self._hanging: Counter[str] = Counter()
        self._sent_again: set[str] = set()
        # How many Pods this process has bound.
        self.bound = 0
        works = [self._work] * _BINDING_THREADS + [self._counted_work] * (_COUNTING_THREADS if counted else 0)
        self._threads = [
            threading.Thread(target=self._run, args=[work], name=f"berth-binder-{number}", daemon=True)
            for number, work in enumerate(works)
        ]

    def start(self) -> None:
        """Start the threads that may block."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_seconds: float) -> None:
        """Let the threads finish their queued work, then end them."""
        deadline = time.monotonic() + timeout_seconds
        for _ in self._threads:
            self._work.put(None)
            self._counted_work.put(None)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self, work: queues.SimpleQueue[Callable[[], None] | None]) -> None:
        while (task := work.get()) is not None:
            try:
                task()
            except Exception:
                logger.exception("a call of the API server failed")

    # Bindings

    def send(self, placement: Placement, now: float) -> None:
        """Bind a Pod. The threads that may block look up a binding that isn't simply confirmed."""
        # First: a Pod whose target is refused here must not count as being bound.
        counting = counting_rules(placement) if self._counted else None
        binding = _Binding(placement.pod, _target_of(placement), placement.node_uid, now, counting)
        if self._hanging[placement.pod.namespace] < MOST_AGAIN:
            self._send(binding)
        else:  # it would most likely hang too, and take a connection from others
            self.in_flight[placement.pod.uid] = placement.node
            self._send_later(binding, now)

    def _send(self, binding: _Binding, *, may_be_done: bool = False) -> None:
        """Send a binding; `may_be_done` means that it was sent before with an unknown outcome."""
        target = binding.target
        self.in_flight[binding.pod.uid] = target.node_name
        if self._counted and binding.counting:
            bind_counted = partial(self._counted.bind, binding.pod, target, binding.counting, may_be_done=may_be_done)
            ready = self._if_leading(binding, may_be_done=may_be_done)
            (self._counting_again if may_be_done else self._counting).add(binding.pod.uid)
            self._counted_work.put(lambda: self._bind_counted(binding, ready, bind_counted))
            return

        def done(status: int, answer: bytes) -> None:
            if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
                self._tell(lambda now: self._on_outcome(binding, Outcome.BOUND, now))
            elif status == HTTPStatus.TOO_MANY_REQUESTS and DENIED_BY_WEBHOOK.encode() not in answer:
                # Nothing was done. Retrying at once, with a look-up, would send two more requests to an overloaded server.
                self._tell(lambda now: self._on_outcome(binding, Outcome.UNKNOWN, now, request.retry_after_seconds))
            elif status == UNANSWERED:
                self._work.put(lambda: self._look_into(binding, look_up))
            else:
                self._work.put(lambda: self._look_into(binding, bind))

        request = APIRequest(
            f"{target.path}/binding", binding_of(target), done, self._if_leading(binding, may_be_done=may_be_done)
        )
        self._dispatcher.send(request)

    def _bind_counted(
        self, binding: _Binding, ready: Callable[[], bool], bind_counted: Callable[[], Outcome | Recount]
    ) -> None:
        """Bind a Pod whose rules count Pods, in a thread that may block."""
        is_ready = True
        outcome: Outcome | Recount = Outcome.UNKNOWN
        try:
            is_ready = ready()
            if is_ready:
                outcome = bind_counted()
        finally:
            if is_ready:
                self._tell(lambda now: self._on_counted(binding, outcome, now))

    def _on_counted(self, binding: _Binding, outcome: Outcome | Recount, now: float) -> None:
        self._no_longer_counting(binding.pod)
        if isinstance(outcome, Outcome):
            self._on_outcome(binding, outcome, now)
            return
        pod, uid = binding.pod, binding.pod.uid
        self._sent_again.discard(uid)
        if uid not in self.in_flight:
            return
        BINDER_BINDINGS.labels(outcome.value).inc()
        self._no_longer_in_flight(pod)
        self.take_back(uid, now, placed_at=binding.decided_at)
        if (waiting := self._queue.get(uid)) is not None:
            self.say_error(waiting, MESSAGES[outcome])

    def send_again(self, now: float) -> None:
        """Resend bindings with an unknown outcome. Each goes to the same node, so it does no harm if the Pod is bound already.

        If the node was deleted meanwhile, or replaced under the same name, the Pod is scheduled anew: no room is reserved any more.
        """
        while self.again and self.again[0][0] <= now and len(self._sent_again) < MOST_AGAIN:
            *_, binding = heapq.heappop(self.again)
            if self._live.node_uid(binding.target.node_name) != binding.node_uid:
                self._no_longer_in_flight(binding.pod)
                self.take_back(binding.pod.uid, now, placed_at=binding.decided_at)
                continue
            if binding.counting and self._counting_again:
                self._send_later(binding, now + _COUNTING_AGAIN_SECONDS)
                continue
            self._sent_again.add(binding.pod.uid)
            self._send(binding, may_be_done=True)

    def again_at(self) -> float | None:
        """Return when to resend the next binding; None when that depends on an answer."""
        return self.again[0][0] if self.again and len(self._sent_again) < MOST_AGAIN else None

    def _send_later(self, binding: _Binding, at: float) -> None:
        heapq.heappush(self.again, (at, next(self._numbers), binding))

    @property
    def awaited(self) -> int:
        """How many bindings are in flight, not counting those that wait to be resent because they hang or were lost."""
        return len(self.in_flight) - len(self.again)

    @property
    def may_count(self) -> bool:
        """Whether another Pod whose rules count Pods may be sent: its turn will come soon."""
        return len(self._counting) < MOST_COUNTING

    def _no_longer_counting(self, pod: Pod) -> None:
        self._counting.discard(pod.uid)
        self._counting_again.discard(pod.uid)

    def _no_longer_in_flight(self, pod: Pod) -> None:
        self.in_flight.pop(pod.uid, None)
        if self._unknown.pop(pod.uid, 0) >= _HANGS:
            self._hanging[pod.namespace] -= 1
            self._hanging = +self._hanging  # drops the namespaces that have no hanging Pod any more

    def is_binding(self, uid: str) -> bool:
        """Return whether a Pod is being bound, or is bound but not yet seen on its node, however long that takes."""
        return uid in self.in_flight or uid in self._unseen

    def take_back(self, uid: str, now: float, *, placed_at: float) -> None:
        """Forget a Pod's assumed placement, try the Pod again, and the Pods that were refused since it took the room."""
        self._live.forget(uid)
        self._queue.retry(uid, now)
        waiting = self._queue.get(uid)
        if waiting is not None and waiting.nominated:
            self._nominator.nominate(uid, waiting.nominated, waiting.pod)
        self._offer_room(now, placed_at)

    def _offer_room(self, now: float, placed_at: float) -> None:
        # A Pod refused before this room was taken gains nothing: it was free then too.
        self._queue.requeue(POD_GONE, now, refused_since=placed_at)

    def let_go(self, uid: str) -> None:
        """Forget a Pod that doesn't wait any more."""
        self._unseen.discard(uid)
        if self._queue.forget(uid):
            self._conditions_written.pop(uid, None)
            self._unwritten.pop(uid, None)
            self._unanswered.pop(uid, None)
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
        self._no_longer_counting(binding.pod)
        self._sent_again.discard(uid)
        if may_be_done and uid in self._queue:
            # The Pod may be bound in the API server, and the watch may be late. If the Pod were no longer counted on the node,
            # this process would use its room twice once it leads again.
            self._send_later(binding, now + LOOK_AGAIN_SECONDS)
            return
        self._no_longer_in_flight(binding.pod)
        self.take_back(uid, now, placed_at=binding.decided_at)

    def _on_outcome(self, binding: _Binding, outcome: Outcome, now: float, retry_after_seconds: float = 0.0) -> None:
        uid = binding.pod.uid
        self._sent_again.discard(uid)
        # The Pod was taken back meanwhile because this process no longer leads.
        if uid not in self.in_flight:
            return
        BINDER_BINDINGS.labels(outcome.value).inc()
        if outcome in _SENT_AGAIN:
            self._on_unknown(binding, _SENT_AGAIN[outcome], now, retry_after_seconds)
            return
        self._no_longer_in_flight(binding.pod)
        if outcome is Outcome.BOUND:
            self._on_bound(binding, now)
        else:
            self._on_not_bound(binding, outcome, now)

    def _on_unknown(self, binding: _Binding, said: str, now: float, retry_after_seconds: float) -> None:
        pod, uid = binding.pod, binding.pod.uid
        wait = max(min(LOOK_AGAIN_SECONDS * 2.0 ** self._unknown[uid], LONGEST_AGAIN_SECONDS), retry_after_seconds)
        self._unknown[uid] = min(self._unknown[uid] + 1, 10)
        if self._unknown[uid] == _HANGS:
            self._hanging[pod.namespace] += 1
        waiting = self._queue.get(uid)
        if self._unknown[uid] == _TELLS and waiting is not None:
            # No condition is written: the Pod may be bound at the same moment, and its condition would deny that.
            waiting.message = said
            self._post(failed_scheduling(pod, said))
        self._send_later(binding, now + wait)

    def _on_bound(self, binding: _Binding, now: float) -> None:
        pod = binding.pod
        self.bound += 1
        waiting = self._queue.get(pod.uid)
        if waiting is not None:  # else it was seen on its node before
            self._unseen.add(pod.uid)
            BINDER_SECONDS.observe(now - waiting.first_at)
        self._post(scheduled(pod, binding.target.node_name))

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
            self._offer_room(now, binding.decided_at)
        else:
            self.take_back(uid, now, placed_at=binding.decided_at)
            waiting = self._queue.get(uid)
            if outcome is Outcome.REFUSED and waiting is not None and waiting.pod is not pod:
                self._queue.activate(uid, now)  # the Pod changed after the decision
            elif outcome in _NOT_DONE and waiting is not None:
                if outcome is Outcome.DENIED:
                    self._note_denied(uid, binding.target.node_name)
                self.say_error(waiting, _NOT_DONE[outcome])

    def _note_denied(self, uid: str, node_name: str) -> None:
        waiting = self._queue.get(uid)
        if waiting is not None and len(waiting.denied) < _MOST_DENIED:
            waiting.denied |= {node_name}

    # Conditions

    def say(self, waiting: Waiting, condition: Condition, then: Callable[[bool], None] = lambda _: None) -> None:
        """Write the condition and send the event, unless the Pod has that condition already.

        `then` is called in a thread that may block, with whether the Pod has the condition now.
        """
        pod = waiting.pod
        self._unwritten.pop(pod.uid, None)
        self._unanswered.pop(pod.uid, None)
        said = self._conditions_written.get(pod.uid) or condition_of(pod)
        if is_said := said == condition:
            self._work.put(lambda: then(is_said))
            return
        self._conditions_written[pod.uid] = condition
        if self._told.get(pod.uid, said.message if said else None) != condition.message:
            self._told[pod.uid] = condition.message
            self._post(failed_scheduling(pod, condition.message))
        self._work.put(lambda: then(self._write_condition(pod, condition)))

    def say_error(self, waiting: Waiting, message: str) -> None:
        """Write as the Pod's condition, and show in the queue, why it isn't scheduled although no rule refused it."""
        waiting.message = message
        self.say(waiting, Condition(SCHEDULER_ERROR, message, waiting.nominated))

    def say_again(self) -> None:
        """Retry conditions that couldn't be written, for Pods that would otherwise have none until their next refusal."""
        if not self._work.empty():  # only when the threads have nothing else to do
            return
        for uid in list(islice(self._unwritten, MOST_SAID_AGAIN)):
            self._say_if_refused(uid, self._unwritten.pop(uid))
        for _ in range(MOST_UNANSWERED_AGAIN):
            self._say_unanswered()

    def _say_unanswered(self) -> None:
        """Retry the next condition that got no answer; once one is written, the others will be, one after another."""

        def go_on(written: bool) -> None:  # noqa: FBT001 - what is done with an outcome
            if written:
                self._tell(lambda _: self._say_unanswered())

        while self._unanswered:
            uid = next(iter(self._unanswered))
            if self._say_if_refused(uid, self._unanswered.pop(uid), go_on):
                return

    def _say_if_refused(self, uid: str, condition: Condition, then: Callable[[bool], None] = lambda _: None) -> bool:
        """Write a Pod's condition, unless the Pod is tried again soon anyway. Return whether it is being written; `then` learns the rest."""
        waiting = self._queue.get(uid)
        if waiting is None or waiting.state is not State.UNSCHEDULABLE:
            return False
        # The nominated node may have changed since.
        self.say(waiting, msgspec.structs.replace(condition, nominated=waiting.nominated), then)
        return True

    def note_said(self, pod: Pod) -> None:
        """Trust a Pod's own condition once the watch shows the one that was written: others may overwrite it later."""
        said = self._conditions_written.get(pod.uid)
        if said is not None and said == condition_of(pod):
            del self._conditions_written[pod.uid]

    def _write_condition(self, pod: Pod, condition: Condition) -> bool:
        kept: dict[str, Condition] | None = None
        try:
            if not self._leads():
                kept = self._unwritten  # for when this process leads again
            elif write_condition(self._client, pod, condition):
                return True
        except APITimeoutError:
            kept = self._unanswered
        except APIError:
            kept = self._unwritten
        self._tell(lambda _: self._unsay(pod.uid, condition, kept))
        return False

    def _unsay(self, uid: str, condition: Condition, kept: dict[str, Condition] | None) -> None:
        """Let a failed condition be written again: after the next refusal, or by the next `say_again` if it is to be kept."""
        if self._conditions_written.get(uid) == condition:
            del self._conditions_written[uid]
            if kept is not None:
                kept[uid] = condition

    # Preemptions

    def preempt(
        self, waiting: Waiting, preemption: Preemption, condition: Condition, expect: Callable[[Pod], None]
    ) -> None:
        """Delete the victims once the nomination is written, and let the Pods that yield be scheduled elsewhere.

        So the process that takes over after a crash knows which Pod the victims were deleted for, and deletes no others.
        `expect` is called with each victim just before it is removed, in a thread that may block.
        """
        pod = waiting.pod
        self._nominator.begin(pod, preemption)
        BINDER_PREEMPTIONS.labels("begun").inc()
        BINDER_VICTIMS.inc(len(preemption.victims))
        self.say(waiting, condition, lambda written: self._preempt(pod, preemption, expect, written))

    def _preempt(self, pod: Pod, preemption: Preemption, expect: Callable[[Pod], None], written: bool) -> None:  # noqa: FBT001 - private
        done = False
        try:
            done = written and act(
                self._client,
                preemption,
                pod,
                post=self._post,
                expect=expect,
                leads=self._leads,
                is_there=lambda victim: self._is_on(victim, preemption.node),
            )
        except BindingRefusedError as error:
            logger.warning("a preemption would be in vain for %s/%s: %s", pod.namespace, pod.name, error)
            self._tell(lambda _: self._give_up_node(pod.uid, preemption.node))
        except RemovalRefusedError as error:
            kept = error.uid
            logger.warning("the API server refuses a preemption for %s/%s: %s", pod.namespace, pod.name, error)
            self._tell(lambda _: self._nominator.keep(pod.uid, kept))
        except APIError as error:
            logger.warning("a preemption for %s/%s failed: %s", pod.namespace, pod.name, error)
        finally:
            self._tell(lambda now: self._on_preempted(pod, preemption, done, now))

    def _is_on(self, pod: Pod, node_name: str) -> bool:
        """Return whether a Pod still takes room on a node. True also if the node is gone: the watch then ends the preemption."""
        info = self._live.snapshot().node(node_name)
        return info is None or any(other.uid == pod.uid for other in info.pods)

    def _give_up_node(self, uid: str, node_name: str) -> None:
        """Stop keeping a node free for a Pod that may not be bound to it."""
        self._note_denied(uid, node_name)
        self._end_nomination(uid, node_name)

    def _end_nomination(self, uid: str, node_name: str) -> None:
        waiting = self._queue.get(uid)
        if waiting is not None and waiting.nominated == node_name:
            waiting.nominated = ""
            self._nominator.nominate(uid, "")

    def _on_preempted(self, pod: Pod, preemption: Preemption, done: bool, now: float) -> None:  # noqa: FBT001 - private
        if not done:
            BINDER_PREEMPTIONS.labels("failed").inc()
            self._nominator.end(pod.uid)
            waiting = self._queue.get(pod.uid)
            if waiting is not None and waiting.state is State.UNSCHEDULABLE:
                self._queue.retry(pod.uid, now)
            # They may have waited for these victims as well.
            for other in self._nominator.nominated.get(preemption.node, ()):
                if other.uid != pod.uid:
                    self._queue.activate(other.uid, now)
        for other in preemption.yielding:
            self._conditions_written.pop(other.uid, None)
            if done:  # otherwise its own victims may be leaving the node, and others would be removed elsewhere in vain
                self._end_nomination(other.uid, preemption.node)
            self._queue.activate(other.uid, now)


def _target_of(placement: Placement) -> Target:
    """Return the binding's target: the exact version of the Pod that was decided on."""
    pod = placement.pod
    return Target(
        pod.namespace, pod.name, pod.uid, placement.node, pod.metadata.resource_version, decision=placement.decision
    )
