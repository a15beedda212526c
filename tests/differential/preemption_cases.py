"""Random clusters in which a Pod finds no room unless others go: the same ones for the same seed and number.

Most are tight: nodes are full, and priorities, ports, affinities and budgets meet. The others are the clusters of
`generator`, with priorities and budgets added: few of their nodes can be freed, but they have all that a rule may read.
"""

from random import Random
from typing import Any

from tests.differential.generator import generate
from tests.differential.making.words import HOSTNAME, NAMESPACES, POD_LABELS, ZONE

Json = dict[str, Any]

PRIORITIES = [-10, 0, 0, 0, 100, 100, 1000, 2_000_000_000]
INCOMING_PRIORITIES = [0, 100, 500, 1000, 1000, 10_000, 2_000_000_001]
PROTECTORS: list[Json | None] = [
    {"matchLabels": {"app": "web"}},
    {"matchLabels": {"app": "db"}},
    {"matchLabels": {"tier": "front"}},
    {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "cache"]}]},
    {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]},
    {},
    None,
    {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["x"]}]},
]
THEMES = {
    "ports": 0.3,
    "anti-affinity": 0.25,
    "affinity": 0.1,
    "spread": 0.2,
    "taints": 0.15,
    "disks": 0.15,
    "budgets": 0.6,
    "nominated": 0.3,
    "retry": 0.15,
    "few candidates": 0.2,
    "wide": 0.015,
}
WILD = 0.25


def generate_preemption(seed: int, number: int) -> Json:
    """Make the case with this number."""
    random = Random(f"preemption/{seed}/{number}")
    if random.random() < WILD:
        return _Wild(random, generate(seed, number)).make()
    return _Tight(random).make()


class _Builder:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.themes = {theme for theme, share in THEMES.items() if random.random() < share}
        self.second = 0
        self.not_started: set[tuple[str, int]] = set()

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def start(self, pod: Json) -> None:
        """Set since when a Pod runs; of those that compare equal on a node at most one hasn't started.

        kube-scheduler compares Pods that haven't started by the clock at each comparison.
        """
        place = (pod["spec"].get("nodeName", ""), pod["spec"].get("priority", 0))
        if self.chance(0.07) and place not in self.not_started:
            self.not_started.add(place)
            return
        if not self.chance(0.15):
            self.second += self.random.randint(1, 4000)
        hours, rest = divmod(self.second, 3600)
        time = f"{hours % 24:02}:{rest // 60:02}:{rest % 60:02}"
        pod["status"]["startTime"] = f"2024-01-{1 + hours // 24:02}T{time}Z"

    def budgets(self, names: list[str]) -> list[Json]:
        random = self.random
        budgets = []
        for number in range(random.randint(1, 4)):
            status: Json = {"disruptionsAllowed": random.choice([0, 0, 1, 1, 2, 3])}
            if names and self.chance(0.2):
                status["disruptedPods"] = {random.choice(names): "2026-01-01T00:00:00Z"}
            metadata = {"name": f"b{number}", "namespace": random.choice(["default", "default", "default", "prod"])}
            budgets.append({"metadata": metadata, "spec": {"selector": random.choice(PROTECTORS)}, "status": status})
        return budgets

    def finish(self, case: Json) -> Json:
        if "budgets" in self.themes:
            case["podDisruptionBudgets"] = self.budgets([pod["metadata"]["name"] for pod in case["pods"]])
        case["offset"] = self.random.randint(0, 20)
        if "few candidates" in self.themes:
            case["wanted"] = self.random.randint(1, 4)
        return case


