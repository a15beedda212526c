"""Volumes of Pods, and the storage behind them."""

from tests.differential.making.maker import Maker
from tests.differential.making.words import (
    BETA_REGION,
    BETA_ZONE,
    BIND_COMPLETED,
    CLASS_ANNOTATION,
    DRIVERS_ZONES,
    HOSTNAME,
    MIGRATED,
    REGION,
    ZONE,
    Json,
)


class Volumes(Maker):
    """Makes volumes, claims and what a node can attach."""

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
            volumes.append({"image": {"reference": self.image()}})
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
                self.bind(claim)
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

    def bind(self, claim: Json) -> None:
        """Let the binding of a claim be complete, as nearly all are, or somewhere on the way."""
        metadata = claim["metadata"]
        if "volumeName" in claim["spec"] and self.chance(0.97):
            metadata["annotations"] = {**metadata.get("annotations", {}), BIND_COMPLETED: "yes"}
        if self.chance(0.01):
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if self.chance(0.02):
            claim["status"] = {"phase": self.random.choice(["Lost", "Bound", "Pending"])}

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
        claim: Json = {"metadata": metadata, "spec": spec}
        self.bind(claim)
        return claim

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
        if self.chance(0.3):
            source["nodeAffinity"] = self.reach()
        return {"metadata": {"name": name, "labels": labels}, "spec": source}

    def reach(self) -> Json:
        """Make the affinity of a volume: a local one, one of a zone, or one that is rarely seen."""
        random = self.random
        if self.chance(0.1):
            return {} if self.chance(0.3) else {"required": {"nodeSelectorTerms": []}}
        terms = []
        for _ in range(random.choice([1, 1, 1, 2])):
            key, names = random.choice([
                (HOSTNAME, self.names), (ZONE, ["z1", "z2", "z3"]), (ZONE, ["z1", "z2"]), (BETA_ZONE, ["z1"]), (REGION, ["r1"]),
                (random.choice(DRIVERS_ZONES), ["z1", "z2"]),
            ])  # fmt: skip
            operator = random.choice(["In", "In", "In", "NotIn", "Exists"])
            asked = {"key": key, "operator": operator}
            if operator != "Exists":
                asked["values"] = self.some(names, 3, 1)
            term: Json = {"matchExpressions": [asked]}
            if self.chance(0.1):
                term["matchExpressions"].append({"key": REGION, "operator": "In", "values": ["r1"]})
            if self.chance(0.05):
                field = {"key": "metadata.name", "operator": "In", "values": [random.choice(self.names)]}
                term = {**term, "matchFields": [field]} if self.chance(0.5) else {"matchFields": [field]}
            terms.append(term)
        return {"required": {"nodeSelectorTerms": terms}}

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
