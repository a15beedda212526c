"""The words that cases are made of: small sets, so that they meet often."""

from typing import Any

Json = dict[str, Any]

ZONE, REGION, HOSTNAME = "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "kubernetes.io/hostname"
BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
NAMESPACE_NAME = "kubernetes.io/metadata.name"
TOPOLOGY_KEYS = [ZONE, ZONE, HOSTNAME, HOSTNAME, REGION, "rack", "absent"]
MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"

# Requirements that Kubernetes can't parse.
MALFORMED: list[Json] = [
    {"key": "disk", "operator": "In"},
    {"key": "disk", "operator": "NotIn", "values": []},
    {"key": "disk", "operator": "Exists", "values": ["ssd"]},
    {"key": "disk", "operator": "Like", "values": ["ssd"]},
    {"key": "gen", "operator": "Gt", "values": ["1", "2"]},
    {"key": "not a key", "operator": "Exists"},
    {"key": "disk", "operator": "NotIn", "values": ["not a value"]},
    {"key": "app", "operator": "NotIn", "values": ["x" * 64]},
    {"key": "app", "operator": "In", "values": ["-"]},
    {"key": "", "operator": "DoesNotExist"},
]
CPUS = [
    *("50m", "100m", "100m", "200m", "250m", "0.25", "0.3", "500m", "500m", "0.5", "1", "1", 1, 2, "1500m", "2", "3"),
    *(
        "0",
        "0",
        "1e-1",
        "2e0",
        "100000u",
        "1n",
        "500000000n",
        "+1",
        "0.0005",
        ".5",
        "1.",
        "3e-1",
        "0.1234567891",
        "5E-1",
    ),
]
MEMORIES = [
    *("64Mi", "128Mi", "200Mi", "256Mi", "500M", "512Mi", "1Gi", "1Gi", "1G", "2Gi", "0.5Gi", "1.5Gi", "4Gi", "3000Mi"),
    *(
        "0",
        "0",
        "1e9",
        "12e8",
        1073741824,
        "1073741824",
        "129e6",
        "123456k",
        "700000Ki",
        "1024",
        "100m",
        "0.001Ti",
        "1E9",
    ),
]
STORAGES = ["0", "1Gi", "2Gi", "5G", "10Gi", "1e9", "512Mi"]
# Amounts that 64 bits can't hold.
BEYOND = ["8Ei", "12E", "1e30", "9999999999999999999999"]
EXTREMES = [*BEYOND, "8E", "9E", "9223372036854775807", "9223372036854775", "-1", "-1Gi"]
PIECES = ["0", "1", "1", "2", 1, "3", "1k", "1500m"]
HUGE = ["0", "2Mi", "64Mi", "1Gi", "100Mi"]
EXTENDED = ["example.com/gpu", "example.com/gpu", "vendor.io/fpga"]
ODD = [
    "hugepages-2Mi",
    "hugepages-1Gi",
    "kubernetes.io/batch",
    "attachable-volumes-csi",
    "requests.example.com/x",
    "odd",
]

IMAGES = {
    "docker.io/library/web:1.0": 300 << 20,
    "web:1.0": 300 << 20,
    "web:latest": 120 << 20,
    "cache:latest": 700 << 20,
    "registry.example:5000/db:9": 1900 << 20,
    "registry.example:5000/db:latest": 23 << 20,
    "tiny:latest": 1 << 20,
    "huge:latest": 5 << 30,
    "db@sha256:" + "0123456789abcdef" * 4: 600 << 20,
}
IMAGE_NAMES = [*IMAGES, "web", "cache", "registry.example:5000/db", "tiny", "huge", "unknown", "unknown:1", ""]

NAMESPACES = [
    {"metadata": {"name": "default", "labels": {NAMESPACE_NAME: "default"}}},
    {"metadata": {"name": "prod", "labels": {NAMESPACE_NAME: "prod", "env": "prod", "team": "a"}}},
    {"metadata": {"name": "test", "labels": {NAMESPACE_NAME: "test", "env": "test"}}},
    {"metadata": {"name": "bare"}},
]

POD_LABELS = {"app": ["web", "db", "cache"], "tier": ["front", "back"], "version": ["v1", "v2"]}
NODE_LABELS = {
    "disk": ["ssd", "hdd"],
    "team": ["a", "b"],
    "gen": ["1", "2", "5", "12", "007", "-3", "+4", "x", "", "9" * 20],
}
TAINT_KEYS = ["dedicated", "gpu", "node.kubernetes.io/not-ready", "node.kubernetes.io/unschedulable"]
TAINT_VALUES = ["", "a", "b", "5"]
EFFECTS = ["NoSchedule", "NoSchedule", "PreferNoSchedule", "PreferNoSchedule", "NoExecute"]
