"""What becomes of bindings: confirmed, lost, hanging, refused, denied."""

import msgspec
import pytest

from scheduler.binder.actions import Condition
from scheduler.binder.api_calls import LONGEST_AGAIN_SECONDS, LOOK_AGAIN_SECONDS, MOST_AGAIN
from scheduler.binder.loop import MOST_IN_FLIGHT, SWEEP_SECONDS
from scheduler.binder.queue import LONGEST_BACKOFF_SECONDS, State
from scheduler.cluster.bind import Outcome
from tests.unit.binder.world import HUGE, ONE, World


def test_a_binding_whose_turn_comes_after_the_lease_was_lost_is_not_sent(world: World) -> None:
    world.node("n1")
    world.pod("a")
    world.turn()
    world.leading = False

    world.answer()

    assert (world.looked, world.on("n1"), world.state("a")) == ([], [], State.BACKOFF)


def test_room_that_is_given_back_with_the_lease_is_offered_to_pods_that_were_refused_for_it(world: World) -> None:
    world.node("n1", cpu="1")
    world.pod("a", requests=ONE)
    world.pod("b", requests=ONE)
    world.turn(2)
    assert world.state("b") is State.UNSCHEDULABLE
    world.leading = False
    world.answer()
    world.pod("a", requests=ONE, deleted=True)
    world.turn()

    world.leading = True
    world.now += LONGEST_BACKOFF_SECONDS
    world.turn()

    assert world.on("n1") == ["b"]


def test_room_that_a_hanging_binding_kept_on_a_replaced_node_is_offered_to_pods_that_were_refused_for_it(
    world: World,
) -> None:
    world.outcome = Outcome.UNKNOWN
    world.node("n1", cpu="1", uid="former")
    world.pod("a", requests=ONE)
    world.turn()
    world.answer(500)
    world.turn()
    world.node("n1", deleted=True)
    world.node("n1", cpu="1", uid="later")
    world.pod("b", requests=ONE)
    world.turn()
    assert world.state("b") is State.UNSCHEDULABLE
    world.now += LOOK_AGAIN_SECONDS
    world.turn()
    world.pod("a", requests=ONE, deleted=True)
    world.now += LONGEST_BACKOFF_SECONDS
    world.turn()

    assert world.on("n1") == ["b"]


def test_room_of_a_bound_pod_that_goes_before_the_watch_shows_its_node_is_offered_to_others(world: World) -> None:
    """As after a break of the watch, when the next list has neither the binding nor the Pod."""
    world.node("n1", cpu="1")
    world.pod("a", requests=ONE)
    world.pod("b", requests=ONE)
    world.turn(2)
    world.answer()
    world.pod("a", requests=ONE, deleted=True)
    world.now += LONGEST_BACKOFF_SECONDS
    world.turn(2)

    assert world.on("n1") == ["b"]


def test_room_that_an_aborted_decision_took_is_offered_to_pods_that_were_refused_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        message = "not a name of Kubernetes"
        raise ValueError(message)

    world.node("n1", cpu="1")
    world.turn()
    world.pod("a", requests=ONE)
    with monkeypatch.context() as patched:
        patched.setattr(world.loop._api_calls, "send", fail)
        with pytest.raises(ValueError, match="not a name"):
            world.turn()
    world.pod("b", requests=ONE)
    world.turn()
    assert (world.on("n1"), world.state("b")) == (["a"], State.UNSCHEDULABLE)

    world.now += 2 * SWEEP_SECONDS
    world.turn()
    world.pod("a", requests=ONE, deleted=True)
    world.now += LONGEST_BACKOFF_SECONDS
    world.turn()

    assert world.on("n1") == ["b"]


