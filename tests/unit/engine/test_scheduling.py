"""Deciding for a scheduler that binds Pods itself."""

from datetime import UTC, datetime
from typing import Any

from policies.engine.decision import Answer, CompiledRuleSet
from policies.engine.default_set import FILTERS
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.engine.scheduling import default_profile, document_with_default_filters, judge, pick, with_default_filters
from tests.builders import make_node, make_pod, make_rule_set

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def cycle_of(pod: dict[str, Any], snapshot: Snapshot) -> Cycle:
    return Cycle(pod=Pod.from_json(pod), snapshot=snapshot, now=NOW)


def snapshot_of(*nodes: dict[str, Any]) -> Snapshot:
    return Snapshot.of(map(Node.from_json, nodes))


def reasons(answer: Answer) -> dict[str, str]:
    return {name: status.reason for name, status in answer.refused()}


def picked(answer: Answer, cycle: Cycle, after: str = "", *, is_default_profile: bool = True) -> str | None:
    rows = cycle.table.all_rows()
    position = pick(answer, cycle, rows, after=after, is_default_profile=is_default_profile)
    return None if position is None else answer.names[position]


def test_a_rule_set_is_asked_behind_the_filters_of_the_default_set_that_it_does_not_have() -> None:
    own = CompiledRuleSet(
        make_rule_set(
            filters=[
                {"builtin": "PodFitsResources", "arguments": {"ignoredResources": ["example.org/gpu"]}},
                {"builtin": "NodeName", "mode": "shadow"},
                {"name": "any", "expression": "true", "reason": "never"},
            ]
        )
    )

    keys = [rule.key for rule, _ in with_default_filters(own).filters]

    assert keys == [
        "CheckVolumeBinding",
        "CheckResourceClaims",
        *(name for name in FILTERS if name != "PodFitsResources"),
        "NodeDeclaredFeatures",
        "PodFitsResources",
        "NodeName",
        "any",
    ]
    assert with_default_filters(own).reads >= set().union(*(made.reads for _, made in default_profile().filters))


def test_the_scores_of_a_rule_set_behind_the_default_filters_are_its_own() -> None:
    own = CompiledRuleSet(make_rule_set(scores=[{"builtin": "LeastRequestedPriority"}]))

    assert [rule.key for rule, _ in with_default_filters(own).scores] == ["LeastRequestedPriority"]


def test_the_document_says_what_is_asked() -> None:
    rules = make_rule_set(filters=[{"builtin": "NodeResourcesFit"}, {"builtin": "NodeName", "mode": "shadow"}])

    asked = [rule.key for rule, _ in with_default_filters(CompiledRuleSet(rules)).filters]

    told = [rule.key for rule in document_with_default_filters(rules).spec.filters]
    assert told == [
        key for key in asked if key not in {"CheckVolumeBinding", "CheckResourceClaims", "NodeDeclaredFeatures"}
    ]
    assert [rule.key for rule in document_with_default_filters(None).spec.filters] == list(FILTERS)


def test_a_pod_never_goes_to_a_node_without_room_whatever_the_rules_say() -> None:
    snapshot = snapshot_of(make_node("full", cpu="1"), make_node("free", cpu="4"))
    rules = with_default_filters(
        CompiledRuleSet(make_rule_set(scores=[{"name": "full", "expression": "node.metadata.name == 'full' ? 10 : 0"}]))
    )
    cycle = cycle_of(make_pod(requests={"cpu": "2"}), snapshot)

    answer = judge(rules, cycle, snapshot.table.all_rows())

    assert reasons(answer) == {"full": "Insufficient cpu"}
    assert picked(answer, cycle, is_default_profile=False) == "free"


def test_a_node_must_have_room_beside_the_more_important_pods_nominated_to_it() -> None:
    first = Pod.from_json(make_pod("first", requests={"cpu": "3"}, priority=10))
    snapshot = snapshot_of(make_node("n1"), make_node("n2"), make_node("n3")).changed(
        {}, nominated={"n2": [first], "gone": [first]}
    )
    pod = make_pod("second", requests={"cpu": "2"}, priority=10)

    answer = judge(default_profile(), cycle_of(pod, snapshot), snapshot.table.all_rows())

    assert reasons(answer) == {"n2": "Insufficient cpu"}
    assert answer.filters[-1].rule.key == "PodFitsResources"
    assert answer.filters[-1].codes.tolist() == [-2, 0, -2]
    assert [answer.names[position] for position in answer.scored] == ["n1", "n3"]


def test_pods_nominated_with_less_priority_and_the_pod_itself_do_not_count() -> None:
    lower = Pod.from_json(make_pod("lower", requests={"cpu": "3"}, priority=1))
    itself = Pod.from_json(make_pod("itself", requests={"cpu": "3"}, priority=10))
    snapshot = snapshot_of(make_node("n1")).changed({}, nominated={"n1": [lower, itself]})

    answer = judge(
        default_profile(),
        cycle_of(make_pod("itself", requests={"cpu": "2"}, priority=10), snapshot),
        snapshot.table.all_rows(),
    )

    assert answer.feasible == ["n1"]


def test_nominated_pods_leave_nodes_feasible_that_have_room_for_all() -> None:
    other = Pod.from_json(make_pod("other", requests={"cpu": "1"}, priority=10))
    snapshot = snapshot_of(make_node("n1")).changed({}, nominated={"n1": [other]})

    answer = judge(default_profile(), cycle_of(make_pod(requests={"cpu": "1"}), snapshot), snapshot.table.all_rows())

    assert answer.feasible == ["n1"]


def test_the_default_set_breaks_ties_of_rules_that_say_nothing() -> None:
    snapshot = snapshot_of(make_node("small", cpu="2"), make_node("big", cpu="16"))
    cycle = cycle_of(make_pod(requests={"cpu": "1"}), snapshot)
    rules = with_default_filters(CompiledRuleSet(make_rule_set(scores=[{"builtin": "EqualPriority"}])))

    assert picked(judge(rules, cycle, snapshot.table.all_rows()), cycle, is_default_profile=False) == "big"


def test_of_nodes_as_good_as_each_other_the_next_one_is_taken_around() -> None:
    snapshot = snapshot_of(*(make_node(f"n{number}") for number in range(3)))
    cycle = cycle_of(make_pod(), snapshot)
    answer = judge(default_profile(), cycle, snapshot.table.all_rows())

    assert [picked(answer, cycle, after) for after in ("", "n0", "n1", "n2")] == ["n0", "n1", "n2", "n0"]


def test_which_one_is_next_does_not_depend_on_the_order_in_which_nodes_came() -> None:
    snapshot = snapshot_of(*(make_node(name) for name in ("n2", "n0", "n3")))
    snapshot = snapshot.changed({"n1": NodeInfo(Node.from_json(make_node("n1")), ()), "n3": None})
    cycle = cycle_of(make_pod(), snapshot)
    answer = judge(default_profile(), cycle, snapshot.table.all_rows())

    assert [picked(answer, cycle, after) for after in ("", "n0", "n1", "n2", "n3")] == ["n0", "n1", "n2", "n0", "n0"]


def test_nothing_is_picked_where_no_node_passes() -> None:
    snapshot = snapshot_of(make_node("n1", unschedulable=True))
    cycle = cycle_of(make_pod(), snapshot)

    assert picked(judge(default_profile(), cycle, snapshot.table.all_rows()), cycle) is None
