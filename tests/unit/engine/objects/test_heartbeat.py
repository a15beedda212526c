"""Versions of a Node between which nothing but a kubelet's heartbeat lies."""

import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.decision import CompiledRuleSet, decide
from policies.engine.errors import ObjectError
from policies.engine.objects.heartbeat import Heartbeat
from policies.engine.objects.lineage import names_between
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.ruleset import FilterRule, RuleSet, RuleSetSpec
from tests.builders import make_node, make_pod
from tests.unit.engine.objects.asking import NOW, Cycle

PATHS = (
    ("metadata", "labels", "team"),
    ("metadata", "resourceVersion"),
    ("status", "conditions"),
    ("status", "allocatable"),
    (),
)


def body(*, version: str = "100", beat: str = "2026-01-01T00:00:00Z", **more: Any) -> dict[str, Any]:
    node = make_node(labels={"team": "web"}) | more
    node["metadata"] = {"annotations": {"note": "x"}} | node["metadata"] | {"resourceVersion": version}
    node["status"]["images"] = [{"names": ["nginx:1"], "sizeBytes": 10**8}]
    node["status"]["conditions"] = [
        {"type": kind, "status": "True", "lastHeartbeatTime": beat, "lastTransitionTime": "2025-01-01T00:00:00Z"}
        for kind in ("Ready", "MemoryPressure")
    ]
    return node


def text(**of: Any) -> bytes:
    return msgspec.json.encode(body(**of))


def read(node: Node) -> list[Any]:
    """Read all that there is to be read of a Node."""
    told = [node.parsed, node.name, node.labels, node.allocatable.amounts, dict(node.images), node.json, node.text]
    return [*told, *map(node.trace, PATHS)]


def test_a_heartbeat_leaves_what_was_read() -> None:
    old = Node.from_text(text())
    read(old)
    new = old.after_heartbeat(text(version="107", beat="2026-01-01T00:05:00Z"))
    assert new is not None
    assert new.content is old.content
    assert new.images is old.images
    assert read(new) == read(Node.from_text(new.text))
    assert new.metadata.resource_version == "107"
    assert old.metadata.resource_version == "100"


def test_each_heartbeat_follows_the_one_before() -> None:
    node: Node | None = Node.from_text(text())
    for minute in range(1, 6):
        assert node is not None
        beat = text(version=f"10{minute}", beat=f"2026-01-01T00:0{minute}:00Z")
        node = node.after_heartbeat(beat)
        assert node is not None
        assert read(node) == read(Node.from_text(beat))


def test_versions_may_have_another_number_of_digits() -> None:
    node: Node | None = Node.from_text(text(version="9"))
    for minute, version in enumerate(["10", "1000000001", "1000000002", "7", ""]):
        assert node is not None
        content = node.content
        beat = text(version=version, beat=f"2026-01-01T00:0{minute}:00Z")
        node = node.after_heartbeat(beat)
        assert node is not None
        assert node.content is content
        assert read(node) == read(Node.from_text(beat))


@pytest.mark.parametrize(
    "other",
    [
        body(version="1000", beat="2026-01-01T00:00:00.5Z"),
        body(version="101", beat="2026-01-01T00:00:00.5Z"),
        body(version="1000", spec={"unschedulable": True}),
        body(version="1", beat="2026-01-01T00:00:0000Z"),
        body(version="101", spec={"unschedulable": True}),
        {**body(version="101"), "metadata": {**body(version="101")["metadata"], "name": "n2"}},
        {**body(version="101"), "metadata": {**body(version="101")["metadata"], "annotations": {"note": "y"}}},
        body(version='1"1'),
        body(version="a01"),
    ],
    ids=[
        "times of another length",
        "times alone of another length",
        "a digit more and cordoned",
        "what one lost the other has",
        "cordoned",
        "another node",
        "another annotation",
        "a quote",
        "a letter",
    ],
)
def test_what_differs_in_more_is_read_anew(other: dict[str, Any]) -> None:
    assert Node.from_text(text()).after_heartbeat(msgspec.json.encode(other)) is None


