"""Full nodes of bodies on the live Snapshot: found by their text, and put in its place where they differ."""

from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.columns import label
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from scheduler.extender.request.full_nodes import FullNodes, NamesOfRows
from scheduler.extender.request.node_bytes import Body, KnownNodes, SentNodes
from scheduler.extender.request.objects import NodeCache
from scheduler.extender.request.wire import WireError, receive
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


def test_bodies_that_are_ahead_of_the_watch_again_and_again_cost_what_changed_in_between() -> None:
    read: list[str] = []

    def look(info: NodeInfo) -> int:
        read.append(info.name)
        return len(info.node.labels)

    names = [f"n{number}" for number in range(40)]
    live, full, counts = snapshot_of(*map(node, names)), FullNodes(), []
    for name in names:
        read.clear()
        snapshot, _, _ = full.on(live, sent(node(name, "2")))
        snapshot.table.numbers("labels", look)
        counts.append(len(read))
        live = live.changed({name: NodeInfo(Node.from_json(node(name, "2")))})
    assert max(counts[1:]) <= 3


def test_nodes_in_another_spelling_are_found_too() -> None:
    live = snapshot_of(node("a"), node("b"))
    snapshot, names, rows = FullNodes().on(live, KnownNodes().intern([msgspec.json.encode(node("b"))]))
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


def on(full: FullNodes, live: Snapshot, *nodes: dict[str, Any]) -> Snapshot:
    return full.on(live, sent(*nodes))[0]


def version_in(snapshot: Snapshot, name: str) -> str:
    return snapshot.nodes[name].node.metadata.resource_version


def with_version(live: Snapshot, name: str, version: str) -> Snapshot:
    return live.changed({name: live.nodes[name].with_node(Node.from_json(node(name, version)))})


