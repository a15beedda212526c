"""Whether what a rule says of itself is true: random clusters in which something happens that shouldn't matter to it.

The clusters are those that Berth is compared with kube-scheduler on. A contradiction is a sentence; none should be found.
"""

import copy
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache, cached_property
from random import Random
from typing import Any, NamedTuple

from policies.engine.objects.cluster_kinds import ALL_KINDS
from policies.engine.objects.cluster_objects import _PLACES, MEMBERS, ClusterObjects
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import NAMESPACE, NODE, NODE_GONE, POD_CAME, POD_GONE, POD_LEAVES, Cycle, Filter, Scope, Score
from tests.differential.generator import Case
from tests.differential.making.words import Json

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SEED = 16
EVENTS = (NODE, NODE_GONE, NAMESPACE, POD_CAME, POD_GONE, POD_LEAVES)
CONDITIONS = ("Ready", "NetworkUnavailable", "MemoryPressure", "DiskPressure", "PIDPressure")
# Kind -> its member in a case.
MEMBER_OF = {
    kind: next(member for member, argument in MEMBERS.items() if argument.replace("_", "") == kind)
    for kind in ALL_KINDS
}
Said = dict[str, object]


# Keeps away from the Pods of some namespaces, by their labels.
ALONE: Json = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {},
                "namespaceSelector": {"matchLabels": {"env": "prod"}},
            }
        ]
    }
}
# Goes to a zone in which a database is.
NEAR: Json = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "db"}}}
        ]
    }
}


class Spied(ClusterObjects):
    """Objects that note which kinds are looked at."""

    looked_at: set[str] | None = None

    def __getattribute__(self, name: str) -> Any:
        noted = object.__getattribute__(self, "looked_at")
        if noted is not None:
            noted.update(kind for kind, place in _PLACES.items() if place.attribute == name)
        return object.__getattribute__(self, name)


class World:
    """A cluster, and the Pod that is asked about in it."""

    def __init__(self, case: Json) -> None:
        self.case = case

    @cached_property
    def cycle(self) -> Cycle:
        return Cycle(pod=Pod.from_json(self.case["pod"]), snapshot=self.snapshot, now=NOW, params={"most": 2})

    @cached_property
    def objects(self) -> Spied:
        return Spied.from_json(self.case)  # type: ignore[return-value] # its class method

    @cached_property
    def snapshot(self) -> Snapshot:
        return Snapshot.of(
            map(Node.from_json, self.case["nodes"]),
            map(Pod.from_json, self.case["pods"]),
            {entry["metadata"]["name"]: entry["metadata"].get("labels") or {} for entry in self.case["namespaces"]},
            objects=self.objects,
        )

    def changed(self, **members: Any) -> "World":
        return World({**self.case, **members})

    def said(self, rule: Filter | Score) -> Said:
        """Return what a rule says of each node: None of one that passes, of a score its number."""
        rows, names = self.snapshot.table.all_rows(), self.snapshot.table.names
        if isinstance(rule, Score):
            numbers = rule.score(self.cycle, rows)
            return dict.fromkeys(names) if numbers is None else dict(zip(names, numbers.tolist(), strict=True))
        verdicts = rule.filter(self.cycle, rows)
        return {name: verdicts.at(row) for row, name in enumerate(names)}

    def kinds_seen_by(self, rule: Filter | Score) -> set[str]:
        self.objects.looked_at = found = set()
        try:
            self.said(rule)
        finally:
            self.objects.looked_at = None
        return found


class Change(NamedTuple):
    """Something that happens: what it is, what is there then, and the Pod that came to a node if one did."""

    event: str
    after: World
    came: Json | None = None


@cache
def world(index: int) -> World:
    return World(_make(Random(f"{SEED}/{index}")))


def worlds(number: int) -> Iterator[World]:
    return map(world, range(number))


