"""Random clusters and Pods, as Kubernetes JSON: the same ones for the same seed and number.

Words come from small sets, so that labels, taints, ports and disks meet often, and each case has a few themes only, so
that neither all nodes pass nor all are refused.
"""

import re
from random import Random
from typing import Any

Json = dict[str, Any]

ZONE, REGION, HOSTNAME = "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "kubernetes.io/hostname"
BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
NAMESPACE_NAME = "kubernetes.io/metadata.name"
TOPOLOGY_KEYS = [ZONE, ZONE, HOSTNAME, HOSTNAME, REGION, "rack", "absent"]
MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"

# The first digits of an exponent, and those beyond.
_BIG_EXPONENT = re.compile(r"([eE][+-]?\d{4})\d+")

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

THEMES = {
    "resources": 0.6,
    "odd resources": 0.2,
    "taints": 0.35,
    "node affinity": 0.35,
    "node name": 0.05,
    "ports": 0.25,
    "disks": 0.2,
    "claims": 0.2,
    "pod affinity": 0.3,
    "spread": 0.3,
    "default spread": 0.1,
    "images": 0.25,
    "arguments": 0.15,
    "resizes": 0.04,
    "migration": 0.05,
    "rarities": 0.1,
}

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
# Without exponents beyond 32 bits: "1e2147483648" keeps Kubernetes' own parser busy for ever.
ODD_QUANTITIES = [
    *(
        "",
        "-",
        "+",
        ".",
        "-.",
        "m",
        "Ki",
        "E",
        "e",
        "1e",
        "1E",
        "1e+",
        "1E-",
        "1e1.5",
        "1ee1",
        "1Kii",
        "1KI",
        "1mi",
        "1k1",
    ),
    *(
        "0e99",
        "0E",
        "0Ei",
        "00",
        "-0",
        "+.0",
        "1..2",
        "1_0",
    ),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "7.9999999999999999999Ei", "8Ei", "9.3E"),
    *("0.0000000001", "0.1n", "-0.1n", "999999999999999999.9", "1e-30", "1e30", "١", "0x10", "1Zi", "Infinity", "NaN"),
]
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


def generate(seed: int, number: int) -> Json:
    """Make the case with this number."""
    return _Case(Random(f"{seed}/{number}")).make()


