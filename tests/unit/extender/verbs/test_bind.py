"""Binding: to nodes that are there."""

from typing import Any

import pytest

from policies.engine.objects.pod import Pod
from scheduler.cluster.bind import Target
from scheduler.extender.verbs.bind import UNKNOWN_NODE, Binder
from scheduler.extender.verbs.in_flight import InFlight
from tests.builders import make_node, make_pod
from tests.unit.extender.verbs.test_handlers import StillCluster


class Cluster(StillCluster):
    def wait_for_nodes(self, names: list[str], timeout_seconds: float) -> bool:
        return bool((self.snapshot().table.rows(names) >= 0).all())


class Posts:
    def __init__(self) -> None:
        self.paths: list[str] = []

    def post(self, *, path: str, body: bytes, timeout_seconds: float) -> bytes:
        self.paths.append(path)
        return b"{}"


def bind(node: str, *, synced: bool = True) -> tuple[str, list[str]]:
    client, nothing = Posts(), Any
    live = Cluster(make_node("n1"), synced=synced)
    binder = Binder(client=client, live=live, in_flight=InFlight(), lock=nothing, contexts=nothing)  # type: ignore[arg-type]
    pod = Pod.from_json(make_pod("p"))
    return binder.bind(pod, Target("default", "p", "u", node), None).error, client.paths


@pytest.mark.parametrize(("node", "synced"), [("n1", True), ("n1", False), ("unseen", False)])
def test_a_pod_is_bound_to_a_node_that_is_there_and_where_nodes_are_not_known_yet(node: str, synced: bool) -> None:
    assert bind(node, synced=synced) == ("", ["/api/v1/namespaces/default/pods/p/binding"])


def test_a_node_that_does_not_exist_is_refused_and_nothing_is_posted() -> None:
    assert bind("nowhere") == (UNKNOWN_NODE, [])
