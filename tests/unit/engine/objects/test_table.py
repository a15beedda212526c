"""Columns stay right from Snapshot to Snapshot."""

import threading
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.engine.decision import CompiledRuleSet, decide
from policies.engine.objects.columns import requested, traits
from policies.engine.objects.lineage import STEPS_KEPT
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod, PodObject
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.sparse import Places
from policies.engine.objects.table import _MAX_COLUMNS, Table
from policies.engine.ruleset import FilterRule, RuleSet, RuleSetSpec, ScoreRule
from tests.builders import make_node, make_pod
from tests.unit.engine.objects.asking import HOSTNAME, JSON, NOW, ZONE, Cycle, snapshot_of

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
FILTERS = (
    "CheckNodeUnschedulable",
    "PodToleratesNodeTaints",
    "MatchNodeSelector",
    "PodFitsHostPorts",
    "NoDiskConflict",
    "EvenPodsSpread",
    "MatchInterPodAffinity",
    "PodFitsResources",
)
SCORES = (
    "TaintTolerationPriority",
    "EvenPodsSpreadPriority",
    "InterPodAffinityPriority",
    "LeastRequestedPriority",
    "BalancedResourceAllocation",
    "ImageLocalityPriority",
)
RULES = CompiledRuleSet(
    RuleSet(
        name="r",
        spec=RuleSetSpec(
            filters=[FilterRule(builtin=name) for name in FILTERS], scores=[ScoreRule(builtin=name) for name in SCORES]
        ),
    )
)


def a_node(name: str, look: int) -> Node:
    labels = {ZONE: f"z{look % 3}"} if look % 4 else {}
    taints = [{"key": "k", "effect": "PreferNoSchedule" if look % 2 else "NoSchedule"}] if look % 5 == 0 else []
    node = make_node(name, labels=labels, cpu=str(look % 7 + 1), unschedulable=look % 6 == 5, taints=taints)
    node["status"]["images"] = [{"names": [f"image-{i}:latest"], "sizeBytes": i * 10**8} for i in range(look % 4)]
    return Node.from_json(node)


def a_pod(number: int, look: int) -> JSON:
    app = f"app-{look % 3}"
    term = {"labelSelector": {"matchLabels": {"app": f"app-{look % 2}"}}, "topologyKey": (ZONE, HOSTNAME)[look % 2]}
    constraint = {"maxSkew": 2, "topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": app}}}
    spec: dict[str, Any] = {}
    if look % 3 == 0:
        spec["affinity"] = {"podAntiAffinity": {REQUIRED: [term]}}
    elif look % 3 == 1:
        preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": look + 1, "podAffinityTerm": term}]}
        spec["affinity"] = {"podAffinity": preferred}
    if look % 4 == 0:
        whens = ("DoNotSchedule", "ScheduleAnyway")
        spec["topologySpreadConstraints"] = [constraint | {"whenUnsatisfiable": when} for when in whens]
    ports = [{"hostPort": 80 + look % 2}] if look % 5 == 0 else []
    spec["containers"] = [
        {"name": "c", "image": f"image-{look % 4}", "ports": ports, "resources": {"requests": {"cpu": f"{look}00m"}}}
    ]
    if look % 6 == 0:
        spec["volumes"] = [{"name": "v", "gcePersistentDisk": {"pdName": f"d{look % 2}"}}]
    return make_pod(f"p{number}", uid=f"u{number}", labels={"app": app}, **spec)


def answers(snapshot: Snapshot, pod: JSON) -> list[Any]:
    """Everything that the rules say of a Pod, by node name."""
    order = sorted(snapshot.nodes)
    cycle = Cycle(pod=Pod.from_json(pod), snapshot=snapshot, now=NOW)
    answer = decide(RULES, cycle, snapshot.table.rows(order), whole=True)
    return [
        [[column.at(position) for position in range(len(order))] for column in answer.filters],
        [None if column.raw is None else column.raw.tolist() for column in answer.scores],
    ]


