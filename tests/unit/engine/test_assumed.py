"""What was promised to Pods counts before it is seen: resources, counts and affinity."""

from datetime import UTC, datetime
from typing import Any

from policies.engine.decision import CompiledRuleSet, decide
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from tests.builders import make_rule_set

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ANTI = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}


def make_node(name: str) -> Node:
    amounts = {"cpu": "2", "memory": "4Gi", "pods": "10"}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    return Node.from_json({"metadata": metadata, "status": {"allocatable": amounts}})


def make_pod(name: str, **spec: Any) -> Pod:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1500m"}}}]
    return Pod.from_json(
        {"metadata": {"name": name, "labels": {"app": "x"}}, "spec": {"containers": containers, **spec}}
    )


def feasible(snapshot: Snapshot, rule: dict[str, Any], pod: Pod) -> list[str]:
    cycle = Cycle(pod=pod, snapshot=snapshot, now=NOW)
    return decide(CompiledRuleSet(make_rule_set(filters=[rule])), cycle, snapshot.table.all_rows()).feasible


def assert_assumed_counts(rule: dict[str, Any], pod: Pod) -> None:
    snapshot = Snapshot.of([make_node("n1"), make_node("n2")])
    assert feasible(snapshot, rule, pod) == ["n1", "n2"]

    assumed = snapshot.assume(make_pod("first"), "n1")

    assert feasible(assumed, rule, pod) == ["n2"]
    assert feasible(snapshot, rule, pod) == ["n1", "n2"]


def test_resources_see_an_assumed_pod() -> None:
    assert_assumed_counts({"builtin": "PodFitsResources"}, make_pod("second"))


def test_affinity_sees_an_assumed_pod() -> None:
    assert_assumed_counts({"builtin": "MatchInterPodAffinity"}, make_pod("second", affinity=ANTI))


def test_counts_see_an_assumed_pod() -> None:
    assert_assumed_counts({"name": "one", "expression": "node.count({'app': 'x'}) < 1"}, make_pod("second"))


def test_usage_sees_an_assumed_pod() -> None:
    assert_assumed_counts({"name": "room", "expression": "usage.free.cpu >= 1500"}, make_pod("second"))


def test_a_pod_on_an_unknown_node_changes_nothing() -> None:
    snapshot = Snapshot.of([make_node("n1")])
    assert snapshot.assume(make_pod("first"), "gone") is snapshot


def test_a_resource_that_the_pod_does_not_ask_for_is_left_out_of_the_balance() -> None:
    snapshot = Snapshot.of([make_node("n1")])
    resources = [{"name": "cpu", "weight": 1}, {"name": "example.com/gpu", "weight": 1}]
    rule = {"builtin": "BalancedResourceAllocation", "arguments": {"resources": resources}}
    cycle = Cycle(pod=make_pod("p"), snapshot=snapshot, now=NOW)
    answer = decide(CompiledRuleSet(make_rule_set(scores=[rule])), cycle, snapshot.table.all_rows())
    assert answer.scores[0].raw.tolist() == [75]


def test_points_stay_within_0_and_10_whatever_a_pod_asks_for() -> None:
    """kube-scheduler's own score is 150 here, and its cycle fails."""
    debtor = Pod.from_json({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "-2"}}}]}})
    snapshot = Snapshot.of([make_node("n1")]).assume(debtor, "n1")
    cycle = Cycle(pod=Pod.from_json({"metadata": {"name": "p"}}), snapshot=snapshot, now=NOW)
    rules = CompiledRuleSet(make_rule_set(scores=[{"builtin": "LeastRequestedPriority"}]))
    answer = decide(rules, cycle, snapshot.table.all_rows())
    assert answer.scores[0].raw.tolist()[0] > 100
    assert answer.points.tolist() == [10]
