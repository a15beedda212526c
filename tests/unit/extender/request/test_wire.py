"""The extender's JSON: what kube-scheduler may send, and what it is safe to answer."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.extender.request.wire import (
    ExtenderArgs,
    WireError,
    decode_args,
    decode_json,
    decode_preemption,
    encode_error,
    encode_filter_result,
    encode_names,
    encode_priorities,
    receive,
)
from tests.builders import make_node, make_pod
from tests.nesting import DEEP

POD = make_pod()
# As anybody who may write Pods can nest them.
DEEP_POD = b'{"metadata":{"uid":"u","managedFields":[{"fieldsV1":%b{}%b}]}}' % (b'{"f:a":' * 9_000, b"}" * 9_000)
SECRET = "not-for-the-log"


def body(**members: Any) -> bytes:
    return json.dumps(members).encode()


def items_of(args: ExtenderArgs) -> list[bytes] | None:
    return None if args.nodes is None else args.nodes.at()


class TestDecodeArgs:
    def test_names_come_as_they_were_sent(self) -> None:
        args = decode_args(body(Pod=POD, Nodes=None, NodeNames=["n1", "n2", "n1"]))
        assert (args.nodes, args.node_names) == (None, ["n1", "n2", "n1"])
        assert json.loads(bytes(args.pod)) == POD

    def test_nodes_stay_the_bytes_that_were_sent(self) -> None:
        nodes = [b'{ "metadata" : {"name":"n1"}, "x":1.50, "y":"\\u00e9" }', b'{"metadata":{"name":"n2"}}']
        sent = b'{"Pod":{},"Nodes":{"metadata":{},"items":[' + b" , ".join(nodes) + b' ]},"NodeNames":null}'
        assert items_of(decode_args(sent)) == nodes

    @pytest.mark.parametrize("nodes", [b'"NodeNames":["n1"]', b'"Nodes":{"items":[{}]}', b'"nodes":{"items":[{}]}'])
    def test_a_pod_is_read_however_deeply_its_managed_fields_are_nested(self, nodes: bytes) -> None:
        args = decode_args(receive(b'{"Pod":' + DEEP_POD + b"," + nodes + b"}"))
        assert decode_json(args.pod)["metadata"]["uid"] == "u"
        assert len(args.nodes or args.node_names or ()) == 1

    @pytest.mark.parametrize("spelling", ["NodeNames", "nodenames", "NODENAMES", "nodeNames", "nOdEnAmEs"])
    @pytest.mark.parametrize("pod", ["Pod", "pod", "POD"])
    def test_members_match_whatever_their_case(self, spelling: str, pod: str) -> None:
        args = decode_args(body(**{pod: POD, spelling: ["n1"]}))
        assert args.node_names == ["n1"]

    @pytest.mark.parametrize("spelling", ["Nodes", "nodes", "NODES"])
    @pytest.mark.parametrize("items", ["items", "Items", "ITEMS"])
    def test_node_lists_match_whatever_their_case(self, spelling: str, items: str) -> None:
        args = decode_args(body(**{"pod": POD, spelling: {items: [make_node()]}}))
        assert args.nodes is not None
        assert [json.loads(bytes(item)) for item in args.nodes.at()] == [make_node()]

    @pytest.mark.parametrize(
        ("members", "nodes", "names"),
        [
            pytest.param({}, None, None, id="neither"),
            pytest.param({"Nodes": None, "NodeNames": None}, None, None, id="both null"),
            pytest.param({"NodeNames": []}, None, [], id="no names"),
            pytest.param({"Nodes": {}}, [], None, id="a list without items"),
            pytest.param({"Nodes": {"items": None}}, [], None, id="null items"),
            pytest.param({"Nodes": {"items": []}, "NodeNames": []}, [], [], id="both empty"),
            pytest.param({"Unknown": [1], "node_names": ["n1"]}, None, None, id="members that Go doesn't know"),
        ],
    )
    def test_what_is_missing_or_null_is_none(
        self, members: dict[str, Any], nodes: list[bytes] | None, names: list[str] | None
    ) -> None:
        args = decode_args(body(Pod=POD, **members))
        assert (items_of(args), args.node_names) == (nodes, names)

    def test_white_space_around_null_changes_nothing(self) -> None:
        args = decode_args(b' { "Pod" : {} , "Nodes" : null , "NodeNames" : [ "n1" ] } ')
        assert (args.nodes, args.node_names) == (None, ["n1"])

    @pytest.mark.parametrize(
        ("sent", "names"),
        [
            pytest.param(b'{"Pod":{},"NodeNames":["a"],"NodeNames":["b"]}', ["b"], id="the same member"),
            pytest.param(b'{"pod":{},"nodenames":["a"],"NODENAMES":["b"]}', ["b"], id="other spellings"),
            pytest.param(b'{"Pod":{},"NodeNames":["a"],"NodeNames":null}', None, id="null at last"),
        ],
    )
    def test_of_duplicate_members_the_last_counts_as_in_go(self, sent: bytes, names: list[str] | None) -> None:
        assert decode_args(sent).node_names == names

    @pytest.mark.parametrize(
        ("sent", "message"),
        [
            pytest.param(b"", "is empty", id="empty"),
            pytest.param(b" \n", "is empty", id="white space"),
            pytest.param(b"null", "is not an ExtenderArgs object", id="null"),
            pytest.param(b"[]", "is not an ExtenderArgs object", id="a list"),
            pytest.param(b"Pod=1", "is not an ExtenderArgs object", id="a form"),
            pytest.param(b"{}", "has no Pod", id="nothing in it"),
            pytest.param(b'{"Pod":null,"NodeNames":["a"]}', "has no Pod", id="a null Pod"),
            pytest.param(b'{"Pod":{}} x', "is not an ExtenderArgs object", id="more behind it"),
            pytest.param(b'{"Pod":{},"NodeNames":"a"}', "NodeNames is not a list of names", id="one name"),
            pytest.param(b'{"Pod":{},"NodeNames":[1]}', "NodeNames is not a list of names", id="a number as name"),
            pytest.param(b'{"Pod":{},"NodeNames":[null]}', "NodeNames is not a list of names", id="null as name"),
            pytest.param(b'{"Pod":{},"NodeNames":["\xff"]}', "NodeNames is not a list of names", id="no UTF-8"),
            pytest.param(b'{"Pod":{},"NodeNames":["\\ud800"]}', "is not an ExtenderArgs object", id="half a character"),
            pytest.param(b'{"Pod":{},"Nodes":[]}', "Nodes is not a NodeList", id="a plain list"),
            pytest.param(b'{"Pod":{},"Nodes":{"items":{}}}', "Nodes is not a NodeList", id="an object of items"),
            pytest.param(b'{"Pod":{},"Nodes":{"\xff":[]}}', "Nodes is not a NodeList", id="no UTF-8 in a name"),
            pytest.param(b'{"Pod":{},"Nodes":{"items":[null]}}', "Nodes.items has a null in it", id="a null node"),
            pytest.param(b'{"\xff":1}', "is not an ExtenderArgs object", id="no UTF-8 in a member's name"),
            pytest.param(b"[" * DEEP, "is not an ExtenderArgs object", id="deep nesting"),
            pytest.param(b'{"Pod":' * DEEP, "is not an ExtenderArgs object", id="deep nesting of objects"),
        ],
    )
    def test_other_bodies_are_refused_in_words(self, sent: bytes, message: str) -> None:
        with pytest.raises(WireError, match=message):
            decode_args(sent)

    @pytest.mark.parametrize(
        "whole",
        [
            body(Pod={"metadata": {"name": SECRET}}, Nodes=None, NodeNames=[SECRET, "é"]),
            body(Pod={"metadata": {"name": SECRET}}, Nodes={"items": [{"metadata": {"name": SECRET}}]}),
        ],
    )
    def test_a_body_cut_off_anywhere_is_refused_without_quoting_it(self, whole: bytes) -> None:
        for end in range(len(whole)):
            with pytest.raises(WireError) as caught:
                decode_args(whole[:end])
            assert SECRET not in str(caught.value)

    @settings(max_examples=300)
    @given(st.data())
    def test_a_damaged_body_is_read_or_refused(self, data: st.DataObject) -> None:
        whole = bytearray(body(Pod=POD, Nodes={"items": [make_node()]}, NodeNames=["n1"]))
        for _ in range(data.draw(st.integers(1, 3))):
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
        try:
            args = decode_args(bytes(whole))
            decode_json(args.pod)
        except WireError:
            return
        assert args.node_names is None or all(isinstance(name, str) for name in args.node_names)

    @settings(max_examples=200)
    @given(st.binary())
    def test_any_bytes_are_read_or_refused(self, sent: bytes) -> None:
        try:
            decode_args(sent)
        except WireError as error:
            message = str(error)
            assert message.isprintable()


class TestDecodePreemption:
    def test_victims_are_read_however_deeply_their_managed_fields_are_nested(self) -> None:
        (candidate,) = decode_preemption(
            b'{"Pod":%b,"NodeNameToVictims":{"n1":{"Pods":[%b]}}}' % (DEEP_POD, DEEP_POD)
        ).candidates
        (victim,) = candidate.victims
        assert (victim.uid, decode_json(victim.json.encode())["metadata"]["uid"]) == ("u", "u")

    @pytest.mark.parametrize("number", ["9223372036854775807", "-9223372036854775808", "0", "null"])
    def test_violations_are_whole_numbers_of_64_bits(self, number: str) -> None:
        sent = f'{{"Pod":{{}},"NodeNameToMetaVictims":{{"n1":{{"Pods":[],"NumPDBViolations":{number}}}}}}}'.encode()
        (candidate,) = decode_preemption(sent).candidates
        assert candidate.pdb_violations == (json.loads(number) or 0)

    @pytest.mark.parametrize("number", ["9223372036854775808", "-9223372036854775809", "9" * 400, "1.5", "true"])
    @pytest.mark.parametrize("member", ["NodeNameToVictims", "NodeNameToMetaVictims"])
    def test_others_are_refused_in_words(self, member: str, number: str) -> None:
        sent = f'{{"Pod":{{}},"{member}":{{"n1":{{"Pods":[],"NumPDBViolations":{number}}}}}}}'.encode()
        with pytest.raises(WireError, match=f"{member} is not a map of victims"):
            decode_preemption(sent)


class TestDecodeJSON:
    def test_gives_what_stands_there(self) -> None:
        assert decode_json(msgspec.Raw(b'{"a":[1,null,"x"]}')) == {"a": [1, None, "x"]}

    @pytest.mark.parametrize(
        "raw",
        [b"{", b'"\xff"', b'{"a":"' + SECRET.encode() + b'\xff"}', b"[" * DEEP],
        ids=["cut", "utf", "quote", "deep"],
    )
    def test_refuses_the_rest_without_quoting_it(self, raw: bytes) -> None:
        with pytest.raises(WireError, match="the body is not JSON") as caught:
            decode_json(msgspec.Raw(raw))
        assert SECRET not in str(caught.value)


def no_null(value: Any) -> bool:
    if isinstance(value, dict):
        return all(no_null(member) for member in value.values())
    if isinstance(value, list):
        return all(no_null(member) for member in value)
    return value is not None


class TestEncode:
    @pytest.mark.parametrize("names", [[], ["n1", "é<>&"]])
    def test_names_are_always_a_list(self, names: list[str]) -> None:
        sent = b"".join(
            encode_filter_result(nodes=None, names=encode_names(names), failed={"a": "x"}, unresolvable={"b": ""})
        )
        found = json.loads(sent)
        assert found == {
            "NodeNames": names,
            "FailedNodes": {"a": "x"},
            "FailedAndUnresolvableNodes": {"b": ""},
            "Error": "",
        }
        assert no_null(found)

    @pytest.mark.parametrize("nodes", [[], [b'{ "metadata":{"name":"n1"},"x":1.50 }', b"{}"]])
    def test_nodes_go_back_as_the_bytes_that_came(self, nodes: list[bytes]) -> None:
        sent = b"".join(encode_filter_result(nodes=nodes, names=[], failed={"n2": "é"}, unresolvable={}))
        assert sent.startswith(b'{"Nodes":{"items":[' + b",".join(nodes) + b"]}")
        assert json.loads(sent)["FailedNodes"] == {"n2": "é"}
        assert b"NodeNames" not in sent
        assert no_null(json.loads(sent))

    def test_what_was_read_is_what_is_written(self) -> None:
        nodes = [make_node("n1"), make_node("n2")]
        args = decode_args(body(Pod=POD, Nodes={"items": nodes}))
        sent = b"".join(encode_filter_result(nodes=args.nodes.at(), names=[], failed={}, unresolvable={}))
        assert json.loads(sent)["Nodes"]["items"] == nodes

    def test_an_error_stands_alone(self) -> None:
        assert encode_error("not ready") == b'{"Error":"not ready"}'

    @given(st.lists(st.tuples(st.text(), st.integers(0, 10))))
    def test_priorities_are_whole_numbers_beside_names(self, points: list[tuple[str, int]]) -> None:
        found = json.loads(encode_priorities([name for name, _ in points], [number for _, number in points]))
        assert [(entry["Host"], entry["Score"]) for entry in found] == points
        assert all(type(entry["Score"]) is int and set(entry) == {"Host", "Score"} for entry in found)

    def test_no_priorities_are_an_empty_list(self) -> None:
        assert encode_priorities([], []) == b"[]"
