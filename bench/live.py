"""The cost of watching a large cluster: memory, reading the lists, and one Snapshot after a change.

`python -m bench.live` makes lists like an API server's in another process, reads them with the extender's code, and
prints the memory held and the time taken. Objects have what those of managed clusters have: managedFields,
annotations, images, statuses of containers. Times are CPU times, because the machine may have other work.
"""

import argparse
import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from statistics import median
from time import process_time
from typing import IO, Any, cast

import msgspec

from bench.engine import NOW, make_pod
from policies.engine.decision import decide
from policies.engine.default_set import default_rule_set
from policies.engine.objects.cluster_kinds import CLAIMS, REPLICA_SETS, VOLUMES
from policies.engine.objects.pod import Pod
from policies.engine.rule import Cycle
from scheduler.cluster.building import SnapshotBuilder
from scheduler.cluster.client import PAGE_SIZE
from scheduler.cluster.kinds import NODES, OBJECTS, PODS, Kind, Seen
from scheduler.cluster.reflection import Change, Reflection

Json = dict[str, Any]

NODE_COUNT = 20_000
POD_COUNT = 100_000
PODS_PER_REPLICA_SET = 25
IMAGES_PER_NODE = 50
DISTINCT_IMAGES = 2_000
CHANGES = 200


def make_node_json(number: int) -> Json:
    """Make a Node as an API server returns it, some 17 kB."""
    random = Random(number)
    name = node_name(number)
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/instance-type": "m5.4xlarge",
        "beta.kubernetes.io/os": "linux",
        "eks.amazonaws.com/capacityType": "ON_DEMAND",
        "eks.amazonaws.com/nodegroup": f"group-{number % 12}",
        "eks.amazonaws.com/nodegroup-image": "ami-0123456789abcdef0",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "m5.4xlarge",
        "team": f"team-{number % 40}",
        "topology.kubernetes.io/region": "eu-central-1",
        "topology.kubernetes.io/zone": f"eu-central-1{'abc'[number % 3]}",
    }
    conditions = [
        {
            "type": kind,
            "status": "True" if kind == "Ready" else "False",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "reason": f"Kubelet{kind}",
            "message": f"kubelet says that {kind} is as it should be",
        }
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    amounts = {
        "cpu": "15890m",
        "memory": "60813136Ki",
        "ephemeral-storage": "76224326324",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "pods": "234",
    }
    images = [
        {
            "names": [
                f"registry.example.org/some-team/some-image-{image}@sha256:{image:064x}",
                f"registry.example.org/some-team/some-image-{image}:v1.{image % 50}.{image % 7}",
            ],
            "sizeBytes": image * 1_000_000 + 1,
        }
        for image in random.sample(range(DISTINCT_IMAGES), IMAGES_PER_NODE)
    ]
    return {
        "metadata": {
            "name": name,
            "uid": _uid(number, 1),
            "resourceVersion": str(number + 1),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": labels,
            "annotations": {
                "csi.volume.kubernetes.io/nodeid": f'{{"ebs.csi.aws.com":"i-{number:017x}"}}',
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
            "managedFields": _managed(labels, 12),
        },
        "spec": {
            "providerID": f"aws:///eu-central-1a/i-{number:017x}",
            "taints": [{"key": "pool", "value": "special", "effect": "NoSchedule"}] if number % 20 == 0 else None,
        },
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": name}],
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": conditions,
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "images": images,
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": _uid(number, 2),
                "containerRuntimeVersion": "containerd://2.1.5",
                "kernelVersion": "6.12.53-69.119.amzn2023.x86_64",
                "kubeletVersion": "v1.36.3",
                "machineID": f"{number:032x}",
                "operatingSystem": "linux",
                "osImage": "Amazon Linux 2023.9.20251117",
                "systemUUID": _uid(number, 3),
            },
        },
    }


