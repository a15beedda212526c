"""Scores that a real kube-scheduler v1.36.3 gave, by plugin.

A vector is a case and, for each plugin, the points of each node divided by the plugin's weight; None for a plugin that
was skipped.
"""

from typing import Any

Json = dict[str, Any]
Vector = tuple[Json, dict[str, dict[str, int] | None]]

LEAST = "NodeResourcesFit:LeastAllocated"
MOST = "NodeResourcesFit:MostAllocated"
TO_CAPACITY = "NodeResourcesFit:RequestedToCapacityRatio"
BALANCED = "NodeResourcesBalancedAllocation"
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
MIB = 1 << 20


def _container(cpu: str | None = None, memory: str | None = None, **others: Any) -> Json:
    given = {"cpu": cpu, "memory": memory, "example.com/gpu": others.pop("gpu", None)}
    requests = {name: amount for name, amount in given.items() if amount is not None}
    return {"name": "c", "resources": {"requests": requests}, **others}


def _pod(*containers: Json, **spec: Any) -> Json:
    return {"metadata": {"name": "p", "uid": "p"}, "spec": {"containers": list(containers), **spec}}


def _on(node: str, pod: Json, name: str = "e", labels: Json | None = None) -> Json:
    return {
        "metadata": {"name": name, "uid": name, "labels": labels or {}},
        "spec": {**pod["spec"], "nodeName": node},
        "status": {"phase": "Running"},
    }


def _node(name: str, *, labels: Json | None = None, spec: Json | None = None, **allocatable: str) -> Json:
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec or {},
        "status": {"allocatable": allocatable or {"cpu": "4", "memory": "16Gi", "pods": "110"}},
    }


def _case(pod: Json, nodes: list[Json], *pods: Json, **arguments: Json) -> Json:
    return {"pod": pod, "nodes": nodes, "pods": list(pods), "arguments": arguments}


_PLAIN = _container("500m", "1Gi")
_POD_LEVEL = _pod(_container(), resources={"requests": {"cpu": "2", "memory": "4Gi"}})
_EVERYTHING = _pod(
    _PLAIN,
    initContainers=[
        _container("2", "512Mi"),
        _container("250m", "256Mi", restartPolicy="Always"),
        _container("1", "3Gi"),
    ],
    overhead={"cpu": "100m", "memory": "100Mi"},
)


def _spread(key: str) -> Json:
    selector = {"matchLabels": {"app": "web"}}
    return {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}


def _prefer(key: str, weight: int) -> list[Json]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}}
    return [{"weight": weight, "podAffinityTerm": term}]


def _placed(names: dict[str, Json]) -> list[Json]:
    return [_node(name, labels=labels) for name, labels in names.items()]


def _web(number: int, node: str) -> Json:
    return _on(node, _pod(_container()), name=f"e{number}", labels={"app": "web"})


_ZONED = {
    "n1": {ZONE: "z1", HOSTNAME: "n1"},
    "n2": {ZONE: "z1", HOSTNAME: "n2"},
    "n3": {ZONE: "z2", HOSTNAME: "n3"},
}
_WEB = [_web(1, "n1"), _web(2, "n2"), _web(3, "n2")]

