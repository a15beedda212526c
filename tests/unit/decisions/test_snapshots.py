"""Snapshots as documents: of a node that gave a sign of life a few bytes are written, and the node read again is the same."""

import json
from datetime import datetime
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.decision import EPOCH
from policies.engine.objects.cluster_kinds import SERVICES
from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.engine.scores.registry import BUILTIN_SCORES
from scheduler.decisions.masking import Masks
from scheduler.decisions.snapshots import (
    Rebuilt,
    change_between,
    decode_change,
    encode_change,
    patch_between,
    patched,
    whole,
)
from tests.builders import make_node, make_pod


def text_of(name: str, heartbeat: str = "2026-01-01T00:00:00Z", version: str = "1000", **labels: str) -> bytes:
    """Write a node as an API server does, with images that make it as long as real ones."""
    node: dict[str, Any] = make_node(name, labels=labels)
    node["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": version}
    node["status"]["conditions"][0]["lastHeartbeatTime"] = heartbeat
    node["status"]["images"] = [{"names": [f"registry/image-{n}:{n}"], "sizeBytes": n * 10**6} for n in range(100)]
    return msgspec.json.encode(node)


def snapshot_of(*texts: bytes) -> Snapshot:
    return Snapshot.of(map(Node.from_text, texts), [Pod.from_json(make_pod("placed", nodeName="n1"))])


def rebuilt(first: Snapshot, *following: Snapshot) -> list[Snapshot]:
    """Write a Snapshot and those that follow it, and read each of them again."""
    reading = Rebuilt(list(whole(first, 1 << 20)))
    found, last = [reading.snapshot], first
    for snapshot in following:
        change = change_between(last, snapshot, sorted(last.nodes.keys() | snapshot.nodes.keys()))
        reading.apply(decode_change(encode_change(change)))
        found.append(reading.snapshot)
        last = snapshot
    return found


def with_text(snapshot: Snapshot, text: bytes) -> Snapshot:
    node = Node.from_text(text)
    return snapshot.changed({node.name: snapshot.nodes[node.name].with_node(node)})


def texts_in(snapshot: Snapshot) -> dict[str, bytes]:
    return {name: info.node.text for name, info in snapshot.nodes.items()}


