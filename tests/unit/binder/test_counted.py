"""Pods whose rules count Pods are counted once more, under the lock that /bind holds, before they are bound."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from policies.engine.decision import CompiledRevision, CompiledRuleSet
from policies.engine.objects.pod import Pod
from policies.engine.ruleset import Revision
from scheduler.binder import counted as module
from scheduler.binder.actions import SCHEDULER_ERROR, Condition
from scheduler.binder.api_calls import LOOK_AGAIN_SECONDS, MOST_COUNTING
from scheduler.binder.counted import MESSAGES, CountedBindings, Recount
from scheduler.binder.loop import MOST_IN_FLIGHT
from scheduler.binder.queue import State
from scheduler.cluster import handover
from scheduler.cluster.bind import Outcome, Target
from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIError
from scheduler.cluster.lease_lock import Held, LockBusyError
from tests.builders import make_assignment, make_rule_set
from tests.unit.binder.world import World

APP = {"app": "x"}


def few(most: int) -> dict[str, str]:
    expression = f"cluster.countInAllNamespaces({{'app': 'x'}}) < {most}"
    return {"name": "few", "expression": expression, "reason": "enough"}


class Lock:
    """A lock that the test holds; `note` is what the former holder left."""

    def __init__(self) -> None:
        self.note = ""
        self.valid = True
        self.fails: Exception | None = None
        self.left: list[str] = []

    @contextmanager
    def hold(self, timeout_seconds: float) -> Iterator[Held]:
        if self.fails is not None:
            raise self.fails
        held = Held(self.note, timeout_seconds, "1", 0.0)
        yield held
        self.left.append(held.note)

    def is_valid(self, _held: Held) -> bool:
        return self.valid


class Counted:
    """Answers in place of `CountedBindings`."""

    def __init__(self) -> None:
        self.outcome: Outcome | Recount = Outcome.BOUND
        self.asked: list[tuple[str, str, bool]] = []

    def bind(self, pod: Pod, target: Target, counting: CompiledRuleSet, *, may_be_done: bool) -> Outcome | Recount:
        assert [rule.name for rule, _ in counting.filters] == ["few"]
        self.asked.append((pod.name, target.node_name, may_be_done))
        return self.outcome


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, counted: Counted) -> World:
    return served(World(monkeypatch, counted=counted))


def served(world: World, *, most: int = 2) -> World:
    match = {"podSelector": {"matchLabels": APP}}
    revision = Revision(
        number=1,
        rule_sets=[make_rule_set("web", filters=[few(most)])],
        assignments=[make_assignment("few", "web", match=match)],
    )
    world.loop.serve(CompiledRevision(revision))
    world.node("n1")
    return world


class TestLoop:
    def test_only_pods_whose_rules_count_take_the_lock(self, world: World, counted: Counted) -> None:
        world.pod("a", labels=APP)
        world.pod("b")
        world.turn(2)
        assert counted.asked == [("a", "n1", False)]
        assert len(world.dispatcher.requests) == 1
        assert world.loop.bound == 1
        assert sorted(world.on("n1")) == ["a", "b"]

    def test_other_pods_go_past_those_that_wait_for_the_lock_which_keep_their_order(
        self, world: World, counted: Counted
    ) -> None:
        served(world, most=1000)
        world.node("n1", pods="1000")
        for number in range(MOST_IN_FLIGHT + 1):
            world.pod(f"a{number:03}", labels=APP)
            world.now += 0.001
        world.pod("other")
        self.decide(world)
        assert len(world.dispatcher.requests) == 1
        assert len(world.on("n1")) == MOST_COUNTING + 1, "those that wait take no room"
        world.pod("urgent", labels=APP, priority=1)
        world.turn(4 * MOST_IN_FLIGHT)
        names = [name for name, _, _ in counted.asked]
        assert names.index("urgent") == MOST_COUNTING
        assert [name for name in names if name != "urgent"] == [f"a{number:03}" for number in range(MOST_IN_FLIGHT + 1)]

    def decide(self, world: World) -> None:
        """Let the deciding thread go round until nothing is left to decide on, while no other thread does anything."""
        for _ in range(2 * MOST_IN_FLIGHT):
            world.loop._heard.set()
            world.loop._turn()

    @pytest.mark.parametrize("why", list(Recount))
    def test_a_pod_that_is_not_bound_gives_its_place_back_and_says_why(
        self, world: World, counted: Counted, why: Recount
    ) -> None:
        counted.outcome = why
        world.pod("a", labels=APP)
        world.turn(2)
        assert (world.on("n1"), world.state("a"), world.loop.bound) == ([], State.BACKOFF, 0)
        assert world.conditions == [("a", Condition(SCHEDULER_ERROR, MESSAGES[why]))]
        counted.outcome = Outcome.BOUND
        world.now += 1.0
        world.turn(2)
        assert (world.on("n1"), world.loop.bound) == (["a"], 1)

    def test_a_binding_with_an_unknown_outcome_is_counted_again_before_it_is_sent_again(
        self, world: World, counted: Counted
    ) -> None:
        counted.outcome = Outcome.UNKNOWN
        world.pod("a", labels=APP)
        world.turn(2)
        assert world.on("n1") == ["a"]
        counted.outcome = Outcome.BOUND
        world.now += LOOK_AGAIN_SECONDS
        world.turn(2)
        assert [may_be_done for _, _, may_be_done in counted.asked] == [False, True]
        assert world.loop.bound == 1

    def test_bindings_that_hang_are_sent_again_one_at_a_time_and_leave_others_their_places(
        self, world: World, counted: Counted
    ) -> None:
        served(world, most=1000)
        counted.outcome = Outcome.UNKNOWN
        for name in "abc":
            world.pod(name, labels=APP)
        world.turn(6)
        world.now += LOOK_AGAIN_SECONDS
        asked = len(counted.asked)
        self.decide(world)
        assert world.loop._api_calls.may_count
        world.turn(1)
        assert counted.asked[asked:] == [("a", "n1", True)]

    def test_a_process_that_leads_no_longer_asks_nobody(self, world: World, counted: Counted) -> None:
        world.pod("a", labels=APP)
        world.loop._heard.set()
        world.loop._turn()
        world.leading = False
        world.turn(2)
        assert (counted.asked, world.on("n1"), world.state("a")) == ([], [], State.BACKOFF)


class TestCountedBindings:
    @pytest.fixture
    def lock(self) -> Lock:
        return Lock()

    @pytest.fixture
    def world(self, monkeypatch: pytest.MonkeyPatch, lock: Lock) -> World:
        monkeypatch.setattr(handover, "LOCK_WAIT_SECONDS", 0.02)
        self.bound: list[str] = []
        self.outcome, self.looked = Outcome.BOUND, Outcome.UNKNOWN

        def bind(_client: Client, target: Target, *, timeout_seconds: float) -> Outcome:
            self.bound.append(target.name)
            return self.outcome

        monkeypatch.setattr(module, "bind", bind)
        self.left, self.version = "60", "50"
        monkeypatch.setattr(handover, "version_if_possible", lambda _client, version, **_: self.left and version)
        monkeypatch.setattr(module, "look_up", lambda *_, **__: self.looked)
        monkeypatch.setattr(handover, "bound_version", lambda *_, **__: self.version)
        world = served(World(monkeypatch))
        monkeypatch.setattr(world.live, "wait_for_pods_version", lambda version, _seconds: version == "40")
        self.counted = CountedBindings(
            client=Client.connect(None),
            live=world.live,
            lock=lock,  # type: ignore[arg-type] # as far as it is used
            leads=lambda: world.leading,
        )
        return world

    def ask(self, world: World, *, may_be_done: bool = False) -> Outcome | Recount:
        """Bind the Pod `a`, which is assumed on n1."""
        world.pod("a", labels=APP)
        (pod,) = (each for each in world.live.pods() if each.name == "a")
        world.live.assume(pod, "n1")
        revision: Any = world.loop
        world.loop._hear(world.now)
        counting = revision._profile.revision.rule_sets["web"].only_counting()
        return self.counted.bind(pod, Target("default", "a", "uid-a", "n1"), counting, may_be_done=may_be_done)

    def test_the_pod_itself_is_not_counted_and_its_version_is_left_to_the_next_holder(
        self, world: World, lock: Lock
    ) -> None:
        world.pod("other", labels=APP, node="n1")
        assert self.ask(world) is Outcome.BOUND
        assert (self.bound, lock.left) == (["a"], ["50"])

    def test_a_place_that_somebody_else_took_meanwhile_is_not_given_away_again(self, world: World, lock: Lock) -> None:
        for name in ("one", "two"):
            world.pod(name, labels=APP, node="n1")
        lock.note = "40"
        assert self.ask(world) is Recount.NO_LONGER
        assert (self.bound, lock.left) == ([], ["40"])

    def test_a_node_that_is_gone_is_not_bound_to(self, world: World) -> None:
        world.node("n1", deleted=True)
        assert self.ask(world) is Recount.NO_LONGER
        assert self.bound == []

    def test_the_pods_that_the_former_holder_bound_are_waited_for(self, world: World, lock: Lock) -> None:
        lock.note = "60"
        assert self.ask(world) is Recount.BEHIND
        assert (self.bound, lock.left) == ([], ["60"])

    def test_a_version_of_another_cluster_is_waited_for_once_and_not_left_to_the_next_holder(
        self, world: World, lock: Lock
    ) -> None:
        lock.note, self.left = "60", ""
        assert self.ask(world) is Outcome.BOUND
        assert lock.left == ["50"]

    @pytest.mark.parametrize("version", ["50", ""], ids=["earlier", "not read"])
    def test_a_binding_found_done_leaves_the_later_version_of_another_holder(
        self, world: World, lock: Lock, version: str
    ) -> None:
        lock.note, self.version, self.looked = "60", version, Outcome.BOUND
        assert self.ask(world, may_be_done=True) is Outcome.BOUND
        assert lock.left == ["60"]

    @pytest.mark.parametrize("error", [LockBusyError("busy"), APIError("away")])
    def test_a_lock_that_is_not_to_be_had_binds_nothing(self, world: World, lock: Lock, error: Exception) -> None:
        lock.fails = error
        assert self.ask(world) is Recount.BUSY
        assert self.ask(world, may_be_done=True) is Outcome.UNKNOWN
        assert self.bound == []

    def test_a_lock_that_others_hold_is_logged_once_whoever_they_are(
        self, world: World, lock: Lock, caplog: pytest.LogCaptureFixture
    ) -> None:
        for holder in ("another process holds the lock", "other threads hold the lock"):
            lock.fails = LockBusyError(holder)
            assert self.ask(world) is Recount.BUSY
        assert len(caplog.records) == 1
        lock.fails = APIError("no right to the Lease")
        assert self.ask(world) is Recount.BUSY
        assert len(caplog.records) == 2

    def test_a_lock_or_a_lead_that_ran_out_meanwhile_binds_nothing(self, world: World, lock: Lock) -> None:
        lock.valid = False
        assert self.ask(world) is Recount.BUSY
        lock.valid, world.leading = True, False
        assert self.ask(world) is Recount.BUSY
        assert self.bound == []

    def test_a_binding_that_was_done_after_all_is_not_sent_again_and_left_to_the_next_holder(
        self, world: World, lock: Lock
    ) -> None:
        self.looked = Outcome.BOUND
        assert self.ask(world, may_be_done=True) is Outcome.BOUND
        assert lock.left == ["50"]
        self.looked = Outcome.UNKNOWN
        assert self.ask(world, may_be_done=True) is Outcome.BOUND
        assert self.bound == ["a"]

    def test_a_binding_that_failed_leaves_the_former_note(self, world: World, lock: Lock) -> None:
        lock.note = "40"
        self.outcome = Outcome.DENIED
        assert self.ask(world) is Outcome.DENIED
        assert lock.left == ["40"]
