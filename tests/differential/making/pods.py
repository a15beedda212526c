"""Pods: the incoming one, and those that are there."""

from string import ascii_lowercase

from tests.differential.making.affinity import Affinities
from tests.differential.making.volumes import Volumes
from tests.differential.making.words import (
    CPUS,
    EFFECTS,
    EXTENDED,
    EXTREMES,
    HOST_IPS,
    HUGE,
    IPV6_HOST_IPS,
    LARGE_LABELS,
    MEMORIES,
    NODE_LABELS,
    ODD,
    PIECES,
    STORAGES,
    TAINT_KEYS,
    TAINT_VALUES,
    Json,
)


class Pods(Affinities, Volumes):
    """Makes Pods."""

    def pod(self) -> Json:
        random = self.random
        self.uid += 1
        number = self.uid
        metadata: Json = {"name": f"p{self.uid}", "uid": f"u{self.uid}"}
        metadata["namespace"] = random.choice(["default"] * self.sameness + ["prod", "test", "bare"])
        labels = {
            key: random.choice(values[: self.variety]) for key, values in self.pod_labels.items() if self.chance(0.8)
        }
        if "large" in self.themes and self.chance(0.4):
            labels |= LARGE_LABELS
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
        self.need_features(spec)
        if "default spread" in self.themes and self.chance(0.6):
            pod["metadata"]["ownerReferences"] = [self.owner() for _ in range(random.choice([1] * 9 + [0, 2, 3]))]
        if self.chance(0.02):
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if self.chance(0.02):
            pod["status"]["nominatedNodeName"] = random.choice([*self.names, "gone"])
        return pod

    def need_features(self, spec: Json) -> None:
        """Ask for what only some kubelets can do."""
        if "features" not in self.themes:
            return
        if self.chance(0.6):
            spec["hostNetwork"] = self.chance(0.7)
        if self.chance(0.7):
            spec["hostUsers"] = self.chance(0.3)
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            if self.chance(0.3):
                rule = {"action": self.random.choice(["Restart", "RestartAllContainers"])}
                rule["exitCodes"] = {"operator": "In", "values": [42]}
                container["restartPolicyRules"] = [rule]

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
            pod["spec"]["affinity"] = self.pod_affinity(required=0.4 if "crowd" in self.themes else 0.12)
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
            pod["status"]["conditions"] = [self.resize_condition() for _ in range(2 if self.chance(0.1) else 1)]

    def resize_condition(self) -> Json:
        reason = self.random.choice(["Infeasible", "Deferred"])
        return {"type": "PodResizePending", "status": self.random.choice(["True", "True", "False"]), "reason": reason}

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
            container["image"] = self.image()
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
        if "large" in self.themes and self.chance(0.05):
            requests |= {f"{name}.example.com/{'r' * 60}": random.choice(PIECES) for name in ascii_lowercase}
        return requests

    def port(self) -> Json:
        random = self.random
        port: Json = {"containerPort": 80}
        if self.chance(0.75):
            port["hostPort"] = random.choice([80, 80, 443, 8080, 9000, 0])
        if self.chance(0.5):
            port["protocol"] = random.choice(["TCP", "TCP", "UDP", "SCTP"])
        if self.chance(0.5):
            port["hostIP"] = random.choice(HOST_IPS if not self.chance(0.08) else IPV6_HOST_IPS)
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
