"""Scores that a real kube-scheduler v1.36.3 gave (contract, section 3.4): to the last digit."""

from typing import Any

import pytest

from tests.builders import make_node
from tests.unit.engine.objects.asking import HOSTNAME, JSON, ZONE, on, points, snapshot_of

MIB = 1024 * 1024
FIT, BALANCED = "LeastRequestedPriority", "BalancedResourceAllocation"
RATIO = {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}


def container(cpu: str = "", memory: str = "", **others: Any) -> JSON:
    requests = {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}
    return {"name": "c", "resources": {"requests": requests | others.pop("requests", {})}, **others}


def pod(*containers: JSON, labels: dict[str, str] | None = None, **spec: Any) -> JSON:
    return {
        "metadata": {"name": "p", "namespace": "default", "uid": "p", "labels": labels or {}},
        "spec": {"containers": list(containers) or [container()], **spec},
    }


def node(name: str = "n1", labels: dict[str, str] | None = None, **allocatable: str) -> JSON:
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "status": {"allocatable": allocatable or {"cpu": "4", "memory": "16Gi", "pods": "110"}},
    }


PLAIN = pod(container("500m", "1Gi"))
BUSY = pod(container("1500m", "2Gi"))
POD_LEVEL = pod(resources={"requests": {"cpu": "2", "memory": "4Gi"}})
EVERYTHING = pod(
    container("500m", "1Gi"),
    initContainers=[
        container("2", "512Mi"),
        container("250m", "256Mi", restartPolicy="Always"),
        container("1", "3Gi"),
    ],
    overhead={"cpu": "100m", "memory": "100Mi"},
)
GPU = "example.com/gpu"
GPU_POD = pod(container("500m", "1Gi", requests={GPU: "1"}))
WITH_GPU = [{"name": "cpu"}, {"name": "memory"}, {"name": GPU, "weight": 3}]
GPU_NODE = node(cpu="4", memory="16Gi", pods="110", **{GPU: "8"})

ONE_NODE = [
    pytest.param(FIT, pod(container("100m", "64Mi")), node(), [], {}, 98, id="A empty node, fit"),
    pytest.param(BALANCED, pod(container("100m", "64Mi")), node(), [], {}, 74, id="A empty node, balance"),
    pytest.param("TaintTolerationPriority", pod(), node(), [], {}, 100, id="A no taints"),
    pytest.param(FIT, pod(), node(), [], {}, 97, id="B a Pod without requests counts the defaults"),
    pytest.param(FIT, pod(), node(), [pod()], {}, 96, id="B so does one that is there"),
    pytest.param(BALANCED, pod(), node(), [], {}, None, id="B a Pod without requests has no balance"),
    pytest.param(FIT, PLAIN, node(), [], {}, 90, id="C empty node, fit"),
    pytest.param(BALANCED, PLAIN, node(), [], {}, 73, id="C empty node, balance"),
    pytest.param(FIT, PLAIN, node(), [BUSY], {}, 65, id="C busy node, fit"),
    pytest.param(BALANCED, PLAIN, node(), [BUSY], {}, 73, id="C busy node, balance"),
    pytest.param("MostRequestedPriority", PLAIN, node(), [], {}, 9, id="C empty node, most"),
    pytest.param("MostRequestedPriority", PLAIN, node(), [BUSY], {}, 34, id="C busy node, most"),
    pytest.param("RequestedToCapacityRatioPriority", PLAIN, node(), [], RATIO, 9, id="C empty node, ratio"),
    pytest.param("RequestedToCapacityRatioPriority", PLAIN, node(), [BUSY], RATIO, 34, id="C busy node, ratio"),
    pytest.param(FIT, pod(container("1500m")), node(), [], {}, 80, id="D cpu only, fit"),
    pytest.param(BALANCED, pod(container("1500m")), node(), [], {}, 65, id="D cpu only, balance"),
    pytest.param(FIT, pod(container("1500m")), node(), [pod(container("500m"))], {}, 73, id="D beside another, fit"),
    pytest.param(
        BALANCED, pod(container("1500m")), node(), [pod(container("500m"))], {}, 66, id="D beside another, balance"
    ),
    pytest.param(FIT, POD_LEVEL, node(), [], {}, 97, id="E pod-level requests of the Pod don't count, fit"),
    pytest.param(BALANCED, POD_LEVEL, node(), [], {}, 68, id="E they do count for balance"),
    pytest.param(
        FIT, pod(container("100m", "200Mi")), node(), [POD_LEVEL], {}, 60, id="E those of Pods that are there do, fit"
    ),
    pytest.param(BALANCED, pod(container("100m", "200Mi")), node(), [POD_LEVEL], {}, 74, id="E and for balance"),
    pytest.param(BALANCED, EVERYTHING, node(), [], {}, 67, id="F init containers, sidecar and overhead, balance"),
    pytest.param(FIT, EVERYTHING, node(), [], {}, 63, id="F init containers, sidecar and overhead, fit"),
    pytest.param(FIT, PLAIN, node(pods="110"), [], {}, 0, id="G a node of no cpu and memory, fit"),
    pytest.param(BALANCED, PLAIN, node(pods="110"), [], {}, 75, id="G a node of no cpu and memory, balance"),
    pytest.param(FIT, pod(container("100m", "1Gi")), node(memory="4Gi"), [], {}, 75, id="G a node of no cpu, fit"),
    pytest.param(
        BALANCED, pod(container("100m", "1Gi")), node(memory="4Gi"), [], {}, 75, id="G a node of no cpu, balance"
    ),
    pytest.param(
        FIT, pod(container("1", "1Gi")), node(cpu="1", memory="4Gi"), [PLAIN], {}, 25, id="H more than there is, fit"
    ),
    pytest.param(
        BALANCED,
        pod(container("1", "1Gi")),
        node(cpu="1", memory="4Gi"),
        [PLAIN],
        {},
        69,
        id="H more than there is, balance",
    ),
    pytest.param(FIT, GPU_POD, GPU_NODE, [], {"resources": WITH_GPU}, 88, id="K a GPU of weight 3"),
    pytest.param(FIT, GPU_POD, node(), [], {"resources": WITH_GPU}, 90, id="K a node without a GPU"),
]