class TestAnotherVersionThanTheWatchS:
    def test_stays_where_it_is_without_another_snapshot_as_long_as_it_is_sent(self) -> None:
        live, full = snapshot_of(node("a", "7"), node("b", "7")), FullNodes()
        first = on(full, live, node("a", "8"), node("b", "7"))
        assert first is not live
        assert first.nodes["b"] is live.nodes["b"]
        assert on(full, live, node("b", "7"), node("a", "8")) is first

    @pytest.mark.parametrize("version", ["10", "9" * 5_000], ids=["10", "longer than Python's int reads"])
    def test_that_is_newer_counts_when_a_body_comes_without_the_node(self, version: str) -> None:
        live, full = snapshot_of(node("a", "9"), node("b", "7")), FullNodes()
        first = on(full, live, node("a", version), node("b", "7"))
        assert on(full, live, node("b", "7")) is first
        assert version_in(first, "a") == version

    @pytest.mark.parametrize("version", ["6", "", "x8", "007", "\N{ARABIC-INDIC DIGIT EIGHT}", "8\N{SUPERSCRIPT TWO}"])
    def test_that_is_not_known_to_be_newer_makes_room_when_a_body_comes_without_the_node(self, version: str) -> None:
        live, full = snapshot_of(node("a", "7"), node("b", "7")), FullNodes()
        assert version_in(on(full, live, node("a", version), node("b", "7")), "a") == version
        assert on(full, live, node("b", "7")) is live
        assert version_in(on(full, live, node("a", version), node("b", "7")), "a") == version

    def test_that_is_newer_makes_room_for_what_the_watch_shows_next(self) -> None:
        live, full = snapshot_of(node("a", "7"), node("b", "7")), FullNodes()
        on(full, live, node("a", "8"), node("b", "9"))
        live = with_version(live, "a", "9")
        over = on(full, live, node("b", "9"))
        assert (version_in(over, "a"), version_in(over, "b")) == ("9", "9")

    def test_is_the_live_node_once_the_watch_shows_it(self) -> None:
        live, full = snapshot_of(node("a", "7")), FullNodes()
        assert on(full, live, node("a", "8")) is not live
        live = with_version(live, "a", "8")
        assert on(full, live, node("a", "8")) is live

    def test_of_another_node_of_the_name_is_not_newer(self) -> None:
        other = node("a", "8")
        other["metadata"]["uid"] = "another"
        live, full = snapshot_of(node("a", "7"), node("b")), FullNodes()
        assert on(full, live, other, node("b")).nodes["a"].node.metadata.uid == "another"
        assert on(full, live, node("b")) is live

    def test_has_the_pods_of_the_live_node_on_it_as_they_come(self) -> None:
        live, full = snapshot_of(node("a", "7")), FullNodes()
        on(full, live, node("a", "8"))
        placed = live.assume(Pod.from_json(make_pod("p", requests={"cpu": "1"})), "a")
        info = on(full, placed, node("a", "8")).nodes["a"]
        assert [pod.name for pod in info.pods] == ["p"]
        assert (info.node.metadata.resource_version, info.requested.get("cpu")) == ("8", 1000)

    def test_has_the_requests_of_its_pods_and_its_own_allocatable(self) -> None:
        live = snapshot_of(node("a", "7")).assume(Pod.from_json(make_pod("p", requests={"cpu": "1"})), "a")
        assert live.nodes["a"].usage["free"]["cpu"] == 3000
        larger = node("a", "8")
        larger["status"]["allocatable"]["cpu"] = "9"
        assert on(FullNodes(), live, larger).nodes["a"].usage["free"]["cpu"] == 8000

    def test_is_seen_with_its_namespaces_and_objects_as_they_are_now(self) -> None:
        live, full = snapshot_of(node("a", "7")), FullNodes()
        on(full, live, node("a", "8"))
        live = live.changed({}, {"team": {"x": "y"}}, objects=ClusterObjects(services=[]))
        over = on(full, live, node("a", "8"))
        assert over.namespaces == {"team": {"x": "y"}}
        assert over.objects is live.objects

    def test_is_the_only_node_that_is_looked_at_when_it_comes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        nodes = {f"n{number}": node(f"n{number}", "7") for number in range(50)}
        live, full = snapshot_of(*nodes.values()), FullNodes()
        looked: list[bytes] = []
        read_one = NodeCache.read_one

        def look(cache: NodeCache, text: bytes, index: int) -> Node:
            looked.append(text)
            return read_one(cache, text, index)

        monkeypatch.setattr(NodeCache, "read_one", look)
        monkeypatch.setattr(NodeCache, "read", lambda *given: pytest.fail("all nodes are read"))
        for version in ("7", "8", "9", "9"):
            nodes["n3"] = node("n3", version)
            on(full, live, *nodes.values())
        assert looked[50:] == [msgspec.json.encode(node("n3", version)) for version in ("8", "9")]

    def test_is_seen_without_objects_once_nobody_watches_them(self) -> None:
        live, full = snapshot_of(node("a", "7")).changed({}, objects=ClusterObjects(services=[])), FullNodes()
        assert on(full, live, node("a", "8")).objects is live.objects
        unwatched = Snapshot(None, table=live.table, nominated={"a": []})
        over = on(full, unwatched, node("a", "8"))
        assert (over.objects, over.nominated, version_in(over, "a")) == (None, {"a": []}, "8")


class TestNodesThatTheWatchDoesNotKnow:
    def test_are_there_as_long_as_they_are_sent(self) -> None:
        live, full = snapshot_of(node("a")), FullNodes()
        assert list(on(full, live, node("b"), node("a")).nodes) == ["a", "b"]
        assert list(on(full, live, node("c")).nodes) == ["a", "c"]
        assert on(full, live, node("a")) is live

    def test_stay_while_the_cycle_goes_on_that_has_refused_them(self) -> None:
        live, full = snapshot_of(node("a", "7")), FullNodes()
        first = on(full, live, node("b"), node("a", "6"))
        rest, names, rows = full.on(live, sent(node("b")), anew=False)
        assert (rest is first, list(names), rows.tolist()) == (True, ["b"], [1])
        assert on(full, live, node("b"), node("a", "6")) is first
        assert version_in(on(full, live, node("b")), "a") == "7"

    def test_go_after_a_body_without_them_that_was_refused_too(self) -> None:
        live, full = snapshot_of(node("a", "7")), FullNodes()
        on(full, live, node("b"), node("a", "6"))
        with pytest.raises(WireError):
            on(full, live, {"metadata": {}})
        assert on(full, live, node("a", "7")) is live

    def test_take_no_other_snapshot_as_long_as_the_same_ones_are_sent(self) -> None:
        live, full = snapshot_of(), FullNodes()
        first = on(full, live, node("a"), node("b"))
        assert on(full, live, node("b"), node("a")) is first

    def test_are_found_where_they_stand_when_others_go(self) -> None:
        live, full = snapshot_of(node("a")), FullNodes()
        on(full, live, node("b"), node("c"), node("d"))
        snapshot, names, rows = full.on(live, sent(node("d"), node("a"), node("b")))
        assert list(names) == ["d", "a", "b"] == [snapshot.table.names[row] for row in rows]

    def test_stay_when_nodes_of_the_watch_come_and_go(self) -> None:
        live, full = snapshot_of(node("a"), node("b")), FullNodes()
        on(full, live, node("a", "5"))
        live = live.changed({"b": None, "c": NodeInfo(Node.from_json(node("c")))})
        over = on(full, live, node("a", "5"))
        assert (sorted(over.nodes), version_in(over, "a")) == (["a", "c"], "5")


