"""PodDisruptionBudgets: whom they cover, and whose removal they don't allow."""

from typing import Any

import msgspec

from policies.engine.objects.cluster_kinds import PodDisruptionBudget
from policies.engine.objects.pod import Pod
from policies.engine.preemption.budgets import budgets_by_namespace, split_by_budgets
from tests.builders import make_pod

WEB = {"matchLabels": {"app": "web"}}


def budget(selector: Any, allowed: int = 0, namespace: str = "default", disrupted: Any = None) -> PodDisruptionBudget:
    document = {
        "metadata": {"name": "b", "namespace": namespace},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": allowed, "disruptedPods": disrupted},
    }
    return msgspec.convert(document, PodDisruptionBudget)


def web(name: str, namespace: str = "default", **labels: str) -> Pod:
    return Pod.from_json(make_pod(name, namespace=namespace, labels=labels or {"app": "web"}))


def violating(pods: list[Pod], *budgets: PodDisruptionBudget) -> list[str]:
    kept, others = split_by_budgets(pods, budgets_by_namespace(budgets))
    assert sorted(pod.name for pod in (*kept, *others)) == sorted(pod.name for pod in pods)
    return [pod.name for pod in kept]


def test_the_pods_after_a_budget_is_used_up_violate_it_in_the_order_given() -> None:
    pods = [web("a"), web("b"), web("c")]
    assert violating(pods, budget(WEB, allowed=1)) == ["b", "c"]
    assert violating(pods[::-1], budget(WEB, allowed=1)) == ["b", "a"]


def test_a_pod_of_two_budgets_counts_against_both() -> None:
    both = {"app": "web", "tier": "front"}
    pods = [web("a", **both), web("b"), web("c", tier="front")]
    front = budget({"matchLabels": {"tier": "front"}}, allowed=1)
    assert violating(pods, budget(WEB, allowed=1), front) == ["b", "c"]


def test_a_budget_covers_nobody_in_another_namespace() -> None:
    assert violating([web("a"), web("b", namespace="prod")], budget(WEB, namespace="prod")) == ["b"]


def test_a_budget_with_an_empty_selector_or_an_unreadable_one_covers_nobody() -> None:
    odd = {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["web"]}]}
    assert violating([web("a")], budget({}), budget(None), budget(odd)) == []


def test_a_pod_without_labels_is_covered_by_no_budget() -> None:
    bare = Pod.from_json(make_pod("bare"))
    absent = {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}
    assert violating([bare, web("a", team="x")], budget(absent)) == ["a"]


def test_a_pod_that_is_disrupted_already_is_not_counted_again() -> None:
    pods = [web("a"), web("b"), web("c")]
    assert violating(pods, budget(WEB, allowed=1, disrupted={"a": "2026-01-01T00:00:00Z"})) == ["c"]
