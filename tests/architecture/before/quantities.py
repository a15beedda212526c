"""Tried on `457d843` and the commit before: a quantity written as a map has no more digits than one that is read."""

from datetime import UTC, datetime

from policies.engine.decision import CompiledRuleSet, decide
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from tests.builders import make_node, make_pod, make_rule_set

RULE = {"name": "large", "expression": "{'quantity': '1e100000'}.isGreaterThan(quantity('1'))", "reason": "no"}


def test_a_quantity_of_a_hundred_thousand_digits_is_not_compared() -> None:
    rule_set = CompiledRuleSet(make_rule_set(filters=[{**RULE, "onError": "reject"}]))
    snapshot = Snapshot.of([Node.from_json(make_node("n1"))])
    cycle = Cycle(pod=Pod.from_json(make_pod()), snapshot=snapshot, now=datetime(2026, 1, 1, tzinfo=UTC))

    assert decide(rule_set, cycle, snapshot.table.all_rows()).feasible == []
