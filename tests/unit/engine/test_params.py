"""Params that an Assignment gives stand in place of its rule set's own: by name, of their types, at a bearable cost."""

from copy import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from policies.engine import ruleset
from policies.engine.decision import EPOCH, CompiledRevision, CompiledRuleSet, decide
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.params import overridden, type_faults
from policies.engine.reuse import Judge
from policies.engine.rule import Cycle
from policies.engine.ruleset import Assignment, LabelMatch, Match, Revision, RuleSet
from policies.engine.scheduling import with_default_filters
from policies.engine.validation import params_faults
from tests.builders import make_assignment, make_node, make_pod, make_rule_set

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TEAM = {"name": "team", "expression": "node.metadata.labels.team == params.team", "reason": "another team's"}
RANK = {"name": "rank", "expression": "double(node.metadata.labels.rank) * params.factor", "bounds": [0, 10]}
OWN: dict[str, Any] = {"team": "web", "factor": 1.0}


def team_rules(**params: Any) -> RuleSet:
    return make_rule_set("teams", filters=[TEAM], scores=[RANK], params=OWN | params)


def given(name: str, **params: Any) -> Assignment:
    match = Match(pod_selector=LabelMatch(match_labels={"for": name}))
    return Assignment(name=name, rule_set="teams", match=match, params=params)


NODES = [make_node(f"{team}-{rank}", labels={"team": team, "rank": str(rank)}) for team in "ab" for rank in (1, 5)]
SNAPSHOT = Snapshot.of([Node.from_json(node) for node in NODES], [])


def asked(revision: CompiledRevision, name: str) -> tuple[list[str], list[int]]:
    """Return the feasible nodes and the points of a Pod that an Assignment takes."""
    pod = Pod.from_json(make_pod(labels={"for": name}))
    chosen = revision.choose(pod, SNAPSHOT, EPOCH).enforced
    assert chosen is not None
    cycle = Cycle(pod=pod, snapshot=SNAPSHOT, now=NOW, params=chosen[1].params)
    answer = decide(chosen[1], cycle, SNAPSHOT.table.all_rows())
    return answer.feasible, answer.points.tolist()


class TestDeciding:
    def test_two_assignments_of_one_rule_set_decide_by_their_own_params(self) -> None:
        revision = CompiledRevision(
            Revision(
                number=1, rule_sets=[team_rules()], assignments=[given("a", team="a"), given("b", team="b", factor=2)]
            )
        )
        for _ in range(2):  # what one has left in a memory isn't the other's
            assert asked(revision, "a") == (["a-1", "a-5"], [1, 5])
            assert asked(revision, "b") == (["b-1", "b-5"], [2, 10])

    def test_what_is_compiled_is_shared_and_equal_params_are_one(self) -> None:
        assignments = [given("a", team="a"), given("b", team="b"), given("c", team="a"), given("own")]
        revision = CompiledRevision(Revision(number=1, rule_sets=[team_rules()], assignments=assignments))
        sets = []
        for name in ("a", "b", "c", "own"):
            chosen = revision.choose(Pod.from_json(make_pod(labels={"for": name})), SNAPSHOT, EPOCH).enforced
            assert chosen is not None
            sets.append(chosen[1])
        a, b, c, own = sets
        assert a is c
        assert own is revision.rule_sets["teams"]
        assert len({id(each.filters[0][1]) for each in sets}) == 1
        assert len({a.key, b.key, own.key}) == 3
        assert (a.overrides, own.overrides) == ({"team": "a"}, {})

    def test_the_next_revision_takes_over_what_did_not_change(self) -> None:
        def revision(
            assignments: list[Assignment], rules: RuleSet, former: CompiledRevision | None
        ) -> CompiledRevision:
            return CompiledRevision(Revision(number=1, rule_sets=[rules], assignments=assignments), former=former)

        def of(compiled: CompiledRevision) -> CompiledRuleSet:
            chosen = compiled.choose(Pod.from_json(make_pod(labels={"for": "a"})), SNAPSHOT, EPOCH).enforced
            assert chosen is not None
            return chosen[1]

        first = revision([given("a", team="a")], team_rules(), None)
        same = revision([given("a", team="a"), given("b", team="b")], team_rules(), first)
        other = revision([given("a", team="b")], team_rules(), first)
        newer = revision([given("a", team="a")], team_rules(factor=3.0), first)
        assert of(same) is of(first)
        assert of(other) is not of(first)
        assert of(newer) is not of(first)
        assert of(newer).params["factor"] == 3.0

    def test_rules_in_shadow_are_left_out_and_keep_the_params(self) -> None:
        rules = make_rule_set("teams", filters=[TEAM, {**TEAM, "name": "other", "mode": "shadow"}], params=OWN)
        compiled = CompiledRuleSet(rules).with_params({"team": "a"})
        assert len(compiled.enforced.filters) == 1
        assert compiled.enforced.params["team"] == compiled.only_counting().params["team"] == "a"
        assert with_default_filters(compiled).enforced.params["team"] == "a"

    def test_answers_are_not_used_again_for_other_params(self) -> None:
        judge, compiled, found = Judge(), CompiledRuleSet(team_rules()), []
        profiles = {team: with_default_filters(compiled.with_params({"team": team})) for team in "ab"}
        for team in "abab":
            cycle = Cycle(pod=Pod.from_json(make_pod()), snapshot=SNAPSHOT, now=NOW, params=profiles[team].params)
            found.append(judge.judge(profiles[team], cycle, SNAPSHOT.table.all_rows()).feasible)
        assert found == [["a-1", "a-5"], ["b-1", "b-5"]] * 2


