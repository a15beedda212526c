"""Binding: to nodes that are there, with the Decision on disk before."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from policies.engine.decision import CompiledRuleSet
from policies.engine.objects.pod import Pod
from scheduler.cluster.bind import Target
from scheduler.cluster.lease_lock import Held
from scheduler.decisions.spool import SpoolFullError
from scheduler.extender.verbs.bind import BEHIND, BUSY, UNKNOWN_NODE, Binder, Checked
from scheduler.extender.verbs.in_flight import InFlight
from tests.builders import make_node, make_pod, make_rule_set
from tests.unit.extender.verbs.test_handlers import StillCluster


class Cluster(StillCluster):
    def wait_for_nodes(self, names: list[str], timeout_seconds: float) -> bool:
        return bool((self.snapshot().table.rows(names) >= 0).all())

    def wait_for_pods_version(self, _version: str, _timeout_seconds: float) -> bool:
        return False


class Posts:
    def __init__(self, steps: list[Any]) -> None:
        self.steps = steps

    def get(self, *, path: str, query: dict[str, str], timeout_seconds: float) -> bytes:
        assert (path, query) == ("/api/v1/pods", {"limit": "1"})
        return b'{"metadata":{"resourceVersion":"41"}}'

    def post(self, *, path: str, body: bytes, timeout_seconds: float) -> bytes:
        self.steps.append((path, json.loads(body)["metadata"].get("annotations")))
        return b"{}"


DECISION = "6f0b2f6c-0000-4000-8000-000000000001"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def bind(node: str, *, synced: bool = True, full: bool = False) -> tuple[str, list[Any]]:
    """Bind; returns the error, and what was done in which order."""
    steps: list[Any] = []

    def record(_: Checked) -> str:
        if full:
            raise SpoolFullError
        steps.append("recorded")
        return DECISION

    live, nothing = Cluster(make_node("n1"), synced=synced), Any
    binder = Binder(client=Posts(steps), live=live, in_flight=InFlight(), lock=nothing, contexts=nothing)  # type: ignore[arg-type]
    pod = Pod.from_json(make_pod("p"))
    target, seen = Target("default", "p", "u", node), live.snapshot()
    return binder.bind(pod, target, None, seen=seen, now=NOW, record=record).error, steps


@pytest.mark.parametrize(("node", "synced"), [("n1", True), ("n1", False), ("unseen", False)])
def test_a_pod_is_bound_to_a_node_that_is_there_and_where_nodes_are_not_known_yet(node: str, synced: bool) -> None:
    posted = ("/api/v1/namespaces/default/pods/p/binding", {"berth/decision": DECISION})
    assert bind(node, synced=synced) == ("", ["recorded", posted])


def test_a_node_that_does_not_exist_is_refused_and_nothing_is_posted() -> None:
    assert bind("nowhere") == (UNKNOWN_NODE, [])


def test_a_pod_whose_decision_can_not_be_recorded_is_not_bound() -> None:
    with pytest.raises(SpoolFullError):
        bind("n1", full=True)


class Contexts:
    def fallback(self, _: object) -> tuple[str, str]:
        return "decide", ""


@pytest.mark.parametrize(("note", "left", "error"), [("40", "40", BEHIND), ("42", "", BUSY)])
def test_a_version_that_is_not_seen_in_time_is_left_to_the_next_holder_unless_it_is_of_another_cluster(
    note: str, left: str, error: str
) -> None:
    held = Held(note, 9.0, "1", 0.0)

    class Lock:
        @contextmanager
        def hold(self, _seconds: float) -> Iterator[Held]:
            yield held

        def is_valid(self, _held: Held) -> bool:
            return False

    live = Cluster(make_node("n1"))
    binder = Binder(client=Posts([]), live=live, in_flight=InFlight(), lock=Lock(), contexts=Contexts())  # type: ignore[arg-type]
    few = {"name": "few", "expression": "node.count({'app': 'x'}) < 2", "reason": "enough"}
    rule_set = CompiledRuleSet(make_rule_set("web", filters=[few]))
    pod, target = Pod.from_json(make_pod("p")), Target("default", "p", "u", "n1")
    assert binder.bind(pod, target, rule_set, seen=live.snapshot(), now=NOW, record=lambda _: "").error == error
    assert held.note == left
