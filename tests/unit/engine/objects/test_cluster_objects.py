"""Objects besides Nodes and Pods, as they change."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.engine.decision import CompiledRuleSet, decide
from policies.engine.objects.cluster_kinds import (
    ALL_KINDS,
    ATTACHMENTS,
    CLAIMS,
    CSI_NODES,
    DISRUPTION_BUDGETS,
    SERVICES,
    STORAGE_CLASSES,
    TYPES,
    VOLUMES,
    ClusterObject,
    PersistentVolumeClaim,
)
from policies.engine.objects.cluster_objects import (
    _MAX_NAMES,
    MEMBERS,
    Change,
    ClusterObjects,
    differs,
)
from policies.engine.objects.csi import CSIVolumeID, attached_volumes
from policies.engine.objects.lineage import names_between
from policies.engine.objects.metadata import decode_object
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.ruleset import FilterRule, RuleSet, RuleSetSpec
from tests.builders import make_node, make_pod
from tests.unit.engine.objects.asking import JSON, cycle_of

DRIVER = "csi.example.org"
MEMBER_OF = dict(zip(MEMBERS, TYPES, strict=True))
VOLUME_KINDS = (CLAIMS, VOLUMES, STORAGE_CLASSES, CSI_NODES, ATTACHMENTS)


def made(kind: str, json: JSON) -> ClusterObject:
    return msgspec.convert(json, TYPES[kind])


def claim(name: str, volume: str = "", **metadata: Any) -> JSON:
    return {"metadata": {"name": name, "namespace": "default", **metadata}, "spec": {"volumeName": volume}}


def volume(name: str, handle: str = "") -> JSON:
    return {"metadata": {"name": name}, "spec": {"csi": {"driver": DRIVER, "volumeHandle": handle or name}}}


def csi_node(name: str, count: int) -> JSON:
    return {"metadata": {"name": name}, "spec": {"drivers": [{"name": DRIVER, "allocatable": {"count": count}}]}}


def attachment(name: str, volume_name: str, node: str) -> JSON:
    source = {"persistentVolumeName": volume_name}
    return {"metadata": {"name": name}, "spec": {"attacher": DRIVER, "nodeName": node, "source": source}}


def new(kind: str, *json: JSON) -> dict[str, list[Change]]:
    return {kind: [(None, made(kind, each)) for each in json]}


class TestKnown:
    def test_what_is_not_known_is_told_from_what_is_empty(self) -> None:
        nothing = ClusterObjects.unknown()
        assert nothing.known == frozenset()
        assert ClusterObjects().known == ALL_KINDS
        assert Snapshot({}, objects=nothing).knowing(frozenset({CLAIMS})) is None
        assert Snapshot({}).knowing(frozenset()) is None
        claims = nothing.changed({}, known=frozenset({CLAIMS}))
        snapshot = Snapshot({}, objects=claims)
        assert snapshot.knowing(frozenset({CLAIMS})) is claims
        assert snapshot.knowing(frozenset({CLAIMS, VOLUMES})) is None

    def test_changes_of_a_kind_that_is_not_known_are_passed_over(self) -> None:
        objects = ClusterObjects.unknown().changed(new(CLAIMS, claim("c")), known=frozenset({VOLUMES}))
        assert objects.claims == {}

    def test_a_kind_that_is_given_up_is_gone_and_the_others_stay(self) -> None:
        objects = ClusterObjects(
            persistent_volume_claims=[claim("c", "v")],
            persistent_volumes=[volume("v")],
            volume_attachments=[attachment("a", "v", "n1")],
        )
        without = objects.changed({}, known=frozenset({VOLUMES, ATTACHMENTS}))
        assert (without.claims, set(without.volumes), set(without.attachments)) == ({}, {"v"}, {"n1"})
        gone: list[Change] = [(made(VOLUMES, volume("v")), None)]
        later = without.changed({VOLUMES: gone})
        assert names_between(without.step, later.step) == {"n1"}
        assert objects.claims.keys() == {("default", "c")}


class TestChanged:
    def test_services_of_a_namespace_stay_in_order_when_one_changes(self) -> None:
        services = [{"metadata": {"name": name}, "spec": {"selector": {"a": name}}} for name in "xyz"]
        objects = ClusterObjects(services=services)
        before = objects.services["default"]["x"]
        after = made(SERVICES, {"metadata": {"name": "x"}, "spec": {"selector": {"a": "new"}}})
        changed = objects.changed({SERVICES: [(before, after)]})
        assert list(changed.services["default"]) == ["x", "y", "z"]
        assert changed.services["default"]["x"] is after
        assert objects.services["default"]["x"] is before

    def test_a_namespace_without_services_is_gone(self) -> None:
        objects = ClusterObjects(services=[{"metadata": {"name": "x", "namespace": "web"}}])
        gone = objects.changed({SERVICES: [(objects.services["web"]["x"], None)]})
        assert gone.services == {}

    def test_an_attachment_that_comes_again_elsewhere_counts_there_only(self) -> None:
        before, after = (made(ATTACHMENTS, attachment("a", "v", node)) for node in ("n1", "n2"))
        objects = ClusterObjects.unknown().changed({ATTACHMENTS: [(None, before)]}, known=ALL_KINDS)
        assert set(objects.changed({ATTACHMENTS: [(before, after)]}).attachments) == {"n2"}

    def test_disruption_budgets_are_read(self) -> None:
        json = {
            "metadata": {"name": "b", "namespace": "web"},
            "spec": {"selector": {"matchLabels": {"app": "a"}}, "minAvailable": "50%"},
            "status": {"disruptionsAllowed": 1, "disruptedPods": {"p": "2026-01-01T00:00:00Z"}},
        }
        budget = ClusterObjects.from_json({"podDisruptionBudgets": [json]}).disruption_budgets["web"]["b"]
        assert budget.spec.min_available == "50%"
        assert budget.spec.selector is not None
        assert budget.spec.selector.match_labels == {"app": "a"}
        assert (budget.status.disruptions_allowed, set(budget.status.disrupted_pods or ())) == (1, {"p"})
        assert DISRUPTION_BUDGETS in ALL_KINDS


class TestLog:
    def test_names_what_every_step_changed_whichever_way_it_is_read(self) -> None:
        first = ClusterObjects(
            persistent_volume_claims=[claim("c", "v")], volume_attachments=[attachment("a", "w", "n3")]
        )
        second = first.changed(new(CLAIMS, claim("d")) | new(CSI_NODES, csi_node("n1", 1)))
        third = second.changed(new(ATTACHMENTS, attachment("b", "v", "n2")) | new(VOLUMES, volume("v"), volume("w")))
        assert names_between(first.step, first.step) == set()
        assert names_between(first.step, second.step) == {("default", "d"), "n1"}
        assert names_between(first.step, third.step) == {("default", "c"), ("default", "d"), "n1", "n2", "n3"}
        assert names_between(third.step, first.step) == names_between(first.step, third.step)

    def test_names_what_differs_between_two_states_that_follow_the_same_one(self) -> None:
        first = ClusterObjects()
        one, other = first.changed(new(CLAIMS, claim("c"))), first.changed(new(CSI_NODES, csi_node("n1", 1)))
        assert names_between(one.step, other.step) == {("default", "c"), "n1"}

    def test_knows_nothing_between_states_of_two_clusters(self) -> None:
        assert names_between(ClusterObjects().step, ClusterObjects().step) is None

    def test_is_a_new_one_after_a_class_or_a_great_change_which_may_concern_anything(self) -> None:
        first = ClusterObjects()
        many = new(CLAIMS, *(claim(f"c{number}") for number in range(_MAX_NAMES + 1)))
        for after in (
            first.changed(new(STORAGE_CLASSES, {"metadata": {"name": "s"}})),
            first.changed(many),
            first.changed({}, known=ALL_KINDS - {SERVICES}),
        ):
            assert names_between(first.step, after.step) is None
            assert names_between(after.step, after.changed(new(CLAIMS, claim("e"))).step) == {("default", "e")}


class TestReading:
    def test_versions_that_differ_in_nothing_that_rules_read_are_the_same(self) -> None:
        one, other = (made(CLAIMS, claim("c", "v", resourceVersion=version)) for version in "12")
        assert not differs(one, other)
        assert differs(one, made(CLAIMS, claim("c", "w", resourceVersion="1")))

    def test_nulls_stand_for_members_that_are_not_there(self) -> None:
        decoder = msgspec.json.Decoder(PersistentVolumeClaim)
        json = b'{"metadata":{"name":"c","annotations":null,"namespace":null},"spec":{"volumeName":null}}'
        found = decode_object(json, decoder)
        assert (found.metadata.name, found.metadata.namespace, found.spec.volume_name) == ("c", "", "")
        with pytest.raises(msgspec.ValidationError):
            decode_object(b'{"spec":{"volumeName":1}}', decoder)
        with pytest.raises(msgspec.DecodeError):
            decode_object(b"{", decoder)


RULES = CompiledRuleSet(RuleSet(name="r", spec=RuleSetSpec(filters=[FilterRule(builtin="MaxVolumeCount")])))
NODES = ("n1", "n2", "n3")
NUMBERS = st.integers(0, 3)
EVENTS = st.one_of(
    st.tuples(st.just("claim"), NUMBERS, st.integers(-1, 3)),
    st.tuples(st.just("volume"), NUMBERS, NUMBERS),
    st.tuples(st.just("csi"), st.integers(0, 2), st.integers(0, 2)),
    st.tuples(st.just("attachment"), NUMBERS, st.integers(0, 11)),
    st.tuples(st.just("gone"), st.integers(0, 3), NUMBERS),
    st.tuples(st.just("class"), st.just(0), st.just(0)),
    st.tuples(st.just("pods"), st.integers(0, 2), st.integers(0, 15)),
)


def a_pod(name: str, claims: Iterable[int]) -> JSON:
    volumes: list[JSON] = [{"name": f"v{each}", "persistentVolumeClaim": {"claimName": f"c{each}"}} for each in claims]
    return make_pod(name, volumes=[*volumes, {"name": "d", "emptyDir": {}}, {"name": "e", "ephemeral": {}}])


class World:
    """A Snapshot that follows changes, and the JSON that it stands for."""

    def __init__(self) -> None:
        self.json: dict[str, dict[str, JSON]] = {kind: {} for kind in VOLUME_KINDS}
        self.nodes = {name: Node.from_json(make_node(name)) for name in NODES}
        self.snapshot = Snapshot.of(self.nodes.values(), objects=ClusterObjects())

    def put(self, kind: str, json: JSON) -> None:
        name = json["metadata"]["name"]
        known = self.json[kind].get(name)
        self.json[kind][name] = json
        self._change(kind, made(kind, known) if known else None, made(kind, json))

    def take(self, kind: str, name: str) -> None:
        known = self.json[kind].pop(name, None)
        if known is not None:
            self._change(kind, made(kind, known), None)

    def _change(self, kind: str, before: ClusterObject | None, after: ClusterObject | None) -> None:
        assert self.snapshot.objects is not None
        self.snapshot = self.snapshot.changed({}, objects=self.snapshot.objects.changed({kind: [(before, after)]}))

    def place(self, node: str, claims: list[int]) -> None:
        info = NodeInfo(self.nodes[node], [Pod.from_json(a_pod(f"on-{node}", claims))])
        self.snapshot = self.snapshot.changed({node: info})

    def fresh(self) -> Snapshot:
        members = {member: list(self.json[kind].values()) for member, kind in MEMBER_OF.items() if kind in self.json}
        return Snapshot(dict(self.snapshot.nodes), objects=ClusterObjects.from_json(members))

    def apply(self, event: str, one: int, other: int) -> None:
        match event:
            case "claim":
                self.put(CLAIMS, claim(f"c{one}", f"v{other}" if other >= 0 else ""))
            case "volume":
                self.put(VOLUMES, volume(f"v{one}", f"h{other}"))
            case "csi":
                self.put(CSI_NODES, csi_node(NODES[one], other))
            case "attachment":
                self.put(ATTACHMENTS, attachment(f"a{one}", f"v{other % 4}", NODES[other // 4]))
            case "gone":
                kind = (CLAIMS, VOLUMES, CSI_NODES, ATTACHMENTS)[one]
                self.take(kind, NODES[other % 3] if kind == CSI_NODES else f"{'cv-a'[one]}{other}")
            case "class":
                self.put(STORAGE_CLASSES, {"metadata": {"name": "s"}, "provisioner": DRIVER})
            case "pods":
                self.place(NODES[one], [number for number in range(4) if other >> number & 1])


def refusals(snapshot: Snapshot, pod: JSON) -> list[Any]:
    answer = decide(RULES, cycle_of(pod, snapshot), snapshot.table.all_rows())
    return [(name, status.reason) for name, status in answer.refused()]


def full_world() -> World:
    """Every claim is bound, every node takes two volumes and has one."""
    world = World()
    for number in range(4):
        world.put(CLAIMS, claim(f"c{number}", f"v{number}"))
        world.put(VOLUMES, volume(f"v{number}"))
    for number, name in enumerate(NODES):
        world.put(CSI_NODES, csi_node(name, 2))
        world.place(name, [number])
    return world


@settings(max_examples=150)
@given(events=st.lists(EVENTS, max_size=12))
def test_columns_about_volumes_follow_every_change(events: list[tuple[str, int, int]]) -> None:
    world = full_world()
    pods = [make_pod("q", volumes=a_pod("q", claims)["spec"]["volumes"][:-2]) for claims in ([0], [3], [1, 2])]
    for event, one, other in events:
        world.apply(event, one, other)
        fresh = world.fresh()
        assert [refusals(world.snapshot, pod) for pod in pods] == [refusals(fresh, pod) for pod in pods]


def test_a_changed_claim_is_read_again_only_on_the_nodes_that_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    for number in range(3):
        world.put(CLAIMS, claim(f"c{number}", f"v{number}"))
        world.put(VOLUMES, volume(f"v{number}"))
        world.put(CSI_NODES, csi_node(NODES[number], 1))
        world.place(NODES[number], [number])
    pod = make_pod("q", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c0"}}])
    assert dict(refusals(world.snapshot, pod)).keys() == {"n2", "n3"}
    read: list[str] = []

    def noted(info: NodeInfo, objects: ClusterObjects) -> set[CSIVolumeID]:
        read.append(info.name)
        return attached_volumes(info, objects)

    monkeypatch.setattr("policies.engine.filters.volume_limits.attached_volumes", noted)
    world.put(CLAIMS, claim("c1", ""))
    assert dict(refusals(world.snapshot, pod)).keys() == {"n3"}
    # n2 for its count; then n1 and n3, whose counts are as they were, because they are full.
    assert read == ["n2", "n1", "n3"]