class TestTypes:
    @pytest.mark.parametrize(
        ("own", "given", "fault"),
        [
            ("web", 1, ": must be a text, as in rule set teams, not a whole number"),
            (1, 1.5, ": must be a whole number, as in rule set teams, not a number with a fraction"),
            (1, True, ": must be a whole number, as in rule set teams, not true or false"),
            (True, 1, ": must be true or false, as in rule set teams, not a whole number"),
            ([1], {"a": 1}, ": must be a list, as in rule set teams, not an object"),
            (["a"], ["b", 2], "[1]: must be a text, as the others in rule set teams, not a whole number"),
            ({"a": 1}, {"b": "x"}, ".b: must be a whole number, as the others in rule set teams, not a text"),
            (
                ["a", 1],
                [True],
                "[0]: must be a text or a whole number, as the others in rule set teams, not true or false",
            ),
            ("web", None, ": must be a text, as in rule set teams, not null"),
            (
                {"a": 0.5, "b": 3},
                {"b": 1.5},
                ".b: must be a whole number, as in rule set teams, not a number with a fraction",
            ),
            ({"a": "x", "b": 3}, {"a": 1}, ".a: must be a text, as in rule set teams, not a whole number"),
            (
                [{"b": 0.5}],
                [{"b": 1}, {"b": "x"}],
                "[1].b: must be a number with a fraction, as in rule set teams, not a text",
            ),
            ([[1]], [[2], ["x"]], "[1][0]: must be a whole number, as the others in rule set teams, not a text"),
            ({"a": {"b": 3}}, {"a": {"b": "x"}}, ".a.b: must be a whole number, as in rule set teams, not a text"),
        ],
    )
    def test_another_type_is_a_fault_with_its_path(self, own: Any, given: Any, fault: str) -> None:
        assert [str(each) for each in type_faults("teams", {"a": own}, {"a": given})] == [f"spec.params.a{fault}"]

    @pytest.mark.parametrize(
        ("own", "given"),
        [
            ("web", ""), (1, -5), (1.5, 2), ([1.5], [2]), ([], ["a", 1]), ({}, {"a": 1}), ({"a": "x"}, {"b": "y"}),
            (["a"], []), (None, "anything"), ({"a": 0.5}, {"b": 1}), ({"a": 0.5, "b": 3}, {"a": 1, "b": 4, "c": 2}),
            ({"a": None, "b": 1}, {"a": "x"}), ([{"a": 1}, {"b": "x"}], [{"a": 2, "b": "y"}, {}]), ([[]], [["x"], [1]]),
        ],
    )  # fmt: skip
    def test_the_same_type_is_none(self, own: Any, given: Any) -> None:
        assert type_faults("teams", {"a": own}, {"a": given}) == []

    def test_a_name_that_the_rule_set_lacks_is_a_fault_with_the_nearest_one(self) -> None:
        assert [str(each) for each in type_faults("teams", OWN, {"taem": "a", "x": 1})] == [
            "spec.params.taem: rule set teams has no such param; did you mean team?",
            "spec.params.x: rule set teams has no such param; known are factor, team",
        ]
        (fault,) = type_faults("plain", {}, {"team": "a"})
        assert str(fault) == "spec.params.team: rule set plain has no such param; it has none"

    @pytest.mark.parametrize(
        ("own", "given", "kept"),
        [
            (1.5, 2, 2.0),
            ([1.5], [2, 3], [2.0, 3.0]),
            ({"a": 1.5}, {"b": 2}, {"b": 2.0}),
            ([1.5, 1], [2], [2]),
            (["a"], ["b"], ["b"]),
            (1, 2, 2),
            ({"a": 0.5, "b": 3}, {"a": 1, "b": 4}, {"a": 1.0, "b": 4}),
            ([{"a": 0.5, "b": 3}], [{"a": 1, "b": 4}, {"b": 5}], [{"a": 1.0, "b": 4}, {"b": 5}]),
            ({"a": {"b": [0.5]}}, {"a": {"b": [1]}}, {"a": {"b": [1.0]}}),
            ({"a": {"b": 0.5}}, {"c": {"b": 1}}, {"c": {"b": 1.0}}),
            ({"a": 0.5}, {"a": True}, {"a": True}),
            ([0.5, "auto"], [1, "auto"], [1.0, "auto"]),
            ({"a": {"b": 0.5}, "c": {"b": "auto"}}, {"d": {"b": 1}}, {"d": {"b": 1.0}}),
            ([0.5, None], [1], [1]),
        ],
    )
    def test_whole_numbers_become_fractions_where_the_rule_set_has_them(self, own: Any, given: Any, kept: Any) -> None:
        found = overridden({"a": own, "b": 1}, {"a": given})
        assert repr(found) == repr({"a": kept, "b": 1})