@pytest.mark.parametrize(("score", "incoming", "one", "existing", "arguments", "expected"), ONE_NODE)
def test_one_node_scores_as_it_did(
    score: str, incoming: JSON, one: JSON, existing: list[JSON], arguments: JSON, expected: int | None
) -> None:
    snapshot = snapshot_of([one], [on("n1", other, name=f"e{i}", uid=f"e{i}") for i, other in enumerate(existing)])

    assert points(score, incoming, snapshot, **arguments) == (None if expected is None else {"n1": expected})


def test_images_score_by_size_and_spread() -> None:
    image = [{"names": ["registry/big:1"], "sizeBytes": 600 * MIB}]
    nodes = [node(f"n{i}") for i in (1, 2, 3)]
    for having in nodes[:2]:
        having["status"]["images"] = image

    found = points("ImageLocalityPriority", pod({"name": "c", "image": "registry/big:1"}), snapshot_of(nodes))

    assert found == {"n1": 38, "n2": 38, "n3": 0}


def test_taints_score_by_how_many_there_are() -> None:
    taints = [{"key": f"k{i}", "effect": "PreferNoSchedule"} for i in range(3)]
    nodes = [make_node("n1", taints=taints), make_node("n2", taints=taints[:1]), make_node("n3")]

    assert points("TaintTolerationPriority", pod(), snapshot_of(nodes)) == {"n1": 0, "n2": 67, "n3": 100}


def test_node_affinity_scores_by_the_sum_of_weights() -> None:
    def term(weight: int, key: str) -> JSON:
        return {"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}

    nodes = [
        node("n1", {"a": "", "b": ""}),
        node("n2", {"b": ""}),
        node("n3", {"a": ""}),
        node("n4"),
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term(5, "a"), term(7, "b")]}}

    found = points("NodeAffinityPriority", pod(affinity=affinity), snapshot_of(nodes))

    assert found == {"n1": 100, "n2": 58, "n3": 41, "n4": 0}


def test_pod_affinity_scores_by_zones_and_hosts() -> None:
    def term(weight: int, key: str) -> JSON:
        selector = {"matchLabels": {"app": "web"}}
        return {"weight": weight, "podAffinityTerm": {"labelSelector": selector, "topologyKey": key}}

    nodes = [node(name, {ZONE: zone, HOSTNAME: name}) for name, zone in (("n1", "z1"), ("n2", "z1"), ("n3", "z2"))]
    web = pod(labels={"app": "web"})
    there = [on(name, web, name=f"e{i}", uid=f"e{i}") for i, name in enumerate(("n1", "n2", "n2"))]
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    affinity = {"podAffinity": {preferred: [term(10, ZONE)]}, "podAntiAffinity": {preferred: [term(4, HOSTNAME)]}}

    found = points("InterPodAffinityPriority", pod(affinity=affinity), snapshot_of(nodes, there))

    assert found == {"n1": 100, "n2": 84, "n3": 0}


def test_spreading_scores_by_zones_and_hosts() -> None:
    constraints = [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
        for key in (ZONE, HOSTNAME)
    ]
    nodes = [node(name, {ZONE: zone, HOSTNAME: name}) for name, zone in (("n1", "z1"), ("n2", "z1"), ("n3", "z2"))]
    web = pod(labels={"app": "web"}, topologySpreadConstraints=constraints)
    there = [on(name, web, name=f"e{i}", uid=f"e{i}") for i, name in enumerate(("n1", "n2", "n2"))]

    found = points("EvenPodsSpreadPriority", web, snapshot_of([*nodes, node("n4")], there))

    assert found == {"n1": 28 // 2, "n2": 0, "n3": 100, "n4": 0}
