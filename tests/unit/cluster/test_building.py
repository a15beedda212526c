"""How changes become Snapshots."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.objects.cluster_kinds import CLAIMS, SERVICES, ClusterObject
from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from scheduler.cluster.building import SnapshotBuilder
from scheduler.cluster.kinds import NAMESPACES, NODES, OBJECTS, PODS, Kind, Page
from scheduler.cluster.reflection import Change, Reflection
from tests.unit.cluster.kubernetes_json import claim_json, list_json, namespace_json, node_json, pod_json, service_json


class Cluster:
    """A builder, told of whole new states as a reflection finds the differences."""

    def __init__(self) -> None:
        self.builder = SnapshotBuilder()
        self.versions = 0
        self._nodes: Reflection[Node] = Reflection()
        self._pods: Reflection[Pod] = Reflection()
        self._claims: Reflection[ClusterObject] = Reflection()

    def claims(self, *claims: dict[str, Any]) -> None:
        """These are the claims now."""
        changes = self._claims.on_page(OBJECTS[CLAIMS].read_page(list_json(list(claims))))
        assert changes is not None
        self.builder.on_objects(CLAIMS, changes.changes)

    def give_up_claims(self) -> None:
        """Nobody needs claims any more."""
        self.builder.give_up(CLAIMS)
        self._claims = Reflection()

    def nodes(self, *nodes: dict[str, Any]) -> None:
        """These are the nodes now."""
        changes = self._nodes.on_page(NODES.read_page(list_json(list(nodes))))
        assert changes is not None
        self.builder.on_nodes(changes.changes)

    def pods(self, *pods: dict[str, Any]) -> None:
        """These are the Pods now."""
        changes = self._pods.on_page(PODS.read_page(list_json(list(pods))))
        assert changes is not None
        self.builder.on_pods(changes.changes)


def placed(snapshot: Snapshot) -> dict[str, set[str]]:
    """Return the names of the Pods on each node."""
    return {name: {pod.name for pod in info.pods} for name, info in snapshot.nodes.items()}


class TestBuild:
    """Snapshots after changes."""

    def test_gives_the_same_snapshot_until_something_changes(self) -> None:
        """Reading costs nothing in a quiet cluster."""
        cluster = Cluster()
        cluster.nodes(node_json("n1"))
        first = cluster.builder.build()
        assert cluster.builder.build() is first
        cluster.pods(pod_json("a", node="n1"))
        assert cluster.builder.current() is None
        assert cluster.builder.build() is not first

    def test_a_heartbeat_leaves_what_was_read_of_a_node(self) -> None:
        cluster, found = Cluster(), []
        for version in ("100", "101"):
            cluster.nodes(node_json("n1", version=version))
            found.append(cluster.builder.build().nodes["n1"].node)
        assert [node.metadata.resource_version for node in found] == ["100", "101"]
        assert found[0].content is found[1].content

    def test_leaves_an_earlier_snapshot_as_it_was(self) -> None:
        """A decision that has begun sees one state to its end."""
        cluster = Cluster()
        cluster.nodes(node_json("n1"), node_json("n2"))
        cluster.pods(pod_json("a", node="n1"))
        earlier = cluster.builder.build()
        cluster.nodes(node_json("n1", version="2"))
        cluster.pods()
        cluster.builder.build()
        assert placed(earlier) == {"n1": {"a"}, "n2": set()}

    def test_makes_new_node_infos_only_where_something_changed(self) -> None:
        """What the engine worked out for the other nodes is kept."""
        cluster = Cluster()
        cluster.nodes(node_json("n1"), node_json("n2"))
        before = cluster.builder.build()
        cluster.pods(pod_json("a", node="n1"))
        after = cluster.builder.build()
        assert after.nodes["n1"] is not before.nodes["n1"]
        assert after.nodes["n2"] is before.nodes["n2"]

    def test_counts_pods_whose_node_comes_later(self) -> None:
        """The watches are not in step."""
        cluster = Cluster()
        cluster.pods(pod_json("a", node="n1"))
        assert cluster.builder.build().nodes == {}
        cluster.nodes(node_json("n1"))
        assert placed(cluster.builder.build()) == {"n1": {"a"}}
        cluster.nodes()
        cluster.nodes(node_json("n1", version="5"))
        assert placed(cluster.builder.build()) == {"n1": {"a"}}

    def test_stops_counting_a_pod_that_ended(self) -> None:
        """Succeeded and Failed Pods take up no room, even when the server still lists them."""
        cluster = Cluster()
        cluster.nodes(node_json("n1"))
        cluster.pods(pod_json("a", node="n1"), pod_json("b", node="n1"))
        cluster.builder.build()
        cluster.pods(
            pod_json("a", node="n1", phase="Succeeded", version="2"),
            pod_json("b", node="n1", phase="Failed", version="2"),
        )
        snapshot = cluster.builder.build()
        assert placed(snapshot) == {"n1": set()}
        assert snapshot.nodes["n1"].requested.get("cpu") == 0

    def test_counts_a_pod_once_it_is_bound(self) -> None:
        """A waiting Pod is nowhere."""
        cluster = Cluster()
        cluster.nodes(node_json("n1"))
        cluster.pods(pod_json("a", phase="Pending"))
        waiting = cluster.builder.build()
        assert placed(waiting) == {"n1": set()}
        cluster.pods(pod_json("a", node="n1", version="2"))
        assert placed(cluster.builder.build()) == {"n1": {"a"}}

    def test_a_waiting_pod_does_not_cost_a_new_snapshot(self) -> None:
        """Pods without a node are no part of it."""
        cluster = Cluster()
        before = cluster.builder.build()
        cluster.pods(pod_json("a", phase="Pending"))
        assert cluster.builder.build() is before

    def test_keeps_the_order_of_pods_on_a_node_when_one_changes(self) -> None:
        """The same Pods give the same Snapshot."""
        cluster = Cluster()
        cluster.nodes(node_json("n1"))
        cluster.pods(pod_json("a", node="n1"), pod_json("b", node="n1"))
        cluster.pods(pod_json("a", node="n1", version="2"), pod_json("b", node="n1"))
        assert [pod.name for pod in cluster.builder.build().nodes["n1"].pods] == ["a", "b"]

    def test_knows_namespaces_by_their_labels(self) -> None:
        """Labels that change don't change in a Snapshot that was given out."""
        builder = SnapshotBuilder()
        builder.on_namespaces(_changes(NAMESPACES, "added", namespace_json("web", labels={"team": "a"})))
        before = builder.build()
        builder.on_namespaces(_changes(NAMESPACES, "modified", namespace_json("web", labels={"team": "b"})))
        assert before.namespace_labels("web") == {"team": "a"}
        assert builder.build().namespace_labels("web") == {"team": "b"}
        builder.on_namespaces(_changes(NAMESPACES, "deleted", namespace_json("web")))
        assert builder.build().namespace_labels("web") == {}


