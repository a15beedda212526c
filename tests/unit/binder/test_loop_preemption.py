"""The loop makes room, turn by turn: what is written before anybody is removed, who waits, and who is tried again."""

from collections.abc import Callable
from typing import Any

import pytest

from policies.engine.decision import CompiledRevision
from policies.engine.objects.cluster_kinds import DISRUPTION_BUDGETS
from policies.engine.objects.pod import Pod
from policies.engine.preemption.dry_run import (
    BY_SCHEDULER,
    NO_TIME,
    STILL_LEAVING,
    UNBINDABLE,
    UNDELETABLE,
    Preemption,
    Search,
)
from policies.engine.ruleset import Revision
from scheduler.binder import api_calls as api_calls_module
from scheduler.binder import nominator as nominator_module
from scheduler.binder.preemption_executor import BindingRefusedError, RemovalRefusedError
from scheduler.binder.queue import LONGEST_BACKOFF_SECONDS, State
from scheduler.cluster.bind import Outcome
from scheduler.cluster.errors import APIError, APIForbiddenError, APIUnavailableError
from scheduler.cluster.kinds import Seen
from scheduler.cluster.reflection import Changes
from scheduler.metrics import DEADLINE_MISSES, TOO_LARGE
from tests.builders import make_assignment, make_pod, make_rule_set
from tests.unit.binder.world import World

FOUR, TWO = {"cpu": "4"}, {"cpu": "2"}
REFUSED = APIForbiddenError("a policy")
RUNNING = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
LEAVING = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": BY_SCHEDULER}]}


