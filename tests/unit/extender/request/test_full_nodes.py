"""Full nodes of bodies on the live Snapshot: found by their text, and put in its place where they differ."""

from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from scheduler.extender.request.full_nodes import FullNodes, NamesOfRows
from scheduler.extender.request.node_bytes import SentNodes
from scheduler.extender.request.wire import Body, WireError, receive
from tests.builders import make_node, make_pod


def node(name: str, version: str = "1", **labels: str) -> dict[str, Any]:
    made = make_node(name, labels=labels)
    made["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": version}
    return {"metadata": made["metadata"], "spec": made["spec"], "status": made["status"]}


def sent(*nodes: dict[str, Any]) -> SentNodes:
    """Make the nodes of a body as kube-scheduler sends it, so that they are recognised."""
    items = b",".join(map(msgspec.json.encode, nodes))
    read = receive(b'{"Pod":{},"Nodes":{"metadata":{},"items":[' + items + b']},"NodeNames":null}')
    assert isinstance(read, Body)
    return read.nodes


def snapshot_of(*nodes: dict[str, Any]) -> Snapshot:
    return Snapshot.of(map(Node.from_json, nodes))


def test_nodes_that_the_watch_knows_are_the_live_snapshot_s_own_rows() -> None:
    live, full = snapshot_of(node("a"), node("b"), node("c")), FullNodes()
    for _ in range(2):
        snapshot, names, rows = full.on(live, sent(node("c"), node("a")))
        assert snapshot is live
        assert (list(names), rows.tolist()) == (["c", "a"], [2, 0])


def test_another_version_of_a_node_stands_in_place_of_the_live_one() -> None:
    live, full = snapshot_of(node("a"), node("b")), FullNodes()
    snapshot, names, rows = full.on(live, sent(node("b", "2", pool="new"), node("a")))
    assert (list(names), rows.tolist()) == (["b", "a"], [1, 0])
    assert [snapshot.table.infos[row].node.labels.get("pool") for row in rows] == ["new", None]


def test_a_node_that_the_watch_does_not_know_yet_is_there_all_the_same() -> None:
    snapshot, names, rows = FullNodes().on(snapshot_of(node("a")), sent(node("b"), node("a")))
    assert [snapshot.table.names[row] for row in rows] == list(names) == ["b", "a"]


def test_nodes_in_another_spelling_are_found_too() -> None:
    live = snapshot_of(node("a"), node("b"))
    snapshot, names, rows = FullNodes().on(live, SentNodes.of([msgspec.json.encode(node("b"))]))
    assert (snapshot is live, list(names), rows.tolist()) == (True, ["b"], [1])


def test_no_nodes_are_no_rows() -> None:
    live = snapshot_of(node("a"))
    snapshot, names, rows = FullNodes().on(live, sent())
    assert (snapshot is live, list(names), rows.tolist()) == (True, [], [])


def test_what_is_no_node_is_refused_with_its_place() -> None:
    with pytest.raises(WireError, match=r"Nodes.items\[1\] has no name"):
        FullNodes().on(snapshot_of(node("a")), sent(node("a"), {"metadata": {}}))


def test_names_of_rows_are_a_sequence() -> None:
    names = NamesOfRows(["a", "b", "c"], snapshot_of(node("x"), node("y")).table.all_rows())
    assert (len(names), names[1], list(names), list(names[1:])) == (2, "b", ["a", "b"], ["b"])


class Bodies(RuleBasedStateMachine):
    """The live Snapshot and bodies change in any order; each body is answered as one that was never seen."""

    NAMES = ("a", "b", "c", "d")

    @initialize()
    def begin(self) -> None:
        self.versions = {"a": 1, "b": 1}
        self.live = snapshot_of(node("a"), node("b"))
        self.full = FullNodes()

    @rule(name=st.sampled_from(NAMES))
    def the_watch_shows_a_node(self, name: str) -> None:
        self.versions[name] = self.versions.get(name, 0) + 1
        known = self.live.node(name)
        read = Node.from_json(node(name, str(self.versions[name])))
        self.live = self.live.changed({name: NodeInfo(read, known.pods if known else ())})

    @rule(name=st.sampled_from(NAMES))
    def the_watch_shows_that_a_node_is_gone(self, name: str) -> None:
        if self.live.node(name) is not None:
            self.live = self.live.changed({name: None})

    @rule(name=st.sampled_from(NAMES), number=st.integers(0, 10_000))
    def a_pod_is_placed(self, name: str, number: int) -> None:
        self.live = self.live.assume(Pod.from_json(make_pod(f"p{number}")), name)

    @rule(data=st.data())
    def a_body_comes(self, data: st.DataObject) -> None:
        names = data.draw(st.lists(st.sampled_from(self.NAMES), unique=True))
        bodies = [
            node(name, str(self.versions.get(name, 1) + data.draw(st.sampled_from([0, 0, 0, -1])))) for name in names
        ]
        snapshot, found, rows = self.full.on(self.live, sent(*bodies))
        fresh, _, fresh_rows = FullNodes().on(self.live, SentNodes.of(list(map(msgspec.json.encode, bodies))))
        assert list(found) == names == [snapshot.table.names[row] for row in rows]
        assert [seen(snapshot, row) for row in rows] == [seen(fresh, row) for row in fresh_rows]

    @invariant()
    def rows_point_at_nodes(self) -> None:
        assert set(self.live.table.row_of) == set(self.live.table.names)


def seen(snapshot: Snapshot, row: int) -> tuple[str, list[str]]:
    info = snapshot.table.infos[row]
    return info.node.parsed.metadata.resource_version, sorted(pod.name for pod in info.pods)


Bodies.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestBodies = Bodies.TestCase