class _Case:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.themes = {theme for theme, share in THEMES.items() if random.random() < share}
        self.uid = 0
        self.ephemerals: list[tuple[str, int, str]] = []

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def some(self, choices: list[Any], most: int, least: int = 0) -> list[Any]:
        count = min(self.random.randint(least, most), len(choices))
        return self.random.sample(choices, count)

    def make(self) -> Json:
        random = self.random
        size = random.choice([1, 2, 3, 3, 4, 4, 5, 6, 8, 10, 12])
        self.racks, self.zones = random.choice([0.5, 0.95, 1]), random.choice([0.9, 1, 1])
        self.sameness, self.variety = random.choice([3, 12]), random.choice([1, 2, 3, 3])
        self.names = [f"n{number}" for number in range(1, size + 1)]
        nodes = [self.node(name) for name in self.names]
        pods = [self.existing() for _ in range(random.randint(0, 3 * size))]
        known = NAMESPACES if "rarities" not in self.themes else self.some(NAMESPACES, len(NAMESPACES))
        case: Json = {"pod": self.incoming(), "nodes": nodes, "pods": pods, "namespaces": known}
        if self.themes & {"claims", "migration"}:
            case |= self.storage()
        if "default spread" in self.themes:
            case |= self.owners()
        if "arguments" in self.themes:
            case["arguments"] = self.arguments()
        if "rarities" in self.themes:
            for pod in (case["pod"], *pods):
                self.add_nulls(pod)
        return case

    def rarely(self, share: float = 0.2) -> bool:
        """Return whether to do what the API server would refuse, or what hardly anybody does."""
        return "rarities" in self.themes and self.chance(share)

    def add_nulls(self, pod: Json) -> None:
        for member in ("nodeSelector", "tolerations", "volumes", "affinity", "overhead", "initContainers", "resources"):
            if self.chance(0.1):
                pod["spec"].setdefault(member, None)
        for member in ("labels", "annotations", "ownerReferences", "deletionTimestamp"):
            if self.chance(0.1):
                pod["metadata"].setdefault(member, None)

    # Nodes

    def node(self, name: str) -> Json:
        random = self.random
        labels = {HOSTNAME: name} if self.chance(0.97) else {}
        zone = random.choice(["z1", "z2", "z3"])
        if self.chance(self.zones):
            labels[ZONE] = zone
        if self.chance(0.7):
            labels[REGION] = "r2" if zone == "z3" else "r1"
        if self.chance(0.15):
            labels |= {BETA_ZONE: random.choice(["z1", "z2"]), BETA_REGION: "r1"}
        if self.chance(self.racks):
            labels["rack"] = random.choice(["x", "y"]) if not self.rarely(0.2) else ""
        for key, values in NODE_LABELS.items():
            if self.chance(0.7):
                labels[key] = random.choice(values)
        node: Json = {
            "metadata": {"name": name, "labels": labels},
            "spec": {},
            "status": {"allocatable": self.allocatable()},
        }
        if self.rarely(0.05):
            node["metadata"]["labels"] = None
        if self.rarely(0.05):
            node["status"] = {"capacity": self.allocatable()}
        if "taints" in self.themes:
            taints = [self.taint() for _ in range(random.choice([0, 0, 1, 1, 2, 3]))]
            node["spec"]["taints"] = list({(taint["key"], taint["effect"]): taint for taint in taints}.values())
            if self.chance(0.15):
                node["spec"]["unschedulable"] = True
        if "images" in self.themes:
            node["status"]["images"] = [
                {"names": [image], "sizeBytes": IMAGES[image]} for image in self.some(list(IMAGES), 6)
            ]
        return node

    def allocatable(self) -> Json:
        random = self.random
        amounts: Json = {
            "cpu": random.choice(["1", "2", "4", "4", "8", 4, "3800m", "16", "7.91"]),
            "memory": random.choice(["2Gi", "4Gi", "8Gi", "16Gi", "16Gi", "32777216Ki", "8G", 4294967296, "15.5Gi"]),
            "pods": random.choice(["110", "110", 110, "20", "10", "5", "3"]),
        }
        if self.chance(0.5):
            amounts["ephemeral-storage"] = random.choice(["10Gi", "100G", "1e10"])
        if "odd resources" in self.themes:
            for name in {*EXTENDED, *ODD}:
                if self.chance(0.5):
                    amounts[name] = random.choice(HUGE if name.startswith("hugepages-") else ["0", "1", "2", "8", 4])
            for name in list(amounts):
                if self.chance(0.03):
                    del amounts[name]
            for name in ("cpu", "memory"):
                if self.chance(0.02):
                    amounts[name] = "0"
        return amounts

    def taint(self) -> Json:
        random = self.random
        taint = {"key": random.choice(TAINT_KEYS), "effect": random.choice(EFFECTS)}
        if self.chance(0.6):
            taint["value"] = random.choice(TAINT_VALUES)
        return taint

    # Pods

    def pod(self) -> Json:
        random = self.random
        self.uid += 1
        number = self.uid
        metadata: Json = {"name": f"p{self.uid}", "uid": f"u{self.uid}"}
        metadata["namespace"] = random.choice(["default"] * self.sameness + ["prod", "test", "bare"])
        labels = {key: random.choice(values[: self.variety]) for key, values in POD_LABELS.items() if self.chance(0.8)}
        if labels or self.chance(0.5):
            metadata["labels"] = labels
        spec: Json = {"containers": [self.container() for _ in range(random.choice([1, 1, 1, 2, 3]))]}
        if "resources" in self.themes and self.chance(0.4):
            spec["initContainers"] = [self.init_container() for _ in range(random.randint(1, 3))]
        if "resources" in self.themes and self.chance(0.15):
            spec["overhead"] = self.requests(missing=0.4)
        if "resources" in self.themes and self.chance(0.12):
            spec["resources"] = {"requests": self.requests(missing=0.5)}
        volumes = self.volumes(metadata["namespace"], number)
        if volumes:
            spec["volumes"] = volumes
        return {"metadata": metadata, "spec": spec, "status": {}}

    def incoming(self) -> Json:
        random = self.random
        pod = self.pod()
        spec, affinity = pod["spec"], {}
        if "taints" in self.themes:
            spec["tolerations"] = [self.toleration() for _ in range(random.choice([0, 1, 2, 2, 3, 4]))]
        if "node affinity" in self.themes:
            if self.chance(0.3):
                spec["nodeSelector"] = self.labels(NODE_LABELS, most=1)
            if self.chance(0.85):
                affinity["nodeAffinity"] = self.node_affinity()
        if "node name" in self.themes:
            spec["nodeName"] = random.choice([*self.names, "gone"])
        if "pod affinity" in self.themes:
            affinity |= self.pod_affinity(required=0.35)
        if affinity:
            spec["affinity"] = affinity
        if "spread" in self.themes:
            spec["topologySpreadConstraints"] = self.constraints()
        if "default spread" in self.themes and self.chance(0.6):
            kind, version = random.choice([
                ("ReplicaSet", "apps/v1"), ("StatefulSet", "apps/v1"), ("ReplicationController", "v1"), ("Job", "batch/v1"),
            ])  # fmt: skip
            owner = {"apiVersion": version, "kind": kind, "name": random.choice(["o1", "o2", "gone"]), "uid": "o"}
            pod["metadata"]["ownerReferences"] = [owner | {"controller": self.chance(0.9)}]
        return pod

    def existing(self) -> Json:
        random = self.random
        pod = self.pod()
        pod["spec"]["nodeName"] = random.choice(self.names) if self.chance(0.97) else random.choice(["", "gone"])
        pod["status"]["phase"] = random.choices(
            ["Running", "Pending", "Succeeded", "Failed", "Unknown"], [80, 8, 4, 4, 1]
        )[0]
        if self.chance(0.07):
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if "pod affinity" in self.themes and self.chance(0.35):
            pod["spec"]["affinity"] = self.pod_affinity(required=0.12)
        if "resizes" in self.themes:
            self.resize(pod)
        return pod

    def resize(self, pod: Json) -> None:
        for kind, statuses in (("containers", "containerStatuses"), ("initContainers", "initContainerStatuses")):
            if kind in pod["spec"]:
                pod["status"][statuses] = self.container_statuses(pod["spec"][kind])
        if self.chance(0.3):
            pod["status"]["resources"] = {"requests": self.requests(missing=0.3)}
        if self.chance(0.3):
            pod["status"]["allocatedResources"] = self.requests(missing=0.3)
        if self.chance(0.4):
            reason = self.random.choice(["Infeasible", "Deferred"])
            status = self.random.choice(["True", "True", "False"])
            pod["status"]["conditions"] = [{"type": "PodResizePending", "status": status, "reason": reason}]

    def container_statuses(self, containers: list[Json]) -> list[Json]:
        statuses = []
        for container in containers:
            status: Json = {"name": container["name"], "image": "", "imageID": "", "ready": True, "restartCount": 0}
            if self.chance(0.6):
                status["resources"] = {"requests": self.requests(missing=0.2)}
            if self.chance(0.6):
                status["allocatedResources"] = self.requests(missing=0.2)
            if self.chance(0.95):
                statuses.append(status)
        return statuses

    def container(self) -> Json:
        self.uid += 1
        container: Json = {"name": f"c{self.uid}"}
        if "resources" in self.themes or self.chance(0.7):
            container["resources"] = {"requests": self.requests(missing=0.25)}
            if self.chance(0.1):
                container["resources"]["limits"] = {"cpu": "10", "memory": "10Gi"}
        if "images" in self.themes:
            container["image"] = self.random.choice(IMAGE_NAMES)
        if "ports" in self.themes and self.chance(0.5):
            container["ports"] = [self.port() for _ in range(self.random.randint(1, 2))]
        return container

    def init_container(self) -> Json:
        container = self.container()
        if self.chance(0.4):
            container["restartPolicy"] = self.random.choice(["Always", "Always", "Always", "OnFailure"])
        return container

    def requests(self, *, missing: float) -> Json:
        random = self.random
        requests: Json = {}
        small = "resources" not in self.themes
        if not self.chance(missing):
            requests["cpu"] = random.choice(CPUS[:4] if small else CPUS)
        if not self.chance(missing):
            requests["memory"] = random.choice(MEMORIES[:4] if small else MEMORIES)
        if self.rarely(0.05):
            requests[random.choice(["cpu", "memory"])] = random.choice(EXTREMES)
        if self.chance(0.04):
            requests["ephemeral-storage"] = random.choice(STORAGES)
        if "odd resources" in self.themes:
            if self.chance(0.15):
                requests[random.choice(EXTENDED)] = random.choice(PIECES)
            if self.chance(0.1):
                name = random.choice(ODD)
                requests[name] = random.choice(HUGE if name.startswith("hugepages-") else PIECES)
        return requests

    def port(self) -> Json:
        random = self.random
        port: Json = {"containerPort": 80}
        if self.chance(0.75):
            port["hostPort"] = random.choice([80, 80, 443, 8080, 9000, 0])
        if self.chance(0.5):
            port["protocol"] = random.choice(["TCP", "TCP", "UDP", "SCTP"])
        if self.chance(0.5):
            port["hostIP"] = random.choice(["0.0.0.0", "", "127.0.0.1", "127.0.0.1", "10.0.0.1", "::"])
        return port

    def toleration(self) -> Json:
        random = self.random
        toleration: Json = {}
        operator = random.choice(["Equal", "Equal", "Exists", "Exists", "", None, "Gt", "Lt"])
        if operator is not None:
            toleration["operator"] = operator
        if self.chance(0.92):
            toleration["key"] = random.choice(TAINT_KEYS)
        if operator != "Exists" and self.chance(0.75):
            toleration["value"] = random.choice(TAINT_VALUES)
        if self.chance(0.6):
            toleration["effect"] = random.choice(EFFECTS)
        if self.chance(0.1):
            toleration["tolerationSeconds"] = 60
        return toleration

    def labels(self, words: dict[str, list[str]], most: int = 2) -> Json:
        keys = self.some(list(words), most, 1)
        return {key: self.random.choice(words[key]) for key in keys}

    # Node affinity

    def node_affinity(self) -> Json:
        affinity: Json = {}
        if self.chance(0.7):
            terms = [self.node_term() for _ in range(self.random.choice([0, 1, 1, 2, 2, 3]))]
            if self.chance(0.08):  # each term names its nodes, so the others aren't even looked at
                operands = [[self.random.choice(self.names)] for _ in range(2)]
                fields = [{"key": "metadata.name", "operator": "In", "values": names} for names in operands]
                terms = (
                    [{"matchFields": fields}] if self.chance(0.5) else [{"matchFields": [field]} for field in fields]
                )
            affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
        if self.chance(0.6):
            affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": self.random.choice([0, 1, 3, 10, 50, 100]), "preference": self.node_term()}
                for _ in range(self.random.randint(0, 3))
            ]
        return affinity

    def node_term(self) -> Json:
        term: Json = {}
        if self.chance(0.85):
            term["matchExpressions"] = [self.node_requirement() for _ in range(self.random.choice([0, 1, 1, 1, 2]))]
        if self.chance(0.2):
            operator = self.random.choice(["In", "In", "NotIn"])
            field = {"key": "metadata.name", "operator": operator, "values": [self.random.choice(self.names)]}
            if self.rarely(0.1):
                field |= self.random.choice(
                    [{"key": "metadata.uid"}, {"values": []}, {"values": self.names}, {"operator": "Exists"}]
                )
            term["matchFields"] = [field]
            if self.chance(0.2):
                term["matchFields"].append({**field, "values": [self.random.choice(self.names)]})
        return term

    def node_requirement(self) -> Json:
        random = self.random
        operator = random.choice(["In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
        if self.rarely(0.1):
            return random.choice(MALFORMED)
        if operator in {"Gt", "Lt"}:
            value = random.choice(["0", "1", "3", "6", "11"]) if self.chance(0.96) else random.choice(["1.5", "-5", ""])
            return {"key": random.choice(["gen", "gen", "gen", "rack"]), "operator": operator, "values": [value]}
        key = random.choice(["disk", "team", "gen", ZONE, "absent"])
        if operator in {"Exists", "DoesNotExist"}:
            return {"key": key, "operator": operator}
        values = {**NODE_LABELS, ZONE: ["z1", "z2", "z3"]}.get(key, ["v"])
        if self.chance(0.97):  # the API server refuses the other ones
            values = [value for value in values if value[:1] not in {"-", "+"}]
        return {"key": key, "operator": operator, "values": self.some(values, 3, 1)}

    # Pods that are near each other

    def label_selector(self, words: dict[str, list[str]]) -> Json | None:
        random = self.random
        if self.chance(0.05):
            return None
        selector: Json = {}
        if self.chance(0.65):
            selector["matchLabels"] = self.labels(words, most=1)
        if self.chance(0.3):
            key = random.choice([*words, "absent"])
            operator = random.choice(["In", "NotIn", "Exists", "DoesNotExist"])
            requirement: Json = {"key": key, "operator": operator}
            if operator in {"In", "NotIn"}:
                requirement["values"] = self.some(words.get(key, ["v"]), 2, 1)
            selector["matchExpressions"] = [requirement]
            if self.rarely(0.1):
                selector["matchExpressions"] = [random.choice(MALFORMED)]
        return selector

    def pod_affinity(self, *, required: float) -> Json:
        affinity: Json = {}
        for kind in ("podAffinity", "podAntiAffinity"):
            entry: Json = {}
            if self.chance(required):
                entry["requiredDuringSchedulingIgnoredDuringExecution"] = [
                    self.pod_term() for _ in range(self.random.choice([1, 1, 1, 2]))
                ]
            if self.chance(0.5):
                entry["preferredDuringSchedulingIgnoredDuringExecution"] = [
                    {"weight": self.random.choice([1, 5, 10, 100]), "podAffinityTerm": self.pod_term()}
                    for _ in range(self.random.randint(1, 2))
                ]
            if entry:
                affinity[kind] = entry
        return affinity

    def pod_term(self) -> Json:
        random = self.random
        term: Json = {"topologyKey": random.choice(TOPOLOGY_KEYS)}
        selector = self.label_selector(POD_LABELS)
        if selector is not None:
            term["labelSelector"] = selector
        if self.chance(0.2):
            term["namespaces"] = self.some(["default", "prod", "test", "bare"], 2)
        if self.chance(0.25):
            words = {"env": ["prod", "test"], "team": ["a"], NAMESPACE_NAME: ["default", "prod"]}
            term["namespaceSelector"] = self.label_selector(words) or {}
        if self.chance(0.08):
            term["matchLabelKeys"] = ["version"]
        if self.chance(0.05):
            term["mismatchLabelKeys"] = ["tier"]
        return term

    def constraints(self) -> list[Json]:
        random = self.random
        constraints: dict[tuple[str, str], Json] = {}
        for _ in range(random.choice([1, 1, 2, 2, 3])):
            key, action = random.choice(TOPOLOGY_KEYS[:-1]), random.choice(["DoNotSchedule", "ScheduleAnyway"])
            constraint: Json = {"topologyKey": key, "whenUnsatisfiable": action}
            constraint["maxSkew"] = random.choice([1, 1, 2, 3])
            selector = self.label_selector(POD_LABELS)
            if selector is not None:
                constraint["labelSelector"] = selector
            if action == "DoNotSchedule" and self.chance(0.25):
                constraint["minDomains"] = random.randint(1, 4)
            if self.chance(0.3):
                constraint["nodeAffinityPolicy"] = random.choice(["Honor", "Ignore"])
            if self.chance(0.3):
                constraint["nodeTaintsPolicy"] = random.choice(["Honor", "Ignore"])
            if selector is not None and self.chance(0.15):
                constraint["matchLabelKeys"] = random.choice([["version"], ["version", "absent"]])
            constraints[key, action] = constraint
        return list(constraints.values())

    def owners(self) -> Json:
        random = self.random

        def owned(selector: Json | None) -> list[Json]:
            spec = {} if selector is None else {"selector": selector}
            return [
                {"metadata": {"name": "o1", "namespace": random.choice(["default", "default", "prod"])}, "spec": spec}
            ]

        owners = {
            "services": owned(self.labels(POD_LABELS, most=1) if self.chance(0.9) else None),
            "replicationControllers": owned(self.labels(POD_LABELS, most=2)),
            "replicaSets": owned(self.label_selector(POD_LABELS)),
            "statefulSets": owned(self.label_selector(POD_LABELS)),
        }
        return {kind: objects for kind, objects in owners.items() if self.chance(0.7)}

    # Volumes

    def volumes(self, namespace: str, pod_number: int) -> list[Json]:
        volumes: list[Json] = []
        if "disks" in self.themes and self.chance(0.5):
            volumes += [self.disk() for _ in range(self.random.randint(1, 2))]
        if "claims" in self.themes and self.chance(0.6):
            names = ["data", "logs", "once", "shared", "pending", "absent"]
            weights = [5, 5, 3, 5, 3, 0.15]
            for name in self.random.choices(names, weights, k=self.random.choice([1, 1, 2])):
                volumes.append({"persistentVolumeClaim": {"claimName": name}})
        if "claims" in self.themes and self.chance(0.03):
            volumes.append({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}})
        if "claims" in self.themes and self.rarely(0.02):
            volumes.append({"persistentVolumeClaim": {"claimName": ""}})
        if "migration" in self.themes and self.chance(0.5):
            volumes.append(self.disk())
        if "images" in self.themes and self.chance(0.05):
            volumes.append({"image": {"reference": self.random.choice(IMAGE_NAMES)}})
        if self.chance(0.1):
            volumes.append({"emptyDir": {}})
        named = [{"name": f"v{number}", **volume} for number, volume in enumerate(volumes)]
        self.ephemerals += [(namespace, pod_number, volume["name"]) for volume in named if "ephemeral" in volume]
        return named

    def disk(self) -> Json:
        random = self.random
        name, read_only = random.choice(["d1", "d2", "d3"]), {"readOnly": True} if self.chance(0.4) else {}
        if "migration" in self.themes and self.chance(0.4):
            return random.choice([
                {"azureDisk": {"diskName": name, "diskURI": f"/subscriptions/s/disks/{name}"}},
                {"azureFile": {"secretName": "s", "shareName": name}},
                {"cinder": {"volumeID": name}},
                {"vsphereVolume": {"volumePath": f"[store] {name}"}},
                {"portworxVolume": {"volumeID": name}},
                {"awsElasticBlockStore": {"volumeID": f"aws://us-east-1a/vol-{name}"}},
                {"csi": {"driver": "csi.one"}},
                {"nfs": {"server": "s", "path": "/"}},
                {"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/not a disk"}},
                {"awsElasticBlockStore": {"volumeID": f"aws://{name}"}},
                {"azureDisk": {"diskName": name, "diskURI": name, "kind": random.choice(["Managed", "managed", "Shared"])}},
                {"gcePersistentDisk": {"pdName": name}},
                {"gcePersistentDisk": {"pdName": name}},
            ])  # fmt: skip
        match random.choice(["gce", "aws", "iscsi", "rbd"]):
            case "gce":
                return {"gcePersistentDisk": {"pdName": name, **read_only}}
            case "aws":
                return {"awsElasticBlockStore": {"volumeID": name, **read_only}}
            case "iscsi":
                portal = random.choice(["1.2.3.4:3260", "1.2.3.5:3260"])
                return {"iscsi": {"targetPortal": portal, "iqn": name, "lun": random.randint(0, 1), **read_only}}
            case _:
                monitors = self.some(["m1", "m2", "m3"], 2, 1)
                pool = {"pool": random.choice(["rbd", "ssd"])} if self.chance(0.5) else {}
                return {"rbd": {"monitors": monitors, "image": name, **pool, **read_only}}

    def storage(self) -> Json:
        random = self.random
        claims = []
        volumes = [self.persistent_volume(f"pv{number}") for number in range(1, 7)]
        for namespace in ("default", "prod", "test", "bare"):
            for name in ("data", "logs", "once", "shared", "pending"):
                if self.chance(0.02):
                    continue
                claim: Json = {"metadata": {"name": name, "namespace": namespace}, "spec": {}}
                claim["spec"]["accessModes"] = ["ReadWriteOncePod" if name == "once" else "ReadWriteOnce"]
                if self.chance(0.9 if name == "pending" else 0.4):
                    storage_class = random.choices(
                        ["late", "early", "modeless", "gone", "intree", ""], [30, 3, 1, 1, 3, 1]
                    )[0]
                    if self.chance(0.1):
                        claim["metadata"]["annotations"] = {CLASS_ANNOTATION: storage_class}
                    else:
                        claim["spec"]["storageClassName"] = storage_class
                if name != "pending":
                    numbers = range(1, 7) if self.chance(0.99) else [9]
                    claim["spec"]["volumeName"] = f"pv{random.choice(list(numbers))}"
                claims.append(claim)
        claims += [self.ephemeral_claim(*where) for where in self.ephemerals if self.chance(0.85)]
        return {
            "persistentVolumeClaims": claims,
            "persistentVolumes": volumes,
            "storageClasses": [
                {"metadata": {"name": "late"}, "provisioner": "csi.one", "volumeBindingMode": "WaitForFirstConsumer"},
                {"metadata": {"name": "early"}, "provisioner": "csi.one", "volumeBindingMode": "Immediate"},
                {"metadata": {"name": "modeless"}, "provisioner": "csi.two"},
                {
                    "metadata": {"name": "intree"},
                    "provisioner": "kubernetes.io/aws-ebs",
                    "volumeBindingMode": "WaitForFirstConsumer",
                },
            ],
            "csiNodes": [self.csi_node(name) for name in self.names if self.chance(0.9)],
            "volumeAttachments": [self.attachment(number) for number in range(random.randint(0, 3))],
        }

    def ephemeral_claim(self, namespace: str, pod_number: int, volume: str) -> Json:
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": f"p{pod_number}",
            "uid": f"u{pod_number}",
            "controller": True,
        }
        if self.chance(0.1):
            owner |= self.random.choice([{"uid": "other"}, {"controller": False}])
        metadata = {"name": f"p{pod_number}-{volume}", "namespace": namespace, "ownerReferences": [owner]}
        spec: Json = {"storageClassName": "late"}
        if self.chance(0.6):
            spec["volumeName"] = f"pv{self.random.randint(1, 6)}"
        return {"metadata": metadata, "spec": spec}

    def persistent_volume(self, name: str) -> Json:
        random = self.random
        labels: Json = {}
        if self.chance(0.5):
            labels[random.choice([ZONE, ZONE, BETA_ZONE])] = random.choice(
                [
                    "z1",
                    "z2",
                    "z1__z2",
                    "z1__z2__z3",
                    "z1__",
                    "z3",
                    "",
                    "z1____z2",
                    "z3__z3",
                    "z1_z2",
                    "us-a-1__us-a-2",
                    "us-a-1__us-b-1",
                ]
            )
        if self.chance(0.25):
            labels[random.choice([REGION, REGION, BETA_REGION])] = random.choice(["r1", "r1__r2", "r2"])
        if self.chance(0.2):
            labels["other"] = "x"
        if self.chance(0.75):
            driver = random.choice(["csi.one", "csi.one", "csi.two"])
            source: Json = {"csi": {"driver": driver, "volumeHandle": random.choice(["h1", "h2", "h3", name, name])}}
        else:
            source = self.disk() if "migration" in self.themes else {"hostPath": {"path": "/data"}}
        return {"metadata": {"name": name, "labels": labels}, "spec": source}

    def csi_node(self, name: str) -> Json:
        drivers = []
        for driver in ("csi.one", "csi.two", "ebs.csi.aws.com"):
            if self.chance(0.7):
                entry: Json = {"name": driver, "nodeID": name, "topologyKeys": None}
                if self.chance(0.75):
                    count = -1 if self.rarely(0.1) else self.random.choice([0, 1, 2, 2, 3, 3, 5])
                    entry["allocatable"] = {"count": count}
                elif self.chance(0.5):
                    entry["allocatable"] = {}
                drivers.append(entry)
        metadata: Json = {"name": name}
        if "migration" in self.themes and self.chance(0.7):
            metadata["annotations"] = {MIGRATED: "kubernetes.io/aws-ebs,kubernetes.io/gce-pd"}
        return {"metadata": metadata, "spec": {"drivers": drivers}}

    def attachment(self, number: int) -> Json:
        source = {"persistentVolumeName": f"pv{self.random.randint(1, 6)}"}
        attacher = self.random.choice(["csi.one", "csi.one", "csi.two", "ebs.csi.aws.com", ""])
        spec = {"attacher": attacher, "nodeName": self.random.choice(self.names), "source": source}
        return {"metadata": {"name": f"va{number}"}, "spec": spec}

    # Arguments of plugins

    def arguments(self) -> Json:
        random = self.random
        arguments: Json = {}
        if self.chance(0.3):
            arguments["NodeResourcesFit"] = {
                "ignoredResources": self.some(EXTENDED[1:], 1),
                "ignoredResourceGroups": self.some(["example.com", "vendor.io"], 1),
            }
        resources = [
            {"name": name, "weight": random.choice([1, 1, 2, 3, 5, 100])}
            for name in self.some(["cpu", "memory", "ephemeral-storage", "example.com/gpu", "hugepages-2Mi"], 4, 1)
        ]
        for strategy in ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"):
            if self.chance(0.5):
                scoring: Json = {"type": strategy, "resources": resources}
                if strategy == "RequestedToCapacityRatio":
                    scoring["requestedToCapacityRatio"] = {"shape": self.shape()}
                arguments[f"NodeResourcesFit:{strategy}"] = {"scoringStrategy": scoring}
        if self.chance(0.4):
            evenly = [{"name": resource["name"], "weight": 1} for resource in resources]
            arguments["NodeResourcesBalancedAllocation"] = {"resources": evenly}
        if self.chance(0.4):
            arguments["InterPodAffinity"] = {
                "ignorePreferredTermsOfExistingPods": self.chance(0.3),
                "hardPodAffinityWeight": random.choice([0, 1, 5, 100]),
            }
        if self.chance(0.2):
            term = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
            preference = {"weight": 20, "preference": {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}}
            arguments["NodeAffinity"] = {
                "addedAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
                    "preferredDuringSchedulingIgnoredDuringExecution": [preference],
                }
            }
        if self.chance(0.3):
            defaults = [{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": action} for key, action in (
                (ZONE, random.choice(["DoNotSchedule", "ScheduleAnyway"])), ("rack", "ScheduleAnyway"),
            )]  # fmt: skip
            arguments["PodTopologySpread"] = {"defaultingType": "List", "defaultConstraints": defaults}
        return arguments

    def shape(self) -> list[Json]:
        utilizations = sorted(self.some(list(range(0, 101, 5)), 4, 1))
        return [{"utilization": utilization, "score": self.random.randint(0, 10)} for utilization in utilizations]


