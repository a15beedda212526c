"""Pods nominated to nodes count there, each node as if it alone had them already."""

from datetime import UTC, datetime
from typing import Any

from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.engine.scheduling import default_profile, judge
from tests.builders import make_node, make_pod

SHY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
        ]
    }
}


def refused(incoming: dict[str, Any], nominated: dict[str, list[Pod]], **objects: Any) -> dict[str, str]:
    nodes = [Node.from_json(make_node(f"n{number}", labels={"zone": "z"})) for number in (1, 2, 3)]
    snapshot = Snapshot.of(nodes, objects=ClusterObjects.from_json(objects)).changed({}, nominated=nominated)
    cycle = Cycle(pod=Pod.from_json(incoming), snapshot=snapshot, now=datetime(2026, 1, 1, tzinfo=UTC))
    answer = judge(default_profile(), cycle, snapshot.table.all_rows())
    return {name: status.reason for name, status in answer.refused()}


def test_affinity_to_nominated_pods_is_asked_of_their_own_node_only() -> None:
    web = Pod.from_json(make_pod("web", labels={"app": "web"}, priority=10))
    plain = Pod.from_json(make_pod("plain", priority=10))
    incoming = make_pod("shy", affinity=SHY, priority=10)

    assert refused(incoming, {"n1": [web], "n2": [plain]}) == {"n1": "node(s) didn't match pod anti-affinity rules"}


def test_the_anti_affinity_of_a_nominated_pod_keeps_others_from_its_node() -> None:
    shy = Pod.from_json(make_pod("shy", affinity=SHY, priority=10))
    incoming = make_pod("web", labels={"app": "web"}, priority=10)

    assert list(refused(incoming, {"n2": [shy]})) == ["n2"]


def test_the_claim_of_a_nominated_pod_that_is_for_one_pod_keeps_others_from_its_node() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    first = Pod.from_json(make_pod("first", volumes=volumes, priority=10))
    bound = {"name": "c", "namespace": "default", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    claims = [{"metadata": bound, "spec": {"accessModes": ["ReadWriteOncePod"], "volumeName": "v"}}]
    known = {"persistentVolumeClaims": claims, "persistentVolumes": [{"metadata": {"name": "v"}}]}
    incoming = make_pod("second", volumes=volumes, priority=10)

    assert list(refused(incoming, {"n2": [first]}, **known)) == ["n2"]
