"""Which single rule keeps a Pod from nodes, and which nodes are nearest."""

from datetime import UTC, datetime

from policies.engine.decision import Answer, CompiledRuleSet, decide
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from scheduler.decisions.near_misses import near_misses_of
from tests.builders import make_node, make_pod, make_rule_set


def has(label: str) -> dict[str, str]:
    return {"name": label, "expression": f"has(node.metadata.labels.{label})", "reason": f"no {label}"}


RULES = CompiledRuleSet(make_rule_set(filters=[has("a"), has("b"), {**has("c"), "mode": "shadow"}]))


def answer(*, whole: bool, **nodes: str) -> Answer:
    """Decide by labels that each node has, a letter each."""
    made = [make_node(name, labels=dict.fromkeys(letters, "x")) for name, letters in nodes.items()]
    snapshot = Snapshot.of(map(Node.from_json, made))
    cycle = Cycle(pod=Pod.from_json(make_pod()), snapshot=snapshot, now=datetime(2026, 1, 1, tzinfo=UTC), params={})
    return decide(RULES, cycle, snapshot.table.all_rows(), scoring=False, whole=whole)


def test_a_rule_that_alone_refuses_nodes_is_named_with_them_the_most_nodes_first() -> None:
    found = near_misses_of(answer(whole=True, n1="b", n2="a", n3="b", n4=""))
    assert [(each.rule, each.reason, each.nodes) for each in found.alone] == [
        ("a", "no a", ["n1", "n3"]),
        ("b", "no b", ["n2"]),
    ]
    assert (found.fewest, found.is_whole, found.nodes, found.allowed) == (1, True, 4, [])
    assert [(near.node, near.refusals) for near in found.nearest] == [
        ("n1", [("a", "no a")]),
        ("n2", [("b", "no b")]),
        ("n3", [("a", "no a")]),
    ]


def test_where_every_node_is_refused_by_several_the_nearest_are_named_with_all_of_them() -> None:
    found = near_misses_of(answer(whole=True, n1="", n2="c"))
    assert found.alone == []
    assert found.fewest == 2
    assert [near.refusals for near in found.nearest] == [[("a", "no a"), ("b", "no b")]] * 2


def test_nodes_that_pass_are_allowed_whatever_a_shadow_would_say() -> None:
    found = near_misses_of(answer(whole=True, n1="ab", n2="a"))
    assert found.allowed == ["n1"]
    assert [each.nodes for each in found.alone] == [["n2"]]


def test_of_a_record_in_which_later_rules_were_not_asked_only_what_is_certain_is_said() -> None:
    found = near_misses_of(answer(whole=False, n1="b", n2="a"))
    # Whether b would refuse n1 too isn't known: rule a had refused it before.
    assert [(each.rule, each.nodes) for each in found.alone] == [("b", ["n2"])]
    assert [near.node for near in found.nearest] == ["n2"]
    assert not found.is_whole


def test_an_answer_about_no_node_has_nothing_near() -> None:
    found = near_misses_of(Answer([]))
    assert (found.nodes, found.alone, found.nearest, found.fewest, found.is_whole) == (0, [], [], 0, True)