def make_pod_json(number: int, node_name: str) -> Json:
    """Make a Pod as an API server returns it, some 8 kB, including the fields that no rule reads."""
    app = number // PODS_PER_REPLICA_SET
    pod = make_pod(number, app, node=node_name)
    metadata, spec = pod["metadata"], pod["spec"]
    metadata |= {
        "uid": _uid(number, 4),
        "resourceVersion": str(number + 1),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "generateName": f"app-{app}-",
        "annotations": {"prometheus.io/scrape": "true", "checksum/config": f"{app:064x}"},
        "managedFields": _managed(metadata["labels"], 20),
    }
    metadata["ownerReferences"][0]["uid"] = _uid(app, 5)
    container = spec["containers"][0]
    container |= {
        "env": [{"name": f"SOME_VARIABLE_{index}", "value": f"some-value-{index}"} for index in range(15)],
        "image": f"registry.example.org/some-team/some-image-{app % DISTINCT_IMAGES}:v1",
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10, "timeoutSeconds": 1},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 10, "timeoutSeconds": 1},
        "terminationMessagePath": "/dev/termination-log",
        "volumeMounts": [{"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "token"}],
    }
    spec |= {
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "priority": 0,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "serviceAccountName": f"app-{app}",
        "terminationGracePeriodSeconds": 30,
    }
    if number % 5 == 0:
        spec["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": f"data-{number}"}})
    pod["status"] = {
        "phase": "Running",
        "qosClass": "Burstable",
        "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": "2026-01-01T00:00:00Z"}
            for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "containerStatuses": [
            {
                "name": "main",
                "containerID": f"containerd://{number:064x}",
                "image": container["image"],
                "imageID": f"registry.example.org/some-team/some-image@sha256:{app:064x}",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                "allocatedResources": container["resources"]["requests"],
                "resources": container["resources"],
            }
        ],
        "hostIP": "10.0.0.1",
        "podIP": "10.1.0.1",
        "podIPs": [{"ip": "10.1.0.1"}],
        "startTime": "2026-01-01T00:00:00Z",
    }
    return pod


def make_claim_json(number: int) -> Json:
    """Make a PersistentVolumeClaim that a Pod's volume names."""
    labels = {"app": f"app-{number}"}
    return {
        "metadata": _metadata(f"data-{number * 5}", f"team-{number % 40}", number, labels),
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "gp3", "volumeName": f"pvc-{_uid(number, 6)}"},
        "status": {"phase": "Bound", "capacity": {"storage": "10Gi"}},
    }


def make_volume_json(number: int) -> Json:
    """Make the PersistentVolume of a claim."""
    labels = {"topology.kubernetes.io/zone": f"eu-central-1{'abc'[number % 3]}"}
    return {
        "metadata": _metadata(f"pvc-{_uid(number, 6)}", "", number, labels),
        "spec": {
            "capacity": {"storage": "10Gi"},
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{number:017x}", "fsType": "ext4"},
            "claimRef": {"namespace": f"team-{number % 40}", "name": f"data-{number * 5}"},
            "storageClassName": "gp3",
        },
        "status": {"phase": "Bound"},
    }


def make_replica_set_json(number: int) -> Json:
    """Make a ReplicaSet with a Pod template of some size, which no rule reads."""
    labels = {"app": f"app-{number}", "pod-template-hash": f"{number:x}"}
    template = make_pod_json(number, "")
    return {
        "metadata": _metadata(f"app-{number}", f"team-{number % 40}", number, labels),
        "spec": {
            "replicas": PODS_PER_REPLICA_SET,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        },
        "status": {"replicas": PODS_PER_REPLICA_SET, "readyReplicas": PODS_PER_REPLICA_SET},
    }


def _metadata(name: str, namespace: str, number: int, labels: dict[str, str]) -> Json:
    return {
        "name": name,
        "namespace": namespace,
        "uid": _uid(number, 7),
        "resourceVersion": str(number + 1),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": labels,
        "annotations": {"deployment.kubernetes.io/revision": "3"},
        "managedFields": _managed(labels, 8),
    }


