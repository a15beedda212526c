"""Nodes and Pods of mixed shapes, for runs that are checked afterwards. They are the same for the same seed.

Pods belong to apps. Those of one app have the same constraints, and select no Pods of another app: so a placement that
was allowed when a Pod was bound is allowed in the final state, too, if nothing is removed. Some Pods fit nowhere, and
some pools are too small for all Pods that could use them.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import msgspec

from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIConflictError, APIError, APIUnavailableError

Json = dict[str, Any]

ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
POOLS = ("general", "general", "general", "batch", "gpu")
SIZES = ({"cpu": "4", "memory": "16Gi"}, {"cpu": "8", "memory": "32Gi"}, {"cpu": "16", "memory": "32Gi"})
GPU = "example.com/gpu"
PRIORITIES = {"workload-high": 1000, "workload-normal": 0, "workload-low": -1000}
APP_SIZE = 40
_AT_ONCE = 12
_AGAIN_SECONDS = 0.05


def make_nodes(count: int, *, seed: int = 1) -> list[Json]:
    """Make nodes of five pools in three zones: some with taints, some with devices, some unschedulable."""
    random = Random(f"nodes/{seed}")
    return [_node(random, number) for number in range(count)]


def _node(random: Random, number: int) -> Json:
    pool = random.choice(POOLS)
    amounts = {**random.choice(SIZES), "pods": str(random.choice([8, 20, 110])), "ephemeral-storage": "100Gi"}
    spec: Json = {}
    if pool == "gpu":
        amounts[GPU] = "4"
    if pool != "general":
        spec["taints"] = [{"key": "pool", "value": pool, "effect": "NoSchedule"}]
    elif random.random() < 0.1:
        spec["taints"] = [{"key": "old", "effect": "PreferNoSchedule"}]
    if random.random() < 0.04:
        spec["unschedulable"] = True
    name = f"node-{number:03d}"
    labels = {ZONE: "abc"[number % 3], HOSTNAME: name, "pool": pool, "disk": random.choice(["ssd", "hdd"])}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": spec,
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def make_pods(count: int, *, scheduler_name: str, seed: int | str = 1, app_size: int = APP_SIZE) -> list[Json]:
    """Make Pods of several apps, mixed as if several Deployments created them at once."""
    random = Random(f"pods/{seed}")
    pods: list[Json] = []
    while len(pods) < count:
        app = f"app-{len(pods) // app_size}"
        make = random.choice(_SHAPES)
        spec = _common(random) | make(random, app)
        size = min(app_size, count - len(pods))
        pods += [_pod(random, f"{app}-{number}", app, scheduler_name, spec) for number in range(size)]
    random.shuffle(pods)
    return pods


def make_plain_pods(count: int, *, scheduler_name: str) -> list[Json]:
    """Make small Pods that fit everywhere."""
    spec = {"containers": [_container({"cpu": "50m", "memory": "16Mi"})]}
    return [_pod(Random(number), f"plain-{number}", "plain", scheduler_name, spec) for number in range(count)]


def _pod(random: Random, name: str, app: str, scheduler_name: str, spec: Json) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
        "spec": {
            "schedulerName": scheduler_name,
            "terminationGracePeriodSeconds": 0,
            "priorityClassName": random.choice(list(PRIORITIES)),
            **spec,
        },
    }


def _common(random: Random) -> Json:
    """Return requests, and tolerations for pools."""
    requests = {"cpu": random.choice(["50m", "200m", "500m", "1"]), "memory": random.choice(["64Mi", "256Mi", "1Gi"])}
    spec: Json = {"containers": [_container(requests)]}
    if random.random() < 0.2:
        spec["initContainers"] = [{**_container({"cpu": "700m", "memory": "128Mi"}), "name": "first"}]
    if random.random() < 0.3:
        pool = random.choice(["batch", "gpu"])
        spec["tolerations"] = [{"key": "pool", "operator": "Equal", "value": pool, "effect": "NoSchedule"}]
    return spec


def _container(requests: Json, **more: Any) -> Json:
    return {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": requests}, **more}


def _selector(app: str) -> Json:
    return {"labelSelector": {"matchLabels": {"app": app}}}


def _plain(_random: Random, _app: str) -> Json:
    return {}


def _choosy(random: Random, _app: str) -> Json:
    if random.random() < 0.5:
        return {"nodeSelector": {"disk": "ssd", ZONE: random.choice("abc")}}
    term = {"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["batch"]}]}
    preferred = {
        "weight": 10,
        "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
    }
    return {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
                "preferredDuringSchedulingIgnoredDuringExecution": [preferred],
            }
        }
    }


def _spread(random: Random, app: str) -> Json:
    constraint = {
        "maxSkew": random.choice([1, 2]),
        "topologyKey": random.choice([ZONE, HOSTNAME]),
        "whenUnsatisfiable": "DoNotSchedule",
        **_selector(app),
    }
    return {"topologySpreadConstraints": [constraint]}


def _apart(_random: Random, app: str) -> Json:
    term = {"topologyKey": HOSTNAME, **_selector(app)}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _together(_random: Random, app: str) -> Json:
    term = {"topologyKey": ZONE, **_selector(app)}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _port(random: Random, _app: str) -> Json:
    ports = [{"containerPort": 80, "hostPort": random.choice([8080, 8081])}]
    return {"containers": [_container({"cpu": "100m", "memory": "64Mi"}, ports=ports)]}


def _devices(_random: Random, _app: str) -> Json:
    amounts = {"cpu": "500m", "memory": "1Gi", GPU: "1"}
    container = _container(amounts)
    container["resources"]["limits"] = {GPU: "1"}
    return {"containers": [container], "tolerations": [{"key": "pool", "operator": "Exists"}]}


def _large(_random: Random, _app: str) -> Json:
    return {"containers": [_container({"cpu": "3500m", "memory": "4Gi"})]}


def _impossible(random: Random, _app: str) -> Json:
    if random.random() < 0.5:
        return {"nodeSelector": {"disk": "tape"}}
    return {"containers": [_container({"cpu": "64"})]}


_SHAPES: Sequence[Callable[[Random, str], Json]] = (
    _plain,
    _plain,
    _choosy,
    _spread,
    _spread,
    _apart,
    _together,
    _port,
    _devices,
    _large,
    _impossible,
)


def make_priority_classes() -> list[Json]:
    """Make the classes that the Pods name. None of them preempts."""
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "preemptionPolicy": "Never",
        }
        for name, value in PRIORITIES.items()
    ]


def create_priority_classes(client: Client) -> None:
    """Create the classes that the Pods name, unless they exist."""
    for document in make_priority_classes():
        try:
            client.post(path="/apis/scheduling.k8s.io/v1/priorityclasses", body=msgspec.json.encode(document))
        except APIConflictError:
            continue


def create_pods(client: Client, pods: Sequence[Json], *, still: Callable[[], bool] = lambda: True) -> list[str]:
    """Create Pods in the namespace default, several concurrently; returns their UIDs in the same order.

    Requests that the API server doesn't confirm are repeated while `still` returns true: it may be killed meanwhile.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda pod: _create(client, pod, still), pods))


def _create(client: Client, pod: Json, still: Callable[[], bool]) -> str:
    path = "/api/v1/namespaces/default/pods"
    while True:
        try:
            answer = client.post(path=path, body=msgspec.json.encode(pod))
        except APIConflictError:  # the answer to the first attempt was lost
            answer = client.get(path=f"{path}/{pod['metadata']['name']}")
        except APIError:
            if not still():
                raise
            time.sleep(_AGAIN_SECONDS)
            continue
        return str(msgspec.json.decode(answer)["metadata"]["uid"])


def delete_pods(client: Client) -> None:
    """Delete all Pods of the namespace default at once; retries if the API server is unavailable or too slow."""
    body = b'{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}'
    while True:
        try:
            client.delete(path="/api/v1/namespaces/default/pods", body=body, timeout_seconds=300)
        except APIUnavailableError:
            time.sleep(_AGAIN_SECONDS)
        else:
            return
