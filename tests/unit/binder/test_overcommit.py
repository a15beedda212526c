"""Nodes with more Pods than they have room for."""

import pytest

from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from scheduler.binder.overcommit import Overcommits, overcommitted
from tests.builders import make_node, make_pod

NODES = [Node.from_json(make_node(name, cpu="2", memory="2Gi", pods="2")) for name in ("n1", "n2")]


def snapshot_of(*pods: tuple[str, dict[str, str]]) -> Snapshot:
    made = [Pod.from_json(make_pod(f"p{n}", requests=asked, nodeName=node)) for n, (node, asked) in enumerate(pods)]
    return Snapshot.of(NODES, made)


@pytest.mark.parametrize("asked", [{"cpu": "1500m"}, {"memory": "1100Mi"}, {"ephemeral-storage": "1"}])
def test_a_node_whose_pods_ask_for_more_than_there_is_is_named(asked: dict[str, str]) -> None:
    assert overcommitted(snapshot_of(("n1", asked), ("n1", asked))) == ["n1"]
    assert overcommitted(snapshot_of(("n1", {"cpu": "2"}), ("n2", {"memory": "2Gi"}))) == []


def test_a_node_with_more_pods_than_slots_is_named() -> None:
    assert overcommitted(snapshot_of(*[("n2", {})] * 3)) == ["n2"]


def test_each_node_counts_once_until_it_has_room_again() -> None:
    looking = Overcommits()
    too_many = snapshot_of(*[("n1", {"cpu": "1500m"})] * 2)

    assert looking.look(too_many) == looking.look(too_many) == ["n1"]
    assert looking.look(snapshot_of(*[("n1", {"cpu": "1500m"})] * 2, ("n2", {"cpu": "3"}))) == ["n1", "n2"]
    assert looking.found == 2
    assert looking.look(snapshot_of()) == []
    assert looking.look(too_many) == ["n1"]
    assert looking.found == 3