class TestOtherObjects:
    """Claims, Services and the like, as far as they are watched."""

    def test_nothing_is_known_of_a_kind_before_its_first_list(self) -> None:
        """An empty list is something to know."""
        cluster = Cluster()
        assert cluster.builder.build().knowing(frozenset({CLAIMS})) is None
        cluster.claims()
        objects = cluster.builder.build().objects
        assert objects is not None
        assert (objects.known, objects.claims) == ({CLAIMS}, {})

    def test_a_change_leaves_an_earlier_snapshot_as_it_was(self) -> None:
        """And the nodes as they are."""
        cluster = Cluster()
        cluster.nodes(node_json("n1"))
        cluster.claims(claim_json("c", volume="v"))
        before = cluster.builder.build()
        cluster.claims(claim_json("c", volume="w", version="2"))
        after = cluster.builder.build()
        assert after.objects is not None
        assert before.objects is not None
        assert before.objects.claims["default", "c"].spec.volume_name == "v"
        assert after.objects.claims["default", "c"].spec.volume_name == "w"
        assert after.nodes["n1"] is before.nodes["n1"]

    def test_a_change_of_what_no_rule_reads_costs_no_snapshot(self) -> None:
        """Status is written all the time."""
        cluster = Cluster()
        cluster.claims(claim_json("c", volume="v"))
        before = cluster.builder.build()
        cluster.claims(claim_json("c", volume="v", version="2"))
        assert cluster.builder.build() is before
        cluster.claims()
        assert cluster.builder.build() is not before

    def test_a_kind_that_was_given_up_and_is_listed_anew_holds_only_the_new_list(self) -> None:
        """Also when nobody asked for a Snapshot in between."""
        cluster = Cluster()
        cluster.claims(claim_json("old"))
        cluster.builder.build()
        cluster.give_up_claims()
        cluster.claims(claim_json("new"))
        objects = cluster.builder.build().objects
        assert objects is not None
        assert set(objects.claims) == {("default", "new")}
        cluster.give_up_claims()
        assert cluster.builder.build().knowing(frozenset({CLAIMS})) is None

    def test_kinds_are_known_one_by_one(self) -> None:
        """A list that is late doesn't keep the others from being used."""
        cluster = Cluster()
        cluster.builder.on_objects(SERVICES, _changes(OBJECTS[SERVICES], "added", service_json("s", selector={})))
        cluster.builder.give_up(CLAIMS)
        snapshot = cluster.builder.build()
        assert snapshot.knowing(frozenset({SERVICES})) is snapshot.objects
        assert snapshot.knowing(frozenset({CLAIMS})) is None


