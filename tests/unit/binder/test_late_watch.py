"""What the loop does while it can't see: a watch that is late, an API server that is away."""

from typing import Any

import pytest

from scheduler.binder.api_calls import LOOK_AGAIN_SECONDS
from scheduler.binder.loop import SWEEP_SECONDS
from scheduler.binder.queue import State
from scheduler.cluster.bind import Outcome
from scheduler.cluster.kinds import PODS
from tests.unit.binder.world import ONE, World


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(monkeypatch)
    made.node("n1")
    made.pod("a", requests=ONE)
    made.turn()
    return made


def test_a_bound_pod_keeps_its_room_however_late_the_watch_is(world: World) -> None:
    world.answer()

    for _ in range(5):
        world.now += SWEEP_SECONDS + 0.1
        world.turn()

        assert (world.on("n1"), world.state("a"), world.dispatcher.requests) == (["a"], State.TAKEN, [])


def test_a_pod_whose_cycle_broke_off_is_tried_again(world: World) -> None:
    """Nothing is on its way for it and nothing was confirmed: as after a fault in the middle of a cycle."""
    world.dispatcher.requests.clear()
    world.loop._api_calls.in_flight.clear()

    world.now += SWEEP_SECONDS + 0.1
    world.turn()

    assert (world.on("n1"), world.state("a")) == ([], State.BACKOFF)


def test_a_bound_pod_that_is_deleted_before_it_was_seen_on_its_node_gives_its_room_back(world: World) -> None:
    world.answer()
    world.pod("a", deleted=True)
    world.turn()

    assert (world.on("n1"), world.state("a")) == ([], None)
    assert world.loop._api_calls._unseen == set()


def test_a_pod_seen_on_its_node_before_its_binding_is_confirmed_leaves_nothing_behind(world: World) -> None:
    world.pod("a", requests=ONE, node="n1")
    world.turn()
    world.answer()

    assert (world.on("n1"), world.state("a")) == (["a"], None)
    assert world.loop._api_calls._unseen == set()


def test_bindings_are_sent_again_once_the_api_server_is_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.outcome = Outcome.UNKNOWN
    world.answer(0)
    world.turn()
    with monkeypatch.context() as patch:
        patch.setattr(world.live, "failing", lambda: frozenset({PODS.name}))
        for _ in range(5):
            world.now += LOOK_AGAIN_SECONDS
            world.turn()
            assert world.dispatcher.requests == []
            assert world.loop._pause(world.now) > 0

    world.turn()

    assert len(world.dispatcher.requests) == 1
    assert world.on("n1") == ["a"]


def test_a_pod_seen_on_its_node_while_it_was_decided_on_keeps_its_room_when_this_process_no_longer_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader before had bound it there; deciding takes up to seconds."""
    world = World(monkeypatch)
    world.node("n1")
    record = world.loop._record

    def seen_meanwhile(*given: Any) -> str:
        world.pod("a", requests=ONE, node="n1")
        return record(*given)

    monkeypatch.setattr(world.loop, "_record", seen_meanwhile)
    world.pod("a", requests=ONE)
    world.turn()
    assert world.on("n1") == ["a"]

    world.leading = False
    world.answer()

    assert (world.on("n1"), world.state("a")) == (["a"], None)
    assert world.live._builder._assumed == {}
