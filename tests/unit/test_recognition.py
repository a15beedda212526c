"""Full bodies as kube-scheduler spells them: recognised nodes are what a decoder would have found, or nothing is."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.recognition import KnownNodes
from tests.builders import make_pod

POD = make_pod(labels={"text": ',"Nodes":{"metadata":{},"items":[{}]},"NodeNames":null}'})


def encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def node(name: str, **more: Any) -> bytes:
    return encoded({"metadata": {"name": name, "uid": f"uid-{name}"}, **more})


def body(*nodes: bytes, pod: bytes = encoded(POD)) -> bytes:
    return b'{"Pod":' + pod + b',"Nodes":{"metadata":{},"items":[' + b",".join(nodes) + b']},"NodeNames":null}'


def decoded(sent: bytes) -> tuple[Any, list[Any]]:
    found = json.loads(sent)
    assert set(found) == {"Pod", "Nodes", "NodeNames"}
    assert set(found["Nodes"]) == {"metadata", "items"}
    return found["Pod"], found["Nodes"]["items"]


class TestKnownNodes:
    def test_the_pod_and_the_nodes_are_the_bytes_that_were_sent(self) -> None:
        nodes = [node("a"), node("b", spec={"text": '",{"metadata":{"name":"'}), node("c")]
        for _ in range(2):
            found = KnownNodes().read(body(*nodes))
            assert found is not None
            assert json.loads(bytes(found.pod)) == POD
            assert found.nodes == nodes

    def test_what_was_seen_before_is_the_same_object_in_any_order(self) -> None:
        known = KnownNodes()
        first = known.read(body(node("a"), node("b"), node("c")))
        again = known.read(body(node("c"), node("a"), node("b", spec={})))
        assert first is not None
        assert again is not None
        assert again.nodes[0] is first.nodes[2]
        assert again.nodes[1] is first.nodes[0]
        assert again.nodes[2] == node("b", spec={})

    def test_a_node_that_begins_like_a_known_one_is_read_whole(self) -> None:
        known = KnownNodes()
        assert known.read(body(node("a"))) is not None
        longer = node("a")[:-1] + b',"spec":{}}'
        found = known.read(body(longer, node("b")))
        assert found is not None
        assert found.nodes == [longer, node("b")]

    def test_no_nodes_are_an_empty_list(self) -> None:
        found = KnownNodes().read(body())
        assert found is not None
        assert found.nodes == []

    def test_names_of_any_length_are_read(self) -> None:
        known, nodes = KnownNodes(), [node("n" * 1000 + end) for end in "ab"] + [b'{"metadata":{"name":""}}', b"{}"]
        for _ in range(2):
            found = known.read(body(*nodes[:3]))
            assert found is not None
            assert found.nodes == nodes[:3]

    def test_what_is_kept_is_bounded_and_learnt_anew(self) -> None:
        known = KnownNodes(most_bytes=3 * len(node("a")))
        first = known.read(body(node("a")))
        assert first is not None
        for name in "bcdef":
            assert known.read(body(node(name))) is not None
        again = known.read(body(node("a")))
        assert again is not None
        assert again.nodes == first.nodes
        assert again.nodes[0] is not first.nodes[0]

    @pytest.mark.parametrize(
        "sent",
        [
            pytest.param(b"", id="nothing"),
            pytest.param(body(b"null"), id="a null node"),
            pytest.param(body(b"5"), id="a number"),
            pytest.param(body(node("a"), b""), id="a comma too many at the end"),
            pytest.param(body(b"", node("a")), id="a comma too many at the start"),
            pytest.param(body(node("a") + node("b")), id="a comma too few"),
            pytest.param(body(node("a") + b" ", node("b")), id="white space"),
            pytest.param(body(node("a")[:-1]), id="a node cut off"),
            pytest.param(body(node("a"), pod=b"{"), id="a Pod cut off"),
            pytest.param(body(node("a"), pod=b'{},"NodeNames":[]'), id="another member before"),
            pytest.param(body(node("a")).replace(b"Pod", b"pod"), id="another spelling"),
            pytest.param(body(node("a")).replace(b"null}", b"[]}"), id="names as well"),
            pytest.param(b"[" + body(node("a")), id="inside a list"),
            pytest.param(b'{"Pod":{"a":{' + body(node("a"))[1:], id="inside the Pod"),
            pytest.param(body(b"[" * 100_000), id="deep nesting"),
        ],
    )
    def test_the_rest_is_left_to_a_decoder(self, sent: bytes) -> None:
        known = KnownNodes()
        known.read(body(node("a"), node("b")))
        assert known.read(sent) is None

    @settings(max_examples=500, deadline=None)
    @given(st.data())
    def test_a_damaged_body_is_read_as_a_decoder_reads_it_or_not_at_all(self, data: st.DataObject) -> None:
        known = KnownNodes()
        nodes = [node("a", spec={"x": [1, "y,"]}), node("b"), node("c")]
        known.read(body(*nodes))
        whole = bytearray(body(*data.draw(st.permutations(nodes))))
        for _ in range(data.draw(st.integers(1, 3))):
            place = data.draw(st.integers(0, len(whole) - 1))
            whole[place : place + data.draw(st.integers(0, 2))] = data.draw(st.sampled_from(b'{}[],":ax ')).to_bytes()
        found = known.read(bytes(whole))
        if found is None:
            return
        try:
            pod, items = decoded(bytes(whole))
        except ValueError:
            # Python's decoder is stricter about what stands inside a string; msgspec skips it when it keeps raw bytes.
            with pytest.raises(msgspec.DecodeError):
                msgspec.json.decode(bytes(whole))
            return
        assert (json.loads(bytes(found.pod)), [json.loads(item) for item in found.nodes]) == (pod, items)