CLAIM_STATES = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["", "v", "w"]))


@given(states=st.lists(st.tuples(CLAIM_STATES | st.none(), st.booleans()), max_size=8))
def test_any_order_of_lists_ends_at_the_last_one(states: list[tuple[dict[str, str] | None, bool]]) -> None:
    """None stands for giving claims up."""
    cluster = Cluster()
    for version, (state, read) in enumerate(states):
        if state is None:
            cluster.give_up_claims()
        else:
            cluster.claims(*(claim_json(name, volume=to, version=str(version)) for name, to in state.items()))
        if read:
            cluster.builder.build()
    objects = cluster.builder.build().objects or ClusterObjects.unknown()
    last = states[-1][0] if states else None
    assert (CLAIMS in objects.known) == (last is not None)
    assert {name: found.spec.volume_name for (_, name), found in objects.claims.items()} == (last or {})


def _changes(kind: Kind[Any], change: Any, json: dict[str, Any]) -> list[Change[Any]]:
    page: Page[Any] = kind.read_page(list_json([json]))
    return [Change(change, key, object_, None, "1") for key, object_ in page.objects.items()]


STATES = st.tuples(
    st.sets(st.sampled_from(["n1", "n2", "n3"])),
    st.dictionaries(
        st.sampled_from("abcdef"),
        st.tuples(st.sampled_from(["", "n1", "n2", "n3"]), st.sampled_from(["Running", "Succeeded", "Failed"])),
    ),
    st.booleans(),
)


@given(states=st.lists(STATES, max_size=8))
def test_any_order_of_changes_ends_as_a_snapshot_made_at_once(
    states: list[tuple[set[str], dict[str, tuple[str, str]], bool]],
) -> None:
    """Following changes gives what reading the last state gives, with the same sums."""
    cluster = Cluster()
    nodes: list[dict[str, Any]] = []
    pods: list[dict[str, Any]] = []
    for version, (names, places, read) in enumerate(states):
        nodes = [node_json(name) for name in sorted(names)]
        pods = [
            # A Pod never leaves its node: on another node it is another Pod.
            pod_json(name, node=node, uid=f"{name}-{node}", phase=phase, version=str(version))
            for name, (node, phase) in places.items()
        ]
        cluster.nodes(*nodes)
        cluster.pods(*pods)
        if read:
            cluster.builder.build()
    expected = Snapshot.of(
        [Node.from_json(node) for node in nodes],
        [Pod(msgspec.convert(pod, type=type(Pod.from_json(pod).parsed))) for pod in pods],
    )
    snapshot = cluster.builder.build()
    assert placed(snapshot) == placed(expected)
    assert {name: info.requested for name, info in snapshot.nodes.items()} == {
        name: info.requested for name, info in expected.nodes.items()
    }