@pytest.mark.parametrize("name", ["resourceVersion", "lastHeartbeatTime"])
@pytest.mark.parametrize("member", ["labels", "annotations"])
def test_a_key_of_the_same_name_is_no_heartbeat(member: str, name: str) -> None:
    one, other = body(), body()
    one["metadata"][member] = {name: "100"}
    other["metadata"][member] = {name: "101"}
    assert Node.from_text(msgspec.json.encode(one)).after_heartbeat(msgspec.json.encode(other)) is None


def test_a_key_that_ends_so_is_no_heartbeat() -> None:
    """Kubernetes has no such keys; who calls the extender may."""
    one, other = body(), body()
    one["metadata"]["labels"] = {'x"lastHeartbeatTime': "100"}
    other["metadata"]["labels"] = {'x"lastHeartbeatTime': "101"}
    assert Node.from_text(msgspec.json.encode(one)).after_heartbeat(msgspec.json.encode(other)) is None


def test_another_version_within_is_no_heartbeat() -> None:
    one, other = (
        body(version=version, spec={"configSource": {"configMap": {"resourceVersion": "5"}}})
        for version in ("100", "101")
    )
    assert Node.from_text(msgspec.json.encode(one)).after_heartbeat(msgspec.json.encode(other)) is None


def test_other_spellings_are_read_anew() -> None:
    spaced = [msgspec.json.format(text(version=version)) for version in ("100", "101")]
    assert Node.from_text(spaced[0]).after_heartbeat(spaced[1]) is None
    assert Node.from_json(body()).after_heartbeat(text(version="101")) is None
    assert Heartbeat.of(b"{}", "") is None


@given(st.data())
def test_what_is_taken_for_a_heartbeat_reads_as_it_would_anew(data: st.DataObject) -> None:
    old = Node.from_text(text())
    read(old)
    changed = bytearray(old.text)
    places = [match.span() for match in re.finditer(rb'"[a-zA-Z]+":"[^"]*"', old.text)]
    for _ in range(data.draw(st.integers(1, 4))):
        start, stop = data.draw(st.sampled_from(places))
        at = data.draw(st.integers(start, stop - 1))
        # One character becomes another one, or two, or goes.
        changed[at : at + 1] = data.draw(st.lists(st.sampled_from(b'0123456789TZ:.+-"\\,}x'), max_size=2))
    new = old.after_heartbeat(bytes(changed))
    try:
        anew = Node.from_text(bytes(changed))
    except (ObjectError, msgspec.DecodeError):
        assert new is None
    else:
        assert new is None or read(new) == read(anew)


