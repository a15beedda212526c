"""Builders of Kubernetes objects and rule sets, with neutral defaults for any test."""

from typing import Any

from policies.engine.documents import read_assignment, read_exemption, read_pause, read_priority_class
from policies.engine.ruleset import Assignment, Exemption, Pause, PriorityClass, RuleSet
from policies.engine.validation import read_rule_set

JSONObject = dict[str, Any]


def make_pod(
    name: str = "web-1",
    *,
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    requests: dict[str, str] | None = None,
    uid: str = "",
    **spec: Any,
) -> JSONObject:
    """Make a Pod as Kubernetes JSON; members of `spec` have Kubernetes' spelling."""
    container: JSONObject = {"name": "main", "image": "example.org/web:1"}
    if requests:
        container["resources"] = {"requests": requests}
    metadata = {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}", "labels": labels or {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"schedulerName": "berth", "containers": [container], **spec},
    }


def make_node(
    name: str = "n1",
    *,
    labels: dict[str, str] | None = None,
    cpu: str = "4",
    memory: str = "8Gi",
    pods: str = "110",
    **spec: Any,
) -> JSONObject:
    """Make a Node as Kubernetes JSON, ready and empty."""
    room = {"cpu": cpu, "memory": memory, "pods": pods}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]},
    }


TEAM_FILTER: JSONObject = {
    "name": "team",
    "expression": "!has(pod.metadata.labels.team) || "
    "node.metadata.labels[?'team'].orValue('') == pod.metadata.labels.team",
    "reason": "node belongs to another team",
}


def rule_set_document(name: str = "web", **spec: Any) -> JSONObject:
    """Make a RuleSet document; if no rule is given, it has one filter."""
    spec = spec or {"filters": [{"builtin": "PodFitsResources"}]}
    return {"apiVersion": "berth/v1", "kind": "RuleSet", "metadata": {"name": name}, "spec": spec}


def make_rule_set(name: str = "web", **spec: Any) -> RuleSet:
    """Make a checked rule set."""
    return read_rule_set(rule_set_document(name, **spec))


def assignment_document(name: str = "all-web", rule_set: str = "web", **spec: Any) -> JSONObject:
    """Make an Assignment document."""
    return {
        "apiVersion": "berth/v1",
        "kind": "Assignment",
        "metadata": {"name": name},
        "spec": {"ruleSet": rule_set, **spec},
    }


def priority_class_document(name: str = "batch", value: Any = 1000, description: str = "", **spec: Any) -> JSONObject:
    """Make a PriorityClass document."""
    metadata = {"name": name, "description": description} if description else {"name": name}
    spec = {"value": value, **spec}
    return {"apiVersion": "berth/v1", "kind": "PriorityClass", "metadata": metadata, "spec": spec}


def make_priority_class(name: str = "batch", value: Any = 1000, description: str = "", **spec: Any) -> PriorityClass:
    """Make a checked PriorityClass."""
    return read_priority_class(priority_class_document(name, value, description, **spec))


def make_assignment(name: str = "all-web", rule_set: str = "web", **spec: Any) -> Assignment:
    """Make a checked Assignment."""
    return read_assignment(assignment_document(name, rule_set, **spec))


def pause_document(name: str = "web-paused", target: str = "RuleSet/web", **spec: Any) -> JSONObject:
    """Make a Pause document, with members of its spec as keywords."""
    spec = {"target": target, "reason": "nodes are being moved"} | spec
    return {"apiVersion": "berth/v1", "kind": "Pause", "metadata": {"name": name}, "spec": spec}


def make_pause(name: str = "web-paused", target: str = "RuleSet/web", **spec: Any) -> Pause:
    """Make a checked Pause."""
    return read_pause(pause_document(name, target, **spec))


def exemption_document(name: str = "cart", target: str = "RuleSet/web", **spec: Any) -> JSONObject:
    """Make an Exemption document, with members of its spec as keywords."""
    spec = {
        "owner": "team cart",
        "target": target,
        "reason": "until the cart is moved",
        "until": "2026-02-01T00:00:00Z",
        "pods": [{"namespace": "default", "name": "cart"}],
    } | spec
    return {"apiVersion": "berth/v1", "kind": "Exemption", "metadata": {"name": name}, "spec": spec}


def make_exemption(name: str = "cart", target: str = "RuleSet/web", **spec: Any) -> Exemption:
    """Make a checked Exemption."""
    return read_exemption(exemption_document(name, target, **spec))
