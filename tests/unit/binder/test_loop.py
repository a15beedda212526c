"""The loop, turn by turn: what it decides, whom it tries again, and what it makes of what it hears."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from policies.engine.decision import NOT_IN_TIME, CompiledRevision
from policies.engine.failures import Conditions
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.table import Table
from policies.engine.ruleset import Revision
from scheduler.binder import api_calls as api_calls_module
from scheduler.binder import loop as loop_module
from scheduler.binder.actions import Condition
from scheduler.binder.cycle import Placement, opens_at
from scheduler.binder.loop import SWEEP_SECONDS, UNRECORDED, Nomination
from scheduler.binder.queue import LONGEST_BACKOFF_SECONDS, State, Waiting
from scheduler.cluster.errors import APIError, APIForbiddenError, APITimeoutError, APIUnavailableError
from scheduler.cluster.reflection import Change
from scheduler.decisions import time_limit
from scheduler.decisions.spool import SpoolFullError
from scheduler.metrics import DEADLINE_MISSES, TOO_LARGE
from tests.builders import make_assignment, make_pod, make_rule_set
from tests.unit.binder.world import HUGE, ONE, World


def test_a_pod_counts_on_its_node_before_its_binding_is_sent_and_is_forgotten_once_it_is_seen_there(
    world: World,
) -> None:
    world.node("n1")
    world.pod("a", requests=ONE)
    world.turn()

    assert world.on("n1") == ["a"]
    assert [request.path for request in world.dispatcher.requests] == ["/api/v1/namespaces/default/pods/a/binding"]
    assert world.recorded == [("a", "n1")]
    world.answer()
    assert [event.note for event in world.events] == ["Successfully assigned default/a to n1"]
    assert world.state("a") is State.TAKEN
    world.pod("a", requests=ONE, node="n1")
    world.turn()
    assert world.state("a") is None
    assert world.on("n1") == ["a"]


def test_pods_decided_one_after_another_see_each_other_before_anything_is_confirmed(world: World) -> None:
    for name in ("n1", "n2"):
        world.node(name, cpu="1")
    for name in "abc":
        world.pod(name, requests=ONE)
    world.turn(3)

    assert sorted(world.on("n1") + world.on("n2")) == ["a", "b"]
    assert world.state("c") is State.UNSCHEDULABLE


def test_a_refused_pod_says_why_once_and_again_only_when_that_changes(world: World) -> None:
    world.node("n1")
    world.pod("a", requests=HUGE)
    world.turn()
    message = "0/1 nodes are available: 1 Insufficient cpu."

    assert [(name, found.message, found.reason) for name, found in world.conditions] == [
        ("a", message, "Unschedulable")
    ]
    assert [(event.reason, event.note) for event in world.events] == [("FailedScheduling", message)]
    world.now += 5
    world.node("n2")
    world.turn(2)
    assert [found.message for _, found in world.conditions][1:] == ["0/2 nodes are available: 2 Insufficient cpu."]
    world.now += 5
    world.node("n2", labels={"x": "y"})
    world.turn(2)
    assert len(world.conditions) == len(world.events) == 2


def test_a_condition_that_could_not_be_written_is_written_after_the_next_refusal(world: World) -> None:
    world.node("n1")
    world.written = False
    world.pod("a", requests=HUGE)
    world.turn(2)
    world.written = True
    world.now += 5
    world.node("n1", labels={"x": "y"})
    world.turn(2)

    assert [name for name, _ in world.conditions] == ["a", "a"]
    # Told once: where a policy lets nobody write conditions, each attempt would leave an event.
    assert len(world.events) == 1


BUSY = APIUnavailableError("too many requests", status=429)
UNANSWERED = APITimeoutError("nothing came")


@pytest.mark.parametrize("failure", [BUSY, UNANSWERED, APIForbiddenError("a token ran out", status=401)])
def test_a_condition_that_the_api_server_does_not_take_for_now_is_written_soon_though_nothing_happens(
    world: World, failure: APIError
) -> None:
    """Else who adds nodes for Pods without room would hear of the Pod after five minutes."""
    world.node("n1")
    world.failure = failure
    world.pod("a", requests=HUGE)
    world.pod("gone", requests=HUGE)
    world.turn(3)
    world.pod("gone", requests=HUGE, deleted=True)
    world.failure = None
    world.now += SWEEP_SECONDS
    world.turn()
    world.now += SWEEP_SECONDS
    world.turn()

    assert [name for name, _ in world.conditions] == ["a", "gone", "a"]
    assert len(world.recorded) == 2
    assert len(world.events) == 2


def test_events_are_sent_again_while_the_api_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    again: list[float] = []
    world = World(monkeypatch, post_again=lambda: again.append(world.now))
    world.turn()
    for failing in (frozenset({"nodes"}), frozenset[str]()):
        monkeypatch.setattr(world.live, "failing", partial(frozenset[str], failing))
        world.now += SWEEP_SECONDS
        world.turn()

    assert again == [100.0, 100.0 + 2 * SWEEP_SECONDS]


def test_few_conditions_at_a_time_are_sent_again_each_in_its_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_calls_module, "MOST_SAID_AGAIN", 2)
    world.node("n1")
    world.failure = BUSY
    for name in "abc":
        world.pod(name, requests=HUGE)
    world.turn(4)
    world.conditions.clear()
    for _ in range(3):
        world.now += SWEEP_SECONDS
        world.turn(2)

    assert [name for name, _ in world.conditions] == ["a", "b", "c", "a", "b", "c"]


def test_a_condition_that_was_due_while_the_lease_was_lost_is_written_once_it_is_held_again(world: World) -> None:
    world.node("n1")
    world.pod("a", requests=HUGE)
    world.loop._turn()
    world.leading = False
    world.turn(2)
    assert (world.state("a"), world.conditions) == (State.UNSCHEDULABLE, [])
    world.leading = True
    world.now += SWEEP_SECONDS
    world.turn(2)

    assert [name for name, _ in world.conditions] == ["a"]


def test_a_condition_that_is_sent_again_names_the_node_that_is_nominated_now(world: World) -> None:
    world.node("n1")
    world.failure = BUSY
    world.pod("a", requests=HUGE)
    world.turn(2)
    world.pod("a", requests=HUGE, status={"nominatedNodeName": "n1"})  # by another leader, or a person
    world.failure = None
    world.now += SWEEP_SECONDS
    world.turn(2)

    assert [found.nominated for _, found in world.conditions] == ["", "n1"]


def test_two_conditions_without_an_answer_are_sent_again_at_a_time_and_all_once_one_is_answered(world: World) -> None:
    """Else a webhook that hangs would take all threads, which look up bindings too."""
    world.node("n1")
    world.failure = UNANSWERED
    for name in "abcde":
        world.pod(name, requests=HUGE)
    world.turn(6)
    world.conditions.clear()
    world.now += SWEEP_SECONDS
    world.turn(3)
    assert [name for name, _ in world.conditions] == ["a", "b"]
    world.failure = None
    world.conditions.clear()
    world.now += SWEEP_SECONDS
    world.turn(5)
    assert sorted(name for name, _ in world.conditions) == list("abcde")


def test_a_condition_that_the_pod_has_already_is_not_written_after_a_restart(world: World) -> None:
    message = "0/1 nodes are available: 1 Insufficient cpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    world.node("n1")
    world.pod("a", requests=HUGE, status={"conditions": [condition]})
    world.turn()

    assert (world.conditions, world.events) == ([], [])


def test_a_condition_that_another_leader_overwrote_is_written_again(world: World) -> None:
    def refused(by: str) -> dict[str, Any]:
        return {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": by}]}

    world.node("n1")
    world.pod("a", requests=HUGE)
    world.turn()
    ((_, said),) = world.conditions

    world.pod("a", requests=HUGE, status=refused(said.message))
    world.turn()
    world.pod("a", requests=HUGE, status=refused("0/3 nodes are available: 3 Insufficient cpu."))
    world.now += 5
    world.node("n1", cpu="7")
    world.turn()

    assert [condition for _, condition in world.conditions] == [said, said]


def test_a_pod_refused_while_something_is_away_is_tried_once_that_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It isn't refused for anything of the cluster, so nothing that happens there would say that it has a node now."""
    away: list[str] = []

    def conditions() -> Conditions:
        return Conditions(
            snapshot_age_seconds=1.0, database_reachable="database" not in away, redis_reachable="redis" not in away
        )

    world = World(monkeypatch, conditions=conditions)
    rule_set = make_rule_set("web", failures={"database": "refuse"})
    assignments = [make_assignment("web", "web")]
    world.loop.serve(CompiledRevision(Revision(number=1, rule_sets=[rule_set], assignments=assignments)))
    world.node("n1")
    away += ["database", "redis"]
    world.pod("a", requests=ONE)
    world.turn()
    assert world.state("a") is State.UNSCHEDULABLE

    world.now += LONGEST_BACKOFF_SECONDS
    away.remove("redis")
    world.turn()
    assert world.state("a") is State.UNSCHEDULABLE
    away.remove("database")
    world.now += LONGEST_BACKOFF_SECONDS
    world.turn(2)
    assert world.on("n1") == ["a"]


