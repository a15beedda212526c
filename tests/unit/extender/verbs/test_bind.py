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
from scheduler.extender.verbs.bind import BEHIND, BUSY, NO_LONGER, UNKNOWN_NODE, Binder, Checked
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

    def get(self, *, path: str, timeout_seconds: float, query: dict[str, str] | None = None) -> bytes:
        if path == POD:
            return json.dumps(
                {**make_pod("p"), "metadata": {"name": "p", "uid": "u", "resourceVersion": "43"}}
            ).encode()
        assert (path, query) == ("/api/v1/pods", {"limit": "1"})
        return b'{"metadata":{"resourceVersion":"41"}}'

    def post(self, *, path: str, body: bytes, timeout_seconds: float) -> bytes:
        self.steps.append((path, json.loads(body)["metadata"].get("annotations")))
        return b"{}"


POD = "/api/v1/namespaces/default/pods/p"
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
    posted = (f"{POD}/binding", {"berth/decision": DECISION})
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
    assert bind_counted(held, [], InFlight(), is_valid=False) == error
    assert held.note == left


class TestPodsInFlight:
    """Those that a rule counts when it is asked again, before another Pod is bound."""

    other = Pod.from_json(make_pod("other", labels={"app": "x"}))

    def test_one_that_is_being_bound_counts_and_the_pod_is_bound_nowhere(self) -> None:
        in_flight, steps = InFlight(), list[Any]()
        in_flight.binding(self.other, "n1")
        in_flight.passed(Pod.from_json(make_pod("p", uid="u")), "n1")
        assert bind_counted(Held("", 9.0, "1", 0.0), steps, in_flight) == NO_LONGER
        assert not steps
        assert in_flight.pod("u") is None

    def test_one_that_only_passed_does_not_count_since_kube_scheduler_may_choose_another_node(self) -> None:
        in_flight, steps = InFlight(), list[Any]()
        in_flight.passed(self.other, "n1")
        held = Held("", 9.0, "1", 0.0)
        assert bind_counted(held, steps, in_flight) == ""
        assert [path for path, _ in steps] == [f"{POD}/binding"]
        assert held.note == "43"  # the next holder waits until it has seen this Pod


def bind_counted(held: Held, steps: list[Any], in_flight: InFlight, *, is_valid: bool = True) -> str:
    """Bind a Pod by a rule that lets one Pod of app x onto a node; returns the error."""

    class Lock:
        @contextmanager
        def hold(self, _seconds: float) -> Iterator[Held]:
            yield held

        def is_valid(self, _held: Held) -> bool:
            return is_valid

    live = Cluster(make_node("n1"))
    binder = Binder(client=Posts(steps), live=live, in_flight=in_flight, lock=Lock(), contexts=Contexts())  # type: ignore[arg-type]
    few = {"name": "few", "expression": "node.count({'app': 'x'}) < 1", "reason": "enough"}
    rule_set = CompiledRuleSet(make_rule_set("web", filters=[few]))
    pod, target = Pod.from_json(make_pod("p", uid="u")), Target("default", "p", "u", "n1")
    return binder.bind(pod, target, rule_set, seen=live.snapshot(), now=NOW, record=lambda _: "").error