def _make(random: Random) -> Json:
    """Make a case in which there is something of everything."""
    maker = Case(random)
    maker.themes -= {"wide", "crowd"}  # each takes as long as dozens of others
    case = maker.make()
    case = maker.storage() | maker.owners() | case
    case["pods"] = [_named(pod, f"there-{index}") for index, pod in enumerate(case["pods"])]
    for node in case["nodes"]:
        node.setdefault("status", {})["conditions"] = [
            {"type": kind, "status": random.choice(["True", "False", "Unknown"])}
            for kind in random.sample(CONDITIONS, 3)
        ]
    case["podDisruptionBudgets"] = [{"metadata": {"name": "all"}, "spec": {"selector": {}}}] * random.randint(0, 1)
    if random.random() < 0.1:
        case["pod"]["spec"]["resourceClaims"] = [{"name": "device"}]
    if random.random() < 0.3:
        case["pod"]["spec"]["containers"] = [{"name": "plain", "image": "web"}]
    if random.random() < 0.1:
        case["pod"]["spec"]["containers"][0]["restartPolicyRules"] = [{"action": "RestartAllContainers"}]
        case["nodes"][0]["status"]["declaredFeatures"] = ["RestartAllContainersOnContainerExits"]
    if random.random() < 0.4:
        _make_of_one_app(case, random)
    elif random.random() < 0.4:
        case["pod"]["spec"]["affinity"] = random.choice([ALONE, NEAR])
    return case


