"""Full bodies in any spelling: recognised nodes are what a decoder would have found, or nothing is."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.extender.request import node_bytes
from scheduler.extender.request.node_bytes import Body, KnownNodes, Reading
from scheduler.extender.request.wire import WireError, decode_args
from tests.builders import make_pod

# Go's JSON reader, and so any API server, takes no more.
MOST_LEVELS = 10_000
POD = make_pod(labels={"text": ',"Nodes":{"metadata":{},"items":[{}]},"NodeNames":null}', "Nodes": "of its own"})


def encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def node(name: str, **more: Any) -> bytes:
    return encoded({"metadata": {"name": name, "uid": f"uid-{name}"}, **more})


def body(*nodes: bytes, pod: bytes = encoded(POD)) -> bytes:
    return b'{"Pod":' + pod + b',"Nodes":{"metadata":{},"items":[' + b",".join(nodes) + b']},"NodeNames":null}'


def put(reading: Reading, came: bytes) -> None:
    """Let bytes come, as many at once as there is space for."""
    while came:
        with reading.space() as space:
            size = min(len(space), len(came))
            space[:size] = came[:size]
        reading.filled(size)
        came = came[size:]


def read(known: KnownNodes, sent: bytes, *, step: int = 1 << 20) -> Body | None:
    """Read a body that comes in pieces; None where it is left to a decoder, which is to get every byte of it."""
    reading = Reading(known, len(sent))
    for at in range(0, len(sent), step):
        put(reading, sent[at : at + step])
    found = reading.end()
    assert (found.whole() if isinstance(found, Body) else found) == sent
    return found if isinstance(found, Body) else None


def asked(sent: bytes | Body) -> tuple[bytes, list[bytes] | None, Any] | str:
    """Return what a body asks: the Pod, the nodes and the names; or that it asks nothing."""
    try:
        args = decode_args(sent)
    except WireError:
        return "refused"
    return bytes(args.pod), args.nodes.at() if args.nodes is not None else None, args.node_names


def in_order(value: Any, arranged: Callable[[Iterable[tuple[str, Any]]], Iterable[tuple[str, Any]]]) -> Any:
    """Return the same value with the members of each object in another order."""
    if isinstance(value, dict):
        return {name: in_order(member, arranged) for name, member in arranged(value.items())}
    return [in_order(each, arranged) for each in value] if isinstance(value, list) else value


SPELLINGS: tuple[dict[str, Any], ...] = ({"separators": (",", ":")}, {}, {"indent": 2}, {"separators": (" ,", ": ")})


class TestKnownNodes:
    def test_the_pod_and_the_nodes_are_the_bytes_that_were_sent(self) -> None:
        nodes = [node("a"), node("b", spec={"text": '",{"metadata":{"name":"'}), node("c")]
        for _ in range(2):
            found = read(KnownNodes(), body(*nodes))
            assert found is not None
            assert asked(found) == (encoded(POD), nodes, None)
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

    def test_nodes_are_recognised_wherever_the_one_before_had_its_uid(self) -> None:
        uid, other = "0" * 35 + "1", "0" * 35 + "2"
        short = encoded({"metadata": {"name": "a", "uid": uid, "v": 1}})
        # Where the short one has its UID, this one's name has the same text.
        long = encoded({"metadata": {"name": "0123456789" + uid, "uid": other}})
        assert short.find(uid.encode()) == long.find(uid.encode())
        newer = encoded({"metadata": {"name": "a", "uid": uid, "v": 2}})
        known = KnownNodes()
        for order in ([short, long], [short, long, short, newer, long, long, short], [long, newer, newer, short, long]):
            found = read(known, body(*order))
            assert found is not None
            assert found.nodes.at() == order
        reading = Reading(known, 1)
        assert {uid.encode(), other.encode()} <= reading._texts.number_under.keys()
        assert ("0123456789" + uid).encode() not in reading._texts.number_under

    @pytest.mark.parametrize("between", [b",", b" ,", b", ", b"\n,\n"])
    def test_whatever_stands_between_nodes_has_to_stand_between_all(self, between: bytes) -> None:
        known, nodes = KnownNodes(), [node(f"n{number}") for number in range(1000)]
        sent = body(between.join(nodes))
        for step in (100_000, 100_000, 45, 1_000, 10_000):
            found = read(known, sent, step=step)
            assert found is not None
            assert found.nodes.at() == nodes
        for another in {b",", b" ,", b", "} - {between}:
            mixed = body(between.join(nodes[:2]) + another + between.join(nodes[2:]))
            assert read(known, mixed) is None
            assert asked(mixed) == (encoded(POD), nodes, None)

    def test_what_stands_in_the_memory_behind_what_has_come_counts_for_nothing(self) -> None:
        nodes = [node(f"n{number}") for number in range(1000)]
        known, sent = KnownNodes(), body(*nodes)
        assert read(known, sent) is not None
        reading = Reading(known, 1 << 20)
        at = sent.rindex(b"]")
        with reading.space() as space:
            space[: at + 1] = sent[:at] + b","
        reading.filled(at)
        with reading.space() as space:
            space[: len(sent) - at] = sent[at:]
        reading.filled(len(sent) - at)
        found = reading.end()
        assert isinstance(found, Body)
        assert (found.whole(), found.nodes.at()) == (sent, nodes)

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
            pytest.param(body(node("a") + b" ", node("b"), node("c")), id="white space here and not there"),
            pytest.param(body(node("a")[:-1]), id="a node cut off"),
            pytest.param(body(node("a"))[:-21], id="cut off behind a node"),
            pytest.param(body(node("a")).replace(b'"Nodes":{"m', b'"nodes":{"m'), id="another spelling"),
            pytest.param(body(b"[" * 100_000), id="deep nesting"),
            pytest.param(body(b'{"a":' * 100_000), id="deep nesting of objects"),
        ],
    )
    def test_the_rest_is_left_to_a_decoder(self, sent: bytes) -> None:
        known = KnownNodes()
        read(known, body(node("a"), node("b")))
        assert read(known, sent) is None

    @pytest.mark.parametrize(
        "sent",
        [
            pytest.param(body(node("a"), pod=b"{"), id="a Pod cut off"),
            pytest.param(body(node("a"), pod=b'{},"NodeNames":["x"]'), id="names before"),
            pytest.param(body(node("a")).replace(b"null}", b'["x"]}'), id="names as well"),
            pytest.param(b"[" + body(node("a")), id="inside a list"),
            pytest.param(b'{"Pod":{"a":{' + body(node("a"))[1:], id="inside the Pod"),
            pytest.param(b'{"Pod":' + body(node("a")) + b"}", id="the Pod is a body"),
            pytest.param(body(node("a"), pod=body(node("b"))), id="a Pod that is a body stands before"),
            pytest.param(body(node("a"))[:-1] + b',"Nodes":{"items":[{}]}}', id="nodes twice"),
            pytest.param(body(node("a"))[:-1] + b',"nodes":null}', id="nodes taken back in another spelling"),
            pytest.param(body(node("a")).replace(b'"items":[{"m', b'"items":[],"items":[{"m'), id="items twice"),
            pytest.param(body(node("a")).replace(b']},"NodeN', b'],"items":[{}]},"NodeN'), id="items again"),
            pytest.param(body(node("a")) + b"x", id="more behind"),
            pytest.param(
                body(node("a")).replace(b':{},"items"', b':{"x":{"items":[]}},"items"'), id="items in metadata"
            ),
        ],
    )
    def test_what_is_around_the_nodes_is_read_by_a_decoder(self, sent: bytes) -> None:
        found = read(KnownNodes(), sent)
        assert asked(sent if found is None else found) == asked(sent)

    @pytest.mark.parametrize("step", [1 << 20, 700])
    def test_a_node_is_recognised_however_deeply_its_managed_fields_are_nested(self, step: int) -> None:
        fields = b'{"f:a":' * MOST_LEVELS + b"{}" + b"}" * MOST_LEVELS
        deep = b'{"metadata":{"uid":"uid-b","managedFields":[{"fieldsV1":' + fields + b"}]}}"
        known = KnownNodes()
        for _ in range(2):
            found = read(known, body(node("a"), deep, node("c")), step=step)
            assert found is not None
            assert found.nodes.at() == [node("a"), deep, node("c")]

    def test_a_large_object_is_not_scanned_again_with_each_byte(self, monkeypatch: pytest.MonkeyPatch) -> None:
        scanned: list[int] = []
        check = node_bytes._check

        def counted(text: memoryview) -> object:
            scanned.append(len(text))
            return check(text)

        monkeypatch.setattr(node_bytes, "_check", counted)
        large = node("a", spec={"x": "y" * 100_000})
        assert read(KnownNodes(), body(large), step=50) is not None
        assert sum(scanned) < 5 * len(large)

    @settings(max_examples=200)
    @given(st.data())
    def test_whatever_the_order_of_members_it_asks_what_a_decoder_says(self, data: st.DataObject) -> None:
        """Members come in any order at each level, twice at times, with any white space; nodes change between bodies."""
        known, spelling = KnownNodes(), data.draw(st.sampled_from(SPELLINGS))
        order = data.draw(st.randoms(use_true_random=False))

        def arranged(items: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
            listed = list(items)
            order.shuffle(listed)
            return listed

        for turn in range(3):
            nodes = [json.loads(node(name, spec={"turn": turn * place})) for place, name in enumerate("abc")]
            order.shuffle(nodes)
            listed = {"items": nodes, "metadata": {}, **data.draw(st.sampled_from([{}, {"kind": "NodeList"}]))}
            more: dict[str, Any] = data.draw(st.sampled_from([{}, {"nodes": None}, {"Other": {"items": [{}]}}]))
            names = data.draw(st.sampled_from([None, ["x"]]))
            sent = json.dumps(in_order({"Pod": POD, "Nodes": listed, "NodeNames": names, **more}, arranged), **spelling)
            again = data.draw(st.sampled_from(["", ',"Nodes":null', ',"Nodes":{"items":[]}', ',"Pod":{}']))
            whole = (sent[:-1] + again + "}").encode()
            found = read(known, whole, step=data.draw(st.sampled_from([11, 500, 100_000])))
            assert asked(whole if found is None else found) == asked(whole)

    @pytest.mark.parametrize("order", ["sorted", "reversed", "as Go has it"])
    @pytest.mark.parametrize("spelling", SPELLINGS)
    def test_nodes_are_recognised_in_other_spellings_too(self, order: str, spelling: dict[str, Any]) -> None:
        known = KnownNodes()
        common = {"labels": {"x": "y"}, "annotations": {"name": "same"}}
        nodes = [{"metadata": common | {"name": name, "uid": f"uid-{name}"}, "spec": {}} for name in "abcde"]
        value = {"Pod": POD, "Nodes": {"metadata": {}, "items": nodes}, "NodeNames": None}
        arranged: Any = {"sorted": sorted, "reversed": lambda items: list(items)[::-1]}.get(order, list)
        found = []
        for _ in range(2):
            found.append(read(known, json.dumps(in_order(value, arranged), **spelling).encode(), step=300))
            nodes.reverse()
        first, again = found
        assert first is not None
        assert again is not None
        assert again.nodes.numbers.tolist() == first.nodes.numbers.tolist()[::-1]
        assert len(known.texts().all) == len(nodes)

    def test_nodes_that_nobody_recognised_keep_their_numbers_too(self) -> None:
        sent = body(node("a"), node("b")).replace(b'"Nodes":{"m', b'"nodes":{"m')
        first, again = decode_args(sent).nodes, decode_args(sent).nodes
        assert first is not None
        assert again is not None
        assert first.at() == [node("a"), node("b")]
        assert again.numbers.tolist() == first.numbers.tolist()

    @settings(max_examples=300)
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
        assert asked(bytes(whole) if found is None else found) == asked(bytes(whole))


def test_no_more_nodes_are_noted_than_a_cluster_has_however_the_body_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes some bytes of the body, and more in memory."""
    monkeypatch.setattr(node_bytes, "MAX_NODES", 100)
    reading = node_bytes.Reading(node_bytes.KnownNodes(), 1 << 20)
    pieces = [
        b'{"Pod":{},"Nodes":{"metadata":{},"items":[',
        b"{}," * 15_000 + b"{",
        *[b"}," + b"{}," * 15_000 + b"{"] * 20,
    ]
    for piece in pieces:
        put(reading, piece)
    assert 100 < len(reading._numbers) < 60_000