def test_a_name_that_comes_twice_in_a_body_is_one_node_the_last() -> None:
    snapshot, names, rows = FullNodes().on(snapshot_of(node("a", "7")), sent(node("a", "8"), node("a", "9")))
    assert (list(names), rows.tolist(), version_in(snapshot, "a")) == (["a", "a"], [0, 0], "9")


def test_a_rule_reads_the_heartbeat_that_was_sent_last() -> None:
    """What no built-in reads may still be read by an expression, so it is never taken for unchanged."""
    live, full = snapshot_of(node("a", "7")), FullNodes()
    for number in ("8", "9"):
        beating = node("a", number)
        beating["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastHeartbeatTime": number}]
        found = on(full, live, beating).nodes["a"].node.json["status"]["conditions"][0]["lastHeartbeatTime"]
        assert found == number


def test_a_heartbeat_that_the_watch_has_not_shown_leaves_what_was_read_of_the_live_node() -> None:
    live = Snapshot.of([Node.from_text(msgspec.json.encode(beating("a", 12)))])
    full = FullNodes()
    on(full, live, beating("a", 12))
    found = on(full, live, beating("a", 13)).node("a")
    assert found is not None
    assert (found.node.metadata.resource_version, found.node.content) == ("13", live.nodes["a"].node.content)


class Bodies(RuleBasedStateMachine):
    """The live Snapshot and bodies change in any order; each body is answered as one that was never seen."""

    NAMES = ("a", "b", "c", "d")

    @initialize()
    def begin(self) -> None:
        self.versions = {"a": 10, "b": 10}
        self.live = Snapshot.of(Node.from_text(msgspec.json.encode(beating(name, 10))) for name in self.versions)
        self.full = FullNodes()

    @rule(name=st.sampled_from(NAMES))
    def the_watch_shows_a_node(self, name: str) -> None:
        self.versions[name] = self.versions.get(name, 9) + 1
        known = self.live.node(name)
        text = msgspec.json.encode(beating(name, self.versions[name]))
        read = (known.node.after_heartbeat(text) if known else None) or Node.from_text(text)
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
            beating(name, self.versions.get(name, 10) + data.draw(st.sampled_from([0, 0, 0, 1, 2, -1])))
            for name in names
        ]
        snapshot, found, rows = self.full.on(self.live, sent(*bodies), anew=data.draw(st.booleans()))
        fresh, _, fresh_rows = FullNodes().on(self.live, KnownNodes().intern(list(map(msgspec.json.encode, bodies))))
        assert list(found) == names == [snapshot.table.names[row] for row in rows]
        assert [seen(snapshot, row) for row in rows] == [seen(fresh, row) for row in fresh_rows]

    @invariant()
    def rows_point_at_nodes(self) -> None:
        assert set(self.live.table.row_of) == set(self.live.table.names)


def beating(name: str, version: int) -> dict[str, Any]:
    """Return a version of a node; every third one brings more than a heartbeat."""
    made = node(name, str(version))
    made["metadata"]["labels"]["third"] = f"v{version // 3}"
    made["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastHeartbeatTime": str(version)}]
    return made


def seen(snapshot: Snapshot, row: int) -> tuple[str, str, object, list[str]]:
    info, labels = snapshot.table.infos[row], label(snapshot.table, "third")
    beat = info.node.trace(("status", "conditions")).value
    assert isinstance(beat, list)
    return (
        info.node.metadata.resource_version,
        beat[0]["lastHeartbeatTime"],
        labels.values[labels.codes[row]],
        sorted(pod.name for pod in info.pods),
    )


Bodies.TestCase.settings = settings(max_examples=100, stateful_step_count=30)
TestBodies = Bodies.TestCase
