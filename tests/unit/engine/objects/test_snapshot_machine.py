"""Snapshots that follow one another in any way: branches, objects, nodes that come and go, columns asked for now and then.

Whatever came before, each Snapshot answers as one that is made of the same things and never followed anything.
"""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from policies.engine.filters.registry import BUILTIN_FILTERS
from policies.engine.objects import lineage
from policies.engine.objects.cluster_kinds import ATTACHMENTS, CLAIMS, CSI_NODES, STORAGE_CLASSES, TYPES, VOLUMES
from policies.engine.objects.cluster_objects import Change, ClusterObjects
from policies.engine.objects.columns import label, requested, traits
from policies.engine.objects.lineage import names_between
from policies.engine.objects.metadata import convert_object
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from tests.builders import make_node, make_pod
from tests.unit.engine.objects.asking import JSON, NOW, ZONE, Cycle

DRIVER = "csi.example.org"
LIMITS = BUILTIN_FILTERS["MaxVolumeCount"](BUILTIN_FILTERS["MaxVolumeCount"].Arguments())
NODES = st.sampled_from([f"n{number}" for number in range(6)])
NUMBERS = st.integers(0, 3)


def a_node(name: str, look: int) -> Node:
    node = make_node(name, labels={ZONE: f"z{look}"} if look else {}, cpu=str(look + 1))
    node["metadata"]["resourceVersion"] = "10"
    node["status"] |= {
        "images": [{"names": [f"image-{look}:latest"], "sizeBytes": 10**8}],
        "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "10"}],
    }
    return Node.from_text(msgspec.json.encode(node))


def read_heartbeat(info: NodeInfo) -> tuple[str, str]:
    """Read as an expression may."""
    version = info.node.json["status"]["conditions"][0]["lastHeartbeatTime"]
    return version, version


def a_pod(number: int, look: int) -> Pod:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": f"c{look}"}}
    body = make_pod(f"p{number}", uid=f"u{number}", labels={"app": f"a{look}"}, requests={"cpu": f"{look}00m"})
    body["spec"]["volumes"] = [volume]
    return Pod.from_json(body)


def an_object(kind: str, number: int, look: int) -> Any:
    name = {"name": f"n{number}" if kind == CSI_NODES else f"{'c' if kind == CLAIMS else 'v'}{number}"}
    bodies: dict[str, JSON] = {
        CLAIMS: {"metadata": {**name, "namespace": "default"}, "spec": {"volumeName": f"v{look}"}},
        VOLUMES: {"metadata": name, "spec": {"csi": {"driver": DRIVER, "volumeHandle": f"h{look}"}}},
        CSI_NODES: {
            "metadata": name,
            "spec": {"drivers": [{"name": DRIVER, "nodeID": "x", "allocatable": {"count": look}}]},
        },
        ATTACHMENTS: {
            "metadata": {"name": f"a{number}"},
            "spec": {
                "attacher": DRIVER,
                "nodeName": f"n{look}",
                "source": {"persistentVolumeName": f"v{number}"},
            },
        },
        STORAGE_CLASSES: {"metadata": name, "provisioner": DRIVER},
    }
    return convert_object(bodies[kind], TYPES[kind])


def columns(snapshot: Snapshot) -> list[Any]:
    """What rules read of a Snapshot, by the names of the nodes and of the values, so that two can be compared."""
    table = snapshot.table
    zones = label(table, ZONE)
    cycle = Cycle(pod=a_pod(99, 1), snapshot=snapshot, now=NOW)
    limits = LIMITS.filter(cycle, table.all_rows())
    beats = table.coded("heartbeats", read_heartbeat, heartbeats=True)
    return [
        dict(zip(table.names, requested(table, "cpu").tolist(), strict=True)),
        [zones.values[code] for code in zones.codes.tolist()],
        {
            (token.namespace, tuple(token.labels.items())): dict(
                zip((table.names[row] for row in places.rows.tolist()), places.numbers.tolist(), strict=True)
            )
            for group in traits(table).groups()
            for token, places in traits(table).group(group).items()
        },
        [
            {
                table.names[row]: size
                for row, size in zip(*map(list, table.images().find(f"image-{look}:latest")), strict=True)
            }
            for look in range(4)
        ],
        [table.placed().row_of(f"u{number}") for number in range(100)],
        limits.codes.tolist(),
        [beats.values[code] for code in beats.codes.tolist()],
    ]