class Room(World):
    """A World whose server removes Pods."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, sees_budgets: bool = True) -> None:
        self.expected: list[tuple[str, str, str]] = []
        super().__init__(monkeypatch, expect=self._expect)
        self.done: list[str] = []
        self.fault: Exception | None = None
        self.meanwhile: Callable[[], object] = lambda: None
        monkeypatch.setattr(api_calls_module, "act", self._act)
        if sees_budgets:
            self.see_budgets()
        self.node("n1")
        self.pod("low", node="n1", requests=FOUR, status=RUNNING)

    def see_budgets(self) -> None:
        self.live._builder.on_objects(DISRUPTION_BUDGETS, [])
        self.loop._observe(DISRUPTION_BUDGETS, Changes([], replaced=True))

    def _write(self, *arguments: Any) -> bool:
        written = super()._write(*arguments)
        self.done.append(f"{arguments[1].name} nominated to {arguments[2].nominated or 'none'}")
        return written

    def _expect(self, preemptor: Pod, decision: str, victim: Pod) -> None:
        self.expected.append((victim.name, preemptor.name, decision))

    def _act(self, _client: Any, preemption: Preemption, pod: Any, *_: Any, **more: Any) -> bool:
        if self.fault is not None:
            raise self.fault
        self.meanwhile()
        victims = [victim for victim in preemption.victims if more["is_there"](victim)]
        for victim in victims:
            more["expect"](victim)
        self.done += [f"{victim.name} removed for {pod.name}" for victim in victims]
        return True

    def leave(self, name: str) -> None:
        """Show a victim on n1 on its way out."""
        self._version += 1
        json = make_pod(name, requests=FOUR, nodeName="n1")
        json["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:01Z", "resourceVersion": str(self._version)}
        json["status"] = {**RUNNING, **LEAVING}
        change = self._pods.on_event(Seen(f"uid-{name}", str(self._version), Pod.from_json(json)))
        assert change is not None
        self.live._on_pods(Changes([change]))

    def later(self) -> None:
        self.now += LONGEST_BACKOFF_SECONDS
        self.turn(2)


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    return Room(monkeypatch)


def messages(room: Room) -> list[str]:
    return [condition.message for _, condition in room.conditions]


def test_the_nomination_is_written_before_anybody_is_removed(room: Room) -> None:
    room.pod("urgent", requests=FOUR, priority=10)
    room.turn()

    assert room.done == ["urgent nominated to n1", "low removed for urgent"]
    assert messages(room) == ["0/1 nodes are available: 1 Insufficient cpu."]
    assert room.recorded == [("urgent", "")]


def test_the_preemptor_is_noted_with_the_decision_that_removes_a_pod_and_not_with_one_that_was_refused(
    room: Room,
) -> None:
    room.fault = BindingRefusedError(REFUSED)
    room.pod("urgent", requests=FOUR, priority=10)
    room.turn(2)
    assert room.expected == []

    room.fault = None
    room.later()  # the node is left out
    room.node("n1", labels={"helps": "perhaps"})
    room.later()
    assert ["victims" in notes["preemption"] for notes in room.notes[:3]] == [True, False, True]
    assert room.expected == [("low", "urgent", "decision-3")]


def test_a_search_for_victims_that_ends_for_time_is_counted(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(**_: Any) -> Search:
        return Search(reason=NO_TIME, keeps_nomination=True)

    monkeypatch.setattr(nominator_module, "search", cut_off)
    rule_sets, assignments = [make_rule_set("web")], [make_assignment("web", "web")]
    room.loop.serve(CompiledRevision(Revision(number=1, rule_sets=rule_sets, assignments=assignments)))
    counter = DEADLINE_MISSES.labels("web")._value
    before = counter.get()

    room.pod("urgent", requests=FOUR, priority=10)
    room.turn()
    assert counter.get() == before + 1


def test_a_pod_too_large_for_a_rule_about_victims_is_counted(room: Room) -> None:
    rule = {
        "name": "long",
        "expression": "!pod.metadata.annotations.notes.contains(victim.metadata.name)",
        "reason": "stays",
    }
    rule_sets, assignments = [make_rule_set("web", victims=[rule])], [make_assignment("web", "web")]
    room.loop.serve(CompiledRevision(Revision(number=1, rule_sets=rule_sets, assignments=assignments)))
    counter = TOO_LARGE.labels("web")._value
    before = counter.get()

    room.pod("urgent", requests=FOUR, priority=10, annotations={"notes": "x" * 262_144})
    room.turn()

    assert counter.get() == before + 1
    assert room.done == ["urgent nominated to none"]


@pytest.mark.parametrize(
    ("expression", "protected"),
    [
        ("victim.metadata.?labels.keep.orValue('') != 'yes'", {"labels": {"keep": "yes"}}),
        ("victim.metadata.?annotations.keep.orValue('') != 'yes'", {"annotations": {"keep": "yes"}}),
        ("victim.status.phase == 'Running'", {"status": {**RUNNING, "phase": "Unknown"}}),
    ],
)
def test_a_pod_whose_victim_is_not_protected_any_more_is_tried_again(
    room: Room, expression: str, protected: dict[str, Any]
) -> None:
    rule = {"name": "kept", "expression": expression, "reason": "stays"}
    rule_sets, assignments = [make_rule_set("web", victims=[rule])], [make_assignment("web", "web")]
    room.loop.serve(CompiledRevision(Revision(number=1, rule_sets=rule_sets, assignments=assignments)))
    room.pod("low", node="n1", requests=FOUR, **{"status": RUNNING, **protected})
    room.pod("urgent", requests=FOUR, priority=10)
    room.turn()
    assert messages(room)[-1].endswith("preemption: 0/1 nodes are available: 1 stays.")

    room.later()
    assert room.state("urgent") is State.UNSCHEDULABLE

    room.pod("low", node="n1", requests=FOUR, status=RUNNING)
    room.later()

    assert room.done == ["urgent nominated to none", "urgent nominated to n1", "low removed for urgent"]


def test_a_node_helps_by_what_a_rule_about_victims_reads_of_it(room: Room) -> None:
    rule = {"name": "old", "expression": "node.status.nodeInfo.kernelVersion == '6'", "reason": "stays"}
    rule_sets, assignments = [make_rule_set("web", victims=[rule])], [make_assignment("web", "web")]
    room.loop.serve(CompiledRevision(Revision(number=1, rule_sets=rule_sets, assignments=assignments)))
    room.pod("urgent", requests=FOUR, priority=10)
    room.turn()

    room.node("n1", status={"nodeInfo": {"kernelVersion": "6"}})
    room.later()

    assert room.done == ["urgent nominated to none", "urgent nominated to n1", "low removed for urgent"]


def test_nobody_is_removed_when_the_nomination_could_not_be_written_and_it_is_tried_again(room: Room) -> None:
    room.written = False
    room.pod("urgent", requests=FOUR, priority=10)
    room.turn(2)
    assert room.done == ["urgent nominated to n1"]
    assert room.state("urgent") is State.BACKOFF

    room.written = True
    room.later()
    assert room.done[1:] == ["urgent nominated to n1", "low removed for urgent"]


def test_a_removal_that_failed_is_tried_again(room: Room) -> None:
    room.fault = APIUnavailableError("away")
    room.pod("urgent", requests=FOUR, priority=10)
    room.turn(2)
    assert room.state("urgent") is State.BACKOFF

    room.fault = None
    room.later()
    assert room.done == ["urgent nominated to n1", "low removed for urgent"]


@pytest.mark.parametrize(
    ("faults", "why"),
    [
        # An admission policy about some Pods: the Pod would wait for ever on the node that costs the least.
        ([RemovalRefusedError(Pod.from_json(make_pod(name)), REFUSED) for name in ("low", "more")], UNDELETABLE),
        # One about some nodes: victims there would be deleted in vain.
        ([BindingRefusedError(REFUSED)] * 2, UNBINDABLE),
    ],
)
def test_where_a_victim_or_the_binding_is_refused_another_node_is_freed_and_all_are_asked_again_once_none_can_be(
    room: Room, faults: list[APIError], why: str
) -> None:
    room.node("n2")
    room.pod("more", node="n2", requests=FOUR, status=RUNNING, priority=1)
    room.pod("urgent", requests=FOUR, priority=10)
    asked = []
    for fault in faults:
        room.fault = fault
        room.turn(2)
        asked.append(room.done[-1])
        room.now += LONGEST_BACKOFF_SECONDS
    room.fault = None
    room.turn(2)
    assert asked == ["urgent nominated to n1", "urgent nominated to n2"]
    assert messages(room)[-1].endswith(f"preemption: 0/2 nodes are available: 2 {why}.")

    room.node("n2", labels={"helps": "perhaps"})
    room.later()
    assert room.done[-2:] == ["urgent nominated to n1", "low removed for urgent"]


def test_the_pod_waits_for_its_victims_and_is_bound_to_their_node(room: Room) -> None:
    room.pod("urgent", requests=FOUR, priority=10)
    room.turn()
    room.node("n2", cpu="1")  # requeues it before the victim is seen to leave
    room.later()
    room.leave("low")
    room.node("n3", cpu="1")
    room.later()
    assert room.done == ["urgent nominated to n1", "low removed for urgent", *["urgent nominated to n1"] * 2]
    assert messages(room)[-1].endswith(f" preemption: {STILL_LEAVING}")

    room.pod("low", node="n1", requests=FOUR, deleted=True)
    room.node("n4", cpu="8")
    room.later()
    assert room.on("n1") == ["urgent"]


def wait_for_the_same_node(room: Room) -> str:
    """Nominate two Pods to n1, the first without victims left there; returns the victim of the second. n2 would cost less now."""
    room.node("n1", cpu="8")
    room.pod("more", node="n1", requests=FOUR, status=RUNNING)
    room.pod("first", requests=FOUR, priority=10)
    room.turn()
    [gone] = [name for name in ("low", "more") if f"{name} removed for first" in room.done]
    [left] = {"low", "more"} - {gone}
    room.leave(gone)
    room.pod("second", requests=FOUR, priority=10)
    room.turn()
    assert f"{left} removed for second" in room.done

    room.node("n2")
    room.pod("least", node="n2", requests=FOUR, status=RUNNING, priority=-5)
    room.pod(gone, node="n1", requests=FOUR, deleted=True)
    room.turn(2)
    return left


def test_a_pod_waits_for_the_victims_of_another_on_its_node_and_removes_nobody_elsewhere(room: Room) -> None:
    """Each counts with the other's place: until the last victim leaves, neither fits."""
    left = wait_for_the_same_node(room)
    assert "first nominated to n2" not in room.done
    assert room.state("first") is State.UNSCHEDULABLE

    room.pod(left, node="n1", requests=FOUR, deleted=True)
    room.turn(2)
    assert sorted(room.on("n1")) == ["first", "second"]