def test_a_binding_that_was_not_simply_confirmed_is_looked_into(world: World) -> None:
    world.node("n1")
    world.pod("a")
    world.turn()

    world.answer(409)
    world.turn()

    assert world.looked == ["a"]
    assert world.on("n1") == ["a"]


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.DENIED, Outcome.FAILED, Outcome.ELSEWHERE])
def test_a_pod_that_was_not_bound_gives_its_room_back_and_is_tried_again(world: World, outcome: Outcome) -> None:
    world.outcome = outcome
    world.node("n1")
    world.pod("a")
    world.turn()
    world.answer(409)
    world.turn()
    assert (world.on("n1"), world.state("a")) == ([], State.BACKOFF)

    world.now += 1.0
    world.turn()

    assert len(world.dispatcher.requests) == 1


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Outcome.DENIED, "the API server refused the binding"),
        (Outcome.FAILED, "the API server failed to do the binding"),
    ],
)
def test_a_pod_whose_binding_is_not_done_says_so_once_and_is_tried_again(
    world: World, outcome: Outcome, said: str
) -> None:
    world.outcome = outcome
    world.node("n1")
    world.pod("a")
    for _ in range(2):
        world.turn()
        world.answer(403)
        world.turn()
        world.now += 5
    assert world.looked == ["a", "a"]
    assert world.conditions == [("a", Condition("SchedulerError", said))]
    assert [waiting.message for waiting in world.loop.status.pods] == [said]
    assert [(event.reason, event.note) for event in world.events] == [("FailedScheduling", said)]


def test_a_pod_whose_binding_is_denied_tries_all_other_nodes_before_the_same_again(world: World) -> None:
    """An admission policy about one node. By the scores the Pod would be sent there for ever: it stays the emptiest."""
    world.outcome = Outcome.DENIED
    world.node("n1", cpu="64")
    world.node("n2", cpu="8")
    world.node("n3", cpu="4")
    world.pod("a", requests={"cpu": "3"})
    for _ in range(5):
        world.turn()
        world.answer(403)
        world.turn()
        world.now += LONGEST_BACKOFF_SECONDS

    assert [node for _, node in world.recorded] == ["n1", "n2", "n3", "n1", "n2"]
    assert [notes.get("denied") for notes in world.notes] == [
        *(None, ["n1"], ["n1", "n2"]),
        *(["n1", "n2", "n3"], ["n1"]),
    ]


def test_a_pod_that_is_never_bound_wakes_only_those_that_were_refused_while_it_had_room(world: World) -> None:
    """A Pod that is denied again and again would have all others that wait tried again each time."""
    world.outcome = Outcome.DENIED
    world.node("n1", cpu="4")
    world.pod("before", requests=HUGE)
    world.turn()
    world.now += LONGEST_BACKOFF_SECONDS
    world.pod("a", requests={"cpu": "3"})
    world.turn()
    world.now += 1
    world.pod("meanwhile", requests={"cpu": "3"})
    world.turn()
    world.answer(403)
    world.now += LONGEST_BACKOFF_SECONDS
    world.turn(4)

    assert [name for name, _ in world.recorded] == ["before", "a", "meanwhile", "meanwhile"]


def test_pods_whose_bindings_fail_hold_up_no_others(world: World) -> None:
    """An admission webhook that is away keeps the Pods of its namespaces from being bound."""
    world.outcome = Outcome.FAILED
    world.node("n1", pods="1000")
    for number in range(MOST_IN_FLIGHT):
        world.pod(f"stuck-{number}")
    world.turn(MOST_IN_FLIGHT)
    world.answer(500)
    world.turn()

    world.pod("free")
    world.turn()

    assert world.on("n1") == ["free"]


