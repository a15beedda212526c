"""The queue of Berth's own scheduler: order, backoff, requeued_by, gates."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from policies.engine.objects.pod import Pod
from policies.engine.rule import NODE, POD_CAME, POD_GONE
from scheduler.binder.queue import (
    FIRST_BACKOFF_SECONDS,
    LONGEST_BACKOFF_SECONDS,
    LONGEST_WAIT_SECONDS,
    REVISION,
    Queue,
    State,
    backoff_seconds,
)
from scheduler.binder.state import shown
from tests.builders import make_pod

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
EVENTS = (NODE, POD_CAME, POD_GONE, REVISION)


def pod_of(name: str, *, priority: int = 0, gated: bool = False, **members: Any) -> Pod:
    gates = {"schedulingGates": [{"name": "example.org/wait"}]} if gated else {}
    return Pod.from_json(make_pod(name, uid=name, priority=priority, **gates, **members))


def taken(queue: Queue, now: float) -> list[str]:
    names = []
    while (found := queue.take(now)) is not None:
        names.append(found.pod.name)
    return names


def test_pods_are_taken_by_priority_and_then_by_how_long_they_wait() -> None:
    queue = Queue()
    for at, (name, priority) in enumerate([("a", 0), ("b", 5), ("c", 5), ("d", -1)]):
        queue.put(pod_of(name, priority=priority), float(at))

    assert taken(queue, 10.0) == ["b", "c", "a", "d"]


def test_a_refused_pod_that_can_be_helped_comes_before_those_that_came_after_its_refusal() -> None:
    queue = Queue()
    queue.put(pod_of("refused"), 0.0)
    queue.put(pod_of("failed"), 0.5)
    queue.put(pod_of("gated", gated=True), 0.7)
    taken(queue, 1.0)
    queue.refuse("refused", 1.0, requeued_by={POD_GONE})
    queue.retry("failed", 2.0)
    queue.put(pod_of("new"), 3.0)
    queue.requeue(POD_GONE, 4.0)
    queue.put(pod_of("gated"), 5.0)

    assert taken(queue, 6.0) == ["gated", "refused", "failed", "new"]


def test_a_refused_pod_is_shown_with_the_moment_at_which_its_window_opens() -> None:
    queue = Queue()
    for name in ("waits", "helped"):
        queue.put(pod_of(name), 0.0)
    taken(queue, 0.0)
    queue.refuse("waits", 1.0, requeued_by=(), opens_at=61.0)
    queue.refuse("helped", 1.0, requeued_by={POD_GONE}, opens_at=61.0)
    queue.requeue(POD_GONE, 5.0)
    found = {each.pod.name: shown(each, 1.0, NOON)["opens_at"] for each in queue.waiting()}
    assert found == {"waits": "2026-05-01T12:01:00.000+00:00", "helped": None}


def test_a_pod_that_an_exemption_to_the_end_of_all_time_may_help_is_shown_with_that_moment() -> None:
    queue = Queue()
    queue.put(pod_of("waits"), 0.0)
    (waiting,) = queue.waiting()
    taken(queue, 0.0)
    left = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - NOON).total_seconds()
    queue.refuse("waits", 1.0, requeued_by=(), opens_at=1.0 + left)
    # A page is made a moment after the queue was looked at.
    assert shown(waiting, 1.0, NOON + timedelta(seconds=2))["opens_at"] == "9999-12-31T23:59:59.999+00:00"


def test_a_refused_pod_is_tried_again_after_something_that_can_help_it_and_after_its_backoff() -> None:
    queue = Queue()
    queue.put(pod_of("a"), 0.0)
    taken(queue, 0.0)
    queue.refuse("a", 0.0, requeued_by={POD_GONE})

    assert queue.requeue(NODE, 0.1) == 0
    assert queue.requeue(POD_GONE, 0.2) == 1
    assert taken(queue, 0.9) == []
    assert queue.next_at() == FIRST_BACKOFF_SECONDS
    assert taken(queue, 1.0) == ["a"]


def test_room_that_is_given_back_helps_the_pods_that_were_refused_since_it_was_taken() -> None:
    queue = Queue()
    for name, at in (("before", 1.0), ("with", 2.0), ("since", 3.0)):
        queue.put(pod_of(name), at)
        taken(queue, at)
        queue.refuse(name, at, requeued_by={POD_GONE})

    assert queue.requeue(POD_GONE, 4.0, refused_since=2.0) == 2
    assert taken(queue, 9.0) == ["with", "since"]


def test_a_refused_pod_is_tried_at_once_when_its_backoff_is_over() -> None:
    queue = Queue()
    queue.put(pod_of("a"), 0.0)
    taken(queue, 0.0)
    queue.refuse("a", 0.0, requeued_by={NODE})

    queue.requeue(NODE, 5.0)

    assert taken(queue, 5.0) == ["a"]


def test_every_refused_pod_is_requeued_by_a_revision_and_tried_again_after_five_minutes() -> None:
    queue = Queue()
    for name in "ab":
        queue.put(pod_of(name), 0.0)
    taken(queue, 0.0)
    for name in "ab":
        queue.refuse(name, 0.0, requeued_by=())

    assert queue.requeue(REVISION, 2.0) == 2
    assert taken(queue, 2.0) == ["a", "b"]
    queue.refuse("a", 2.0, requeued_by=())
    assert taken(queue, 2.0 + LONGEST_WAIT_SECONDS - 0.1) == []
    assert taken(queue, 2.0 + LONGEST_WAIT_SECONDS) == ["a"]


def test_a_pod_that_time_can_help_is_tried_at_that_moment_but_not_before_its_backoff_ends() -> None:
    queue = Queue()
    for name in ("early", "late"):
        queue.put(pod_of(name), 0.0)
    taken(queue, 0.0)
    queue.refuse("early", 0.0, requeued_by=(), opens_at=0.5)
    queue.refuse("late", 0.0, requeued_by=(), opens_at=30.0)

    assert taken(queue, 0.6) == []
    assert taken(queue, 1.0) == ["early"]
    assert queue.next_at() == 30.0


def test_backoff_doubles_from_one_to_ten_seconds() -> None:
    assert [backoff_seconds(attempts) for attempts in (1, 2, 3, 4, 5, 500)] == [1, 2, 4, 8, 10, 10]


def test_a_pod_that_somebody_changed_begins_with_the_shortest_backoff_anew() -> None:
    queue = Queue()
    queue.put(pod_of("a"), 0.0)
    for at in (0.0, 100.0, 200.0):
        queue.requeue(REVISION, at)
        assert taken(queue, at + 50.0) == ["a"]
        queue.refuse("a", at + 50.0, requeued_by={POD_GONE})
    queue.put(pod_of("a", labels={"team": "web"}), 300.0)
    assert taken(queue, 300.0) == ["a"]
    queue.refuse("a", 300.0, requeued_by={POD_GONE})
    queue.requeue(POD_GONE, 300.0)

    assert taken(queue, 300.0 + FIRST_BACKOFF_SECONDS) == ["a"]


def test_a_pod_whose_binding_failed_is_tried_again_whatever_happens() -> None:
    queue = Queue()
    queue.put(pod_of("a"), 0.0)
    taken(queue, 0.0)

    queue.retry("a", 0.0)

    assert queue.get("a").state is State.BACKOFF  # type: ignore[union-attr]
    assert taken(queue, 1.0) == ["a"]


def test_a_gated_pod_waits_until_its_gates_are_gone() -> None:
    queue = Queue()
    queue.put(pod_of("a", gated=True), 0.0)
    assert taken(queue, 500.0) == []

    queue.put(pod_of("a", gated=True, labels={"x": "y"}), 1.0)
    assert taken(queue, 1.0) == []
    queue.put(pod_of("a"), 2.0)

    assert taken(queue, 2.0) == ["a"]


def test_a_pod_that_came_to_be_gated_while_it_was_decided_on_is_not_tried_again() -> None:
    queue = Queue()
    queue.put(pod_of("a"), 0.0)
    taken(queue, 0.0)
    queue.put(pod_of("a", gated=True), 0.5)

    queue.refuse("a", 1.0, requeued_by={NODE})

    assert queue.get("a").state is State.GATED  # type: ignore[union-attr]


def test_a_refused_pod_that_was_changed_is_tried_again_at_once_but_not_for_a_change_of_its_status() -> None:
    queue = Queue()
    queue.put(pod_of("a"), 0.0)
    taken(queue, 0.0)
    queue.refuse("a", 0.0, requeued_by=())
    with_status = Pod.from_json({**make_pod("a", uid="a", priority=0), "status": {"phase": "Pending"}})

    queue.put(with_status, 0.1)
    assert taken(queue, 0.1) == []
    queue.put(pod_of("a", labels={"team": "web"}), 0.2)

    assert taken(queue, 0.2) == ["a"]


def test_a_refused_pod_that_a_controller_adopts_is_tried_again_at_once() -> None:
    """Assignments and Exemptions go by the owner: another rule set may take the Pod now."""
    queue = Queue()
    queue.put(pod_of("a"), 0.0)
    taken(queue, 0.0)
    queue.refuse("a", 0.0, requeued_by=())
    adopted = make_pod("a", uid="a", priority=0)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
    adopted["metadata"]["ownerReferences"] = [owner]

    queue.put(Pod.from_json(adopted), 0.1)

    assert taken(queue, 0.1) == ["a"]


def test_a_deleted_pod_is_forgotten_wherever_it_is() -> None:
    queue = Queue()
    for name in "abc":
        queue.put(pod_of(name), 0.0)
    queue.take(0.0)
    queue.take(0.0)
    queue.refuse("b", 0.0, requeued_by={NODE})

    assert [queue.forget(name) for name in "abcd"] == [True, True, True, False]
    assert (len(queue), queue.requeue(NODE, 9.0), taken(queue, 999.0), queue.next_at()) == (0, 0, [], None)
    queue.refuse("a", 1.0, requeued_by=())
    queue.retry("a", 1.0)
    queue.activate("a", 1.0)
    assert "a" not in queue


def test_a_waiting_pod_can_be_made_ready_at_once() -> None:
    queue = Queue()
    for name in "ab":
        queue.put(pod_of(name), 0.0)
    taken(queue, 0.0)
    queue.refuse("a", 0.0, requeued_by=())
    queue.retry("b", 0.0)

    for name in "ab":
        queue.activate(name, 0.1)

    assert taken(queue, 0.1) == ["a", "b"]


def test_pods_that_were_set_aside_come_back_one_by_one_in_their_order_unless_they_are_gone() -> None:
    queue = Queue()
    for at, name in enumerate("abcd"):
        queue.put(pod_of(name), float(at))
    while (found := queue.take(5.0)) is not None:
        queue.set_aside(found, 5.0)
    assert queue.counts()[State.ACTIVE] == 4
    queue.forget("b")
    found_by_turn = []
    for _ in range(4):
        queue.bring_back()
        found_by_turn.append(taken(queue, 6.0))
    assert found_by_turn == [["a"], ["c"], ["d"], []]


class Machine(RuleBasedStateMachine):
    """The queue beside the plainest account of what it should hold."""

    names = Bundle("names")

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue()
        self.now = 0.0
        self.there: dict[str, Pod] = {}
        self.taken: set[str] = set()
        self.ready_after: dict[str, float] = {}

    @rule(target=names, name=st.sampled_from("abcdefgh"))
    def name(self, name: str) -> str:
        return name

    @rule(name=names, priority=st.integers(-2, 2), gated=st.booleans())
    def put(self, name: str, priority: int, gated: bool) -> None:
        if name in self.there and self.there[name].priority != priority:
            return  # a Pod's priority never changes
        self.there[name] = pod_of(name, priority=priority, gated=gated)
        self.queue.put(self.there[name], self.now)

    @rule(name=names)
    def forget(self, name: str) -> None:
        assert self.queue.forget(name) is (self.there.pop(name, None) is not None)
        self.taken.discard(name)
        self.ready_after.pop(name, None)

    @rule(seconds=st.sampled_from([0.0, 0.5, 3.0, 20.0, 400.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def take(self) -> None:
        self.bring_all_back()
        ready = [waiting for waiting in self.queue.waiting() if waiting.state is State.ACTIVE]
        found = self.queue.take(self.now)
        if found is None:
            assert not ready
            return
        assert found.pod.name not in self.taken
        assert all(found.pod.priority >= waiting.pod.priority for waiting in ready)
        assert self.now >= self.ready_after.get(found.pod.name, 0.0)
        self.taken.add(found.pod.name)

    @rule(name=names)
    def set_aside(self, name: str) -> None:
        if name in self.taken:
            found = self.queue.get(name)
            assert found is not None
            self.queue.set_aside(found, self.now)
            self.taken.discard(name)

    @rule()
    def bring_all_back(self) -> None:
        for _ in self.there:
            self.queue.bring_back()

    @rule(name=names, requeued_by=st.sets(st.sampled_from(EVENTS)), failed=st.booleans())
    def put_back(self, name: str, requeued_by: set[str], failed: bool) -> None:
        if name not in self.taken:
            return
        self.taken.discard(name)
        if failed:
            self.queue.retry(name, self.now)
        else:
            self.queue.refuse(name, self.now, requeued_by=requeued_by)
        waiting = self.queue.get(name)
        assert waiting is not None
        assert self.now < waiting.until <= self.now + LONGEST_BACKOFF_SECONDS

    @rule(event=st.sampled_from(EVENTS))
    def requeue(self, event: str) -> None:
        refused = [waiting for waiting in self.queue.waiting() if waiting.state is State.UNSCHEDULABLE]
        helped = [waiting for waiting in refused if event in waiting.requeued_by]
        assert self.queue.requeue(event, self.now) == len(helped)
        assert all(waiting.state in {State.ACTIVE, State.BACKOFF} for waiting in helped)

    @invariant()
    def holds_what_is_there(self) -> None:
        assert {waiting.pod.name for waiting in self.queue.waiting()} == self.there.keys()
        counted = self.queue.counts()
        for state in State:
            assert counted[state] == sum(waiting.state is state for waiting in self.queue.waiting())
        assert {found.pod.name for found in self.queue.waiting() if found.state is State.TAKEN} == self.taken

    def teardown(self) -> None:
        """Whatever happened, every Pod that isn't gated is tried again by time alone."""
        for name in list(self.taken):
            self.queue.refuse(name, self.now, requeued_by=())
            self.taken.discard(name)
        self.bring_all_back()
        left = {waiting.pod.name for waiting in self.queue.waiting() if waiting.state is not State.GATED}
        assert set(taken(self.queue, self.now + LONGEST_WAIT_SECONDS + 1)) == left


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=150)
