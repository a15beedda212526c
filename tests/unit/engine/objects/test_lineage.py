"""Which nodes may differ between two Snapshots, told from how they came about."""

from hypothesis import given
from hypothesis import strategies as st

from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.lineage import STEPS_KEPT, Step, names_between
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from tests.builders import make_node, make_pod


def make_snapshot(*names: str) -> Snapshot:
    return Snapshot.of(Node.from_json(make_node(name)) for name in names)


def info(name: str, cpu: str = "4") -> NodeInfo:
    return NodeInfo(Node.from_json(make_node(name, cpu=cpu)))


def test_a_change_names_its_nodes() -> None:
    before = make_snapshot("a", "b")
    after = before.changed({"b": info("b")}).changed({"c": info("c"), "a": None})
    assert names_between(before.step, after.step) == {"a", "b", "c"}
    assert names_between(after.step, before.step) == {"a", "b", "c"}


def test_what_changes_no_node_is_the_same_place() -> None:
    before = make_snapshot("a")
    assert names_between(before.step, before.changed({}, {"web": {}}).step) == set()


def test_branches_meet_where_they_parted() -> None:
    live = make_snapshot("a", "b", "c")
    promised = live.assume(Pod.from_json(make_pod()), "a")
    later = live.changed({"b": info("b")})
    assert names_between(promised.step, later.step) == {"a", "b"}
    assert names_between(later.changed({"c": None}).step, promised.step) == {"a", "b", "c"}


def test_of_snapshots_that_have_nothing_in_common_nothing_is_known() -> None:
    one, other = make_snapshot("a"), make_snapshot("a")
    assert one.step.root is not other.step.root
    assert names_between(one.step, other.step) is None
    assert names_between(one.changed({"a": None}).step, other.step) is None


def test_steps_far_behind_are_let_go() -> None:
    first = last = Step[str]()
    near = None
    for number in range(2 * STEPS_KEPT + 1):
        last = Step([f"n{number}"], last)
        if number == 2 * STEPS_KEPT - 10:
            near = last
    assert names_between(first, last) is None
    assert near is not None
    assert len(names_between(near, last) or ()) == 10
    length, at = 0, last
    while at.before is not None:
        at, length = at.before, length + 1
    assert length <= 2 * STEPS_KEPT


def test_other_objects_alone_are_a_step_that_names_no_node() -> None:
    before = make_snapshot("a")
    after = before.changed({}, objects=ClusterObjects())
    assert after.step is not before.step
    assert names_between(before.step, after.step) == set()


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 20)), max_size=30))
def test_no_difference_between_any_two_snapshots_goes_unnamed(changes: list[tuple[str, int]]) -> None:
    snapshots = [make_snapshot("a", "b", "c")]
    for name, place in changes:
        parent = snapshots[place % len(snapshots)]
        snapshots.append(parent.changed({name: None if place % 5 == 0 else info(name)}))
    for one in snapshots:
        for other in snapshots:
            names = names_between(one.step, other.step)
            differing = {
                name
                for name in one.nodes.keys() | other.nodes.keys()
                if one.nodes.get(name) is not other.nodes.get(name)
            }
            assert names is not None
            assert differing <= names