def _managed(labels: dict[str, str], fields: int) -> list[Json]:
    owned: Json = {f"f:{label}": {} for label in labels}
    status: Json = {f"f:someField{index}": {".": {}, "f:type": {}, "f:status": {}} for index in range(fields)}
    return [
        {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", **content}
        for manager, content in (
            ("kubectl-client-side-apply", {"fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": owned}}}),
            ("kubelet", {"fieldsType": "FieldsV1", "fieldsV1": {"f:status": status}, "subresource": "status"}),
        )
    ]


def _uid(number: int, kind: int) -> str:
    return f"{number:08x}-0000-4000-8000-{kind:012x}"


def node_name(number: int) -> str:
    """Return the name of a node by its number."""
    return f"ip-10-{number >> 16 & 255}-{number >> 8 & 255}-{number & 255}.eu-central-1.compute.internal"


def make(kind: str, number: int, nodes: int) -> Json:
    """Make one object of a kind."""
    if kind == PODS.name:
        return make_pod_json(number, node_name(number * 7919 % nodes))
    makers: dict[str, Callable[[int], Json]] = {
        NODES.name: make_node_json,
        CLAIMS: make_claim_json,
        VOLUMES: make_volume_json,
        REPLICA_SETS: make_replica_set_json,
    }
    return makers[kind](number)


def write_pages(kind: str, count: int, nodes: int, out: IO[bytes]) -> None:
    """Write lists of PAGE_SIZE objects, each after its length in 8 bytes."""
    for first in range(0, count, PAGE_SIZE):
        last = min(first + PAGE_SIZE, count)
        metadata = {"resourceVersion": "1", "continue": "more" if last < count else ""}
        items = [make(kind, number, nodes) for number in range(first, last)]
        page = msgspec.json.encode({"kind": "List", "metadata": metadata, "items": items})
        out.write(len(page).to_bytes(8, "big") + page)