class _Tight(_Builder):
    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.uid = 0
        self.ports: set[tuple[str, int]] = set()

    def make(self) -> Json:
        random = self.random
        wide = "wide" in self.themes
        if wide:
            self.themes = {"wide", "budgets"}
        self.names = [
            f"n{number}" for number in range(1, 1 + (random.randint(101, 140) if wide else random.randint(1, 9)))
        ]
        nodes = [self.node(name) for name in self.names]
        pods: list[Json] = []
        for node in nodes:
            left = int(node["status"]["allocatable"]["cpu"]) * 1000
            while left > 0:
                pod = self.existing(node["metadata"]["name"], random.choice([250, 500, 500, 1000, 1000, 2000]))
                left -= pod.pop("cpu")
                pods.append(pod)
                if not wide and self.chance(0.08):
                    break
        pod = self.incoming()
        if "nominated" in self.themes:
            pods += [self.waiting() for _ in range(random.randint(1, 3))]
        if "retry" in self.themes:
            self.retry(pod, pods)
        random.shuffle(pods)
        return self.finish({"pod": pod, "nodes": nodes, "pods": pods, "namespaces": NAMESPACES})

    def node(self, name: str) -> Json:
        random = self.random
        labels = {HOSTNAME: name, "disk": random.choice(["ssd", "hdd"])}
        if self.chance(0.95):
            labels[ZONE] = random.choice(["z1", "z2", "z3"])
        room = {
            "cpu": "4" if "wide" in self.themes else random.choice(["2", "4", "4"]),
            "memory": random.choice(["4Gi", "8Gi"]),
            "pods": random.choice(["110", "110", "4"]),
        }
        node: Json = {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": {"allocatable": room}}
        if "taints" in self.themes and self.chance(0.4):
            node["spec"]["taints"] = [{"key": "dedicated", "value": random.choice(["a", "b"]), "effect": "NoSchedule"}]
        return node

    def pod(self, cpu: int) -> Json:
        random = self.random
        self.uid += 1
        container: Json = {"name": "c", "image": "web", "resources": {"requests": {"cpu": f"{cpu}m"}}}
        if self.chance(0.6):
            container["resources"]["requests"]["memory"] = random.choice(["128Mi", "512Mi", "1Gi", "2Gi"])
        if "ports" in self.themes and self.chance(0.4):
            port = {"containerPort": 80, "hostPort": random.choice([80, 80, 443]), "protocol": "TCP"}
            container["ports"] = [port]
        metadata: Json = {
            "name": f"p{self.uid}",
            "uid": f"u{self.uid}",
            "namespace": random.choice(["default"] * 5 + ["prod"]),
        }
        metadata["labels"] = {key: random.choice(values) for key, values in POD_LABELS.items() if self.chance(0.8)}
        spec: Json = {"containers": [container]}
        if "disks" in self.themes and self.chance(0.3):
            disk = {"pdName": random.choice(["d1", "d2"])}
            spec["volumes"] = [{"name": "v", "gcePersistentDisk": disk}]
        return {"metadata": metadata, "spec": spec, "status": {}}

    def existing(self, node: str, cpu: int) -> Json:
        random = self.random
        pod = self.pod(cpu)
        pod["spec"] |= {"nodeName": node, "priority": random.choice(PRIORITIES)}
        if self.chance(0.1):
            del pod["spec"]["priority"]
        pod["status"]["phase"] = "Running"
        if "anti-affinity" in self.themes and self.chance(0.1):
            pod["spec"]["affinity"] = self.anti_affinity()
        for port in pod["spec"]["containers"][0].get("ports", ()):
            if (node, port["hostPort"]) in self.ports:
                del pod["spec"]["containers"][0]["ports"]
            self.ports.add((node, port["hostPort"]))
        self.start(pod)
        if self.chance(0.05):
            self.terminate(pod, by_preemption=self.chance(0.5))
        return pod | {"cpu": cpu}

    def terminate(self, pod: Json, *, by_preemption: bool) -> None:
        pod["metadata"]["deletionTimestamp"] = "2026-02-01T00:00:00Z"
        conditions = [{"type": "Ready", "status": "True"}]
        if by_preemption:
            reason = self.random.choice(["PreemptionByScheduler"] * 3 + ["EvictionByEvictionAPI"])
            conditions.append(
                {"type": "DisruptionTarget", "status": self.random.choice(["True"] * 4 + ["False"]), "reason": reason}
            )
        pod["status"]["conditions"] = conditions

    def incoming(self) -> Json:
        random = self.random
        wide = "wide" in self.themes
        pod = self.pod(random.choice([2000, 3000] if wide else [500, 1000, 1000, 2000, 3000]))
        spec = pod["spec"]
        spec["priority"] = 1000 if wide else random.choice(INCOMING_PRIORITIES)
        if self.chance(0.04):
            spec["preemptionPolicy"] = random.choice(["Never", "PreemptLowerPriority"])
        if "taints" in self.themes:
            spec["tolerations"] = [{"key": "dedicated", "operator": "Equal", "value": "a"}]
        if self.chance(0.15) and not wide:
            spec["nodeSelector"] = {"disk": "ssd"}
        if "anti-affinity" in self.themes and self.chance(0.7):
            spec["affinity"] = self.anti_affinity()
        if "affinity" in self.themes:
            spec.setdefault("affinity", {})["podAffinity"] = {
                "requiredDuringSchedulingIgnoredDuringExecution": [self.term()]
            }
        if "spread" in self.themes:
            selector = {"matchLabels": {"app": random.choice(POD_LABELS["app"])}}
            spec["topologySpreadConstraints"] = [
                {"maxSkew": random.choice([1, 1, 2]), "topologyKey": random.choice([ZONE, HOSTNAME]), "whenUnsatisfiable": "DoNotSchedule",
                 "labelSelector": selector}
            ]  # fmt: skip
        return pod

    def term(self) -> Json:
        labels = {"app": self.random.choice(POD_LABELS["app"])}
        return {"topologyKey": self.random.choice([HOSTNAME, HOSTNAME, ZONE]), "labelSelector": {"matchLabels": labels}}

    def anti_affinity(self) -> Json:
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [self.term()]}}

    def waiting(self) -> Json:
        """Make a Pod that waits for room on a node which another preemption has made or is making."""
        random = self.random
        pod = self.pod(random.choice([250, 500, 1000]))
        pod["spec"]["priority"] = random.choice([0, 100, 500, 1000, 10_000, 2_000_000_001])
        if "anti-affinity" in self.themes and self.chance(0.3):
            pod["spec"]["affinity"] = self.anti_affinity()
        pod["status"] = {"phase": "Pending", "nominatedNodeName": random.choice(self.names)}
        return pod

    def retry(self, pod: Json, pods: list[Json]) -> None:
        """Let it be the second time: the Pod is nominated to a node already, on which victims may still be leaving."""
        node = self.random.choice([*self.names, *self.names, "gone"])
        pod["status"] = {"phase": "Pending", "nominatedNodeName": node}
        for other in pods:
            if other["spec"].get("nodeName") == node and self.chance(0.3):
                self.terminate(other, by_preemption=self.chance(0.7))


class _Wild(_Builder):
    def __init__(self, random: Random, case: Json) -> None:
        super().__init__(random)
        self.case = case

    def make(self) -> Json:
        case = self.case
        case.pop("arguments", None)
        names = [node["metadata"]["name"] for node in case["nodes"]]
        case["pod"]["spec"]["priority"] = self.random.choice(INCOMING_PRIORITIES)
        for pod in case["pods"]:
            pod["spec"]["priority"] = self.random.choice(PRIORITIES)
            self.start(pod)
            if "nominated" in self.themes and not pod["spec"].get("nodeName"):
                pod["status"]["nominatedNodeName"] = self.random.choice(names)
        return self.finish(case)