def test_a_pod_waits_no_longer_for_the_victims_of_another_that_could_not_be_removed(room: Room) -> None:
    wait_for_the_same_node(room)
    second = room.loop._queue.get("uid-second")
    assert second is not None
    room.loop._api_calls._on_preempted(second.pod, room.loop._nominator._begun["uid-second"], False, room.now)
    room.turn()
    assert room.done[-2:] == ["first nominated to n2", "least removed for first"]


def test_it_is_tried_at_once_when_its_victim_is_gone_and_others_wait_out_their_backoff(room: Room) -> None:
    room.pod("urgent", requests=FOUR, priority=10)
    room.pod("other", requests=FOUR, preemptionPolicy="Never", priority=5)
    room.turn(2)
    room.leave("low")
    room.pod("low", node="n1", requests=FOUR, deleted=True)
    room.turn(2)

    assert room.on("n1") == ["urgent"]
    assert room.state("other") is State.BACKOFF


def test_a_less_important_pod_yields_is_tried_again_and_looks_elsewhere(room: Room) -> None:
    room.pod("late", requests=FOUR, priority=10)
    room.turn()
    room.pod("urgent", requests=FOUR, priority=20)
    room.turn(2)
    assert room.done[2:4] == ["urgent nominated to n1", "low removed for urgent"]
    assert room.loop._nominator.nominated.keys() == {"n1"}
    assert [pod.name for pod in room.loop._nominator.nominated["n1"]] == ["urgent"]
    assert room.done[4:] == ["late nominated to none"]


