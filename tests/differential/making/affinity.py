"""Which nodes and which other Pods a Pod wants, and how Pods are spread."""

from tests.differential.making.maker import Maker
from tests.differential.making.words import (
    FORMER_OWNERS,
    MALFORMED,
    NAMESPACE_NAME,
    NODE_LABELS,
    OWNERS,
    TOPOLOGY_KEYS,
    ZONE,
    Json,
)


class Affinities(Maker):
    """Makes affinities, spread constraints, and the owners by which Pods are spread."""

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
        selector = self.label_selector(self.pod_labels)
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
            selector = self.label_selector(self.pod_labels)
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

    def owner(self) -> Json:
        kind, version = self.random.choice(OWNERS if not self.chance(0.2) else FORMER_OWNERS)
        owner = {"apiVersion": version, "kind": kind, "name": self.random.choice(["o1", "o2", "gone"]), "uid": "o"}
        return owner | {"controller": self.chance(0.9)}

    def owners(self) -> Json:
        random = self.random

        def owned(name: str, selector: Json | None) -> Json:
            spec = {} if selector is None else {"selector": selector}
            return {
                "metadata": {"name": name, "namespace": random.choice(["default", "default", "prod"])},
                "spec": spec,
            }

        services = [f"o{number}" for number in range(1, 2 if self.chance(0.8) else random.randint(3, 5))]
        owners = {
            "services": [
                owned(name, self.labels(self.pod_labels, most=1) if self.chance(0.9) else random.choice([None, {}]))
                for name in services
            ],
            "replicationControllers": [owned("o1", self.labels(self.pod_labels, most=2))],
            "replicaSets": [owned("o1", self.label_selector(self.pod_labels))],
            "statefulSets": [owned("o1", self.label_selector(self.pod_labels))],
        }
        return {kind: objects for kind, objects in owners.items() if self.chance(0.7)}