looks = st.integers(0, 29)
names = st.sampled_from([f"n{i}" for i in range(5)])
changes = st.lists(
    st.one_of(
        st.tuples(st.just("place"), names, looks),
        st.tuples(st.just("clear"), names, st.just(0)),
        st.tuples(st.just("node"), names, looks),
        st.tuples(st.just("gone"), names, st.just(0)),
        st.tuples(st.just("ask"), names, looks),
    ),
    min_size=1,
    max_size=25,
)


def changed_info(snapshot: Snapshot, kind: str, name: str, look: int, number: int) -> NodeInfo | None:
    info = snapshot.nodes.get(name)
    if kind == "gone":
        return None
    if kind == "node" or info is None:
        return NodeInfo(a_node(name, look), info.pods if info else ())
    if kind == "clear":
        return NodeInfo(info.node, info.pods[1:])
    placed = a_pod(number, look)
    placed["spec"]["nodeName"] = name
    return NodeInfo(info.node, (*info.pods, Pod.from_json(placed)))


@settings(max_examples=60)
@given(changes)
def test_a_snapshot_that_followed_many_changes_answers_like_a_new_one(steps: list[tuple[str, str, int]]) -> None:
    snapshot = Snapshot.of(a_node(f"n{i}", i) for i in range(4))
    for number, (kind, name, look) in enumerate(steps):
        if kind == "ask":
            pod = a_pod(1000 + number, look)
            assert answers(snapshot, pod) == answers(Snapshot(snapshot.nodes), pod)
        else:
            answers(snapshot, a_pod(3000 + number, look))
            snapshot = snapshot.changed({name: changed_info(snapshot, kind, name, look, number)})
    for look in range(0, 30, 7):
        pod = a_pod(2000 + look, look)
        assert answers(snapshot, pod) == answers(Snapshot(snapshot.nodes), pod)


def test_pods_that_are_only_counted_count_like_whole_ones() -> None:
    nodes = [a_node(f"n{i}", i) for i in range(5)]
    bodies = [a_pod(number, number) for number in range(30)]
    for number, body in enumerate(bodies):
        body["spec"]["nodeName"] = f"n{number % 5}"
    counted = [Pod(msgspec.json.decode(msgspec.json.encode(body), type=PodObject)) for body in bodies]
    for pod in counted:
        _ = pod.requests
    whole, slim = Snapshot.of(nodes, map(Pod.from_json, bodies)), Snapshot.of(nodes, counted)
    for look in range(30):
        pod = a_pod(100 + look, look)
        assert answers(slim, pod) == answers(whole, pod)


def test_an_earlier_snapshot_stays_as_it_was() -> None:
    first = snapshot_of([make_node("n1")])
    assert requested(first.table, "cpu").tolist() == [0]
    pod = Pod.from_json(make_pod(requests={"cpu": "1"}))
    second = first.changed({"n1": NodeInfo(first.nodes["n1"].node, (pod,))})
    assert requested(second.table, "cpu").tolist() == [1000]
    assert requested(first.table, "cpu").tolist() == [0]
    other = first.changed({"n1": NodeInfo(first.nodes["n1"].node, (pod, pod))})
    assert requested(other.table, "cpu").tolist() == [2000]
    assert requested(second.table, "cpu").tolist() == [1000]


def test_columns_that_are_read_again_after_many_changes_are_right() -> None:
    snapshot = snapshot_of([make_node("n1"), make_node("n2")])
    pod = Pod.from_json(make_pod(requests={"cpu": "1"}))
    requested(snapshot.table, "memory")
    for number in range(2 * STEPS_KEPT + 10):
        requested(snapshot.table, "cpu")
        pods = (pod,) * (number % 3)
        snapshot = snapshot.changed({f"n{number % 2 + 1}": NodeInfo(snapshot.nodes["n1"].node, pods)})
    fresh = Table(snapshot.table.infos)
    assert requested(snapshot.table, "cpu").tolist() == requested(fresh, "cpu").tolist()
    assert requested(snapshot.table, "memory").tolist() == requested(fresh, "memory").tolist()