def generate_quantity(random: Random) -> str:
    """Make a text that is, nearly is, or isn't a quantity."""
    if random.random() < 0.02:
        return random.choice(ODD_QUANTITIES)
    sign = random.choice(["", "", "", "", "-", "+"])
    digits = "".join(random.choices("0123456789", k=random.choice([1, 1, 2, 3, 4, 6, 10, 16, 20])))
    decimals = "".join(random.choices("0123456789", k=random.choice([0, 0, 1, 2, 3, 9, 12])))
    point = "." if decimals or random.random() < 0.05 else ""
    whole = "" if point and random.random() < 0.05 else digits
    suffixes = ["n", "u", "m", "", "", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
    suffix = random.choice(suffixes)
    if random.random() < 0.25:
        suffix = (
            random.choice("eE") + random.choice(["", "+", "-"]) + str(random.randint(0, random.choice([3, 12, 20])))
        )
    text = f"{sign}{whole}{point}{decimals}{suffix}"
    if random.random() < 0.1 and text:
        position = random.randrange(len(text))
        text = text[:position] + random.choice(["", " ", "K", "i", "e", ".", "x", "-", "٣", "m"]) + text[position + 1 :]
    # Kubernetes' own reader multiplies an exponent out: with eight digits of one it takes minutes. Ours refuses or
    # rounds such a text without doing so.
    return _BIG_EXPONENT.sub(r"\1", text)