_GPUS = {"scoringStrategy": {"type": "LeastAllocated", "resources": [
    {"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}, {"name": "example.com/gpu", "weight": 3},
]}}  # fmt: skip

VECTORS: dict[str, Vector] = {
    "A": (
        _case(_pod(_container("100m", "64Mi")), [_node("n")]),
        {LEAST: {"n": 98}, BALANCED: {"n": 74}, "TaintToleration": {"n": 100}},
    ),
    "B": (
        _case(_pod(_container()), [_node("n1"), _node("n2")], _on("n2", _pod(_container()))),
        {LEAST: {"n1": 97, "n2": 96}, BALANCED: None},
    ),
    "C": (
        _case(_pod(_PLAIN), [_node("n1"), _node("n2")], _on("n2", _pod(_container("1500m", "2Gi")))),
        {
            LEAST: {"n1": 90, "n2": 65},
            BALANCED: {"n1": 73, "n2": 73},
            MOST: {"n1": 9, "n2": 34},
            TO_CAPACITY: {"n1": 9, "n2": 34},
        },
    ),
    "D": (
        _case(_pod(_container("1500m")), [_node("n1"), _node("n2")], _on("n2", _pod(_container("500m")))),
        {LEAST: {"n1": 80, "n2": 73}, BALANCED: {"n1": 65, "n2": 66}},
    ),
    "E, incoming": (_case(_POD_LEVEL, [_node("n")]), {LEAST: {"n": 97}, BALANCED: {"n": 68}}),
    "E, existing": (
        _case(_pod(_container("100m", "200Mi")), [_node("n")], _on("n", _POD_LEVEL)),
        {LEAST: {"n": 60}, BALANCED: {"n": 74}},
    ),
    "F": (_case(_EVERYTHING, [_node("n")]), {LEAST: {"n": 63}, BALANCED: {"n": 67}}),
    "G, only pods": (
        _case(_pod(_container("100m", "1Gi")), [_node("n", pods="110")]),
        {LEAST: {"n": 0}, BALANCED: {"n": 75}},
    ),
    "G, only memory": (
        _case(_pod(_container("100m", "1Gi")), [_node("n", pods="110", memory="4Gi")]),
        {LEAST: {"n": 75}, BALANCED: {"n": 75}},
    ),
    "H": (
        _case(_pod(_container("1", "1Gi")), [_node("n", cpu="1", memory="4Gi", pods="110")], _on("n", _pod(_PLAIN))),
        {LEAST: {"n": 25}, BALANCED: {"n": 69}},
    ),
    "K": (
        _case(
            _pod(_container("500m", "1Gi", gpu="1")),
            [_node("n1", **{"cpu": "4", "memory": "16Gi", "pods": "110", "example.com/gpu": "8"}), _node("n2")],
            **{LEAST: _GPUS},
        ),
        {LEAST: {"n1": 88, "n2": 90}},
    ),
    "L": (
        _case(
            _pod({"name": "c", "image": "web:1"}),
            [
                {**node, "status": {**node["status"], "images": [{"names": ["web:1"], "sizeBytes": 600 * MIB}] * has}}
                for node, has in ((_node("n1"), 1), (_node("n2"), 1), (_node("n3"), 0))
            ],
        ),
        {"ImageLocality": {"n1": 38, "n2": 38, "n3": 0}},
    ),
    "M": (
        _case(
            _pod(_PLAIN),
            [
                _node(name, spec={"taints": [{"key": f"k{key}", "effect": "PreferNoSchedule"} for key in range(count)]})
                for name, count in (("n1", 3), ("n2", 1), ("n3", 0))
            ],
        ),
        {"TaintToleration": {"n1": 0, "n2": 67, "n3": 100}},
    ),
    "N": (
        _case(
            _pod(
                _PLAIN,
                affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}
                    for key, weight in (("seven", 7), ("five", 5))
                ]}},
            ),
            _placed({"n1": {"seven": "", "five": ""}, "n2": {"seven": ""}, "n3": {"five": ""}, "n4": {}}),
        ),
        {"NodeAffinity": {"n1": 100, "n2": 58, "n3": 41, "n4": 0}},
    ),
    "O": (
        _case(
            _pod(
                _PLAIN,
                affinity={
                    "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": _prefer(ZONE, 10)},
                    "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": _prefer(HOSTNAME, 4)},
                },
            ),
            _placed(_ZONED),
            *_WEB,
        ),
        {"InterPodAffinity": {"n1": 100, "n2": 84, "n3": 0}},
    ),
    "P": (
        _case(
            _pod(_PLAIN, topologySpreadConstraints=[_spread(ZONE), _spread(HOSTNAME)]),
            _placed({**_ZONED, "n4": {}}),
            *_WEB,
        ),
        {"PodTopologySpread": {"n1": 14, "n2": 0, "n3": 100, "n4": 0}},
    ),
}  # fmt: skip