def read_pages(kind: str, count: int, nodes: int) -> Iterator[bytes]:
    """Yield lists made by another process, so that making them takes no memory here."""
    command = [sys.executable, "-m", "bench.live", "--write", kind, "--count", str(count), "--nodes", str(nodes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603 - this very program
        out = cast("IO[bytes]", process.stdout)
        while header := out.read(8):
            yield out.read(int.from_bytes(header, "big"))


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


class Lists:
    """Reads the lists of one kind after another into a builder, as the reflectors do."""

    def __init__(self, nodes: int) -> None:
        self.builder = SnapshotBuilder()
        self.reflections: dict[str, Reflection[Any]] = {}
        self._nodes = nodes

    def read(self, kind: Kind[Any], count: int, tell: Callable[[Any], None]) -> None:
        """Read all pages of a kind, and print the time and the memory held."""
        gc.collect()
        held = resident_bytes()
        reflection = self.reflections[kind.name] = Reflection()
        seconds, size = 0.0, 0
        for page in read_pages(kind.name, count, self._nodes):
            size += len(page)
            started = process_time()
            changes = reflection.on_page(kind.read_page(page))
            if changes is not None:
                tell(changes.changes)
                self.builder.build()
            seconds += process_time() - started
        changes = None
        gc.collect()
        held = resident_bytes() - held
        print(
            f"{kind.name:>22} {count:>8} {size / count / 1e3:>8.1f} {held / 1e6:>9.0f} {held / count:>9.0f} "
            f"{seconds:>8.1f} {seconds / count * 1e6:>8.0f}"
        )


def follow(kind: Kind[Any], reflection: Reflection[Any], line: bytes) -> Change[Any]:
    """Read a line of a watch; returns its change."""
    event = kind.read_event(line)
    change = reflection.on_event(event) if isinstance(event, Seen) else None
    if change is None:
        message = f"this line changes nothing: {line[:100]!r}"
        raise ValueError(message)
    return change


def measure_changes(lists: Lists, times: int) -> tuple[list[float], list[float], list[float]]:
    """Return seconds for each of `times` new Pods: reading the event, the Snapshot, and a decision on it."""
    rules = default_rule_set()
    reflection = lists.reflections[PODS.name]
    names = list(lists.builder.build().nodes)
    reading: list[float] = []
    building: list[float] = []
    deciding: list[float] = []
    for number in range(times + 1):
        json = make_pod_json(POD_COUNT + number, names[number * 31 % len(names)])
        line = msgspec.json.encode({"type": "ADDED", "object": json})
        asked = Pod.from_json(make_pod(number, number))
        started = process_time()
        lists.builder.on_pods([follow(PODS, reflection, line)])
        read = process_time()
        snapshot = lists.builder.build()
        built = process_time()
        decide(rules, Cycle(pod=asked, snapshot=snapshot, now=NOW), snapshot.table.all_rows())
        reading.append(read - started)
        building.append(built - read)
        deciding.append(process_time() - built)
    return reading[1:], building[1:], deciding


def measure_claims(lists: Lists, times: int) -> list[float]:
    """Return seconds for the Snapshot after each of `times` changes of claims."""
    reflection = lists.reflections[CLAIMS]
    building: list[float] = []
    for number in range(times):
        json = make_claim_json(number)
        json["metadata"]["resourceVersion"] = str(POD_COUNT + number)
        json["spec"]["volumeName"] = ""
        line = msgspec.json.encode({"type": "MODIFIED", "object": json})
        started = process_time()
        lists.builder.on_objects(CLAIMS, [follow(OBJECTS[CLAIMS], reflection, line)])
        lists.builder.build()
        building.append(process_time() - started)
    return building


def collection_seconds() -> float:
    """Return the seconds of one full garbage collection, during which all threads stop."""
    started = process_time()
    gc.collect()
    return process_time() - started


def _said(name: str, seconds: list[float]) -> None:
    high = sorted(seconds)[int(len(seconds) * 0.99)]
    print(f"{name:>44} {median(seconds) * 1e3:>9.2f} {high * 1e3:>9.2f}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--nodes", type=int, default=NODE_COUNT)
    parser.add_argument("--pods", type=int, default=POD_COUNT)
    parser.add_argument("--write", help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.write:
        write_pages(asked.write, asked.count, asked.nodes, sys.stdout.buffer)
        return
    gc.set_threshold(50_000, 20, 100)  # as in the extender
    start = resident_bytes()
    print(f"memory before the first list: {start / 1e6:.0f} MB")
    print(f"{'kind':>22} {'objects':>8} {'kB each':>8} {'held MB':>9} {'B each':>9} {'cpu s':>8} {'us each':>8}")
    lists = Lists(asked.nodes)
    lists.read(NODES, asked.nodes, lists.builder.on_nodes)
    lists.read(PODS, asked.pods, lists.builder.on_pods)
    for name, count in ((REPLICA_SETS, 4), (CLAIMS, 5), (VOLUMES, 5)):
        kind = OBJECTS[name]
        lists.read(kind, asked.pods // count, lambda changes, name=name: lists.builder.on_objects(name, changes))  # type: ignore[misc] # default
    print(f"memory with all lists: {resident_bytes() / 1e6:.0f} MB")
    print(f"a full collection of garbage: {collection_seconds():.2f} s")
    reading, building, deciding = measure_changes(lists, CHANGES)
    print(f"memory after deciding by the classic default set: {resident_bytes() / 1e6:.0f} MB")
    print(f"the first decision: {deciding[0]:.2f} s")
    print(f"{'milliseconds':>44} {'p50':>9} {'p99':>9}")
    _said("reading the event of a Pod that came", reading)
    _said("the Snapshot with it", building)
    _said("a decision by the classic default set on it", deciding[1:])
    _said("a claim that changed, and the Snapshot", measure_claims(lists, CHANGES))
    gc.collect()
    gc.freeze()
    print(f"a full collection after gc.freeze(): {collection_seconds():.3f} s")


if __name__ == "__main__":
    main()