def test_pods_whose_bindings_hang_hold_up_no_others(world: World) -> None:
    """An admission webhook that doesn't answer: the API server waits for it longer than the binder for the API server."""
    world.outcome = Outcome.UNKNOWN
    world.node("n1", pods="1000")
    for number in range(MOST_IN_FLIGHT):
        world.pod(f"stuck-{number}")
    world.turn(MOST_IN_FLIGHT)
    world.answer(0)
    world.turn()

    world.pod("free")
    world.turn()
    assert [request.path for request in world.dispatcher.requests] == ["/api/v1/namespaces/default/pods/free/binding"]
    assert len(world.on("n1")) == MOST_IN_FLIGHT + 1

    world.now += LOOK_AGAIN_SECONDS
    world.turn(2)
    assert len(world.dispatcher.requests) == 1 + MOST_AGAIN
    assert world.loop._pause(world.now) > 0
    world.outcome = Outcome.BOUND
    for _ in range(MOST_IN_FLIGHT // MOST_AGAIN):
        world.answer()
    world.turn()
    assert world.loop.bound == MOST_IN_FLIGHT + 1


def test_a_binding_that_hangs_is_sent_again_ever_later(world: World) -> None:
    world.outcome = Outcome.UNKNOWN
    world.node("n1")
    world.pod("a")
    world.turn()

    for seconds in (0.5, 1.0, 2.0, 4.0, LONGEST_AGAIN_SECONDS, LONGEST_AGAIN_SECONDS):
        world.answer(0)
        world.turn()
        world.now += seconds - 0.1
        world.turn()
        assert world.dispatcher.requests == []
        world.now += 0.2
        world.turn()
        assert len(world.dispatcher.requests) == 1


def test_a_busy_api_server_is_asked_once_for_a_binding_and_left_alone_for_as_long_as_it_says(world: World) -> None:
    """Its answer 429 says that nothing was done: neither a second binding at once nor a look at the Pod tells more."""
    world.node("n1")
    world.pod("a")
    world.turn()
    world.answer(429, retry_after_seconds=12.0)
    world.turn()
    assert world.looked == []

    world.now += 11.9
    world.turn()
    assert world.dispatcher.requests == []
    world.now += 0.2
    world.turn()
    world.answer()
    assert (world.loop.bound, world.on("n1")) == (1, ["a"])


def test_a_binding_that_a_webhook_denies_as_a_busy_server_would_is_sent_to_another_node(world: World) -> None:
    world.outcome = Outcome.DENIED
    world.node("n1", cpu="64")
    world.node("n2", cpu="8")
    world.pod("a")
    world.turn()
    world.answer(429, b'{"message":"admission webhook \\"full\\" denied the request: not there"}')
    world.turn()
    world.now += LONGEST_BACKOFF_SECONDS
    world.turn()
    assert (world.looked, [node for _, node in world.recorded]) == (["a"], ["n1", "n2"])


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Outcome.UNKNOWN, "the API server doesn't confirm the binding, which is sent again"),
        (
            Outcome.UNAUTHENTICATED,
            "the API server doesn't accept Berth's credentials, so the binding is sent again",
        ),
    ],
)
def test_a_pod_whose_binding_hangs_says_so_once_in_an_event_and_in_the_queue(
    world: World, outcome: Outcome, said: str
) -> None:
    """Not in a condition: the binding may be done in the same moment, and that would say otherwise on a bound Pod."""
    world.outcome = outcome
    world.node("n1")
    world.pod("a")
    world.turn()
    for _ in range(6):
        world.answer(500)
        world.turn()
        world.now += LONGEST_AGAIN_SECONDS
        world.turn()

    assert [(event.reason, event.note) for event in world.events] == [("FailedScheduling", said)]
    assert (world.conditions, [waiting.message for waiting in world.loop.status.pods]) == ([], [said])


def test_pods_of_a_namespace_whose_bindings_hang_leave_others_half_of_the_connections(world: World) -> None:
    """However many there are: each takes a connection for as long as an answer is waited for."""
    world.outcome = Outcome.UNKNOWN
    world.node("n1", pods="1000")
    for number in range(MOST_AGAIN):
        world.pod(f"stuck-{number}")
    world.turn(MOST_AGAIN)
    for _ in range(2):
        world.answer(0)
        world.turn()
        world.now += LOOK_AGAIN_SECONDS
        world.turn()

    late = [f"late-{number}" for number in range(2 * MOST_AGAIN)]
    for name in late:
        world.pod(name)
    world.pod("free", namespace="other")
    world.turn(len(late) + 2)
    paths = [request.path for request in world.dispatcher.requests]
    assert "/api/v1/namespaces/other/pods/free/binding" in paths
    assert len(paths) == 1 + MOST_AGAIN

    world.outcome = Outcome.BOUND
    for _ in range(5):
        world.now += LOOK_AGAIN_SECONDS
        world.answer()
    world.turn()
    assert world.loop.bound == 3 * MOST_AGAIN + 1
    world.pod("next")
    world.turn()
    assert [request.path for request in world.dispatcher.requests] == ["/api/v1/namespaces/default/pods/next/binding"]


