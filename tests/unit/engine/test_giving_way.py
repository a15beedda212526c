"""Deciding beside something more urgent: where it can be made to wait, and that it gives the same answer then."""

from datetime import UTC, datetime
from typing import Any

import pytest

from policies.engine.cel.expressions import Expression, Result
from policies.engine.decision import NOT_IN_TIME, CompiledRuleSet, decide
from policies.engine.errors import DeadlineError
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.reuse import Judge
from policies.engine.rule import Cycle
from policies.engine.scheduling import judge
from tests.builders import make_node, make_pod, make_rule_set

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODES = 20
RULES = {
    "filters": [
        {"builtin": "PodFitsResources"},
        {"name": "joined", "expression": "!(node.metadata.name + pod.metadata.name).endsWith('3p')", "reason": "no"},
        {"name": "off", "expression": "false", "mode": "off"},
    ],
    "scores": [{"builtin": "LeastRequestedPriority"}, {"name": "one", "expression": "1"}],
}


def snapshot_of(nominated: bool = False) -> Snapshot:
    nodes = map(Node.from_json, (make_node(f"n{number}") for number in range(NODES)))
    waiting = {"n1": [Pod.from_json(make_pod("first", priority=9))]} if nominated else {}
    return Snapshot.of(nodes, []).changed({}, nominated=waiting)


def cycle_of(snapshot: Snapshot, turns: list[int] | None = None, **more: Any) -> Cycle:
    if turns is not None:
        more["give_way"] = lambda: turns.append(1)
    return Cycle(pod=Pod.from_json(make_pod("p")), snapshot=snapshot, now=NOW, **more)


class TestDecide:
    def test_each_rule_and_each_evaluation_of_a_node_gives_way(self) -> None:
        rule_set, snapshot, turns = CompiledRuleSet(make_rule_set(**RULES)), snapshot_of(), []
        decide(rule_set, cycle_of(snapshot, turns), snapshot.table.all_rows())
        # Two filters, two scores; one of the filters joins Pod and node.
        assert len(turns) == 4 + NODES

    @pytest.mark.parametrize("whole", [False, True])
    def test_the_answer_is_the_same(self, whole: bool) -> None:
        rule_set, snapshot = CompiledRuleSet(make_rule_set(**RULES)), snapshot_of()
        rows = snapshot.table.all_rows()
        plain = decide(rule_set, cycle_of(snapshot), rows, whole=whole)
        paused = decide(rule_set, cycle_of(snapshot, []), rows, whole=whole)
        assert paused.feasible == plain.feasible != []
        assert [column.codes.tolist() for column in paused.filters] == [
            column.codes.tolist() for column in plain.filters
        ]
        assert paused.totals.tolist() == plain.totals.tolist()
        assert list(paused.refused()) == list(plain.refused()) != []

    def test_it_can_be_ended_there_and_decided_anew(self) -> None:
        rule_set, snapshot = CompiledRuleSet(make_rule_set(**RULES)), snapshot_of()
        rows = snapshot.table.all_rows()
        plain = decide(rule_set, cycle_of(snapshot), rows)
        for most in range(4 + NODES):
            left = iter(range(most))

            def give_way(left: Any = left) -> None:
                if next(left, None) is None:
                    raise TimeoutError

            with pytest.raises(TimeoutError):
                decide(rule_set, cycle_of(snapshot, give_way=give_way), rows)
        again = decide(rule_set, cycle_of(snapshot), rows)
        assert (again.feasible, again.totals.tolist()) == (plain.feasible, plain.totals.tolist())


def test_an_expression_gives_way_once_for_nodes_that_look_the_same() -> None:
    turns: list[int] = []
    nodes = [Node.from_json(make_node(f"n{number}", labels={"zone": f"z{number % 3}"})) for number in range(NODES)]
    snapshot = Snapshot.of(nodes, [])
    expression = Expression("(node.metadata.labels.zone + pod.metadata.name).contains('1')", Result.BOOLEAN)
    answers = expression.evaluate(cycle_of(snapshot, turns), snapshot.table.all_rows())
    assert len(turns) == 3
    assert sum(map(bool, answers.listed())) == 7


def test_what_is_asked_again_for_nominated_pods_gives_way_too() -> None:
    rule_set = CompiledRuleSet(make_rule_set(filters=RULES["filters"]))
    plain, nominated = snapshot_of(), snapshot_of(nominated=True)
    turns: dict[bool, list[int]] = {False: [], True: []}
    for snapshot in (plain, nominated):
        judge(rule_set, cycle_of(snapshot, turns[snapshot is nominated]), snapshot.table.all_rows())
    # The two filters again, and the one evaluation for the node.
    assert len(turns[True]) == len(turns[False]) + 3


class TestJudge:
    """With Pods nominated to n1, which is asked about once more."""

    @staticmethod
    def ended_after(most: int) -> Any:
        left = iter(range(most))

        def give_way() -> None:
            if next(left, None) is None:
                raise DeadlineError

        return give_way

    @pytest.mark.parametrize(("choice", "passes"), [("refuse", False), ("pass", True)])
    def test_where_time_is_up_beside_nominated_pods_the_rule_set_chooses_and_it_shows(
        self, choice: str, passes: bool
    ) -> None:
        rule_set = CompiledRuleSet(make_rule_set(**RULES, failures={"deadline": choice}))
        snapshot = snapshot_of(nominated=True)
        asked = 2 + NODES  # the filters, once
        answer = judge(rule_set, cycle_of(snapshot, give_way=self.ended_after(asked)), snapshot.table.all_rows())
        assert answer.missed[:2] == ["PodFitsResources", "joined"]
        assert ("n1" in answer.feasible) is passes
        assert [name for name, status in answer.refused() if status is NOT_IN_TIME] == ([] if passes else ["n1"])

    def test_an_answer_that_was_not_finished_is_no_ground_for_the_next_one(self) -> None:
        rule_set, snapshot, book = CompiledRuleSet(make_rule_set(**RULES)), snapshot_of(), Judge()
        rows = snapshot.table.all_rows()
        assert book.judge(rule_set, cycle_of(snapshot, give_way=self.ended_after(1)), rows).missed
        whole = book.judge(rule_set, cycle_of(snapshot), rows)
        assert whole.feasible == judge(rule_set, cycle_of(snapshot), rows).feasible != []

    def test_nor_does_time_that_is_up_while_a_former_one_is_looked_at_end_in_a_fault(self) -> None:
        spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
        pod = Pod.from_json(make_pod("p", topologySpreadConstraints=[spread]))
        rule_set, book = CompiledRuleSet(make_rule_set(filters=[{"builtin": "EvenPodsSpread"}])), Judge()
        snapshot = Snapshot.of(Node.from_json(make_node(f"n{number}", labels={"zone": "z"})) for number in range(3))
        rows = snapshot.table.all_rows()
        assert book.judge(rule_set, Cycle(pod=pod, snapshot=snapshot, now=NOW), rows).feasible
        late = Cycle(pod=pod, snapshot=snapshot, now=NOW, give_way=self.ended_after(0))
        assert book.judge(rule_set, late, rows).missed == ["EvenPodsSpread"]