def test_the_columns_used_longest_ago_are_given_up() -> None:
    table = snapshot_of([make_node("n1")]).table
    read: list[int] = []
    for number in range(_MAX_COLUMNS + 1):
        table.numbers(("column", number), lambda info: 0)
    table.numbers(("column", _MAX_COLUMNS), lambda info: read.append(1) or 0)
    assert read == []
    table.numbers(("column", 0), lambda info: read.append(1) or 0)
    assert read == [1]


def test_only_what_changed_is_read_again() -> None:
    snapshot = snapshot_of([make_node(f"n{i}") for i in range(10)])
    read: list[str] = []

    def column(snapshot: Snapshot) -> list[int]:
        return snapshot.table.numbers("column", lambda info: read.append(info.name) or len(info.name)).tolist()

    column(snapshot)
    read.clear()
    grown = snapshot.changed({"n10": NodeInfo(Node.from_json(make_node("n10")))})
    assert column(grown) == [2] * 10 + [3]
    assert read == ["n10"]
    read.clear()
    shrunk = grown.changed({"n0": None, "n1": NodeInfo(Node.from_json(make_node("n1")))})
    again = shrunk.changed({"n11": NodeInfo(Node.from_json(make_node("n11")))})
    assert column(again) == [2] * 9 + [3, 3]
    assert read == ["n1", "n11"]


def test_codes_are_made_anew_when_most_of_what_they_stand_for_is_gone() -> None:
    snapshot = snapshot_of([make_node("n1")])
    values: list[int] = []

    def column(snapshot: Snapshot, value: int) -> Any:
        values[:] = [value]
        return snapshot.table.coded("value", lambda info: (values[0], values[0]))

    for value in range(1100):
        coded = column(snapshot, value)
        assert coded.values[coded.codes[0]] == value
        snapshot = snapshot.changed({"n1": NodeInfo(snapshot.nodes["n1"].node)})
    assert len(column(snapshot, 0).values) < 100


def test_most_nodes_being_others_makes_the_columns_anew() -> None:
    snapshot = snapshot_of([make_node("n1"), make_node("n2")])
    requested(snapshot.table, "cpu")
    others = {f"n{i}": NodeInfo(Node.from_json(make_node(f"n{i}"))) for i in range(3, 9)}
    assert requested(snapshot.changed(others).table, "cpu").tolist() == [0] * 8


def test_pods_alike_are_counted_together() -> None:
    web = make_pod("a", labels={"app": "web"})
    pods = [
        {**web, "metadata": {**web["metadata"], "name": n}, "spec": {**web["spec"], "nodeName": "n1"}} for n in "ab"
    ]
    [(found, places)] = traits(snapshot_of([make_node("n1")], pods).table).group("default").items()
    assert found.labels == {"app": "web"}
    assert (places.rows.tolist(), places.numbers.tolist()) == ([0], [2])


def test_places_give_up_rows_that_are_gone() -> None:
    places = Places({1: 2, 4: 1})
    assert len(places.changed({4: 0, 2: 1})) == 2
    assert places.moved({4: 0}).rows.tolist() == [0]


@pytest.mark.parametrize("table", [Table([]), snapshot_of([make_node("n1")]).table])
def test_rows_of_unknown_names_are_minus_one(table: Table) -> None:
    assert table.rows(["gone"]).tolist() == [-1]