def test_bindings_are_sent_again_in_the_order_in_which_they_are_due(world: World) -> None:
    """Among many that hang, one whose answer was lost just now doesn't wait for those that are tried ever later."""
    world.outcome = Outcome.UNKNOWN
    world.node("n1")
    for number in range(MOST_AGAIN):
        world.pod(f"stuck-{number}")
    world.turn(MOST_AGAIN)
    world.answer(0)
    world.turn()
    world.now += LOOK_AGAIN_SECONDS
    world.turn()
    world.pod("lost")
    world.turn()
    world.answer(0)
    world.turn()

    world.now += 2 * LOOK_AGAIN_SECONDS
    world.turn()
    paths = [request.path for request in world.dispatcher.requests]
    assert paths[0] == "/api/v1/namespaces/default/pods/lost/binding"
    assert len(paths) == MOST_AGAIN


def test_a_binding_refused_since_the_pod_is_another_by_now_is_not_told(world: World) -> None:
    world.outcome = Outcome.REFUSED
    world.node("n1")
    world.pod("a")
    world.turn()
    world.answer(409)
    world.turn()
    assert (world.looked, world.conditions, world.events) == (["a"], [], [])


def test_a_pod_that_was_changed_since_it_was_decided_on_is_decided_on_again_at_once(world: World) -> None:
    world.outcome = Outcome.REFUSED
    world.node("n1")
    world.node("n2", labels={"pool": "x"})
    world.pod("a", labels={"app": "old"})
    world.turn()
    sent = msgspec.json.decode(world.dispatcher.requests[0].body)
    world.pod("a", labels={"app": "new"})
    world.answer(409)
    world.turn(2)

    again = msgspec.json.decode(world.dispatcher.requests[0].body)
    assert sent["metadata"]["uid"] == again["metadata"]["uid"] == "uid-a"
    assert int(sent["metadata"]["resourceVersion"]) + 1 == int(again["metadata"]["resourceVersion"])


def test_a_pod_that_is_gone_is_forgotten(world: World) -> None:
    world.outcome = Outcome.GONE
    world.node("n1")
    world.pod("a")
    world.turn()
    world.answer(404)
    world.turn()

    assert (world.on("n1"), world.state("a")) == ([], None)


def test_a_binding_of_which_nobody_knows_what_became_is_sent_again_to_the_same_node(world: World) -> None:
    world.outcome = Outcome.UNKNOWN
    for name in ("n1", "n2"):
        world.node(name)
    world.pod("a")
    world.turn()
    node = world.recorded[0][1]
    world.answer(0)
    world.turn()
    assert (world.on(node), world.dispatcher.requests) == (["a"], [])

    world.now += LOOK_AGAIN_SECONDS
    world.turn()
    assert f'"name":"{node}"'.encode() in world.dispatcher.requests[0].body
    world.answer()

    assert world.state("a") is State.TAKEN
    assert world.recorded == [("a", node)]


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_binding_that_hangs_is_not_sent_again_to_a_node_that_went(world: World, *, is_made_anew: bool) -> None:
    world.outcome = Outcome.UNKNOWN
    for name in ("n1", "n2"):
        world.node(name, uid=f"uid-{name}")
    world.pod("a")
    world.turn()
    went = world.recorded[0][1]
    world.answer(0)
    world.turn()
    world.node(went, deleted=True)
    if is_made_anew:
        world.node(went, uid="another", taints=[{"key": "new", "effect": "NoSchedule"}])
    world.now += LOOK_AGAIN_SECONDS
    world.turn()
    assert (world.dispatcher.requests, world.state("a")) == ([], State.BACKOFF)

    world.now += 1.0
    world.turn()
    assert [name for _, name in world.recorded] == [went, "n2" if went == "n1" else "n1"]
    world.answer()
    assert (world.state("a"), world.loop.bound) == (State.TAKEN, 1)


def test_a_pod_deleted_while_it_is_being_bound_gives_its_room_back(world: World) -> None:
    world.node("n1")
    world.pod("a")
    world.turn()
    world.pod("a", deleted=True)
    world.turn()
    assert (world.on("n1"), world.state("a")) == ([], None)

    world.answer()

    assert world.on("n1") == []
