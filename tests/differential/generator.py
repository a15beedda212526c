"""Random clusters and Pods, as Kubernetes JSON: the same ones for the same seed and number.

Words come from small sets, so that labels, taints, ports and disks meet often, and each case has a few themes only, so
that neither all nodes pass nor all are refused.
"""

from random import Random

from tests.differential.making.arguments import Arguments
from tests.differential.making.names import with_long_node_names, with_zones_of_gce
from tests.differential.making.nodes import Nodes
from tests.differential.making.pods import Pods
from tests.differential.making.words import MANY_POD_LABELS, NAMESPACES, Json

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
    "features": 0.1,
    "rarities": 0.1,
    "wide": 0.006,
    "crowd": 0.003,
    "large": 0.01,
    "node names": 0.05,
    "GCE": 0.05,
}


def generate(seed: int, number: int) -> Json:
    """Make the case with this number."""
    return Case(Random(f"{seed}/{number}")).make()


class Case(Nodes, Pods, Arguments):
    """Makes a whole case."""

    def __init__(self, random: Random) -> None:
        super().__init__(random, {theme for theme, share in THEMES.items() if random.random() < share})

    def make(self) -> Json:
        random = self.random
        size = random.randint(13, 80) if "wide" in self.themes else random.choice([1, 2, 3, 3, 4, 4, 5, 6, 8, 10, 12])
        self.racks, self.zones = random.choice([0.5, 0.95, 1]), random.choice([0.9, 1, 1])
        self.sameness, self.variety = random.choice([3, 12]), random.choice([1, 2, 3, 3])
        count = random.randint(0, 3 * size)
        if "crowd" in self.themes:
            count = self.crowd()
        self.names = [f"n{number}" for number in range(1, size + 1)]
        nodes = [self.node(name) for name in self.names]
        pods = [self.existing() for _ in range(count)]
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
            for labels in (holder["metadata"].get("labels") for holder in (*nodes, case["pod"], *pods)):
                self.empty_one(labels)
            self.empty_one(case["pod"]["spec"].get("nodeSelector"))
        if "node names" in self.themes:
            case = with_long_node_names(case, random)
        if "GCE" in self.themes:
            case = with_zones_of_gce(case)
        return case

    def crowd(self) -> int:
        """Make so many kinds of Pods and terms meet that the engine looks them up in indexes, and keeps what it counted."""
        self.themes &= {"crowd", "taints", "node affinity", "node names", "rarities"}
        self.themes |= {"pod affinity", "spread"}
        self.pod_labels, self.variety = MANY_POD_LABELS, len(MANY_POD_LABELS["app"])
        return self.random.randint(150, 600)

    def add_nulls(self, pod: Json) -> None:
        for member in ("nodeSelector", "tolerations", "volumes", "affinity", "overhead", "initContainers", "resources"):
            if self.chance(0.1):
                pod["spec"].setdefault(member, None)
        for member in ("labels", "annotations", "ownerReferences", "deletionTimestamp"):
            if self.chance(0.1):
                pod["metadata"].setdefault(member, None)

    def empty_one(self, texts: Json | None) -> None:
        """Let a value be null, as YAML reads a label with nothing behind its colon."""
        if texts and self.chance(0.1):
            texts[self.random.choice(list(texts))] = None
