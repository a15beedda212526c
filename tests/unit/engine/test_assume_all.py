"""Several Pods that were promised nodes count before they are seen there."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.engine.objects import placed
from policies.engine.objects.node import NodeInfo
from policies.engine.objects.placed import NOWHERE, Placed
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from tests.builders import make_pod
from tests.unit.engine.objects.test_table import a_node, a_pod, answers

NODES = [f"n{i}" for i in range(5)]
placements = st.lists(st.tuples(st.integers(0, 11), st.sampled_from([*NODES, "gone"])), max_size=8)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("assume"), placements),
        st.tuples(st.just("see"), placements),
        st.tuples(st.just("clear"), placements),
        st.tuples(st.just("drop"), placements),
    ),
    max_size=8,
)


def pod_of(number: int) -> Pod:
    return Pod.from_json(a_pod(number, number))


def pods_on(snapshot: Snapshot) -> dict[str, list[str]]:
    return {name: sorted(pod.uid for pod in info.pods) for name, info in snapshot.nodes.items()}


def is_placed(snapshot: Snapshot, uid: str) -> bool:
    return any(uid in uids for uids in pods_on(snapshot).values())


def by_the_words(snapshot: Snapshot, wanted: list[tuple[int, str]]) -> dict[str, list[str]]:
    """Place Pods one by one, as the docstring of assume_all says it."""
    there = pods_on(snapshot)
    for number, name in wanted:
        uid = f"u{number}"
        if name in there and not any(uid in uids for uids in there.values()):
            there[name] = sorted([*there[name], uid])
    return there


def followed(snapshot: Snapshot, kind: str, wanted: list[tuple[int, str]]) -> Snapshot:
    """What a watch could show next: Pods seen on nodes, nodes emptied, nodes gone."""
    for number, name in wanted:
        info = snapshot.node(name)
        if kind == "drop":
            snapshot = snapshot.changed({name: None})
        elif kind == "clear" and info is not None:
            snapshot = snapshot.changed({name: NodeInfo(info.node)})
        elif kind == "see" and not is_placed(snapshot, f"u{number}"):  # no Pod is on two nodes
            node = info.node if info else a_node(name, number)
            snapshot = snapshot.changed({name: NodeInfo(node, (*(info.pods if info else ()), pod_of(number)))})
    return snapshot


@settings(max_examples=80)
@given(steps)
def test_assumed_pods_count_as_in_a_snapshot_made_from_scratch(course: list[tuple[str, list[tuple[int, str]]]]) -> None:
    snapshot = Snapshot.of(a_node(name, row) for row, name in enumerate(NODES))
    for number, (kind, wanted) in enumerate(course):
        answers(snapshot, a_pod(500 + number, number))
        if kind == "assume":
            expected = by_the_words(snapshot, wanted)
            snapshot = snapshot.assume_all([(pod_of(pod), name) for pod, name in wanted])
            assert pods_on(snapshot) == expected
        else:
            snapshot = followed(snapshot, kind, wanted)
    fresh = Snapshot({name: NodeInfo(info.node, info.pods) for name, info in snapshot.nodes.items()})
    for look in range(0, 30, 7):
        assert answers(snapshot, a_pod(600 + look, look)) == answers(fresh, a_pod(600 + look, look))


@settings(max_examples=80)
@given(steps)
def test_where_pods_are_is_known_after_any_changes(course: list[tuple[str, list[tuple[int, str]]]]) -> None:
    snapshot = Snapshot.of(a_node(name, row) for row, name in enumerate(NODES))
    for kind, wanted in course:
        snapshot.table.placed()
        followed_by = followed(snapshot, kind, wanted)
        snapshot = followed_by.assume_all([(pod_of(number), name) for number, name in wanted])
    rows: dict[str, set[int]] = {}
    for row, info in enumerate(snapshot.table.infos):
        for pod in info.pods:
            rows.setdefault(pod.uid, set()).add(row)
    for number in range(12):
        found = snapshot.table.placed().row_of(f"u{number}")
        assert found in rows.get(f"u{number}", {NOWHERE})


def test_what_was_assumed_leaves_the_former_snapshot_as_it_was() -> None:
    snapshot = Snapshot.of([a_node("n1", 1)])
    assumed = snapshot.assume_all([(pod_of(1), "n1"), (pod_of(2), "n1")])
    assert (pods_on(snapshot), pods_on(assumed)) == ({"n1": []}, {"n1": ["u1", "u2"]})


@pytest.mark.parametrize("wanted", [[], [(1, "gone")], [(7, "n1"), (7, "n2")]])
def test_nothing_to_assume_gives_the_same_snapshot(wanted: list[tuple[int, str]]) -> None:
    snapshot = Snapshot.of([a_node("n1", 1), a_node("n2", 2)]).assume_all([(pod_of(7), "n1")])
    assert snapshot.assume_all([(pod_of(number), name) for number, name in wanted]) is snapshot


def test_pods_without_a_uid_are_always_placed() -> None:
    def nameless(name: str) -> Pod:
        body: dict[str, Any] = make_pod(name)
        del body["metadata"]["uid"]
        return Pod.from_json(body)

    snapshot = Snapshot.of([a_node("n1", 1)])
    for name in ("a", "b"):
        snapshot = snapshot.assume_all([(nameless(name), "n1")])
    assert [pod.name for pod in snapshot.nodes["n1"].pods] == ["a", "b"]


def test_requests_of_assumed_pods_are_added_to_what_is_known() -> None:
    snapshot = Snapshot.of([a_node("n1", 1)]).assume_all([(pod_of(1), "n1")])
    info = snapshot.nodes["n1"]
    _ = info.requested, info.nonzero_requested
    joined = snapshot.assume_all([(pod_of(2), "n1"), (pod_of(3), "n1")]).nodes["n1"]
    scratch = NodeInfo(joined.node, joined.pods)
    assert (joined.requested, joined.nonzero_requested) == (scratch.requested, scratch.nonzero_requested)
    assert info.requested.get("cpu") == 100


def test_pods_that_ended_take_up_no_room() -> None:
    ended = Pod.from_json(a_pod(1, 1) | {"status": {"phase": "Succeeded"}})
    assert pods_on(Snapshot.of([a_node("n1", 1)]).assume_all([(ended, "n1")])) == {"n1": []}


def test_many_pods_that_moved_are_put_with_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placed, "_MAX_PATCHES", 2)
    snapshot = Snapshot.of([a_node("n1", 1), a_node("n2", 2)])
    before = Placed.of(snapshot.table.infos)
    infos = [NodeInfo(snapshot.nodes["n1"].node, [pod_of(number) for number in range(3)]), snapshot.nodes["n2"]]
    after = before.renewed(infos, [0])
    assert [after.row_of(f"u{number}") for number in range(4)] == [0, 0, 0, NOWHERE]
    assert not after._patches
    assert before.row_of("u0") == NOWHERE