@pytest.mark.parametrize("choice", ["pass", "refuse"])
def test_a_pod_too_large_for_a_rule_is_counted_wherever_it_is_placed(world: World, choice: str) -> None:
    rule = {"name": "long", "expression": "!pod.metadata.annotations.notes.contains(node.metadata.name)"}
    rule_set = make_rule_set("web", filters=[rule], failures={"deadline": choice})
    assignments = [make_assignment("web", "web")]
    world.loop.serve(CompiledRevision(Revision(number=1, rule_sets=[rule_set], assignments=assignments)))
    counter = TOO_LARGE.labels("web")._value
    before = counter.get()
    world.node("n1")
    world.pod("small", annotations={"notes": "x"})
    world.turn()
    assert counter.get() == before

    world.pod("large", annotations={"notes": "x" * 262_144})
    world.turn()

    assert counter.get() == before + 1
    assert ("large" in world.on("n1")) is (choice == "pass")


@pytest.mark.parametrize("choice", ["pass", "refuse"])
def test_a_pod_that_asks_without_end_is_decided_in_time_and_counted(
    world: World, monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    """Time goes by as columns of all nodes are read: at 5,000 nodes each takes a millisecond or two."""
    read: list[object] = []
    column = Table._column
    monkeypatch.setattr(
        Table, "_column", lambda self, key, *more, **named: read.append(key) or column(self, key, *more, **named)
    )
    clock = SimpleNamespace(monotonic=lambda: len(read) * loop_module.MOST_SECONDS / 50)
    monkeypatch.setattr(time_limit, "time", clock)
    rule_set = make_rule_set("web", filters=[{"builtin": "MatchNodeSelector"}], failures={"deadline": choice})
    assignments = [make_assignment("web", "web")]
    world.loop.serve(CompiledRevision(Revision(number=1, rule_sets=[rule_set], assignments=assignments)))
    terms = [{"matchExpressions": [{"key": f"k{number}", "operator": "Exists"}]} for number in range(2_000)]
    asked = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    counter = DEADLINE_MISSES.labels("web")._value
    before = counter.get()
    world.node("n1")
    world.turn()
    read.clear()

    world.pod("endless", affinity=asked)
    world.turn()

    assert counter.get() == before + 1
    assert len(read) < 100
    assert ("endless" in world.on("n1")) is (choice == "pass")
    assert choice == "pass" or NOT_IN_TIME.reason in world.conditions[-1][1].message


def test_who_does_not_lead_decides_on_nothing(world: World) -> None:
    world.leading = False
    world.node("n1")
    world.pod("a")
    world.turn(2)

    assert (world.dispatcher.requests, world.state("a")) == ([], State.ACTIVE)


@pytest.mark.parametrize("requests", [ONE, HUGE])
def test_a_pod_whose_decision_may_not_be_lost_waits_for_room_takes_none_and_says_why(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, requests: dict[str, str]
) -> None:
    def refuse(*_: object) -> str:
        message = "/spool takes nothing: No space left on device"
        raise SpoolFullError(message)

    world.node("n1")
    world.pod("a", requests=requests)
    with monkeypatch.context() as patched:
        patched.setattr(world.loop, "_record", refuse)
        for _ in range(3):
            world.turn()
            world.now += LONGEST_BACKOFF_SECONDS

    assert (world.on("n1"), world.dispatcher.requests, world.state("a")) == ([], [], State.BACKOFF)
    assert world.conditions == [("a", Condition("SchedulerError", UNRECORDED))]
    told = "Pods aren't scheduled, their Decisions can't be recorded: /spool takes nothing: No space left on device"
    assert [line.message for line in caplog.records] == [told]
    world.turn()
    assert [name for name, _ in world.recorded] == ["a"]

    world.pod("b", requests=requests)
    with monkeypatch.context() as patched:
        patched.setattr(world.loop, "_record", refuse)
        world.turn()
    assert [line.message for line in caplog.records if line.name == "berth.binding"] == [told, told]


def test_a_pod_that_was_deleted_while_it_waited_is_never_decided_on(world: World) -> None:
    world.pod("a")
    world.pod("a", deleted=True)
    world.node("n1")
    world.turn(2)

    assert (world.recorded, world.state("a")) == ([], None)


def test_pods_of_other_schedulers_are_left_alone_and_count_once_they_are_placed(world: World) -> None:
    world.node("n1", cpu="1")
    world.pod("theirs", schedulerName="default-scheduler", requests=ONE)
    world.turn()
    assert world.state("theirs") is None
    world.pod("theirs", schedulerName="default-scheduler", requests=ONE, node="n1")
    world.pod("ours", requests=ONE)
    world.turn()
    assert world.state("ours") is State.UNSCHEDULABLE

    world.now += 5
    world.pod("theirs", schedulerName="default-scheduler", requests=ONE, node="n1", deleted=True)
    world.turn(2)

    assert world.on("n1") == ["ours"]


def test_a_node_that_only_sends_its_sign_of_life_wakes_nobody(world: World) -> None:
    world.node("n1")
    world.pod("a", requests=HUGE)
    world.turn()
    world.now += 5

    world.node("n1")
    world.turn(2)
    assert len(world.recorded) == 1
    world.node("n1", unschedulable=True)
    world.turn(2)

    assert len(world.recorded) == 2


@pytest.mark.parametrize(
    ("changed", "helps"),
    [
        ({"metadata": {"name": "n1", "labels": {"zone": "b"}}}, True),
        ({"metadata": {"name": "n1", "annotations": {"owner": "b"}}}, True),
        ({"spec": {"taints": []}}, True),
        ({"status": {"allocatable": {"cpu": "3"}}}, True),
        ({"status": {"allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]}}, True),
        ({"metadata": {"name": "n1", "resourceVersion": "8"}}, False),
    ],
)
def test_a_node_helps_by_each_change_that_kube_scheduler_goes_by(changed: dict[str, Any], helps: bool) -> None:
    spec = {"taints": [{"key": "a", "effect": "NoSchedule"}]}
    before = {"metadata": {"name": "n1"}, "spec": spec, "status": {"allocatable": {"cpu": "4"}}}
    nodes = [Node.from_json(each) for each in ({**before, **changed}, before)]
    assert loop_module._helps(Change("modified", "n1", *nodes, "8"), ()) == helps


def test_a_node_that_declares_what_a_pod_needs_helps(world: World) -> None:
    world.node("n1")
    world.turn()
    rules = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]
    world.pod("a", containers=[{"name": "main", "restartPolicyRules": rules}])
    world.turn()
    assert [found.message for _, found in world.conditions] == [
        "0/1 nodes are available: 1 node(s) didn't match Pod's required features."
    ]
    world.now += 5

    world.node("n1", status={"declaredFeatures": ["RestartAllContainersOnContainerExits"]})
    world.turn(2)

    assert world.on("n1") == ["a"]


@pytest.mark.parametrize(
    ("expression", "changed"),
    [
        ("node.status.images.exists(i, i.names.exists(n, n == 'model:1'))", {"images": [{"names": ["model:1"]}]}),
        ("node.status.?nodeInfo.kubeletVersion.orValue('') == 'v1.36.3'", {"nodeInfo": {"kubeletVersion": "v1.36.3"}}),
        ("node.status.capacity.cpu == '8'", {"capacity": {"cpu": "8"}}),
    ],
)
def test_a_node_helps_by_what_an_expression_reads_of_it(world: World, expression: str, changed: dict[str, Any]) -> None:
    rule_set = make_rule_set("web", filters=[{"name": "reads", "expression": expression}])
    assignments = [make_assignment("web", "web")]
    world.loop.serve(CompiledRevision(Revision(number=1, rule_sets=[rule_set], assignments=assignments)))
    world.node("n1")
    world.pod("a")
    world.turn()
    assert world.state("a") is State.UNSCHEDULABLE
    world.now += 5

    world.node("n1", status={"addresses": [{"type": "Hostname", "address": "n1"}]})
    world.turn(2)
    assert len(world.recorded) == 1
    world.node("n1", status=changed)
    world.turn(2)

    assert world.on("n1") == ["a"]


def test_a_heartbeat_wakes_nobody_though_an_expression_reads_conditions(world: World) -> None:
    ready = "node.status.conditions.exists(c, c.type == 'Ready' && c.status == 'False')"
    rule_set = make_rule_set("web", filters=[{"name": "reads", "expression": ready}])
    assignments = [make_assignment("web", "web")]
    world.loop.serve(CompiledRevision(Revision(number=1, rule_sets=[rule_set], assignments=assignments)))
    for beat in ("08:00:00", "08:05:00"):
        ready_since = {"type": "Ready", "status": "True", "lastHeartbeatTime": f"2026-01-01T{beat}Z"}
        world.node("n1", status={"conditions": [ready_since]})
        world.pod("a")
        world.turn(2)
        world.now += 5

    assert len(world.recorded) == 1


def test_only_nodes_with_the_label_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, node_label=("scheduler", "berth"))
    world.node("n1")
    world.node("n2", labels={"scheduler": "berth"})
    for name in "ab":
        world.pod(name)
    world.turn(2)

    assert world.on("n2") == ["a", "b"]


def test_a_revision_lets_refused_pods_be_tried_again(world: World) -> None:
    world.node("n1")
    world.pod("a", requests=HUGE)
    world.turn()
    world.now += 2

    world.loop.serve(CompiledRevision(Revision(number=1)))
    world.turn(2)

    assert len(world.recorded) == 2


def test_a_pod_is_retried_once_its_window_is_open_and_not_a_moment_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused once more, it would wait for its backoff while the window is open."""

    class Wall(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime(2026, 1, 1, 21, 59, tzinfo=UTC).astimezone(tz) + timedelta(seconds=world.now - 100)

    def take_long(placement: Placement) -> datetime | None:
        world.now += 0.05
        return opens_at(placement)

    monkeypatch.setattr(loop_module, "datetime", Wall)
    monkeypatch.setattr(loop_module, "opens_at", take_long)
    night = make_rule_set(filters=[{"name": "night", "expression": "now.getHours() >= 22", "reason": "by night only"}])
    world.loop.serve(CompiledRevision(Revision(number=1, rule_sets=[night], assignments=[make_assignment(order=1)])))
    world.node("n1")
    world.pod("a", requests=ONE)
    world.turn()
    at = world.loop._queue.next_at()
    assert at is not None
    world.now = at
    world.turn()

    assert world.recorded == [("a", ""), ("a", "n1")]


FAR_FROM_WEB = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app": "web"}},
                "namespaceSelector": {"matchLabels": {"team": "a"}},
            }
        ]
    }
}
SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
]


def test_a_node_that_goes_helps_one_that_spreads_and_nobody_who_waits_for_room(world: World) -> None:
    world.node("full", labels={"kubernetes.io/hostname": "full"}, cpu="0")
    world.node("n1", labels={"kubernetes.io/hostname": "n1"})
    world.turn()
    world.pod("there", node="n1", labels={"app": "web"})
    world.pod("waits", labels={"app": "web"}, requests=ONE, topologySpreadConstraints=SPREAD)
    world.pod("huge", requests=HUGE)
    world.turn(2)
    assert (world.state("waits"), world.state("huge")) == (State.UNSCHEDULABLE, State.UNSCHEDULABLE)
    attempts = len(world.recorded)

    world.now += 5
    world.node("full", deleted=True)
    world.turn(2)

    assert world.recorded[attempts:] == [("waits", "n1")]


class TestWhatHelpsARefusedPodWithoutKubeSchedulersNotice:
    """kube-scheduler v1.36.3 has no such events, and looks again within five minutes; see `policies.engine.rule`."""

    def two_nodes(self, world: World) -> None:
        world.node("n1", labels={"kubernetes.io/hostname": "n1"})
        world.node("n2", labels={"kubernetes.io/hostname": "n2"}, unschedulable=True)
        world.turn()

    def test_a_pod_that_begins_to_be_deleted_helps_one_that_spreads(self, world: World) -> None:
        self.two_nodes(world)
        world.pod("there", node="n1", labels={"app": "web"})
        world.pod("waits", labels={"app": "web"}, topologySpreadConstraints=SPREAD)
        world.turn()
        assert world.state("waits") is State.UNSCHEDULABLE

        world.now += 5
        world.pod("there", node="n1", labels={"app": "web"}, deleting=True)
        world.turn(2)

        assert world.recorded[-1] == ("waits", "n1")

    def test_it_helps_nobody_who_waits_for_its_room(self, world: World) -> None:
        """Its room is taken until it is gone: the Pod would be refused again, and wait longer for that."""
        world.node("n1", cpu="1")
        world.turn()
        world.pod("there", node="n1", requests={"cpu": "1"})
        world.pod("waits", requests={"cpu": "1"})
        world.turn()
        assert world.state("waits") is State.UNSCHEDULABLE
        attempts = len(world.recorded)
        world.now += 5
        world.pod("there", node="n1", requests={"cpu": "1"}, deleting=True)
        world.turn(2)
        assert (world.state("waits"), len(world.recorded)) == (State.UNSCHEDULABLE, attempts)

        world.pod("there", node="n1", deleted=True)
        world.turn(2)
        assert world.recorded[-1] == ("waits", "n1")

    def test_a_namespace_that_loses_a_label_helps_one_that_keeps_away_from_its_pods(self, world: World) -> None:
        world.namespace("other", team="a")
        world.node("n1", labels={"kubernetes.io/hostname": "n1"})
        world.turn()
        world.pod("there", node="n1", namespace="other", labels={"app": "web"})
        world.pod("waits", affinity=FAR_FROM_WEB)
        world.turn()
        assert world.state("waits") is State.UNSCHEDULABLE

        world.now += 5
        world.namespace("other", team="b")
        world.turn(2)

        assert world.recorded[-1] == ("waits", "n1")

    def test_a_namespace_whose_labels_a_rule_reads_helps(self, world: World) -> None:
        theirs = [{"name": "team", "expression": "namespaceObject.metadata.labels.?team == node.metadata.labels.?team"}]
        rule_set = make_rule_set("theirs", filters=theirs)
        assignments = [make_assignment("all", "theirs")]
        world.loop.serve(CompiledRevision(Revision(number=1, rule_sets=[rule_set], assignments=assignments)))
        world.namespace("default")
        world.node("n1", labels={"team": "web"})
        world.turn()
        world.pod("waits")
        world.turn()
        assert world.state("waits") is State.UNSCHEDULABLE

        world.now += 5
        world.namespace("default", team="web")
        world.turn(2)

        assert world.recorded[-1] == ("waits", "n1")

    def test_a_namespace_by_whose_labels_another_rule_set_takes_the_pod_helps(self, world: World) -> None:
        never = make_rule_set("never", filters=[{"name": "never", "expression": "false"}])
        match = {"namespaceSelector": {"matchLabels": {"frozen": "yes"}}}
        frozen = make_assignment("frozen", "never", match=match)
        world.loop.serve(CompiledRevision(Revision(number=1, rule_sets=[never], assignments=[frozen])))
        world.namespace("default", frozen="yes")
        world.node("n1")
        world.turn()
        world.pod("waits")
        world.turn()
        assert world.state("waits") is State.UNSCHEDULABLE

        world.now += 5
        world.namespace("default")
        world.turn(2)

        assert world.recorded[-1] == ("waits", "n1")

    def test_a_namespace_whose_labels_stay_helps_nobody(self, world: World) -> None:
        world.namespace("other", team="a")
        world.node("n1", cpu="1")
        world.turn()
        world.pod("waits", requests={"cpu": "9"})
        world.turn()
        attempts = len(world.recorded)
        world.now += 5
        world.namespace("other", team="a")
        world.turn(2)
        assert len(world.recorded) == attempts


def test_what_an_event_was_missed_of_is_mended_by_the_sweep(world: World) -> None:
    world.node("n1")
    world.turn()
    for name in ("came", "went"):
        json = make_pod(name)
        world._pods.objects[f"uid-{name}"] = Pod.from_json(json)
    world.now += SWEEP_SECONDS
    world.turn(2)
    assert [name for name, _ in world.recorded] == ["came", "went"]
    world.answer()
    del world._pods.objects["uid-went"]

    world.now += SWEEP_SECONDS
    world.turn()

    assert world.state("went") is None


def test_a_pod_whose_cycle_broke_off_is_tried_again_and_holds_up_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = loop_module.usable_rows

    def broken(*_: Any) -> Any:
        monkeypatch.setattr(loop_module, "usable_rows", whole)
        raise RuntimeError

    monkeypatch.setattr(loop_module, "usable_rows", broken)
    world.node("n1")
    for name in "ab":
        world.pod(name)
    world.turn(2)

    assert world.on("n1") == ["b"]
    assert world.state("a") is State.BACKOFF
    assert [found.reason for _, found in world.conditions] == ["SchedulerError"]
    world.now += 0.6  # less than its backoff
    world.turn()
    shown = {waiting.pod.name: waiting.message for waiting in world.loop.status.pods}
    assert shown["a"] == world.conditions[0][1].message == "Berth could not decide on the Pod; Berth's log says why"


def test_a_node_that_is_made_free_for_a_pod_is_kept_free_for_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        world.loop, "after_refusal", lambda waiting, placement: Nomination(node="n1", message="made room.")
    )
    world.node("n1", cpu="2")
    world.pod("running", requests={"cpu": "2"}, node="n1")
    world.pod("important", requests={"cpu": "2"}, priority=10)
    world.turn()
    assert [(found.message, found.nominated) for _, found in world.conditions] == [
        ("0/1 nodes are available: 1 Insufficient cpu. made room.", "n1")
    ]
    world.pod("running", requests={"cpu": "2"}, node="n1", deleted=True)
    world.pod("other", requests=ONE)
    world.turn(2)

    assert world.state("other") is State.UNSCHEDULABLE
    assert world.on("n1") == ["important"]


def test_a_nomination_from_before_a_restart_counts(world: World) -> None:
    world.node("n1", cpu="2")
    gates = [{"name": "example.org/wait"}]
    world.pod(
        "important", requests={"cpu": "2"}, priority=10, schedulingGates=gates, status={"nominatedNodeName": "n1"}
    )
    world.pod("other", requests=ONE)
    world.turn()
    assert world.state("other") is State.UNSCHEDULABLE

    world.pod("important", requests={"cpu": "2"}, priority=10, schedulingGates=gates, deleted=True)
    world.now += 5
    world.turn()

    assert world.on("n1") == ["other"]


def test_a_nomination_that_another_leader_made_meanwhile_counts(world: World) -> None:
    """Who stands by took the Pod in before it was nominated."""
    gates = [{"name": "example.org/wait"}]
    important = {"requests": {"cpu": "2"}, "priority": 10, "schedulingGates": gates}
    world.node("n1", cpu="2")
    world.pod("important", **important)
    world.turn()

    world.pod("important", **important, status={"nominatedNodeName": "n1"})
    world.pod("other", requests=ONE)
    world.turn()
    assert world.state("other") is State.UNSCHEDULABLE


def test_a_nomination_that_others_took_away_keeps_nothing_free(world: World) -> None:
    gates = [{"name": "example.org/wait"}]
    important = {"requests": {"cpu": "2"}, "priority": 10, "schedulingGates": gates}
    world.node("n1", cpu="2")
    world.pod("important", **important, status={"nominatedNodeName": "n1"})
    world.pod("other", requests=ONE)
    world.turn()
    assert world.state("other") is State.UNSCHEDULABLE

    world.now += 5
    world.pod("important", **important)
    world.turn()
    assert world.on("n1") == ["other"]


def test_a_node_that_is_not_kept_free_any_more_helps_those_that_wait_for_its_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    nominations = iter([Nomination(node="n1"), Nomination(), Nomination()])
    monkeypatch.setattr(world.loop, "after_refusal", lambda waiting, placement: next(nominations))
    world.node("n1", cpu="2")
    world.turn()
    world.pod("important", requests=HUGE, priority=10)
    world.pod("other", requests=ONE)
    world.turn(2)
    assert world.state("other") is State.UNSCHEDULABLE

    world.now += 5
    world.pod("important", requests=HUGE, priority=10, annotations={"changed": "yes"})
    world.turn(3)

    assert world.on("n1") == ["other"]


def test_a_pod_that_comes_to_the_node_kept_free_for_it_helps_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    nominations = iter([Nomination(node="n1"), Nomination()])
    monkeypatch.setattr(world.loop, "after_refusal", lambda waiting, placement: next(nominations))
    world.node("n1", cpu="2")
    world.turn()
    world.pod("running", requests=ONE, node="n1")
    world.pod("important", requests={"cpu": "2"}, priority=10)
    world.turn()
    world.now += 5
    world.pod("running", requests=ONE, node="n1", deleted=True)
    world.pod("other", requests=ONE)
    world.turn(2)
    assert (world.on("n1"), world.state("other")) == (["important"], State.UNSCHEDULABLE)

    world.now += 5
    world.turn(2)

    assert world.recorded[-1] == ("other", "")
    assert len(world.recorded) == 3


def test_the_status_names_the_node_that_was_picked_last(world: World) -> None:
    world.node("n1")
    assert world.loop.status.last_node == ""
    world.pod("a")
    world.turn()
    world.now += 1
    world.turn()
    assert world.loop.status.last_node == "n1"


def test_the_status_names_what_waits_the_longest_first(world: World) -> None:
    for name in "ab":
        world.pod(name)
        world.turn()
        world.now += 1
    world.turn()

    assert [waiting.pod.name for waiting in world.loop.status.pods] == ["a", "b"]
    assert world.loop.status.counts["unschedulable"] == 2
    assert all(isinstance(waiting, Waiting) for waiting in world.loop.status.pods)


def test_what_was_given_to_the_threads_is_done_before_they_end(world: World) -> None:
    world.node("n1")
    world.pod("a")
    world.loop.start()
    for _ in range(500):
        if world.dispatcher.requests:
            break
        world.loop._heard.wait(0.01)

    world.loop.stop()

    assert world.on("n1") == ["a"]
    assert not world.loop._decider.is_alive()


def test_what_gives_way_is_told_of_each_pod_and_of_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shadows rest while the deciding thread decides, and go on while it waits."""
    told: list[str] = []

    @contextmanager
    def deciding() -> Iterator[None]:
        told.append("begins")
        yield
        told.append(f"ends after {len(world.recorded)} records and {len(world.dispatcher.requests)} bindings")

    world = World(monkeypatch, deciding=deciding)
    world.turn()
    assert told == []

    world.node("n1")
    world.pod("a", requests={"cpu": "1"})
    world.turn(3)

    assert told == ["begins", "ends after 1 records and 1 bindings"]


def test_a_fault_while_deciding_ends_the_turn_for_what_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    @contextmanager
    def deciding() -> Iterator[None]:
        try:
            yield
        finally:
            told.append("ends")

    world = World(monkeypatch, deciding=deciding)
    world.node("n1")
    world.pod("a")

    def fails(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(world.loop, "_record", fails)
    with pytest.raises(ZeroDivisionError):
        world.turn(3)
    assert told == ["ends"]


def test_a_pod_that_is_woken_is_tried_at_once_whatever_is_left_of_its_backoff(world: World) -> None:
    world.node("n1")
    world.pod("a", requests=HUGE)
    world.turn()
    world.node("n2")
    world.turn()
    assert (world.state("a"), len(world.recorded)) == (State.BACKOFF, 1)

    world.loop.wake(["uid-a", "uid-of-nobody"])
    world.turn()
    assert (world.state("a"), len(world.recorded)) == (State.UNSCHEDULABLE, 2)


def test_a_pod_that_is_being_bound_is_not_decided_on_again_by_waking_it(world: World) -> None:
    world.node("n1")
    world.pod("a", requests=ONE)
    world.turn()
    world.loop.wake(["uid-a"])
    world.turn()
    assert world.recorded == [("a", "n1")]
    assert world.state("a") is State.TAKEN


def test_a_pod_that_shrinks_as_its_labels_change_gives_its_room_to_those_that_wait(world: World) -> None:
    world.node("n1", cpu="2")
    world.pod("running", requests={"cpu": "2"}, node="n1")
    world.pod("a", requests=ONE)
    world.turn()
    assert world.state("a") is State.UNSCHEDULABLE
    world.now += 5
    world.pod("running", requests={"cpu": "500m"}, node="n1", labels={"x": "y"})
    world.turn(2)
    assert sorted(world.on("n1")) == ["a", "running"]


def test_a_pass_counts_once_what_it_found_is_published(world: World) -> None:
    """`schedule --once` ends after a pass when nothing is under way: of an older state, it would end with nothing decided."""
    seen: list[dict[str, int]] = []

    class Watched(type(world.loop)):  # type: ignore[misc]
        """A loop that another thread looks at as soon as a pass counts."""

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "passes":
                seen.append(self.status.counts)

    world.loop.__class__ = Watched
    world.pod("a")
    world.turn()
    assert seen[0]["active"] == 1