def test_a_victim_that_completed_meanwhile_is_not_removed(room: Room) -> None:
    room.meanwhile = lambda: room.pod("low", node="n1", requests=FOUR, deleted=True)
    room.pod("urgent", requests=FOUR, priority=10)
    room.turn()
    assert room.done == ["urgent nominated to n1"]

    room.turn()
    assert room.on("n1") == ["urgent"]


def test_a_victim_whose_binding_came_to_nothing_meanwhile_is_not_removed(room: Room) -> None:
    """It waits again: it would be deleted though it takes no room."""
    room.pod("low", node="n1", requests=FOUR, deleted=True)
    room.pod("late", requests=FOUR, priority=5)
    room.turn()
    assert room.on("n1") == ["late"]

    room.outcome = Outcome.REFUSED
    room.meanwhile = lambda: (room.answer(409), room.turn())
    room.pod("urgent", requests=FOUR, priority=10)
    room.turn()
    assert room.done == ["urgent nominated to n1"]

    room.later()
    assert room.on("n1") == ["urgent"]


@pytest.mark.parametrize("has_left", [False, True])
def test_a_pod_yields_nothing_to_one_that_may_not_be_bound_to_the_node(room: Room, *, has_left: bool) -> None:
    """Others would be removed for it in vain: its own victims are leaving, or left."""
    room.node("n2")
    room.pod("busy", node="n2", requests=FOUR, priority=5, status=RUNNING)
    room.pod("late", requests=FOUR, priority=10)
    room.turn()
    room.leave("low")
    room.fault = BindingRefusedError(REFUSED)
    room.pod("urgent", requests=FOUR, priority=20)
    room.turn()
    room.fault = None
    if has_left:
        room.pod("low", node="n1", requests=FOUR, deleted=True)
    room.turn(2)

    assert [done for done in room.done if "removed" in done] == ["low removed for late"]
    assert room.on("n1") == (["late"] if has_left else ["low"])


def test_a_nomination_is_cleared_when_nobody_can_be_preempted(room: Room) -> None:
    room.pod("urgent", requests=FOUR, priority=10)
    room.turn()
    room.pod("low", node="n1", requests=FOUR, deleted=True)
    room.pod("boss", node="n1", requests=FOUR, priority=99, status=RUNNING)
    room.later()
    assert room.done[-1] == "urgent nominated to none"
    assert messages(room)[-1].endswith("1 No preemption victims found for incoming pod.")


def test_nobody_is_preempted_before_budgets_were_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(monkeypatch, sees_budgets=False)
    room.pod("urgent", requests=FOUR, priority=10)
    room.turn()
    assert room.done == ["urgent nominated to none"]

    room.see_budgets()
    room.later()
    assert room.done[1:] == ["urgent nominated to n1", "low removed for urgent"]


def test_a_pod_that_is_gone_is_waited_for_no_more(room: Room) -> None:
    room.pod("urgent", requests=FOUR, priority=10)
    room.turn()
    room.pod("urgent", requests=FOUR, priority=10, deleted=True)
    room.turn()
    assert room.loop._nominator.nominated == {}

    room.pod("low", node="n1", requests=FOUR, deleted=True)
    room.pod("next", requests=TWO)
    room.turn()
    assert room.on("n1") == ["next"]
