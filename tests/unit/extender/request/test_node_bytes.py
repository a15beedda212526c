"""Full bodies as kube-scheduler spells them: recognised nodes are what a decoder would have found, or nothing is."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.extender.request.node_bytes import Body, KnownNodes, Reading
from tests.builders import make_pod

POD = make_pod(labels={"text": ',"Nodes":{"metadata":{},"items":[{}]},"NodeNames":null}', "Nodes": "of its own"})


def encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def node(name: str, **more: Any) -> bytes:
    return encoded({"metadata": {"name": name, "uid": f"uid-{name}"}, **more})


def body(*nodes: bytes, pod: bytes = encoded(POD)) -> bytes:
    return b'{"Pod":' + pod + b',"Nodes":{"metadata":{},"items":[' + b",".join(nodes) + b']},"NodeNames":null}'


def read(known: KnownNodes, sent: bytes, *, step: int = 1 << 20) -> Body | None:
    """Read a body that comes in pieces; None where it is left to a decoder, which is to get every byte of it."""
    reading = Reading(known, len(sent))
    for at in range(0, len(sent), step):
        rest = sent[at : at + step]
        while rest:
            with reading.space() as space:
                size = min(len(space), len(rest))
                space[:size] = rest[:size]
            reading.filled(size)
            rest = rest[size:]
    found = reading.end()
    if isinstance(found, Body):
        return found
    assert found == sent
    return None


def decoded(sent: bytes) -> tuple[Any, list[Any]]:
    found = json.loads(sent)
    assert set(found) == {"Pod", "Nodes", "NodeNames"}
    assert set(found["Nodes"]) == {"metadata", "items"}
    return found["Pod"], found["Nodes"]["items"]


class TestKnownNodes:
    def test_the_pod_and_the_nodes_are_the_bytes_that_were_sent(self) -> None:
        nodes = [node("a"), node("b", spec={"text": '",{"metadata":{"name":"'}), node("c")]
        for _ in range(2):
            found = read(KnownNodes(), body(*nodes))
            assert found is not None
            assert json.loads(bytes(found.pod)) == POD
            assert found.nodes.at() == nodes

    @pytest.mark.parametrize("step", [1, 2, 7, 30, 1000])
    def test_it_does_not_matter_in_which_pieces_a_body_comes(self, step: int) -> None:
        known, nodes = KnownNodes(), [node("a"), node("b", spec={"x": [{}, 1]}), node("c"), node("d" * 400)]
        for order in (nodes, nodes[::-1], [*nodes, node("e")]):
            found = read(known, body(*order), step=step)
            assert found is not None
            assert found.nodes.at() == order

    def test_a_body_of_other_form_grows_as_it_has_to(self) -> None:
        assert read(KnownNodes(), b'{"Pod":{},"Nodes":null,"NodeNames":["' + b"n" * 3_000_000 + b'"]}') is None

    def test_what_was_seen_before_is_the_same_object_in_any_order(self) -> None:
        known = KnownNodes()
        first = read(known, body(node("a"), node("b"), node("c")))
        again = read(known, body(node("c"), node("a"), node("b", spec={})))
        assert first is not None
        assert again is not None
        assert again.nodes.at()[0] is first.nodes.at()[2]
        assert again.nodes.at()[1] is first.nodes.at()[0]
        assert again.nodes.at()[2] == node("b", spec={})

    def test_a_node_that_begins_like_a_known_one_is_read_whole(self) -> None:
        known = KnownNodes()
        assert read(known, body(node("a"))) is not None
        longer = node("a")[:-1] + b',"spec":{}}'
        found = read(known, body(longer, node("b")))
        assert found is not None
        assert found.nodes.at() == [longer, node("b")]

    def test_no_nodes_are_an_empty_list(self) -> None:
        found = read(KnownNodes(), body())
        assert found is not None
        assert found.nodes.at() == []

    def test_names_of_any_length_are_read(self) -> None:
        known, nodes = KnownNodes(), [node("n" * 1000 + end) for end in "ab"] + [b'{"metadata":{"name":""}}', b"{}"]
        for _ in range(2):
            found = read(known, body(*nodes[:3]))
            assert found is not None
            assert found.nodes.at() == nodes[:3]

    def test_what_is_kept_is_bounded_and_learnt_anew(self) -> None:
        known = KnownNodes(most_bytes=3 * len(node("a")))
        first = read(known, body(node("a")))
        assert first is not None
        for name in "bcdef":
            assert read(known, body(node(name))) is not None
        again = read(known, body(node("a")))
        assert again is not None
        assert again.nodes.at() == first.nodes.at()
        assert again.nodes.at()[0] is not first.nodes.at()[0]

    def test_versions_that_are_gone_are_given_up_and_bodies_in_hand_keep_theirs(self) -> None:
        known = KnownNodes(most_stale_bytes=10 * len(node("a")))
        kept = [read(known, body(node("a", spec={"x": turn}), node("b"))) for turn in range(50)]
        assert len(known.texts().all) < 20
        for turn, found in enumerate(kept):
            assert found is not None
            assert found.nodes.at() == [node("a", spec={"x": turn}), node("b")]

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
        read(known, body(node("a"), node("b")))
        assert read(known, sent) is None

    @settings(max_examples=500, deadline=None)
    @given(st.data())
    def test_a_damaged_body_is_read_as_a_decoder_reads_it_or_not_at_all(self, data: st.DataObject) -> None:
        known = KnownNodes()
        nodes = [node("a", spec={"x": [1, "y,"]}), node("b"), node("c")]
        read(known, body(*nodes))
        step = data.draw(st.integers(1, 200))
        whole = bytearray(body(*data.draw(st.permutations(nodes))))
        for _ in range(data.draw(st.integers(1, 3))):
            place = data.draw(st.integers(0, len(whole) - 1))
            whole[place : place + data.draw(st.integers(0, 2))] = data.draw(st.sampled_from(b'{}[],":ax ')).to_bytes()
        found = read(known, bytes(whole), step=step)
        if found is None:
            return
        try:
            pod, items = decoded(bytes(whole))
        except ValueError:
            # Python's decoder is stricter about what stands inside a string; msgspec skips it when it keeps raw bytes.
            with pytest.raises(msgspec.DecodeError):
                msgspec.json.decode(bytes(whole))
            return
        assert (json.loads(bytes(found.pod)), [json.loads(item) for item in found.nodes.at()]) == (pod, items)
