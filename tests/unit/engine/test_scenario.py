"""Pods placed one after another: where they land, how many fit, what stops the next, and how evenly nodes are used then."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from policies.engine.decision import CompiledRevision
from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.ruleset import Assignment, Revision, RuleSet
from policies.engine.scenario import Placed, Refusal, Spread, place_pods
from tests.builders import make_assignment, make_node, make_pod, make_rule_set

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pods(number: int, **requests: str) -> list[Pod]:
    return [Pod.from_json(make_pod(f"p{index}", requests=requests or {"cpu": "1"})) for index in range(number)]


def cluster(*cpus: str, zones: str = "") -> Snapshot:
    labels = [{"zone": zone} for zone in zones] or [{}] * len(cpus)
    nodes = [
        Node.from_json(make_node(f"n{number}", cpu=cpu, memory="8Gi", labels=labels[number]))
        for number, cpu in enumerate(cpus)
    ]
    return Snapshot.of(nodes, objects=ClusterObjects())


def place(snapshot: Snapshot, waiting: Sequence[Pod], *values: RuleSet | Assignment) -> Placed:
    rule_sets = [each for each in values if isinstance(each, RuleSet)]
    assignments = [each for each in values if isinstance(each, Assignment)]
    revision = CompiledRevision(Revision(number=1, rule_sets=rule_sets, assignments=assignments))
    return place_pods(revision, snapshot, waiting, NOW)


def test_without_rules_pods_spread_as_the_default_set_has_it() -> None:
    found = place(cluster("4", "4"), pods(4))
    assert (found.rule_set, found.asked, found.fits, found.stop) == ("", 4, 4, None)
    assert found.nodes == {"n0": 2, "n1": 2}
    assert found.landed == ["n0", "n1", "n0", "n1"]


def test_the_balance_is_of_shares_before_and_after() -> None:
    found = place(cluster("4", "2"), pods(2))
    assert found.before.cpu == Spread(0.0, 0.0, 0.0)
    assert found.after.cpu.max <= 0.5
    assert found.after.memory == Spread(0.0, 0.0, 0.0)


def test_the_pod_that_gets_no_node_is_told_what_refuses_it_where() -> None:
    found = place(cluster("2", "1"), pods(9))
    assert (found.asked, found.fits) == (9, 3)
    assert found.stop is not None
    assert (found.stop.pod, found.stop.refusals) == (4, [Refusal("PodFitsResources", "Insufficient cpu", 2)])
    assert found.stop.sentence.startswith('filter PodFitsResources refused n0: "Insufficient cpu"')


def test_a_rule_sets_own_rules_decide_behind_the_default_filters() -> None:
    keep = {"name": "zone", "expression": "node.metadata.labels.zone == 'b'", "reason": "another zone"}
    dry = {"name": "dry", "expression": "false", "mode": "shadow"}
    rules = make_rule_set("web", filters=[dry, keep])
    found = place(cluster("2", "2", "3", zones="aab"), pods(5), rules, make_assignment("all", "web"))
    assert (found.rule_set, found.nodes, found.fits) == ("web", {"n2": 3}, 3)
    assert found.stop is not None
    assert found.stop.refusals == [
        Refusal("zone", "another zone", 2),
        Refusal("PodFitsResources", "Insufficient cpu", 1),
    ]
    assert '"another zone"' in found.stop.sentence


def test_scores_choose_the_node_and_equals_take_turns() -> None:
    full = {"name": "full", "expression": "usage.requested.cpu", "bounds": [0, 4000]}
    rules = make_rule_set("web", scores=[full])
    found = place(cluster("2", "2"), pods(3), rules, make_assignment("all", "web"))
    assert found.landed == ["n0", "n0", "n1"]


def test_equals_go_on_behind_the_node_that_was_picked_last_before() -> None:
    revision = CompiledRevision(Revision(number=1))
    found = place_pods(revision, cluster("4", "4", "4"), pods(4), NOW, after="n1")
    assert found.landed == ["n2", "n0", "n1", "n2"]


def test_pods_go_to_the_nodes_of_the_schedulers_label_alone() -> None:
    revision = CompiledRevision(Revision(number=1))
    snapshot = cluster("2", "2", "2", zones="aba")
    found = place_pods(revision, snapshot, pods(6), NOW, node_label=("zone", "a"))
    assert (found.nodes, found.fits) == ({"n0": 2, "n2": 2}, 4)
    assert found.stop is not None
    assert found.stop.refusals == [Refusal("PodFitsResources", "Insufficient cpu", 2)]
    assert found.stop.sentence.startswith("filter PodFitsResources refused n0")
    none = place_pods(revision, snapshot, pods(1), NOW, node_label=("zone", "c")).stop
    assert none is not None
    assert none.sentence == "none of the nodes has the label of those that Berth's own scheduler uses"


@pytest.mark.parametrize("number", [0, 1])
def test_a_cluster_without_nodes_takes_none(number: int) -> None:
    found = place(Snapshot({}, objects=ClusterObjects()), pods(number))
    assert (found.fits, found.nodes, found.after.cpu) == (0, {}, Spread(0.0, 0.0, 0.0))
    assert (found.stop.sentence if found.stop else "") == ("there are no nodes" if number else "")