def _make_of_one_app(case: Json, random: Random) -> None:
    """Put on the Pod and most others the same labels, a Service, and racks that they have to be spread over."""
    for pod in (case["pod"], *case["pods"]):
        if random.random() < 0.8:
            pod["metadata"] |= {"namespace": "default", "labels": {"app": "web"}}
    case["services"] = [{"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}]
    for node in case["nodes"]:
        node["metadata"]["labels"] = {**(node["metadata"].get("labels") or {}), "rack": random.choice(["x", "y"])}
    if random.random() < 0.6:
        case["pod"]["spec"]["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": "rack",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }
        ]


def _named(pod: Json, name: str) -> Json:
    return {**pod, "metadata": {**pod["metadata"], "name": name, "uid": name}}


def changes(world: World, number: int) -> Iterator[Change]:
    """Iterate over what may happen in a world: each event, and a change of each kind of objects."""
    random = Random(f"{SEED}/changes/{number}")
    other = _make(random)
    names = [node["metadata"]["name"] for node in world.case["nodes"]]
    pods: list[Json] = world.case["pods"]
    for index, template in enumerate(other["pods"][:3]):
        came = _named(template, f"came-{index}")
        came = {**came, "spec": {**came["spec"], "nodeName": random.choice(names)}}
        yield Change(POD_CAME, world.changed(pods=[*pods, came]), came)
    for index in random.sample(range(len(pods)), min(3, len(pods))):
        yield Change(POD_GONE, world.changed(pods=pods[:index] + pods[index + 1 :]))
        yield Change(
            POD_CAME, world.changed(pods=[*pods[:index], _relabelled(pods[index], random), *pods[index + 1 :]])
        )
    if pods:
        yield Change(POD_GONE, world.changed(pods=[]))
        yield Change(POD_LEAVES, world.changed(pods=[_leaving(pod) for pod in pods]))
    for labels in ({}, {"env": "test"}, {"env": "prod", "team": "a"}):
        yield Change(
            NAMESPACE, world.changed(namespaces=[_labelled(found, labels) for found in world.case["namespaces"]])
        )
    nodes = [_like(node, random.choice(other["nodes"])) for node in world.case["nodes"]]
    yield Change(NODE, world.changed(nodes=nodes))
    yield Change(NODE, world.changed(nodes=[_opened(node) for node in world.case["nodes"]]))
    for name in names:
        yield Change(
            NODE_GONE, world.changed(nodes=[node for node in world.case["nodes"] if node["metadata"]["name"] != name])
        )
    for kind, member in sorted(MEMBER_OF.items()):
        before = world.case.get(member) or []
        for after in (other.get(member) or [], [], before[1:]):
            if after != before:
                yield Change(kind, world.changed(**{member: after}))


def _relabelled(pod: Json, random: Random) -> Json:
    labels = {"app": random.choice(["web", "db"]), "tier": random.choice(["front", "back"])}
    return {**pod, "metadata": {**pod["metadata"], "labels": labels}}


def _leaving(pod: Json) -> Json:
    return {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


def _labelled(namespace: Json, labels: dict[str, str]) -> Json:
    return {**namespace, "metadata": {**namespace["metadata"], "labels": labels}}


def _like(node: Json, other: Json) -> Json:
    """Return a node that has become like another one, and kept its name."""
    name = node["metadata"]["name"]
    labels = {**(other["metadata"].get("labels") or {}), "kubernetes.io/hostname": name}
    return {**other, "metadata": {**other["metadata"], "name": name, "labels": labels}}


def _opened(node: Json) -> Json:
    """Return a node with nothing against it, and much room."""
    room = {"cpu": "64", "memory": "512Gi", "pods": "999", "ephemeral-storage": "900Gi"}
    return {"metadata": node["metadata"], "spec": {}, "status": {"allocatable": room}}


def elsewhere(world: World, name: str, number: int) -> tuple[World, list[Pod]]:
    """Change the Pods of all nodes but one. Return what is there then, and the Pods that came."""
    random = Random(f"{SEED}/elsewhere/{number}")
    names = [node["metadata"]["name"] for node in world.case["nodes"]]
    here = [pod for pod in world.case["pods"] if pod["spec"].get("nodeName") == name]
    there = [pod for pod in world.case["pods"] if pod["spec"].get("nodeName") != name and random.random() < 0.5]
    others = [other for other in names if other != name]
    coming = [_named(pod, f"coming-{index}") for index, pod in enumerate(_make(random)["pods"])] if others else []
    coming = [{**pod, "spec": {**pod["spec"], "nodeName": random.choice(others)}} for pod in coming]
    return world.changed(pods=here + there + coming), [Pod.from_json(copy.deepcopy(pod)) for pod in coming]


class Asked:
    """One world, what may happen in it, and the rules' contradictions there."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.changes = list(changes(world, number))
        self.name = Random(f"{SEED}/{number}").choice(world.snapshot.table.names)
        self.elsewhere, self.coming = elsewhere(world, self.name, number)
        self.everywhere, _ = elsewhere(world, "", number)

    def contradictions(self, rule: Filter | Score) -> Iterator[str]:
        yield from self.of_scope(rule)
        yield from self.of_reads(rule)
        if isinstance(rule, Filter):
            yield from self.of_looking_around(rule)
            yield from self.of_requeued_by(rule)

    def of_scope(self, rule: Filter | Score) -> Iterator[str]:
        before = self.world.said(rule)
        if rule.scope is Scope.NODE and self.everywhere.said(rule) != before:
            yield f"world {self.number}: scope is its node alone, and Pods changed its mind"
        if rule.scope is Scope.NODE_AND_PODS and self.elsewhere.said(rule)[self.name] != before[self.name]:
            yield f"world {self.number}: scope is its node with the Pods there, and Pods elsewhere changed its mind"

    def of_looking_around(self, rule: Filter) -> Iterator[str]:
        if rule.looks_around(self.world.cycle.pod, self.world.snapshot, self.coming):
            return
        if self.elsewhere.said(rule)[self.name] != self.world.said(rule)[self.name]:
            yield f"world {self.number}: it doesn't look around, and Pods elsewhere changed its mind"

    def of_reads(self, rule: Filter | Score) -> Iterator[str]:
        undeclared = self.world.kinds_seen_by(rule) - rule.reads
        if undeclared:
            yield f"world {self.number}: it looked at {sorted(undeclared)}"

    def of_requeued_by(self, rule: Filter) -> Iterator[str]:
        before = self.world.said(rule)
        refused = {name for name, status in before.items() if status is not None}
        for change in self.changes if refused else ():
            if change.event in rule.requeued_by or (change.came and not self.lets_come(rule, change.came)):
                continue
            after = change.after.said(rule)
            helped = sorted(name for name in refused & after.keys() if after[name] is None)
            if helped:
                yield f"world {self.number}: {change.event} isn't among what helps, and helped on {helped}"

    def lets_come(self, rule: Filter, came: Json) -> bool:
        """Return whether the rule itself lets a Pod onto its node: one that it refuses doesn't come there."""
        asked = self.world.changed(pod=came)
        return asked.said(rule)[came["spec"]["nodeName"]] is None


def contradictions(rules: Sequence[tuple[str, Filter | Score]], number: int) -> dict[str, list[str]]:
    """Ask rules in so many worlds. Return what contradicts what each says of itself."""
    found: dict[str, list[str]] = {name: [] for name, _ in rules}
    for index, world in enumerate(worlds(number)):
        asked = Asked(world, index)
        for name, rule in rules:
            found[name] += asked.contradictions(rule)
    return found
