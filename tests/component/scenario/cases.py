"""A Deployment, a cluster of four nodes and a Change, for tests of scenarios."""

from typing import Any

from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.node import Node
from policies.engine.objects.snapshot import Snapshot
from tests.builders import make_assignment, make_node, make_rule_set
from tests.component.pages import opened

POD_SPEC = {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}}}]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
DEPLOYMENT: dict[str, Any] = {
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"template": {"metadata": {"labels": {"app": "web"}}, "spec": POD_SPEC}},
}


def deployment(**spec: Any) -> dict[str, Any]:
    labels = {"app": "web", "version": "2"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main"}], **spec}}
    return {**DEPLOYMENT, "spec": {"template": template}}


def cluster() -> Snapshot:
    nodes = [Node.from_json(make_node(f"n{number}", cpu="2", labels={"zone": "ab"[number % 2]})) for number in range(4)]
    return Snapshot.of(nodes, objects=ClusterObjects())


def only_a() -> int:
    """A Change by which Pods go to zone a alone."""
    rule = {"name": "zone", "expression": "node.metadata.labels.zone == 'a'", "reason": "another zone"}
    return opened(make_rule_set("web", filters=[rule]), make_assignment("all", "web")).pk
