"""Nodes."""

from tests.differential.making.maker import Maker
from tests.differential.making.words import (
    BETA_REGION,
    BETA_ZONE,
    DIGESTS,
    DRIVERS_ZONES,
    EFFECTS,
    EXTENDED,
    FEATURES,
    HOSTNAME,
    HUGE,
    IMAGES,
    NODE_LABELS,
    ODD,
    ODD_IMAGES,
    REGION,
    TAINT_KEYS,
    TAINT_VALUES,
    ZONE,
    Json,
)


class Nodes(Maker):
    """Makes nodes."""

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
        self.tell_of_itself(node, zone)
        if "images" in self.themes:
            node["status"]["images"] = self.images(IMAGES, 6) + (self.images(ODD_IMAGES, 8) if self.chance(0.1) else [])
        return node

    def tell_of_itself(self, node: Json, zone: str) -> None:
        """Let the kubelet declare its features, and CSI drivers label the node with their names for its zone."""
        if "features" in self.themes and self.chance(0.8):
            others = ["NotKnownToAnybody", "ExtendWebSocketsToKubelet"]
            node["status"]["declaredFeatures"] = sorted(self.some(FEATURES, 2) + self.some(others, 1))
        if "migration" in self.themes and node["metadata"]["labels"] and self.chance(0.5):
            node["metadata"]["labels"][self.random.choice(DRIVERS_ZONES)] = zone

    def images(self, sizes: dict[str, int], most: int) -> list[Json]:
        found: list[Json] = [{"names": [image], "sizeBytes": sizes[image]} for image in self.some(list(sizes), most)]
        for image in found:
            if image["names"][0] in DIGESTS and self.chance(0.5):
                image["names"].append(DIGESTS[image["names"][0]])
        return found

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
            for name in dict.fromkeys((*EXTENDED, *ODD)):  # a set's order is another one in each process
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
