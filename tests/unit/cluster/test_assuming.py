"""Pods that are being bound count on their nodes, until the watch has the last word."""

from hypothesis import given
from hypothesis import strategies as st

from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from scheduler.cluster.building import SnapshotBuilder
from scheduler.cluster.kinds import NODES, PODS, Seen
from scheduler.cluster.reflection import Reflection
from scheduler.cluster.waiting import is_waiting, pods_waiting_for
from tests.builders import make_node
from tests.builders import make_pod as pod_json
from tests.unit.cluster.kubernetes_json import list_json


class Watched:
    """A builder that is told what a watch of Pods says."""

    def __init__(self, *names: str) -> None:
        self.builder = SnapshotBuilder()
        self._reflection: Reflection[Pod] = Reflection()
        self._version = 1
        nodes: Reflection[Node] = Reflection()
        changes = nodes.on_page(NODES.read_page(list_json([make_node(name) for name in names])))
        assert changes is not None
        self.builder.on_nodes(changes.changes)

    def says(self, name: str, node: str = "", *, deleted: bool = False, **more: object) -> Pod:
        self._version += 1
        json = pod_json(name, requests={"cpu": "1"}, **more)  # type: ignore[arg-type]
        json["metadata"]["resourceVersion"] = str(self._version)
        if node:
            json["spec"]["nodeName"] = node
        pod = Pod.from_json(json)
        change = self._reflection.on_event(Seen(pod.uid, str(self._version), pod, deleted))
        assert change is not None
        self.builder.on_pods([change])
        return pod

    def on(self) -> dict[str, list[str]]:
        return {name: [pod.name for pod in info.pods] for name, info in self.builder.build().nodes.items()}

    def cpu(self) -> dict[str, int]:
        return {name: info.requested.get("cpu") for name, info in self.builder.build().nodes.items()}


def test_a_pod_that_is_being_bound_counts_on_its_node_at_once() -> None:
    watched = Watched("n1", "n2")
    first, second = watched.says("a"), watched.says("b")
    watched.builder.build()

    watched.builder.assume(first, "n1")
    watched.builder.assume(second, "n1")
    watched.builder.assume(second, "n1")

    assert watched.on() == {"n1": ["a", "b"], "n2": []}
    assert watched.cpu() == {"n1": 2000, "n2": 0}


def test_the_watch_that_shows_the_pod_there_changes_no_snapshot() -> None:
    watched = Watched("n1")
    watched.builder.assume(watched.says("a"), "n1")
    before = watched.builder.build()

    watched.says("a", "n1")

    assert watched.builder.build() is before
    watched.builder.forget("uid-a")
    assert watched.on() == {"n1": ["a"]}, "the watch has the last word"


def test_an_event_from_before_the_binding_takes_nothing_away() -> None:
    watched = Watched("n1")
    watched.builder.assume(watched.says("a"), "n1")

    watched.says("a", labels={"x": "y"})

    assert watched.on() == {"n1": ["a"]}


def test_a_pod_that_is_seen_with_other_labels_or_on_another_node_counts_as_it_is_seen() -> None:
    watched = Watched("n1", "n2")
    for name in "ab":
        watched.builder.assume(watched.says(name), "n1")
    watched.builder.build()

    watched.says("a", "n2")
    watched.says("b", "n1", labels={"new": "label"})

    assert watched.on() == {"n1": ["b"], "n2": ["a"]}
    assert [pod.labels for pod in watched.builder.build().nodes["n1"].pods] == [{"new": "label"}]


def test_a_pod_that_was_deleted_or_forgotten_takes_no_room() -> None:
    watched = Watched("n1")
    for name in "ab":
        watched.builder.assume(watched.says(name), "n1")
    watched.builder.build()

    watched.says("a", deleted=True)
    watched.builder.forget("uid-b")
    watched.builder.forget("uid-b")

    assert watched.on() == {"n1": []}
    watched.says("b", "n1")
    assert watched.on() == {"n1": ["b"]}


def test_a_pod_can_be_sent_elsewhere_when_its_binding_failed() -> None:
    watched = Watched("n1", "n2")
    pod = watched.says("a")
    watched.builder.assume(pod, "n1")
    watched.builder.build()

    watched.builder.assume(pod, "n2")

    assert watched.on() == {"n1": [], "n2": ["a"]}


def test_a_node_that_is_gone_holds_nobody_and_one_that_comes_back_holds_those_it_had() -> None:
    watched = Watched("n1")
    watched.builder.assume(watched.says("a"), "gone")

    assert watched.on() == {"n1": []}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["assume", "forget", "seen", "deleted", "build"]), st.integers(0, 5), st.integers(0, 2)
        )
    )
)
def test_whatever_happens_a_snapshot_is_what_one_made_anew_would_be(steps: list[tuple[str, int, int]]) -> None:
    watched = Watched("n0", "n1", "n2")
    where: dict[int, str] = {}
    seen: set[int] = set()
    pods = {number: watched.says(f"p{number}") for number in range(6)}
    gone: set[int] = set()
    for action, number, at in steps:
        node = f"n{at}"
        if action == "build":
            watched.builder.build()
        elif number in gone:
            continue
        elif action == "assume" and number not in seen:
            watched.builder.assume(pods[number], node)
            where[number] = node
        elif action == "forget":
            watched.builder.forget(f"uid-p{number}")
            if number not in seen:
                where.pop(number, None)
        elif action == "seen" and number not in seen:
            pods[number] = watched.says(f"p{number}", node)
            where[number] = node
            seen.add(number)
        elif action == "deleted":
            watched.says(f"p{number}", deleted=True)
            where.pop(number, None)
            gone.add(number)

    snapshot = watched.builder.build()

    expected = {f"n{at}": {f"p{number}" for number, node in where.items() if node == f"n{at}"} for at in range(3)}
    assert {name: {pod.name for pod in info.pods} for name, info in snapshot.nodes.items()} == expected
    assert requested(snapshot) == {name: 1000 * len(found) for name, found in expected.items()}
    assert {
        name: snapshot.table.placed().row_of(f"uid-{pod}") for name, found in expected.items() for pod in found
    } == {name: snapshot.table.row_of[name] for name, found in expected.items() if found}


def requested(snapshot: Snapshot) -> dict[str, int]:
    again = Snapshot({name: NodeInfo(info.node, info.pods) for name, info in snapshot.nodes.items()})
    assert {n: i.requested.amounts for n, i in again.nodes.items()} == {
        n: i.requested.amounts for n, i in snapshot.nodes.items()
    }
    return {name: info.requested.get("cpu") for name, info in snapshot.nodes.items()}


def test_only_pods_that_wait_for_one_of_the_schedulers_keep_their_json() -> None:
    kind = pods_waiting_for(["berth"])
    waiting = pod_json("waiting")
    waiting["metadata"]["managedFields"] = [{"manager": "x"}]
    others = [
        pod_json("placed", nodeName="n1"),
        pod_json("other", schedulerName="default-scheduler"),
        {**pod_json("ended"), "status": {"phase": "Succeeded"}},
    ]
    going = pod_json("going")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    pods = kind.read_page(list_json([waiting, *others, going])).objects

    assert [pod.name for pod in pods.values() if is_waiting(pod, {"berth"})] == ["waiting"]
    assert [pod.name for pod in pods.values() if pod.json] == ["waiting"]
    assert "managedFields" not in pods["uid-waiting"].json["metadata"]
    assert "kind" not in pods["uid-waiting"].json
    assert PODS.path == kind.path
