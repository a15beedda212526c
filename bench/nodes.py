"""Nodes and Pods like those of real clusters, for benches that send them over the network."""

import hashlib
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, TypeVar

Json = dict[str, Any]
_T = TypeVar("_T")

_IMAGES = 17
# How many different images the cluster has; each node has some of them.
_POOL = 400

_CONDITIONS = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    "Ready": ("True", "KubeletReady", "kubelet is posting ready status"),
}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def make_node(number: int) -> Json:
    """Make a node with labels, annotations, conditions and images like a managed cluster's; the API adds managedFields.

    Every twentieth is of a special pool, with a taint.
    """
    random = Random(number)
    special = number % 20 == 0
    name = f"node-{number:05d}.eu-west-1.compute.internal"
    zone, kind = f"eu-west-1{'abc'[number % 3]}", f"m{5 + number % 3}.4xlarge"
    taints = {"taints": [{"key": "pool", "value": "special", "effect": "NoSchedule"}]} if special else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": _labels(name, zone, kind) | {"pool": "special" if special else "general"},
            "annotations": {
                "alpha.kubernetes.io/provided-node-ip": f"10.{number >> 8 & 255}.{number & 255}.17",
                "csi.volume.kubernetes.io/nodeid": f'{{"ebs.csi.aws.com":"i-{_digest(name)[:17]}"}}',
                "node.alpha.kubernetes.io/ttl": "15",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
        },
        "spec": {"providerID": f"aws:///{zone}/i-{_digest(name)[:17]}", **taints},
        "status": _status(name, number, random),
    }


def _labels(name: str, zone: str, kind: str) -> Json:
    return {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/instance-type": kind,
        "beta.kubernetes.io/os": "linux",
        "failure-domain.beta.kubernetes.io/region": "eu-west-1",
        "failure-domain.beta.kubernetes.io/zone": zone,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": kind,
        "topology.ebs.csi.aws.com/zone": zone,
        "topology.kubernetes.io/region": "eu-west-1",
        "topology.kubernetes.io/zone": zone,
    }


def _status(name: str, number: int, random: Random) -> Json:
    resources = {
        "cpu": "15890m",
        "ephemeral-storage": "95551679124",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": "62877860Ki",
        "pods": "234",
    }
    return {
        "addresses": [
            {"type": "InternalIP", "address": f"10.{number >> 8 & 255}.{number & 255}.17"},
            {"type": "InternalDNS", "address": name},
            {"type": "Hostname", "address": name},
        ],
        "allocatable": resources,
        "capacity": {**resources, "cpu": "16", "memory": "64893604Ki"},
        "conditions": [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": f"2026-01-01T00:{number % 60:02d}:00Z",
                "lastTransitionTime": "2025-12-01T00:00:00Z",
            }
            for kind, (status, reason, message) in _CONDITIONS.items()
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "images": [_image(image) for image in sorted(random.sample(range(_POOL), _IMAGES))],
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": _digest(f"boot {name}")[:36],
            "containerRuntimeVersion": "containerd://2.1.4",
            "kernelVersion": "6.12.40-63.114.amzn2023.x86_64",
            "kubeProxyVersion": "",
            "kubeletVersion": "v1.36.3",
            "machineID": _digest(f"machine {name}")[:32],
            "operatingSystem": "linux",
            "osImage": "Amazon Linux 2023.8",
            "systemUUID": _digest(f"system {name}")[:36],
        },
    }


def _image(number: int) -> Json:
    name = f"registry.example.com/team-{number % 20}/service-{number}"
    return {"names": [f"{name}@sha256:{_digest(name)}", f"{name}:v1.{number}.0"], "sizeBytes": (20 + number) * 10**6}


def make_pod(name: str, *, labels: dict[str, str], node: str = "") -> Json:
    """Make a Pod of a Deployment, on a node or waiting for one. The API adds its defaults."""
    spec: Json = {
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "main",
                "image": "registry.example.com/team-1/service-41:v1.41.0",
                "resources": {
                    "requests": {"cpu": "100m", "memory": "128Mi"},
                    "limits": {"cpu": "1", "memory": "512Mi"},
                },
                "ports": [{"containerPort": 8080, "name": "http"}],
                "env": [{"name": f"SETTING_{number}", "value": f"value {number}"} for number in range(6)],
                "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 10},
            }
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web", "tier": "front", **labels}},
        "spec": {**spec, "nodeName": node} if node else spec,
    }


def as_kube_scheduler_asks(nodes: Sequence[_T], random: Random) -> list[_T]:
    """Return nodes, or their names, in an order in which kube-scheduler could send them.

    Several workers take chunks of the square root of all nodes and list, concurrently, which nodes passed
    (kube-scheduler v1.36.3, schedule_one.go findNodesThatPassFilters and parallelize/parallelism.go).
    """
    size = max(int(len(nodes) ** 0.5), 1)
    start = random.randrange(len(nodes))
    nodes = [*nodes[start:], *nodes[:start]]
    chunks = [nodes[at : at + size] for at in range(0, len(nodes), size)]
    workers: list[Iterator[_T]] = [iter(()) for _ in range(2)]
    ordered: list[_T] = []
    while len(ordered) < len(nodes):
        worker = random.randrange(len(workers))
        for _ in range(random.randrange(1, 20)):
            found = next(workers[worker], None)
            if found is None and chunks:
                workers[worker] = iter(chunks.pop(0))
                found = next(workers[worker], None)
            if found is not None:
                ordered.append(found)
    return ordered