@pytest.fixture
def changing_turns() -> Iterator[None]:
    """Threads take turns as often as the interpreter allows."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def ask_labels(info: NodeInfo) -> None:
    for number in range(30):
        info.node.trace(("metadata", "labels", f"l{number}"))


@pytest.mark.usefixtures("changing_turns")
@pytest.mark.parametrize("ask", [ask_labels, lambda info: (info.requested, info.nonzero_requested, info.usage)])
def test_a_version_is_made_while_another_thread_reads_the_one_before(ask: Callable[[NodeInfo], object]) -> None:
    newer = text(version="107")
    with ThreadPoolExecutor(1) as thread:
        for _ in range(1000):
            info = NodeInfo(Node.from_text(text()))
            read(info.node)
            reading = thread.submit(ask, info)
            while not reading.done():
                made = info.node.after_heartbeat(newer)
                assert made is not None
                assert info.with_node(made).node is made
            reading.result()


class TestSharing:
    def test_the_same_read_elsewhere_is_shared(self) -> None:
        one, other = Node.from_text(text()), Node.from_text(text() + b" ")
        shared = other.sharing(one)
        assert (shared.content, shared.parsed) == (one.content, one.parsed)
        assert read(shared) == read(other)
        assert shared.sharing(one) is shared

    def test_what_reads_otherwise_is_its_own(self) -> None:
        one, other = Node.from_text(text()), Node.from_text(text(spec={"unschedulable": True}))
        assert other.sharing(one) is other


class TestNodeInfo:
    def test_other_pods_are_no_heartbeat(self) -> None:
        node = Node.from_text(text())
        beaten = node.after_heartbeat(text(version="101"))
        assert beaten is not None
        pod = Pod.from_json(make_pod())
        before = NodeInfo(node, (pod,))
        assert before.with_node(beaten).is_heartbeat_of(before)
        assert NodeInfo(beaten, [pod]).is_heartbeat_of(before)
        assert not NodeInfo(beaten, (pod, pod)).is_heartbeat_of(before)
        assert not NodeInfo(beaten, (Pod.from_json(make_pod()),)).is_heartbeat_of(before)
        assert not NodeInfo(node, (pod,)).is_heartbeat_of(before)
        assert not NodeInfo(Node.from_text(text()), (pod,)).is_heartbeat_of(before)


def read_version(info: NodeInfo) -> tuple[str, str]:
    return info.node.metadata.resource_version, info.node.metadata.resource_version


class TestColumns:
    """A heartbeat has columns read again that may tell of it, and no other ones."""

    def test_only_what_may_read_a_heartbeat_is_read_again(self) -> None:
        asked: list[str] = []

        def read(info: NodeInfo) -> int:
            asked.append(info.node.metadata.resource_version)
            return 1

        old = Node.from_text(text())
        before = Snapshot.of([old])
        before.table.numbers("asked", read)
        node = old.after_heartbeat(text(version="101"))
        assert node is not None
        after = before.changed({"n1": NodeInfo(node)})
        after.table.numbers("asked", read)
        assert asked == ["100"]
        assert names_between(before.step, after.step, heartbeats=False) == set()
        assert names_between(before.step, after.step) == {"n1"}

    def test_a_branch_is_told_of_heartbeats_that_its_base_has_not_read(self) -> None:
        old = Node.from_text(text())
        first = Snapshot.of([old])
        first.table.coded("version", read_version, heartbeats=True)
        node = old.after_heartbeat(text(version="101"))
        assert node is not None
        live = first.changed({"n1": NodeInfo(node)})
        branch = live.assume_all([(Pod.from_json(make_pod()), "n1")])
        for table in (branch.table, live.table):
            versions = table.coded("version", read_version, heartbeats=True)
            assert [versions.values[code] for code in versions.codes] == ["101"]

    def test_an_expression_reads_the_heartbeat_that_came_last(self) -> None:
        rule = FilterRule(name="version", expression="node.metadata.resourceVersion == '101'", reason="is old")
        rules = CompiledRuleSet(RuleSet(name="r", spec=RuleSetSpec(filters=[rule])))
        old = Node.from_text(text())
        node = old.after_heartbeat(text(version="101"))
        assert node is not None
        snapshot, passed = Snapshot.of([old]), []
        for info in (None, NodeInfo(node)):
            snapshot = snapshot if info is None else snapshot.changed({"n1": info})
            cycle = Cycle(pod=Pod.from_json(make_pod()), snapshot=snapshot, now=NOW)
            passed.append(decide(rules, cycle, snapshot.table.all_rows()).feasible)
        assert passed == [[], ["n1"]]

    def test_images_are_read_apart(self) -> None:
        """A client that leaves images out sends the same version of a Node otherwise."""
        whole = Node.from_text(text())
        bare = body()
        del bare["status"]["images"]
        before = Snapshot.of([whole])
        assert before.table.images().find("nginx:1").rows.tolist() == [0]
        after = before.changed({"n1": NodeInfo(Node.from_text(msgspec.json.encode(bare)).sharing(whole))})
        assert after.step.heartbeats == {"n1"}
        assert after.table.images().find("nginx:1").rows.tolist() == []