class Following(RuleBasedStateMachine):
    """A tree of Snapshots. Any of them may be followed by another at any time."""

    snapshots = Bundle("snapshots")

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Snapshot] = []
        self.pods = 0

    def add(self, snapshot: Snapshot) -> Snapshot:
        self.all.append(snapshot)
        return snapshot

    @initialize(target=snapshots)
    def begin(self) -> Snapshot:
        return self.add(Snapshot.of([a_node(f"n{number}", number) for number in range(5)], objects=ClusterObjects()))

    @rule(target=snapshots, before=snapshots, name=NODES, look=NUMBERS)
    def change_a_node(self, before: Snapshot, name: str, look: int) -> Snapshot:
        info = before.node(name)
        return self.add(before.changed({name: NodeInfo(a_node(name, look), info.pods if info else ())}))

    @rule(target=snapshots, before=snapshots, name=NODES, beat=st.integers(11, 99), moved=st.booleans())
    def let_a_node_beat(self, before: Snapshot, name: str, beat: int, *, moved: bool) -> Snapshot:
        info = before.node(name)
        if info is None:
            return before
        text = re.sub(rb'"\d\d"', b'"%d"' % beat, info.node.text)
        node = info.node.after_heartbeat(text)
        assert node is not None
        assert node.content is info.node.content
        self.pods += moved
        pods = [*info.pods, a_pod(self.pods, 1)] if moved else info.pods
        return self.add(before.changed({name: NodeInfo(node, tuple(pods))}))

    @rule(target=snapshots, before=snapshots, name=NODES)
    def take_a_node_away(self, before: Snapshot, name: str) -> Snapshot:
        return self.add(before.changed({name: None}))

    @rule(target=snapshots, before=snapshots, gone=NODES, come=NODES, look=NUMBERS)
    def replace_nodes_at_once(self, before: Snapshot, gone: str, come: str, look: int) -> Snapshot:
        return self.add(before.changed({gone: None} | {come: NodeInfo(a_node(come, look))}))

    @rule(target=snapshots, before=snapshots, name=NODES, look=NUMBERS)
    def place_a_pod(self, before: Snapshot, name: str, look: int) -> Snapshot:
        self.pods += 1
        return self.add(before.assume(a_pod(self.pods, look), name))

    @rule(target=snapshots, before=snapshots, name=NODES, look=NUMBERS)
    def have_a_pod_in_flight(self, before: Snapshot, name: str, look: int) -> Snapshot:
        self.pods += 1
        return self.add(before.assume_all([(a_pod(self.pods, look), name)]))

    @rule(target=snapshots, before=snapshots, name=NODES)
    def remove_the_pods_of_a_node(self, before: Snapshot, name: str) -> Snapshot:
        info = before.node(name)
        return self.add(before.changed({name: NodeInfo(info.node)} if info else {}))

    @rule(
        target=snapshots,
        before=snapshots,
        kind=st.sampled_from([CLAIMS, VOLUMES, CSI_NODES, ATTACHMENTS, STORAGE_CLASSES]),
        number=NUMBERS,
        look=NUMBERS,
        stays=st.booleans(),
    )
    def change_an_object(self, before: Snapshot, kind: str, number: int, look: int, stays: bool) -> Snapshot:
        found = an_object(kind, number, look)
        place = {
            CLAIMS: "claims",
            VOLUMES: "volumes",
            CSI_NODES: "csi_nodes",
            STORAGE_CLASSES: "storage_classes",
        }
        assert before.objects is not None
        old: Any
        if kind == ATTACHMENTS:
            groups = before.objects.attachments.values()
            old = next((group[f"a{number}"] for group in groups if f"a{number}" in group), None)
        else:
            key = ("default", f"c{number}") if kind == CLAIMS else found.metadata.name
            old = getattr(before.objects, place[kind]).get(key)
        change: Change = (old, found if stays else None)
        return self.add(before.changed({}, objects=before.objects.changed({kind: [change]})))

    @rule(target=snapshots, before=snapshots, other=snapshots)
    def take_the_objects_of_another_branch(self, before: Snapshot, other: Snapshot) -> Snapshot:
        return self.add(before.changed({}, objects=other.objects))

    @rule(snapshot=snapshots)
    def ask(self, snapshot: Snapshot) -> None:
        new = Snapshot(snapshot.nodes, snapshot.namespaces, objects=snapshot.objects)
        assert columns(snapshot) == columns(new)

    @rule(one=snapshots, other=snapshots)
    def compare(self, one: Snapshot, other: Snapshot) -> None:
        names = names_between(one.step, other.step)
        if names is not None:
            nodes = one.nodes.keys() | other.nodes.keys()
            assert {name for name in nodes if one.nodes.get(name) is not other.nodes.get(name)} <= names

    @invariant()
    def the_last_one_stands_in_its_own_table(self) -> None:
        if self.all:
            last = self.all[-1]
            assert list(last.nodes) == last.table.names == [info.name for info in last.table.infos]
            assert last.table.row_of == {name: row for row, name in enumerate(last.table.names)}

    def teardown(self) -> None:
        for snapshot in self.all[-5:]:
            self.ask(snapshot)


class TestFollowing(Following.TestCase):  # type: ignore[misc, name-defined] # hypothesis makes it
    settings = settings(max_examples=40, stateful_step_count=30)


class TestFollowingWithAShortLog(Following.TestCase):  # type: ignore[misc, name-defined] # hypothesis makes it
    """The log forgets so soon that columns and places fall behind it all the time."""

    settings = settings(max_examples=40, stateful_step_count=40)

    @pytest.fixture(autouse=True)
    def short_log(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lineage, "STEPS_KEPT", 3)
        monkeypatch.setattr("policies.engine.objects.table.STEPS_KEPT", 3)