class TestOfANodeThatChanged:
    def test_a_sign_of_life_is_a_few_bytes(self) -> None:
        first = snapshot_of(text_of("n1"), text_of("n2"))
        second = with_text(first, text_of("n1", "2026-01-01T00:05:17Z", "1042"))
        assert len(first.nodes["n1"].node.text) > 5_000
        assert len(encode_change(change_between(first, second, ["n1"]))) < 200

    def test_what_is_read_again_is_byte_for_byte_what_was_written(self) -> None:
        first = snapshot_of(text_of("n1"), text_of("n2"))
        second = with_text(first, text_of("n1", "2026-01-01T00:05:17Z", "1042"))
        third = with_text(second, text_of("n1", "2026-01-01T00:10:17Z", "1043", pool="another"))
        fourth = with_text(with_text(third, text_of("n1", version="1044", pool="another")), text_of("n2", version="9"))
        for expected, found in zip((first, second, third, fourth), rebuilt(first, second, third, fourth), strict=True):
            assert texts_in(found) == texts_in(expected)
            assert [pod.name for pod in found.nodes["n1"].pods] == ["placed"]

    def test_spelling_and_white_space_stay(self) -> None:
        spaced = [json.dumps(json.loads(text_of("n1", version=version)), indent=1).encode() for version in ("1", "2")]
        first = snapshot_of(spaced[0])
        second = with_text(first, spaced[1])
        assert [texts_in(found)["n1"] for found in rebuilt(first, second)] == spaced

    def test_a_longer_resource_version_is_a_few_bytes_too(self) -> None:
        first = snapshot_of(text_of("n1", version="999"))
        second = with_text(first, text_of("n1", "2026-01-01T00:05:17Z", "1000"))
        assert len(encode_change(change_between(first, second, ["n1"]))) < 300
        assert texts_in(rebuilt(first, second)[1]) == texts_in(second)

    def test_one_that_is_quite_another_is_written_whole(self) -> None:
        first = snapshot_of(text_of("n1"))
        reversed_members = msgspec.json.encode(dict(reversed(json.loads(text_of("n1")).items())))
        second = with_text(first, reversed_members)
        change = change_between(first, second, ["n1"]).nodes["n1"]
        assert change is not None
        assert (bytes(change.node), change.patch) == (reversed_members, [])

    def test_one_that_was_read_anew_and_is_the_same_takes_nothing(self) -> None:
        first = snapshot_of(text_of("n1"))
        again = with_text(first, text_of("n1"))
        assert texts_in(rebuilt(first, again)[1]) == texts_in(first)
        assert len(encode_change(change_between(first, again, ["n1"]))) < 50

    @given(
        beats=st.lists(st.tuples(st.datetimes(), st.integers(1, 10**6)), min_size=2, max_size=6), skipped=st.booleans()
    )
    def test_heartbeats_are_written_without_reading_the_rest(
        self, beats: list[tuple[datetime, int]], *, skipped: bool
    ) -> None:
        texts = [text_of("n1", f"{at:%Y-%m-%dT%H:%M:%SZ}", f"{version}") for at, version in beats]
        snapshots = [snapshot_of(texts[0])]
        for text in texts[1:]:
            info = snapshots[-1].nodes["n1"]
            node = info.node.after_heartbeat(text) or Node.from_text(text)
            snapshots.append(snapshots[-1].changed({"n1": info.with_node(node)}))
        if skipped:
            del snapshots[1:-1]
        assert [texts_in(found) for found in rebuilt(*snapshots)] == list(map(texts_in, snapshots))

    def test_a_heartbeat_of_a_node_without_a_value_to_mask_is_written_as_it_is(self) -> None:
        texts = [text_of("n1", "2026-01-01T00:00:00Z", f"100{minute}", team="none") for minute in range(2)]
        texts = [text.replace(b'"none"', b"null").replace(b',"', b', "') for text in texts]
        texts = [text.replace(b', "resourceVersion"', b',"resourceVersion"') for text in texts]
        first = snapshot_of(texts[0])
        node = first.nodes["n1"].node.after_heartbeat(texts[1])
        assert node is not None
        second = first.changed({"n1": first.nodes["n1"].with_node(node)})
        masks = Masks(labels=["team"])
        reading = Rebuilt(list(whole(first, 1 << 20, masks=masks)))
        reading.apply(decode_change(encode_change(change_between(first, second, ["n1"], masks))))
        assert texts_in(reading.snapshot) == texts_in(second)

    def test_a_heartbeat_of_a_masked_node_is_written_masked(self) -> None:
        texts = [
            text_of("n1", f"2026-01-01T00:0{minute}:00Z", f"{1000 + minute}", team="secret") for minute in range(3)
        ]
        first = snapshot_of(texts[0])
        second, third = (
            first.changed({"n1": first.nodes["n1"].with_node(node)})
            for text in texts[1:]
            if (node := first.nodes["n1"].node.after_heartbeat(text)) is not None
        )
        masks = Masks(labels=["team"])
        reading = Rebuilt(list(whole(first, 1 << 20, masks=masks)))
        for before, after in ((first, second), (second, third)):
            reading.apply(decode_change(encode_change(change_between(before, after, ["n1"], masks))))
            expected = masks.text(after.nodes["n1"].node.text, set())
            assert texts_in(reading.snapshot) == {"n1": expected}
            assert b"secret" not in expected


@given(old=st.binary(max_size=300), data=st.data())
def test_a_patched_text_is_the_new_one(old: bytes, data: st.DataObject) -> None:
    new = bytearray(old)
    for _ in range(data.draw(st.integers(0, 4))):
        start = data.draw(st.integers(0, len(new)))
        new[start : start + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    patch = patch_between(old, bytes(new))
    assert patch is None or patched(old, patch) == new


def test_a_service_that_was_made_anew_leaves_the_scores_of_a_replay_as_they_were() -> None:
    selectors = {"front": {"app": "web"}, "tier": {"tier": "back"}}
    services = [{"metadata": {"name": name}, "spec": {"selector": each}} for name, each in selectors.items()]
    objects = ClusterObjects(services=services)
    front = objects.services["default"]["front"]
    nodes = [Node.from_json(make_node(name, labels={"zone": zone})) for name, zone in (("n1", "a"), ("n2", "b"))]
    labels = {"app": "web", "tier": "back"}
    placed = [make_pod("p1", labels={"app": "web"}, nodeName="n1"), make_pod("p2", labels=labels, nodeName="n2")]
    before = Snapshot.of(nodes, map(Pod.from_json, placed), objects=objects)
    gone = objects.changed({SERVICES: [(front, None)]})
    after = before.changed({}, objects=gone.changed({SERVICES: [(None, front)]}))
    score = BUILTIN_SCORES["ServiceAntiAffinityPriority"]
    rule = score(msgspec.convert({"label": "zone"}, score.Arguments))

    def points(snapshot: Snapshot) -> list[int] | None:
        cycle = Cycle(pod=Pod.from_json(make_pod(labels=labels)), snapshot=snapshot, now=EPOCH)
        found = rule.score(cycle, snapshot.table.all_rows())
        return None if found is None else found.tolist()

    assert points(rebuilt(before, after)[-1]) == points(after)
