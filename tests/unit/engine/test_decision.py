"""Deciding: what filters refuse, what scores add up to, which Assignment applies."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.decision import (
    EPOCH,
    NOT_EVALUATED,
    NOT_IN_TIME,
    Answer,
    CompiledMatch,
    CompiledRevision,
    CompiledRuleSet,
    decide,
    run_tests,
    stop_before,
    to_points,
)
from policies.engine.errors import DeadlineError, ExpressionError
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle, Scope, Score
from policies.engine.ruleset import FilterRule, Match, Revision, RuleSet, RuleSetSpec, ScoreRule
from policies.engine.scores.registry import BUILTIN_SCORES
from policies.engine.status import Code, Status
from tests.builders import make_assignment, make_node, make_pod, make_rule_set

ROOT = Path(__file__).parents[3]


def ranked(*ranks: int) -> Snapshot:
    """Make nodes n0, n1, … with a label `rank`."""
    return Snapshot.of(Node.from_json(make_node(f"n{i}", labels={"rank": str(r)})) for i, r in enumerate(ranks))


def decided(snapshot: Snapshot, *, pod: dict[str, Any] | None = None, whole: bool = False, **spec: Any) -> Answer:
    compiled = CompiledRuleSet(make_rule_set(**spec))
    cycle = Cycle(
        pod=Pod.from_json(pod or make_pod()),
        snapshot=snapshot,
        now=datetime(2026, 1, 1, tzinfo=UTC),
        params=compiled.params,
    )
    return decide(compiled, cycle, snapshot.table.all_rows(), whole=whole)


def rank_filter(name: str, *refused: int, **rule: Any) -> dict[str, Any]:
    """Make a filter that refuses the nodes of these ranks."""
    return {"name": name, "expression": f"!(int(node.metadata.labels.rank) in {list(refused)})", **rule}


def rank_score(name: str = "rank", **rule: Any) -> dict[str, Any]:
    return {"name": name, "expression": "int(node.metadata.labels.rank)", "bounds": [0, 100], **rule}


def codes(answer: Answer) -> list[list[int]]:
    return [column.codes.tolist() for column in answer.filters]


class TestFilters:
    def test_run_in_order_and_a_refused_node_is_not_asked_about_again(self) -> None:
        answer = decided(ranked(0, 1, 2), filters=[rank_filter("first", 0), rank_filter("second", 0, 1)])
        assert codes(answer) == [[0, -1, -1], [NOT_EVALUATED, 0, -1]]
        assert answer.feasible == ["n2"]
        assert answer.feasible_count == 1
        assert [(name, status.reason) for name, status in answer.refused()] == [
            ("n0", "refused by rule first"),
            ("n1", "refused by rule second"),
        ]

    def test_go_on_for_the_record_when_no_node_is_left(self) -> None:
        answer = decided(ranked(0), filters=[rank_filter("first", 0), rank_filter("second", 0)], scores=[rank_score()])
        assert codes(answer) == [[0], [NOT_EVALUATED]]
        assert (answer.feasible, answer.best, answer.points.tolist()) == ([], "", [])

    def test_whole_asks_every_rule_about_every_node_and_the_first_refusal_counts(self) -> None:
        rules = [rank_filter("first", 0), rank_filter("second", 0, 1)]
        answer = decided(ranked(0, 1, 2), whole=True, filters=rules, scores=[rank_score()])
        assert codes(answer) == [[0, -1, -1], [0, 0, -1]]
        assert dict(answer.refused())["n0"].reason == "refused by rule first"
        assert answer.scored.tolist() == [0, 1, 2]
        assert answer.best == "n2"

    def test_whole_never_calls_a_refused_node_the_best(self) -> None:
        answer = decided(ranked(9, 5, 1), whole=True, filters=[rank_filter("first", 9)], scores=[rank_score()])
        assert answer.best == "n1"
        assert decided(ranked(9), whole=True, filters=[rank_filter("all", 9)], scores=[rank_score()]).best == ""

    def test_a_shadow_rule_is_evaluated_and_refuses_nothing(self) -> None:
        answer = decided(ranked(0, 1), filters=[rank_filter("dry", 0, mode="shadow"), rank_filter("real", 1)])
        assert codes(answer) == [[0, -1], [-1, 0]]
        assert answer.feasible == ["n0"]

    def test_a_rule_that_is_off_is_not_there(self) -> None:
        answer = decided(ranked(0), filters=[rank_filter("off", 0, mode="off")], scores=[rank_score(mode="off")])
        assert (answer.filters, answer.scores, answer.feasible) == ([], [], ["n0"])

    @pytest.mark.parametrize(
        ("rule", "status"),
        [
            pytest.param({}, Status(Code.UNRESOLVABLE, "no"), id="preemption can't help unless the rule says so"),
            pytest.param({"preemptionHelps": True}, Status(Code.UNSCHEDULABLE, "no"), id="preemption helps"),
        ],
    )
    def test_the_code_of_a_refusal_says_whether_preemption_helps(self, rule: dict[str, Any], status: Status) -> None:
        answer = decided(ranked(0), filters=[rank_filter("x", 0, reason="no", **rule)])
        assert dict(answer.refused()) == {"n0": status}

    @pytest.mark.parametrize(
        ("on_error", "feasible"),
        [pytest.param("reject", ["n0"], id="reject"), pytest.param("pass", ["n0", "n1"], id="pass")],
    )
    def test_on_error_decides_where_a_rule_cannot_be_evaluated(self, on_error: str, feasible: list[str]) -> None:
        snapshot = Snapshot.of(
            [*(info.node for info in ranked(0).nodes.values()), Node.from_json({"metadata": {"name": "n1"}})]
        )
        answer = decided(snapshot, filters=[rank_filter("x", 9, onError=on_error)])
        assert answer.feasible == feasible
        if on_error == "reject":
            assert dict(answer.refused()) == {"n1": Status(Code.ERROR, "rule x could not be evaluated")}

    def test_a_column_tells_the_status_of_a_node(self) -> None:
        answer = decided(ranked(0, 1, 2), filters=[rank_filter("first", 0), rank_filter("second", 0, 1)])
        assert [answer.filters[0].at(place) for place in range(2)] == [
            Status(Code.UNRESOLVABLE, "refused by rule first"),
            None,
        ]
        assert answer.filters[1].at(0) is None

    def test_the_top_reason_is_that_of_the_most_nodes_and_of_equals_the_first_by_text(self) -> None:
        rules = [rank_filter("b", 0, reason="b"), rank_filter("a", 1, reason="a"), rank_filter("c", 2, 3, reason="c")]
        assert decided(ranked(0, 1), filters=rules).top_reason() == "a"
        assert decided(ranked(0, 1, 2, 3), filters=rules).top_reason() == "c"
        assert decided(ranked(7), filters=rules).top_reason() == ""

    def test_the_same_reason_of_two_rules_counts_together(self) -> None:
        rules = [rank_filter("x", 0, reason="z"), rank_filter("y", 1, reason="z"), rank_filter("a", 2, reason="a")]
        assert decided(ranked(0, 1, 2), filters=rules).top_reason() == "z"


class TestScores:
    def test_points_are_the_weighted_mean_rounded_half_up(self) -> None:
        answer = decided(ranked(0, 100, 45, 44), scores=[rank_score("a", weight=3), rank_score("b", weight=1)])
        assert answer.totals.tolist() == [0, 400, 180, 176]
        assert answer.points.tolist() == [0, 10, 5, 4]
        assert all(type(point) is int for point in answer.points.tolist())

    @given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 100)), min_size=1, max_size=100))
    def test_points_are_exact_for_any_weights(self, rules: list[tuple[int, int]]) -> None:
        total = sum(weight * raw for weight, raw in rules)
        weights = sum(weight for weight, _ in rules)
        points = to_points(np.array([total]), weights).tolist()[0]
        assert abs(2 * total - 20 * points * weights) <= 10 * weights
        assert 2 * total < 20 * points * weights + 10 * weights  # a half goes up
        assert 0 <= points <= 10

    def test_no_weights_give_no_points(self) -> None:
        assert to_points(np.array([0, 0]), 0).tolist() == [0, 0]

    def test_bounds_map_and_clamp(self) -> None:
        answer = decided(ranked(-5, 10, 15, 20, 99), scores=[rank_score(bounds=[10, 20])])
        assert [column.raw.tolist() for column in answer.scores] == [[0, 0, 50, 100, 100]]

    @pytest.mark.parametrize(
        ("expression", "bounds", "raw"),
        [
            pytest.param("double(node.metadata.labels.rank) * 1e20", [0, 50], [0, 0, 100], id="beyond both bounds"),
            pytest.param("1e20", [0, 50], [100, 100, 100], id="all of them"),
            pytest.param("1e20", None, [100, 100, 100], id="all of them, without bounds"),
            pytest.param("18446744073709551615u", None, [100, 100, 100], id="an unsigned number"),
            pytest.param("uint('1844674407370955161' + node.metadata.labels.rank)", [0, 50], [0, 100, 100], id="uint"),
            pytest.param("int(node.metadata.labels.rank)", [1e20, 1.0000000000000002e20], [0, 0, 0], id="bounds"),
        ],
    )
    def test_numbers_beyond_64_bits_are_mapped_like_others(
        self, expression: str, bounds: list[float] | None, raw: list[int]
    ) -> None:
        answer = decided(ranked(-1, 0, 1), scores=[{"name": "x", "expression": expression, "bounds": bounds}])
        assert [column.raw.tolist() for column in answer.scores] == [raw]

    def test_without_bounds_the_nodes_at_hand_are_the_bounds(self) -> None:
        score = {"name": "x", "expression": "int(node.metadata.labels.rank)"}
        assert decided(ranked(5, 7, 9), scores=[score]).points.tolist() == [0, 5, 10]
        assert decided(ranked(5, 7, 9), filters=[rank_filter("f", 9)], scores=[score]).points.tolist() == [0, 10]
        assert decided(ranked(7, 7), scores=[score]).points.tolist() == [10, 10]
        whole = decided(ranked(5, 7, 9), whole=True, filters=[rank_filter("f", 9)], scores=[score])
        assert whole.points.tolist() == [0, 5, 10]

    @pytest.mark.parametrize(
        ("expression", "points"),
        [
            pytest.param("dyn(node.metadata.labels.nothing)", [0, 0], id="no node gives a number"),
            pytest.param("int(node.metadata.labels.rank) == 0 ? dyn('x') : dyn(3)", [0, 10], id="one gives a text"),
            pytest.param("1.0 / double(node.metadata.labels.rank)", [0, 10], id="one gives infinity"),
            pytest.param("double(node.metadata.labels.rank) / 2.0", [0, 10], id="fractions"),
        ],
    )
    def test_a_node_without_a_finite_number_scores_0(self, expression: str, points: list[int]) -> None:
        assert decided(ranked(0, 1), scores=[{"name": "x", "expression": expression}]).points.tolist() == points

    def test_of_equals_the_first_by_name_is_best(self) -> None:
        snapshot = Snapshot.of(Node.from_json(make_node(name)) for name in ("c", "a", "b"))
        assert decided(snapshot, scores=[{"name": "x", "expression": "1"}]).best == "a"

    def test_no_score_rule_means_no_best(self) -> None:
        assert decided(ranked(1)).best == ""

    def test_scores_that_dont_count_name_no_best(self) -> None:
        assert decided(ranked(1, 2), scores=[rank_score(mode="shadow")]).best == ""
        assert decided(ranked(1, 2), scores=[rank_score(mode="shadow"), rank_score(name="counts")]).best == "n1"

    def test_the_best_is_told_by_the_exact_sum_not_by_points(self) -> None:
        assert decided(ranked(50, 51), scores=[rank_score()]).best == "n1"

    def test_a_shadow_score_is_recorded_and_adds_nothing(self) -> None:
        answer = decided(ranked(0, 100), scores=[rank_score("dry", mode="shadow"), {"name": "x", "expression": "1"}])
        assert [column.rule.key for column in answer.scores] == ["dry", "x"]
        assert answer.points.tolist() == [10, 10]

    def test_a_score_that_has_nothing_to_say_gives_0_to_all_nodes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(BUILTIN_SCORES, "Silent", Silent)
        rules = [{"builtin": "Silent", "weight": 9}, rank_score()]
        answer = decided(ranked(0, 100), scores=rules)
        assert answer.scores[0].raw.tolist() == [0, 0]
        assert answer.points.tolist() == [0, 1]
        assert decided(ranked(0, 100), scores=rules[:1]).points.tolist() == [0, 0]

    def test_prioritize_scores_without_filtering_and_filter_without_scoring(self) -> None:
        snapshot = ranked(0, 1)
        compiled = CompiledRuleSet(make_rule_set(filters=[rank_filter("f", 0, 1)], scores=[rank_score()]))
        cycle = Cycle(pod=Pod.from_json(make_pod()), snapshot=snapshot, now=datetime(2026, 1, 1, tzinfo=UTC))
        rows = snapshot.table.rows(["n1", "n0"])
        assert decide(compiled, cycle, rows, filtering=False).names == ["n1", "n0"]
        assert decide(compiled, cycle, rows, filtering=False).totals.tolist() == [1, 0]
        assert decide(compiled, cycle, rows, scoring=False).scores == []


class Silent(Score):
    """A score that has nothing to say of any Pod."""

    scope = Scope.NODE

    def score(self, cycle: Cycle, rows: Any) -> None:
        return None


class TestCompiledRuleSet:
    @pytest.mark.parametrize(
        ("spec", "counts"),
        [
            ({"filters": [{"name": "x", "expression": "node.count({}) == 0"}]}, True),
            ({"scores": [{"name": "x", "expression": "node.count({})"}]}, True),
            ({"filters": [{"name": "x", "expression": "node.count({}) == 0", "mode": "off"}]}, False),
            ({"filters": [{"builtin": "PodFitsResources"}], "scores": [rank_score()]}, False),
        ],
    )
    def test_knows_whether_it_counts_pods(self, spec: dict[str, Any], counts: bool) -> None:
        assert CompiledRuleSet(make_rule_set(**spec)).counts_pods is counts

    @pytest.mark.parametrize(
        "spec",
        [
            RuleSetSpec(filters=[FilterRule(name="x", expression="node.newer({})")]),
            RuleSetSpec(scores=[ScoreRule(builtin="LeastRequestedPriority", arguments={"newer": 1})]),
            RuleSetSpec(scores=[ScoreRule(builtin="Newer")]),
        ],
    )
    def test_a_rule_of_a_newer_berth_is_refused_and_its_rule_set_named(self, spec: RuleSetSpec) -> None:
        with pytest.raises(ExpressionError, match="rule set web: "):
            CompiledRevision(Revision(number=1, rule_sets=[RuleSet(name="web", spec=spec)]))

    def test_an_assignment_without_its_rule_set_is_refused(self) -> None:
        with pytest.raises(KeyError):
            CompiledRevision(Revision(number=1, assignments=[make_assignment()]))


class TestMatch:
    POD = make_pod(namespace="shop", labels={"app": "web"}, schedulerName="berth", priorityClassName="high")

    @pytest.mark.parametrize(
        ("match", "takes"),
        [
            pytest.param({}, True, id="nothing is asked"),
            pytest.param({"schedulerNames": ["other", "berth"]}, True, id="the scheduler's name"),
            pytest.param({"schedulerNames": ["default-scheduler"]}, False, id="another scheduler's name"),
            pytest.param({"namespaces": ["shop"]}, True, id="the namespace"),
            pytest.param({"namespaces": ["default"]}, False, id="another namespace"),
            pytest.param({"priorityClassNames": ["high"]}, True, id="the priority class"),
            pytest.param({"priorityClassNames": ["low"]}, False, id="another priority class"),
            pytest.param({"podSelector": {"matchLabels": {"app": "web"}}}, True, id="the Pod's labels"),
            pytest.param({"podSelector": {"matchLabels": {"app": "db"}}}, False, id="other labels"),
            pytest.param({"namespaceSelector": {"matchLabels": {"kind": "prod"}}}, True, id="the namespace's labels"),
            pytest.param({"namespaceSelector": {"matchLabels": {"kind": "test"}}}, False, id="other ones"),
            pytest.param(
                {"namespaces": ["shop"], "priorityClassNames": ["low"]}, False, id="all that is asked must hold"
            ),
            pytest.param(
                {"podSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}},
                True,
                id="an expression",
            ),
        ],
    )
    def test_each_member_asks_one_thing(self, match: dict[str, Any], takes: bool) -> None:
        compiled = CompiledMatch(make_assignment(match=match).match)
        assert compiled.takes(Pod.from_json(self.POD), {"kind": "prod"}) is takes

    def test_a_pod_that_names_no_scheduler_is_the_default_ones(self) -> None:
        match = CompiledMatch(Match(scheduler_names=["default-scheduler"]))
        assert match.takes(Pod.from_json({"metadata": {"name": "x"}}), {})

    @pytest.mark.parametrize(
        ("more", "names"),
        [
            pytest.param([], ["prod", "test", None], id="none for certain"),
            pytest.param([{"order": 9}], ["prod", "test", "last"], id="the last one for certain"),
            pytest.param([{"order": 0}], ["last"], id="the first one for certain"),
            pytest.param([{"order": 0, "mode": "shadow"}], ["prod", "test", None], id="a shadow decides nothing"),
            pytest.param([{"order": 0, "match": {"namespaces": ["else"]}}], ["prod", "test", None], id="not this Pod"),
        ],
    )
    def test_any_assignment_up_to_the_first_certain_one_is_possible_while_the_labels_of_the_namespace_are_unknown(
        self, more: list[dict[str, Any]], names: list[str | None]
    ) -> None:
        by_labels = [
            make_assignment(kind, order=order, match={"namespaceSelector": {"matchLabels": {"kind": kind}}})
            for order, kind in enumerate(["prod", "test"], 1)
        ]
        assignments = by_labels + [make_assignment("last", **members) for members in more]
        revision = CompiledRevision(Revision(number=1, rule_sets=[make_rule_set()], assignments=assignments))
        found = revision.possible(Pod.from_json(self.POD), EPOCH)
        assert [each and each[0].name for each in found] == names


class TestChoose:
    def revision(self, **assignments: dict[str, Any]) -> CompiledRevision:
        rule_sets = [make_rule_set("a"), make_rule_set("b")]
        made = [make_assignment(name, **{"rule_set": "a", **spec}) for name, spec in assignments.items()]
        return CompiledRevision(Revision(number=1, rule_sets=rule_sets, assignments=made))

    def chosen(self, revision: CompiledRevision, **pod: Any) -> tuple[str, list[str]]:
        snapshot = Snapshot({}, {"default": {"kind": "prod"}})
        choice = revision.choose(Pod.from_json(make_pod(**pod)), snapshot, EPOCH)
        enforced = choice.enforced[0].name if choice.enforced else ""
        return enforced, [assignment.name for assignment, _ in choice.shadows]

    def test_the_lowest_order_that_matches_decides_and_of_equals_the_first_by_name(self) -> None:
        revision = self.revision(z={"order": 1, "match": {"namespaces": ["other"]}}, y={"order": 5}, x={"order": 5})
        assert self.chosen(revision) == ("x", [])
        assert self.chosen(revision, namespace="other") == ("z", [])

    def test_shadows_before_the_enforced_one_apply_too_and_those_after_it_do_not(self) -> None:
        revision = self.revision(
            s1={"order": 1, "mode": "shadow"}, e={"order": 2}, s2={"order": 3, "mode": "shadow"}, e2={"order": 4}
        )
        assert self.chosen(revision) == ("e", ["s1"])

    def test_a_pod_that_only_shadows_take_is_decided_by_none(self) -> None:
        assert self.chosen(self.revision(s={"mode": "shadow"})) == ("", ["s"])

    def test_namespaces_are_matched_by_the_labels_in_the_snapshot(self) -> None:
        revision = self.revision(a={"match": {"namespaceSelector": {"matchLabels": {"kind": "prod"}}}})
        assert self.chosen(revision) == ("a", [])
        assert self.chosen(revision, namespace="unknown") == ("", [])

    def test_the_assignments_own_rule_set_comes_with_it(self) -> None:
        choice = self.revision(x={"rule_set": "b"}).choose(Pod.from_json(make_pod()), Snapshot({}), EPOCH)
        assert choice.enforced is not None
        assert choice.enforced[1].name == "b"


class TestRunTests:
    def faults(self, *, now: str = "", **expect: Any) -> list[tuple[str, str]]:
        test = {
            "name": "t",
            "pod": make_pod(),
            "nodes": [make_node("n1"), make_node("n2", labels={"bad": "x"})],
            "expect": expect,
            **({"now": now} if now else {}),
        }
        rules = [
            {"name": "good", "expression": "!has(node.metadata.labels.bad)", "reason": "is bad"},
            {"name": "late", "expression": "now < timestamp('2027-01-01T00:00:00Z')", "reason": "too late"},
        ]
        rule_set = make_rule_set(filters=rules, scores=[{"name": "x", "expression": "1"}], tests=[test])
        return [(fault.path, fault.message) for fault in run_tests(rule_set)]

    def test_a_rule_set_without_tests_has_no_fault_of_theirs(self) -> None:
        assert run_tests(make_rule_set(filters=[{"name": "never", "expression": "false", "reason": "never"}])) == []

    def test_expectations_that_hold_give_no_fault(self) -> None:
        assert self.faults(feasible=["n1"], best="n1", reasons={"n2": "is bad"}) == []
        assert self.faults() == []

    def test_the_nodes_that_should_pass_may_be_named_in_any_order(self) -> None:
        test = {"name": "t", "pod": make_pod(), "nodes": [make_node("n1"), make_node("n2")]}
        assert run_tests(make_rule_set(tests=[{**test, "expect": {"feasible": ["n2", "n1"]}}])) == []

    def test_each_expectation_that_fails_is_a_fault_with_what_was_found(self) -> None:
        assert self.faults(feasible=["n2"], best="n2", reasons={"n1": "is bad", "n2": "x"}) == [
            ("spec.tests[0].expect.feasible", "t: should pass: n2; passes: n1"),
            ("spec.tests[0].expect.best", "t: best should be n2, and is n1"),
            ("spec.tests[0].expect.reasons.n1", "t: n1 should be refused by “is bad”, and isn't refused"),
            ("spec.tests[0].expect.reasons.n2", "t: n2 should be refused by “x”, and is refused by “is bad”"),
        ]

    def test_a_test_says_what_time_it_is(self) -> None:
        assert self.faults(now="2027-06-01T00:00:00Z", feasible=[], best="", reasons={"n1": "too late"}) == []


SAME_BYTES = """
import json, sys
sys.path.insert(0, {root!r})
from tests.unit.engine.test_decision import encoded_answer
print(json.dumps(encoded_answer().decode()))
"""


def encoded_answer() -> bytes:
    """Decide on a cluster with something of everything, and write the answer down."""
    nodes = [make_node(f"n{i}", labels={"zone": "abc"[i % 3], "rank": str(i)}, cpu=str(i % 4)) for i in range(40)]
    pods = [make_pod(f"p{i}", labels={"app": "xyz"[i % 3], "tier": "ab"[i % 2]}, nodeName=f"n{i}") for i in range(30)]
    snapshot = Snapshot.of(map(Node.from_json, nodes), map(Pod.from_json, pods))
    answer = decided(
        snapshot,
        pod=make_pod(labels={"app": "x", "tier": "a"}, requests={"cpu": "1", "example.com/b": "0", "memory": "1Gi"}),
        filters=[
            {"builtin": "PodFitsResources"},
            {"name": "spread", "expression": "topology.count('zone', pod.metadata.labels) < 4", "reason": "full"},
            rank_filter("ranks", 7, 8, mode="shadow"),
        ],
        scores=[
            {"builtin": "LeastRequestedPriority", "weight": 2},
            {"name": "labels", "expression": "size(node.metadata.labels.map(k, k)) + int(node.metadata.labels.rank)"},
        ],
    )
    return msgspec.json.encode(
        {
            "names": answer.names,
            "filters": [(column.codes.tolist(), column.statuses) for column in answer.filters],
            "refused": list(answer.refused()),
            "scores": [None if column.raw is None else column.raw.tolist() for column in answer.scores],
            "totals": answer.totals.tolist(),
            "points": answer.points.tolist(),
            "best": answer.best,
            "top_reason": answer.top_reason(),
        }
    )


def test_the_same_input_gives_the_same_bytes_in_every_process() -> None:
    expected = encoded_answer()
    assert encoded_answer() == expected
    assert msgspec.json.decode(expected)["best"]
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", SAME_BYTES.format(root=str(ROOT))],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        )
        assert json.loads(done.stdout).encode() == expected


class TestDeadline:
    """What is decided when time is up before every rule was asked."""

    SPEC = {
        "filters": [rank_filter("first", 0), rank_filter("second", 1), rank_filter("third", 2)],
        "scores": [rank_score("a"), rank_score("b")],
    }

    def answer(self, rules: int, *, deadline: str = "refuse", **spec: Any) -> Answer:
        made = make_rule_set(**({**self.SPEC, **spec} | {"failures": {"deadline": deadline}}))
        compiled, snapshot = CompiledRuleSet(made), ranked(0, 1, 2, 30)
        cycle = Cycle(pod=Pod.from_json(make_pod()), snapshot=snapshot, now=datetime(2026, 1, 1, tzinfo=UTC))
        return decide(compiled, cycle, snapshot.table.all_rows(), deadline=stop_before(rules))

    def test_a_deadline_that_is_never_over_changes_nothing(self) -> None:
        answer, plain = self.answer(5), decided(ranked(0, 1, 2, 30), **self.SPEC)
        assert (answer.missed, answer.timed_out) == ([], False)
        assert answer.feasible == plain.feasible
        assert answer.totals.tolist() == plain.totals.tolist()

    @pytest.mark.parametrize("rules", [0, 1, 2])
    def test_nodes_that_enforced_filters_were_not_asked_about_are_refused(self, rules: int) -> None:
        answer = self.answer(rules)
        assert answer.timed_out
        assert answer.missed == ["first", "second", "third", "a", "b"][rules:]
        assert answer.feasible == []
        refused = [status for _, status in answer.refused()]
        assert [status.reason for status in refused[rules:]] == [NOT_IN_TIME.reason] * (4 - rules)
        assert {status.code for status in refused[rules:]} == {Code.ERROR}
        assert codes(answer)[rules:] == [[NOT_EVALUATED] * 4] * (3 - rules)

    @pytest.mark.parametrize("rules", [0, 1, 2])
    def test_or_they_pass_where_that_was_chosen_and_get_no_points(self, rules: int) -> None:
        answer = self.answer(rules, deadline="pass")
        assert answer.feasible == ["n0", "n1", "n2", "n3"][rules:]
        assert answer.totals.tolist() == [0] * (4 - rules)
        assert [column.raw.tolist() for column in answer.scores] == [[0] * (4 - rules)] * 2

    @pytest.mark.parametrize("deadline", ["refuse", "pass"])
    def test_scores_that_were_not_asked_count_0_and_what_passed_the_filters_stays(self, deadline: str) -> None:
        answer = self.answer(4, deadline=deadline)
        assert answer.missed == ["b"]
        assert answer.feasible == ["n3"]
        assert [column.raw.tolist() for column in answer.scores] == [[30], [0]]
        assert (answer.totals.tolist(), answer.points.tolist()) == ([30], [2])

    @pytest.mark.parametrize("choice", ["refuse", "pass"])
    @pytest.mark.parametrize("evaluations", [0, 1, 3])
    @pytest.mark.parametrize(
        "rule",
        ["(node.metadata.name + pod.metadata.name).size() > 0", "node.metadata.name.size() > 0"],
        ids=["joined, node by node", "of the node alone, in a column"],
    )
    def test_it_strikes_inside_a_rule_too(self, rule: str, evaluations: int, choice: str) -> None:
        spec = {"filters": [{"name": "slow", "expression": rule, "reason": "no"}, rank_filter("next", 0)]}
        compiled = CompiledRuleSet(make_rule_set(**spec, scores=self.SPEC["scores"], failures={"deadline": choice}))
        snapshot, left = ranked(0, 1, 2, 30), iter(range(evaluations + 1))

        def end_in_time() -> None:
            if next(left, None) is None:
                raise DeadlineError

        cycle = Cycle(
            pod=Pod.from_json(make_pod()),
            snapshot=snapshot,
            now=datetime(2026, 1, 1, tzinfo=UTC),
            give_way=end_in_time,
            end_in_time=end_in_time,
        )
        answer = decide(compiled, cycle, snapshot.table.all_rows())
        assert answer.missed == ["slow", "next", "a", "b"]
        assert answer.feasible == ([] if choice == "refuse" else ["n0", "n1", "n2", "n3"])
        # A replay, which has no clock, ends before the rule that wasn't finished, and says the same.
        again = Cycle(pod=cycle.pod, snapshot=snapshot, now=cycle.now)
        replayed = decide(compiled, again, snapshot.table.all_rows(), deadline=stop_before(0))
        assert list(replayed.refused()) == list(answer.refused())
        assert (replayed.missed, replayed.points.tolist()) == (answer.missed, answer.points.tolist())

    def test_it_strikes_inside_a_score_too(self) -> None:
        compiled = CompiledRuleSet(make_rule_set(scores=[{"name": "s", "expression": "size(node.metadata.name)"}]))
        snapshot = ranked(0, 1)

        def end_in_time() -> None:
            raise DeadlineError

        cycle = Cycle(
            pod=Pod.from_json(make_pod()),
            snapshot=snapshot,
            now=datetime(2026, 1, 1, tzinfo=UTC),
            end_in_time=end_in_time,
        )
        answer = decide(compiled, cycle, snapshot.table.all_rows())
        assert (answer.missed, answer.points.tolist()) == (["s"], [0, 0])

    def test_missed_filters_that_dont_count_refuse_nothing(self) -> None:
        answer = self.answer(1, filters=[rank_filter("first", 0), rank_filter("noted", 1, mode="shadow")])
        assert answer.missed == ["noted", "a", "b"]
        assert answer.feasible == ["n1", "n2", "n3"]

    def test_the_deadline_is_not_asked_any_more_once_it_is_over(self) -> None:
        asked: list[bool] = []

        def deadline() -> bool:
            asked.append(len(asked) >= 1)
            return asked[-1]

        compiled, snapshot = CompiledRuleSet(make_rule_set(**self.SPEC)), ranked(0, 1)
        cycle = Cycle(pod=Pod.from_json(make_pod()), snapshot=snapshot, now=datetime(2026, 1, 1, tzinfo=UTC))
        assert decide(compiled, cycle, snapshot.table.all_rows(), deadline=deadline).missed[0] == "second"
        assert asked == [False, True]


class TestVictimsInTests:
    STAYS = {"name": "stays", "expression": "victim.metadata.?labels.env.orValue('') != 'prod'"}

    def faults(self, protected: list[str], *, pods: list[dict[str, Any]], **rule: Any) -> list[str]:
        test = {
            "name": "t",
            "pod": make_pod(),
            "nodes": [make_node()],
            "pods": pods,
            "expect": {"protected": protected},
        }
        return [str(fault) for fault in run_tests(make_rule_set(victims=[self.STAYS | rule], tests=[test]))]

    def placed(self, name: str, env: str, **pod: Any) -> dict[str, Any]:
        return make_pod(name, labels={"env": env}, **({"nodeName": "n1"} | pod))

    def test_the_protected_pods_are_named_those_of_other_namespaces_with_theirs(self) -> None:
        pods = [
            self.placed("b", "prod"),
            self.placed("a", "prod", namespace="shop"),
            self.placed("c", "dev"),
            self.placed("elsewhere", "prod", nodeName="n9"),
        ]
        assert self.faults(["shop/a", "b"], pods=pods) == []
        assert self.faults([], pods=pods) == [
            "spec.tests[0].expect.protected: t: should be protected: none; protected: b, shop/a"
        ]

    def test_rules_that_dont_count_protect_nobody(self) -> None:
        assert self.faults([], pods=[self.placed("b", "prod")], mode="shadow") == []
        assert self.faults([], pods=[self.placed("b", "prod")], mode="off") == []
