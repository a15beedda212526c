"""Which waiting Pods a publish wakes."""

from typing import Any

import pytest

from policies.engine.decision import CompiledRevision
from policies.engine.ruleset import Revision
from scheduler.wake import waiting_pods
from tests.builders import make_assignment, make_pod, make_rule_set


def waiting(name: str, conditions: Any = None, **pod: Any) -> dict[str, Any]:
    conditions = [{"type": "PodScheduled", "status": "False"}] if conditions is None else conditions
    return {**make_pod(name, **pod), "status": {"conditions": conditions}}


def revision(**match: Any) -> CompiledRevision:
    assignment = make_assignment(match=match)
    return CompiledRevision(Revision(number=1, rule_sets=[make_rule_set()], assignments=[assignment]))


class TestWaitingPods:
    def test_pods_that_an_assignment_takes_are_woken(self) -> None:
        pods = [waiting("a", namespace="x"), waiting("b", namespace="y"), waiting("c", namespace="z")]
        found = waiting_pods(iter(pods), iter([revision(namespaces=["x"]), revision(namespaces=["y"])]))
        assert [pod.name for pod in found] == ["a", "b"]

    def test_no_revision_wakes_nobody(self) -> None:
        assert waiting_pods([waiting("a")], []) == []
        assert waiting_pods([waiting("a")], [CompiledRevision(Revision(number=0))]) == []

    def test_labels_of_the_namespace_are_not_looked_at(self) -> None:
        found = waiting_pods([waiting("a")], [revision(namespaceSelector={"matchLabels": {"kind": "prod"}})])
        assert [pod.name for pod in found] == ["a"]

    @pytest.mark.parametrize(
        "conditions",
        [
            pytest.param([], id="not tried yet"),
            pytest.param([{"type": "PodScheduled", "status": "True"}], id="on a node"),
            pytest.param([{"type": "Ready", "status": "False"}], id="another condition"),
            pytest.param([{}], id="an empty condition"),
        ],
    )
    def test_a_pod_that_was_not_refused_is_left_alone(self, conditions: list[dict[str, str]]) -> None:
        assert waiting_pods([waiting("a", conditions)], [revision()]) == []

    def test_a_pod_without_a_status_is_left_alone(self) -> None:
        pods = [make_pod("a"), {**make_pod("b"), "status": {}}, {**make_pod("c"), "status": {"conditions": None}}]
        assert waiting_pods(pods, [revision()]) == []
