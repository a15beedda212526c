"""What comes a second time: read by its bytes, it is what the decoder would have read."""

import json

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.objects.node import Node
from policies.engine.objects.snapshot import Snapshot
from scheduler.decisions.record import rows_of
from scheduler.extender.request.node_names import ByName, RecentPods
from scheduler.extender.request.wire import WireError, decode_args
from tests.builders import make_node, make_pod

NAMES = ["n1", "n2", "n3"]
TABLE = Snapshot.of([Node.from_json(make_node(name)) for name in NAMES]).table


def a_body(names: list[str]) -> bytes:
    """Return a body as kube-scheduler writes it."""
    sent = {"Pod": make_pod("p"), "Nodes": None, "NodeNames": names}
    return json.dumps(sent, separators=(",", ":"), ensure_ascii=False).encode()


@st.composite
def lists(draw: st.DrawFn) -> list[str]:
    return draw(st.lists(st.sampled_from(NAMES) | st.text(max_size=3), max_size=5))


@given(st.lists(st.tuples(lists(), st.lists(st.booleans(), min_size=5, max_size=5)), max_size=12))
def test_whatever_was_asked_and_answered_before_a_body_reads_as_the_decoder_reads_it(
    calls: list[tuple[list[str], list[bool]]],
) -> None:
    by_name = ByName()
    for names, passed in calls:
        body = a_body(names)
        asked = by_name.read(body, TABLE)
        assert (asked is not None) == (bool(names) and set(names) <= set(NAMES))
        if asked is None:
            continue
        decoded = decode_args(body)
        assert (bytes(asked.args.pod), asked.args.nodes) == (bytes(decoded.pod), None)
        assert list(asked.args.node_names or ()) == decoded.node_names == names
        assert asked.names.rows.tolist() == rows_of(TABLE, names).tolist()

        mask = np.array(passed[: len(names)])
        answered = [name for name, has_passed in zip(names, passed, strict=False) if has_passed]
        assert json.loads(b"".join(by_name.answer(asked.names, mask))) == answered
        if not answered:
            continue
        again = by_name.read(a_body(answered), TABLE)
        assert again is not None
        assert list(again.args.node_names or ()) == answered
        assert again.names.rows.tolist() == rows_of(TABLE, answered).tolist()
        assert json.loads(b"".join(by_name.answer(again.names, None))) == answered


def test_with_other_nodes_names_are_looked_up_again() -> None:
    by_name = ByName()
    asked = by_name.read(a_body(NAMES), TABLE)
    assert asked is not None
    by_name.answer(asked.names, None)
    other = Snapshot.of([Node.from_json(make_node(name)) for name in ("n0", *NAMES)]).table
    found = by_name.read(a_body(NAMES), other)
    assert found is not None
    assert found.names.rows.tolist() == [1, 2, 3]


def test_with_fewer_nodes_names_that_were_answered_are_left_to_the_decoder() -> None:
    by_name = ByName()
    asked = by_name.read(a_body(NAMES), TABLE)
    assert asked is not None
    by_name.answer(asked.names, None)
    fewer = Snapshot.of([Node.from_json(make_node("n1"))]).table
    assert by_name.read(a_body(NAMES), fewer) is None


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"Pod":{},"Nodes":{"items":[]},"NodeNames":["n1","n2","n3"]}', id="nodes beside the names"),
        pytest.param(b'{"Pod":{},"NodeNames":["n1","n2","n3"]}', id="without a word on nodes"),
        pytest.param(b'{"Pod":null,"Nodes":null,"NodeNames":["n1","n2","n3"]}', id="no Pod"),
        pytest.param(b'{"Pod":{"a":{"Nodes":null,"NodeNames":["n1","n2","n3"]}', id="the names inside the Pod"),
        pytest.param(b'{"Pod":{},"Nodes":null,"NodeNames":[],"NodeNames":["n1","n2","n3"]}', id="two lists"),
        pytest.param(b',"NodeNames":["n1","n2","n3"]}', id="nothing before the names"),
        pytest.param(b'{"Pod":"\xff","Nodes":null,"NodeNames":["n1","n2","n3"]', id="cut off"),
        pytest.param(b'{"Pod":{},"Nodes":null,"NodeNames":["n1", "n2","n3"]}', id="spaces"),
        pytest.param(b'{"Pod":{},"Nodes":null,"NodeNames":["n1","n\\u0032","n3"]}', id="an escape"),
        pytest.param(b'{"Pod":{},"Nodes":null,"NodeNames":["n1"],"More":["n2"]}', id="another list behind the names"),
    ],
)
def test_a_body_of_another_form_is_left_to_the_decoder(body: bytes, answered: bool) -> None:
    by_name = ByName()
    if answered:
        asked = by_name.read(a_body(NAMES), TABLE)
        assert asked is not None
        by_name.answer(asked.names, None)
    assert by_name.read(body, TABLE) is None


def test_a_pod_is_read_however_deeply_its_managed_fields_are_nested() -> None:
    deep = b"[" * 9_000 + b"]" * 9_000
    body = a_body(["n1"]).replace(b'"metadata":{', b'"metadata":{"managedFields":%b,' % deep)
    asked = ByName().read(body, TABLE)
    assert asked is not None
    assert RecentPods().read(asked.args.pod).name == "p"


def test_a_pod_is_read_once_and_again_when_it_has_changed() -> None:
    pods = RecentPods()
    first, again = (pods.read(msgspec.Raw(json.dumps(make_pod("p")).encode())) for _ in range(2))
    changed = pods.read(msgspec.Raw(json.dumps(make_pod("p", labels={"app": "new"})).encode()))
    assert again is first
    assert changed.labels == {"app": "new"}


def test_a_pod_that_can_not_be_read_is_refused_each_time() -> None:
    pods = RecentPods()
    for _ in range(2):
        with pytest.raises(WireError):
            pods.read(msgspec.Raw(b'{"metadata":[]}'))


def test_only_so_many_pods_are_kept() -> None:
    pods = RecentPods()
    for number in range(500):
        pods.read(msgspec.Raw(json.dumps(make_pod(f"p{number}")).encode()))
    assert len(pods._pods) == 64


def test_a_pod_that_is_larger_than_pods_are_is_not_kept() -> None:
    pods = RecentPods()
    large = json.dumps(make_pod("p", labels={"app": "x" * 100_000})).encode()
    assert pods.read(msgspec.Raw(large)).name == "p"
    assert not pods._pods


def test_more_names_than_there_are_nodes_are_answered_and_not_kept() -> None:
    by_name = ByName()
    names = NAMES * 2
    asked = by_name.read(a_body(names), TABLE)
    assert asked is not None
    assert json.loads(b"".join(by_name.answer(asked.names, None))) == names
    assert not by_name._answered