class TestCosts:
    LOOP = {"name": "loop", "expression": "params.names.all(a, params.names.all(b, a + b != node.metadata.name))"}

    def rules(self) -> RuleSet:
        return make_rule_set("loops", filters=[{**self.LOOP, "reason": "no"}], params={"names": ["a"]})

    def test_what_costs_too_much_with_the_params_is_a_fault(self) -> None:
        heavy = Assignment(name="a", rule_set="loops", params={"names": [f"name-{number}" for number in range(2_000)]})
        (fault, *_) = params_faults(heavy, self.rules())
        assert fault.path == "spec.params"
        assert fault.message.startswith("with them, rule set loops costs too much: spec.filters[0].expression: ")

    def test_what_costs_little_is_none_and_types_are_looked_at_first(self) -> None:
        assert params_faults(Assignment(name="a", rule_set="loops", params={"names": ["b", "c"]}), self.rules()) == []
        (fault,) = params_faults(Assignment(name="a", rule_set="loops", params={"names": 1}), self.rules())
        assert fault.path == "spec.params.names"

    def test_victims_rules_are_looked_at_too(self) -> None:
        victim = {"name": "v", "expression": self.LOOP["expression"].replace("node.", "victim."), "reason": "no"}
        rules = make_rule_set("loops", victims=[victim], params={"names": ["a"]})
        heavy = Assignment(name="a", rule_set="loops", params={"names": [f"name-{number}" for number in range(2_000)]})
        assert "spec.victims[0].expression" in params_faults(heavy, rules)[0].message


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (1, True), ([0], [False])])
def test_documents_differ_whose_params_expressions_tell_apart(one: Any, other: Any) -> None:
    rule_sets, assignments = (
        [team_rules(spare=each) for each in (one, other)],
        [given("a", x=each) for each in (one, other)],
    )
    for was, will in (rule_sets, assignments):
        assert was != will
        assert not was == will  # noqa: SIM201 - each of the two is asked
        assert was == was.__copy__()
    live = CompiledRevision(Revision(number=1, rule_sets=rule_sets[:1]))
    assert [
        each.name for each in CompiledRevision(Revision(number=2, rule_sets=rule_sets[1:]), former=live).to_warm
    ] == ["teams"]


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (1, True)])
def test_rule_sets_differ_whose_tests_expressions_tell_apart(one: Any, other: Any) -> None:
    alone = {"name": "alone", "expression": "!pod.spec.?hostPID.orValue(false)", "reason": "shares"}
    was, will, again = (
        make_rule_set(
            filters=[alone],
            tests=[{"name": "t", "pod": make_pod("a", hostPID=each), "expect": {"feasible": []}}],
        )
        for each in (one, other, one)
    )
    assert was != will
    assert not was == will  # noqa: SIM201 - each of the two is asked
    assert was == again
    assert was.spec.tests[0] != will.spec.tests[0]


def test_what_cant_differ_in_its_params_is_compared_without_encoding_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taking up a Revision compares thousands of documents."""

    def encoded(_: object) -> bytes:
        pytest.fail("params were encoded")

    monkeypatch.setattr(ruleset, "_encode_sorted", encoded)
    bare = given("a")
    same = assignment = given("a", x=1)
    assert assignment == same
    assert bare == copy(bare)
    assert bare != given("b")


def test_new_params_are_warmed_where_columns_go_by_them() -> None:
    by_prefix = {"name": "prefix", "expression": "node.metadata.name.startsWith(params.prefix)"}
    by_room = {"name": "room", "expression": "usage.free.cpu >= params.prefix"}
    rule_sets = [
        make_rule_set(name, params={"prefix": "a"}, filters=[rule])
        for name, rule in (("names", by_prefix), ("room", by_room))
    ]
    given = [make_assignment("a", "names"), make_assignment("b", "names", params={"prefix": "b"})]
    given += [make_assignment("c", "room", params={"prefix": "c"})]
    first = CompiledRevision(Revision(number=1, rule_sets=rule_sets, assignments=given))
    assert [(each.name, each.overrides) for each in first.to_warm] == [
        ("names", {}),
        ("room", {}),
        ("names", {"prefix": "b"}),
    ]
    more = [*given, make_assignment("d", "names", params={"prefix": "d"})]
    second = CompiledRevision(Revision(number=2, rule_sets=rule_sets, assignments=more), former=first)
    assert [(each.name, each.overrides) for each in second.to_warm] == [("names", {"prefix": "d"})]