class TestAColumnMadeWhileTheClusterMovesOn:
    """A Snapshot follows another while a column is read from every node of the first."""

    def _table(self, count: int = 3) -> Table:
        return Snapshot.of([Node.from_json(make_node(f"n{number}")) for number in range(count)], []).table

    def test_is_known_to_tables_that_followed_meanwhile(self) -> None:
        first, read, followed = self._table(), [], []

        def name(info: NodeInfo) -> tuple[str, str]:
            if not followed:
                followed.append(first.changed({"n1": first.infos[1]}))
            read.append(info.name)
            return info.name, info.name

        first.coded("name", name)
        assert read == ["n0", "n1", "n2"]
        later = followed[0].changed({"n2": first.infos[2]})
        assert [later.coded("name", name).values[code] for code in later.coded("name", name).codes] == read[:3]
        assert read[3:] == ["n1", "n2"]

    def test_is_read_again_where_another_branch_differs(self) -> None:
        first, read = self._table(), []

        def name(info: NodeInfo) -> tuple[str, str]:
            read.append(info.name)
            return info.name, info.name

        one, other = first.changed({"n0": first.infos[0]}), first.changed({"n1": first.infos[1]})
        one.coded("name", name)
        other.coded("name", name)
        first.coded("name", name)
        assert read == ["n0", "n1", "n2", "n0", "n1", "n0"]

    def test_keeps_nobody_waiting_who_asks_for_another(self) -> None:
        table, asked = self._table(), []

        def slow(info: NodeInfo) -> int:
            other = threading.Thread(target=lambda: asked.append(table.numbers("other", lambda _: 1)))
            other.start()
            other.join(timeout=10)
            assert not other.is_alive()
            return 7

        assert table.numbers("slow", slow).tolist() == [7, 7, 7]
        assert len(asked) == 3

    def test_stays_known_for_a_limited_number_of_columns(self) -> None:
        table = self._table(1)
        for number in range(_MAX_COLUMNS + 5):
            table.numbers(("column", number), lambda _: 1)
        assert len(table._made) == _MAX_COLUMNS


def test_what_changed_is_read_once_though_pods_are_in_flight_each_time() -> None:
    """Else each call reads again all that changed since the last call without a Pod in flight."""
    live = snapshot_of([make_node(f"n{i}") for i in range(10)])
    ahead = [(Pod.from_json(make_pod("ahead", uid="ahead")), "n9")]
    read: list[str] = []

    def column(snapshot: Snapshot) -> list[int]:
        return snapshot.table.numbers("pods", lambda info: read.append(info.name) or len(info.pods)).tolist()

    column(live)
    for number in range(9):
        live = live.assume(Pod.from_json(make_pod(f"p{number}", uid=f"u{number}")), f"n{number}")
        read.clear()
        assert column(live.assume_all(ahead)) == [1] * (number + 1) + [0] * (8 - number) + [1]
        assert sorted(read) == [f"n{number}", "n9"]
        read.clear()
        assert column(live.assume_all(ahead))[9] == 1
        assert read == ["n9"]
    assert column(live) == [1] * 9 + [0]


def test_sums_that_are_made_at_once_are_each_snapshots_own_though_pods_are_in_flight() -> None:
    apps = [make_pod(f"p{i}", uid=f"u{i}", labels={"app": f"a{i}", "tier": "web"}) for i in range(40)]
    live = snapshot_of(
        [make_node("n1"), make_node("n2")], [{**pod, "spec": {**pod["spec"], "nodeName": "n1"}} for pod in apps]
    )
    more = Pod.from_json(make_pod("more", uid="more", labels={"app": "more", "tier": "web"}))
    assert live.assume_all([(more, "n2")]).counts("default", {"tier": "web"}).tolist() == [40, 1]
    assert live.counts("default", {"tier": "web"}).tolist() == [40, 0]


def test_a_column_that_the_log_has_left_behind_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policies.engine.objects.lineage.STEPS_KEPT", 2)
    snapshot = Snapshot.of([a_node("n1", 1)])
    first = requested(snapshot.table, "cpu").tolist()
    for number in range(5):
        snapshot = snapshot.assume(Pod.from_json(make_pod(f"p{number}", requests={"cpu": "1"})), "n1")
    assert (first, requested(snapshot.table, "cpu").tolist()) == ([0], [5000])
