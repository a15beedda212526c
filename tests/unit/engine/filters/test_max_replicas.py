"""At most so many replicas of an app on a node, in a rack."""

from typing import Any

import pytest

from policies.engine.decision import CompiledRuleSet, decide
from policies.engine.errors import RuleSetError
from policies.engine.explain import explain_node
from policies.engine.filters.max_replicas import FULL, NOT_LABELLED
from policies.engine.scheduling import with_default_filters
from tests.builders import JSONObject, make_node, make_pod, make_rule_set
from tests.unit.engine.objects.asking import cycle_of, on, refused, snapshot_of, verdicts

NAME = "MaxReplicasPerDomain"
RACKS = [
    make_node("n1", labels={"rack": "x"}),
    make_node("n2", labels={"rack": "x"}),
    make_node("n3", labels={"rack": "y"}),
]
WEB = make_pod("new", labels={"app": "web"})


def there(node: str, number: int = 1, **around: Any) -> list[JSONObject]:
    labels = around.pop("labels", {"app": "web"})
    return [on(node, make_pod(f"{node}-{index}", labels=labels, **around)) for index in range(number)]


def test_a_node_that_has_all_its_replicas_is_refused_and_preemption_may_help() -> None:
    snapshot = snapshot_of(RACKS, [*there("n1", 2), *there("n2")])
    assert verdicts(NAME, WEB, snapshot, maxReplicas=2) == {"n1": FULL, "n2": None, "n3": None}


def test_replicas_of_all_nodes_of_a_rack_count_together() -> None:
    snapshot = snapshot_of(RACKS, [*there("n1"), *there("n2")])
    assert refused(NAME, WEB, snapshot, maxReplicas=2, topologyKey="rack") == {"n1", "n2"}
    assert refused(NAME, WEB, snapshot, maxReplicas=3, topologyKey="rack") == set()


def test_a_node_without_the_label_is_refused_for_ever() -> None:
    snapshot = snapshot_of([*RACKS, make_node("n4")])
    assert verdicts(NAME, WEB, snapshot, maxReplicas=2, topologyKey="rack")["n4"] == NOT_LABELLED


@pytest.mark.parametrize(
    "around",
    [{"labels": {"app": "db"}}, {"labels": {}}, {"namespace": "other"}],
    ids=["another app", "no app", "another namespace"],
)
def test_pods_that_are_no_replicas_do_not_count(around: dict[str, Any]) -> None:
    assert refused(NAME, WEB, snapshot_of(RACKS, there("n1", **around)), maxReplicas=1) == set()


def test_pods_that_have_ended_do_not_count_and_those_on_their_way_out_do() -> None:
    [ended], [leaving] = there("n1"), there("n2")
    ended = {**ended, "status": {"phase": "Succeeded"}}
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert refused(NAME, WEB, snapshot_of(RACKS, [ended, leaving]), maxReplicas=1) == {"n2"}


def test_replicas_are_alike_in_all_labels_that_are_given() -> None:
    snapshot = snapshot_of(RACKS, there("n1", labels={"app": "web", "track": "canary"}))
    for track, names in (("canary", {"n1"}), ("stable", set())):
        pod = make_pod("new", labels={"app": "web", "track": track})
        assert refused(NAME, pod, snapshot, maxReplicas=1, labels=["app", "track"]) == names


def test_a_pod_without_the_labels_passes_everywhere_and_looks_at_nobody() -> None:
    snapshot = snapshot_of([*RACKS, make_node("n4")], there("n1", 9))
    plain = make_pod("plain")
    assert refused(NAME, plain, snapshot, maxReplicas=1, topologyKey="rack") == set()
    [(_, rule)] = compiled(maxReplicas=1).filters
    assert not rule.looks_around(cycle_of(plain, snapshot).pod, snapshot, [])
    assert rule.looks_around(cycle_of(WEB, snapshot).pod, snapshot, [])


@pytest.mark.parametrize(
    "arguments",
    [{}, {"maxReplicas": 0}, {"maxReplicas": 1, "topologyKey": ""}, {"maxReplicas": 1, "labels": []}, {"max": 1}],
)
def test_arguments_that_say_no_limit_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(RuleSetError):
        compiled(**arguments)


def compiled(**arguments: Any) -> CompiledRuleSet:
    return CompiledRuleSet(make_rule_set(filters=[{"builtin": NAME, "arguments": arguments}]))


def test_it_is_asked_again_at_binding_alone_with_the_pods_placed_since() -> None:
    rules = CompiledRuleSet(
        make_rule_set(filters=[{"builtin": "PodFitsResources"}, {"builtin": NAME, "arguments": {"maxReplicas": 1}}])
    )
    snapshot = snapshot_of(RACKS)
    again = rules.only_counting()
    assert rules.counts_pods
    assert [rule.key for rule, _ in again.filters] == [NAME]
    cycle = cycle_of(WEB, snapshot)
    placed = cycle_of(WEB, snapshot.assume(cycle_of(make_pod("first", labels={"app": "web"}), snapshot).pod, "n1"))
    assert decide(again, cycle, snapshot.table.rows(["n1"]), scoring=False).feasible == ["n1"]
    assert decide(again, placed, snapshot.table.rows(["n1"]), scoring=False).feasible == []


def test_ten_replicas_two_a_rack_in_four_racks_leave_two_waiting() -> None:
    nodes = [make_node(f"n{number}", labels={"rack": f"r{number % 4}"}) for number in range(8)]
    snapshot = snapshot_of(nodes)
    rules = with_default_filters(compiled(maxReplicas=2, topologyKey="rack"))
    waiting = 0
    for number in range(10):
        cycle = cycle_of(make_pod(f"p{number}", labels={"app": "web"}), snapshot)
        feasible = decide(rules, cycle, snapshot.table.all_rows()).feasible
        if feasible:
            snapshot = snapshot.assume(cycle.pod, feasible[0])
        else:
            waiting += 1
    assert waiting == 2
    counts = snapshot.counts("default", {"app": "web"})
    assert [int(counts[rack] + counts[rack + 4]) for rack in range(4)] == [2, 2, 2, 2]


def test_a_refusal_says_how_many_there_are_and_how_many_must_go() -> None:
    snapshot = snapshot_of([*RACKS, make_node("n4")], [*there("n1", 2), *there("n2")])
    rules = compiled(maxReplicas=2, topologyKey="rack")
    full, unlabelled = (explain_node(rules, cycle_of(WEB, snapshot), name).rules[0] for name in ("n1", "n4"))
    assert full.seen == {"rack": "x", "Pods with app=web": 3}
    assert (
        "The domain rack=x has 3 Pods with app=web, and may have 2. Would pass once 2 of them are gone."
        in full.sentence
    )
    assert full.wanted == "fewer than 2 Pods with app=web by rack"
    assert "The node n4 has no label rack. Would pass if n4 were labelled so." in unlabelled.sentence


def test_a_refusal_for_a_single_replica_is_said_in_the_singular() -> None:
    snapshot = snapshot_of(RACKS, there("n1"))
    found = explain_node(compiled(maxReplicas=1, topologyKey="rack"), cycle_of(WEB, snapshot), "n1").rules[0]
    assert "has 1 Pod with app=web, and may have 1. Would pass once 1 of them is gone." in found.sentence
    assert found.wanted == "no Pod with app=web by rack"
