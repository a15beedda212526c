"""The words that cases are made of: small sets, so that they meet often."""

from typing import Any

Json = dict[str, Any]

ZONE, REGION, HOSTNAME = "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "kubernetes.io/hostname"
BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
NAMESPACE_NAME = "kubernetes.io/metadata.name"
TOPOLOGY_KEYS = [ZONE, ZONE, HOSTNAME, HOSTNAME, REGION, "rack", "absent"]
MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
# By which CSI drivers tell zones, where one is in the place of an in-tree plugin.
DRIVERS_ZONES = ["topology.ebs.csi.aws.com/zone", "topology.gke.io/zone"]
FEATURES = ["RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"]

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

HOST_IPS = ["0.0.0.0", "", "127.0.0.1", "127.0.0.1", "10.0.0.1", "::"]
# One address written in several ways among them.
IPV6_HOST_IPS = ["::", "::1", "::1", "0:0:0:0:0:0:0:1", "2001:db8::1", "2001:DB8::1", "fe80::1", "::ffff:127.0.0.1"]
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
# Colons and at-signs where no registry has them. What is sought is the name with `:latest`, unless a colon follows the last `/`.
ODD_IMAGES = {
    "a:b/c:latest": 300 << 20,
    "host:1/p:latest": 90 << 20,
    "@:latest": 800 << 20,
    "x/y:": 200 << 20,
    "reg:5000/a/b@sha256:" + "a" * 64: 450 << 20,
    "sha256:" + "c" * 64: 150 << 20,
    ":latest": 64 << 20,
    "a@b:latest": 350 << 20,
}
ODD_IMAGE_NAMES = [*ODD_IMAGES, "a:b/c", "host:1/p", "@", "x/y", "reg:5000/a/b", ":", ":5", "a@b", "/", "x/y:/"]
# The second name that an image has where it was pulled from a registry: the same one on each node.
DIGESTS = {
    image: f"{image.rpartition(':')[0]}@sha256:{image.encode().hex():0>64.64}" for image in IMAGES if "@" not in image
}
IMAGE_NAMES = [
    *IMAGES,
    *DIGESTS.values(),
    "web",
    "cache",
    "registry.example:5000/db",
    "tiny",
    "huge",
    "unknown",
    "unknown:1",
    "",
]

NAMESPACES = [
    {"metadata": {"name": "default", "labels": {NAMESPACE_NAME: "default"}}},
    {"metadata": {"name": "prod", "labels": {NAMESPACE_NAME: "prod", "env": "prod", "team": "a"}}},
    {"metadata": {"name": "test", "labels": {NAMESPACE_NAME: "test", "env": "test"}}},
    {"metadata": {"name": "bare"}},
]

OWNERS = [("ReplicaSet", "apps/v1"), ("StatefulSet", "apps/v1"), ("ReplicationController", "v1"), ("Job", "batch/v1")]
# Of versions that are gone, in other groups, of kinds without a selector, and with slashes where nobody writes them.
FORMER_OWNERS = [
    *(("ReplicaSet", "extensions/v1beta1"), ("ReplicaSet", "apps/v1beta2"), ("StatefulSet", "apps/v1beta1")),
    *(("ReplicaSet", "v1"), ("ReplicationController", "apps/v1"), ("ReplicaSet", "apps/v1/x"), ("ReplicaSet", "")),
    *(("DaemonSet", "apps/v1"), ("Node", "v1")),
    *(
        ("ReplicationController", "/v1"),
        ("ReplicationController", "v1/"),
        ("ReplicaSet", "/apps/v1"),
        ("StatefulSet", "apps/"),
    ),
]

POD_LABELS = {"app": ["web", "db", "cache"], "tier": ["front", "back"], "version": ["v1", "v2"]}
# For hundreds of Pods that hardly two of are alike.
MANY_POD_LABELS = {
    "app": [f"app-{number}" for number in range(30)],
    "tier": ["front", "back", *(f"tier-{number}" for number in range(10))],
    "version": ["v1", "v2"],
}
# More texts, and longer ones, than identical Pods share.
LARGE_LABELS = {f"label-{number}": f"{number}-" + "x" * 60 for number in range(40)}
LARGE_VALUES = [f"value-{number}-" + "x" * 50 for number in range(60)]
NODE_LABELS = {
    "disk": ["ssd", "hdd"],
    "team": ["a", "b"],
    "gen": ["1", "2", "5", "12", "007", "-3", "+4", "x", "", "9" * 20],
}
TAINT_KEYS = ["dedicated", "gpu", "node.kubernetes.io/not-ready", "node.kubernetes.io/unschedulable"]
# Among them numbers as people may write them, of which the operators Gt and Lt take only some.
TAINT_VALUES = ["", "a", "a", "b", "b", "5", "5", "12", "05", "+5", "-3", "-0", "9223372036854775808"]
EFFECTS = ["NoSchedule", "NoSchedule", "PreferNoSchedule", "PreferNoSchedule", "NoExecute"]
