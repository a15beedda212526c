"""Nodes of full bodies in place of the ones known."""

import pytest

from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Overlay
from tests.builders import make_node, make_pod
from tests.unit.engine.objects.asking import JSON, snapshot_of


def version(name: str, number: str, *, uid: str = "", cpu: str = "4") -> JSON:
    node = make_node(name, cpu=cpu)
    return {**node, "metadata": {**node["metadata"], "uid": uid or f"uid-{name}", "resourceVersion": number}}


def read(name: str, number: str, **other: str) -> Node:
    return Node.from_json(version(name, number, **other))


class TestOverlay:
    def test_of_nodes_that_are_known_in_this_version_it_is_the_live_snapshot(self) -> None:
        live, overlay = snapshot_of([version("n1", "7"), version("n2", "7")]), Overlay()
        sent = [read("n2", "7"), read("n1", "7")]
        assert overlay.over(live, sent) is live
        placed = live.assume(Pod.from_json(make_pod("p")), "n1")
        assert overlay.over(placed, sent) is placed

    @pytest.mark.parametrize("number", ["8", "6"])
    def test_another_version_that_was_sent_stands_in_place_of_the_known_one(self, number: str) -> None:
        live, overlay = snapshot_of([version("n1", "7"), version("n2", "7")]), Overlay()
        sent = read("n1", number, cpu="9")
        over = overlay.over(live, [read("n2", "7"), sent])
        assert over.nodes["n1"].node is sent
        assert over.nodes["n2"] is live.nodes["n2"]
        again = overlay.over(live, [sent])
        assert again.nodes["n1"] is over.nodes["n1"]
        assert again.table is over.table

    def test_another_node_of_the_same_name_and_number_stands_in_place_of_the_known_one(self) -> None:
        live, sent = snapshot_of([version("n1", "7")]), read("n1", "7", uid="another")
        assert Overlay().over(live, [sent]).nodes["n1"].node is sent

    def test_a_node_without_a_version_stands_in_place_of_the_known_one(self) -> None:
        live, sent = snapshot_of([version("n1", "")]), read("n1", "")
        assert Overlay().over(live, [sent]).nodes["n1"].node is sent

    def test_what_was_sent_once_is_not_there_the_next_time(self) -> None:
        live, overlay = snapshot_of([version("n1", "7")]), Overlay()
        assert overlay.over(live, [read("n1", "8"), read("n2", "1")]) is not live
        assert overlay.over(live, [read("n1", "7")]) is live
        other = overlay.over(live, [read("n3", "1")])
        assert list(other.nodes) == ["n1", "n3"]
        assert list(overlay.over(live, [read("n4", "1")]).nodes) == ["n1", "n4"]

    def test_it_follows_the_live_snapshot(self) -> None:
        first, overlay = snapshot_of([version("n1", "1"), version("n2", "1")]), Overlay()
        old, new = read("n1", "1"), read("n1", "2")
        assert overlay.over(first, [old]) is first
        newer = first.changed({"n1": NodeInfo(read("n1", "2"))})
        assert overlay.over(newer, [old]).nodes["n1"].node is old
        assert overlay.over(newer, [new]) is newer
        placed = newer.assume(Pod.from_json(make_pod("p")), "n1")
        assert overlay.over(placed, [new]) is placed
        over = overlay.over(placed, [old])
        assert [pod.name for pod in over.nodes["n1"].pods] == ["p"]
        gone = placed.changed({"n1": None})
        again = overlay.over(gone, [new])
        assert again.nodes["n1"].node is new
        assert again.nodes["n1"].pods == ()
        assert overlay.over(gone, []) is gone

    def test_it_follows_nodes_that_come_and_go(self) -> None:
        live, overlay = snapshot_of([version("n1", "1"), version("n2", "1")]), Overlay()
        sent = read("n1", "5")
        overlay.over(live, [sent])
        other = live.changed({"n2": None, "n3": NodeInfo(read("n3", "1"))})
        over = overlay.over(other, [sent])
        assert (list(over.nodes), over.nodes["n1"].node) == (["n1", "n3"], sent)

    def test_another_live_version_changes_nothing_about_a_node_that_was_sent(self) -> None:
        live, overlay, sent = snapshot_of([version("n1", "1")]), Overlay(), read("n1", "5")
        before = overlay.over(live, [sent])
        after = overlay.over(live.changed({"n1": NodeInfo(read("n1", "2"))}), [sent])
        assert after.nodes["n1"] is before.nodes["n1"]

    def test_two_readings_of_one_version_take_turns(self) -> None:
        live, overlay = snapshot_of([version("n1", "1")]), Overlay()
        one, other = read("n1", "1"), read("n1", "1")
        for sent in (one, other, one):
            assert overlay.over(live, [sent]) is live

    def test_a_node_that_is_the_known_one_itself_needs_no_version(self) -> None:
        live, overlay = snapshot_of([make_node("n1"), make_node("n2")]), Overlay()
        sent = [live.nodes["n1"].node, Node.from_json(make_node("n2"))]
        over = overlay.over(live, sent)
        assert over.nodes["n1"] is live.nodes["n1"]
        assert over.nodes["n2"].node is sent[1]
