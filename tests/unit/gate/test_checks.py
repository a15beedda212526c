"""What each check of the gate says, and in which order people read it."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from controlplane.env import GATE_CHECKS
from policies.engine.ruleset import Assignment, Revision, RuleSet
from policies.publishing import Edit, Result, Value, blocked, in_order, with_edits
from policies.publishing.gates import FOUND, PASSED, UNKNOWN
from scheduler.backtest.compare import Kind
from scheduler.backtest.results import ChunkResult, Line, summed
from scheduler.backtest.results import Result as Backtested
from scheduler.gate import checks
from scheduler.gate.checks import CHECKS, MOST_LINES, Question, look
from scheduler.gate.forecast import Forecast, Handed, Refused, Shadowed, Shifted, Taken, Waiting
from scheduler.gate.words import lines_of
from tests.builders import (
    TEAM_FILTER,
    make_assignment,
    make_exemption,
    make_pause,
    make_priority_class,
    make_rule_set,
)

NOTHING = Forecast(nodes=3, pods=9, waiting=[], refused=[], taken=[], shifted=[])


def backtested(*pods: str, decided: int = 10) -> Backtested:
    lines = [
        Line(
            kind=Kind.NO_NODE,
            pod=pod,
            uid=pod,
            decision="d",
            at_microseconds=1,
            verb="filter",
            rule_set="web",
            rule="r",
        )
        for pod in pods
    ]
    found = ChunkResult(decided=decided, lines=lines)
    return summed([found], of="Change 1", digest="", revision=3)


def question(*values: RuleSet | Assignment, forecast: Forecast | None = NOTHING, **more: Any) -> Question:
    """These values, on nothing that was live."""
    after = Revision(
        number=0,
        rule_sets=[each for each in values if isinstance(each, RuleSet)],
        assignments=[each for each in values if isinstance(each, Assignment)],
    )
    return Question(
        Revision(number=0), after, [Edit.of(each) for each in values], forecast, **{"backtest": backtested(), **more}
    )


def test_each_check_has_a_level_and_each_level_a_check() -> None:
    assert set(CHECKS) == set(GATE_CHECKS)


@pytest.mark.parametrize("check", CHECKS)
def test_nothing_is_found_where_nothing_is_wrong(check: str) -> None:
    found = look(check, question(make_rule_set("web"), make_assignment("all", "web")))
    assert (found.verdict, list(found.lines), found.count) == (PASSED, [], 0)


@pytest.mark.parametrize("check", [check for check, (asks_cluster, _) in CHECKS.items() if asks_cluster])
def test_a_cluster_that_is_away_is_said_by_each_check_and_counts_as_unknown(check: str) -> None:
    found = look(check, question(forecast=None, unknown="connection refused"))
    assert found == Result(check, UNKNOWN, f"{check} could not look at the cluster: connection refused")


def test_pods_are_named_and_the_sentence_counts_them() -> None:
    forecast = Forecast(
        nodes=3,
        pods=9,
        waiting=[Waiting("shop/a", 2, 0, 2), Waiting("shop/b", 2, 1, 0)],
        refused=[Refused("shop/c", "n1", "team", "another team's"), Refused("shop/d", "n1", "team", "another team's")],
        taken=[Taken("", 0, 2), Taken("web", 2, 0)],
        shifted=[Shifted("shop/b", "n1", "n2")],
    )
    asked = question(forecast=forecast)
    none = look("left-with-none", asked)
    assert none.says == "a Pod that waits would be left with no node"
    assert none.lines == ["shop/a waits, and would be left with no node: 2 would do now"]
    refused = look("refused", asked)
    assert refused.says == "2 Pods run where their rules would refuse them"
    assert refused.lines[0] == "shop/c runs on n1, which team would refuse: another team's"
    assert refused.found[1]["pod"] == "shop/d"
    assert look("taken", asked).lines == ["no rule set: 0 Pods more, 2 less", "rule set web: 2 Pods more, 0 less"]
    assert look("best-node", asked).lines == ["shop/b waits: n2 would be its best node, in place of n1"]


def test_pods_without_a_rule_set_count_as_no_rule_set_that_gains_or_loses() -> None:
    one = [Taken("", 0, 2), Taken("web", 2, 0)]
    several = [*one, Taken("data", 0, 1)]
    asked = [question(forecast=msgspec.structs.replace(NOTHING, taken=taken)) for taken in (one, several)]
    assert [look("taken", each).says for each in asked] == [
        "a rule set gains or loses Pods",
        "2 rule sets gain or lose Pods",
    ]


def test_every_rule_set_that_gains_or_loses_pods_is_named_for_programs() -> None:
    taken = [Taken(f"web-{number}", 0, 1) for number in range(200)]
    found = look("taken", question(forecast=msgspec.structs.replace(NOTHING, taken=taken)))
    assert found.found[199] == {"ruleSet": "web-199", "gained": 0, "lost": 1}
    assert found.lines[-1] == "and 150 more"


def test_pods_of_an_assignment_that_becomes_a_shadow_are_said_to_be_only_shadowed() -> None:
    asked = question(
        forecast=msgspec.structs.replace(
            NOTHING, taken=[Taken("", 1, 0)], handed=[Handed("all", "", 1)], shadowed=[Shadowed("all", "web", 1)]
        )
    )
    assert look("taken", asked).lines == [
        "1 Pod that Assignment all takes now would be taken by none",
        "Assignment all would only shadow 1 Pod: what rule set web says of them is recorded, and not done",
        "no rule set: 1 Pod more, 0 less",
    ]


def test_pods_are_told_by_the_assignments_that_take_them() -> None:
    handed = [Handed("", "new", 2), Handed("old", "", 1), Handed("old", "new", 1_200)]
    asked = question(forecast=msgspec.structs.replace(NOTHING, handed=handed))
    assert look("taken", asked).verdict == PASSED
    assert look("taken", asked).lines == [
        "Assignment new would take 2 Pods that no Assignment takes now",
        "1 Pod that Assignment old takes now would be taken by none",
        "Assignment new would take 1,200 Pods that Assignment old takes now",
    ]


def test_where_none_is_left_without_other_nodes_are_no_more_than_a_note() -> None:
    found = look("left-with-none", question(forecast=Forecast(1, 1, [Waiting("shop/b", 2, 1, 0)], [], [])))
    assert found.verdict == PASSED
    assert found.says == "every Pod that waits keeps a node; 1 Pod could use other nodes than now"
    assert found.lines == ["shop/b waits: 2 nodes would do now, 1 more and 0 less then"]


def test_of_many_only_the_beginning_is_kept() -> None:
    waiting = [Waiting(f"shop/{number}", 1, 0, 1) for number in range(1_234)]
    found = look("left-with-none", question(forecast=Forecast(1, 1_234, waiting, [], [])))
    assert found.says == "1,234 Pods that wait would be left with no node"
    assert found.count == 1_234
    assert (len(found.lines), found.lines[-1]) == (MOST_LINES + 1, "and 1,184 more")
    assert len(found.found) == MOST_LINES


def test_a_removed_rule_set_that_an_assignment_needs_is_said_to_be_that() -> None:
    asked = question(make_assignment("all", "web"))
    asked.before = Revision(number=0, rule_sets=[make_rule_set("web")])
    (line,) = look("documents", asked).lines
    assert line == "Assignment all: rule set web would no longer be live; give this Assignment another one first"


def test_a_missing_rule_set_and_a_failed_test_are_found() -> None:
    found = look("documents", question(make_assignment("all", "nowhere")))
    assert found.lines == ["Assignment all: rule set nowhere has no published version, and gets none here"]
    test = {"name": "t", "pod": {}, "nodes": [{"metadata": {"name": "n1"}}], "expect": {"feasible": []}}
    failing = look("tests", question(make_rule_set("web", filters=[{"builtin": "PodFitsHost"}], tests=[test])))
    assert failing.says == "an expectation of a test doesn't hold"
    assert failing.lines[0].startswith("web: spec.tests[0].expect.feasible")


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (make_pause(target="RuleSet/web/gone"), "web-paused: spec.target: rule set web has no rule gone; it has team"),
        (make_exemption(target="RuleSet/gone"), "cart: spec.target: no rule set gone is live"),
        (make_assignment("all", "web", params={"taem": 1}), "all: spec.params.taem: rule set web has no such param; "),
        (
            make_rule_set("web", filters=[TEAM_FILTER], params={"team": 1}),
            "mine: spec.params.team: must be a whole number, as in rule set web, not a text",
        ),
    ],
)
def test_what_publishing_would_refuse_is_no_document_without_faults(edit: Value, said: str) -> None:
    """It may have been right when it was sent to review."""
    web = make_rule_set("web", filters=[TEAM_FILTER], params={"team": "a"})
    live = Revision(number=1, rule_sets=[web], assignments=[make_assignment("mine", "web", params={"team": "b"})])
    edits = [Edit.of(edit)]
    (line,) = look("documents", Question(live, with_edits(live, edits), edits)).lines
    assert line.startswith(said)


def test_two_classes_that_would_both_be_the_global_default_are_found() -> None:
    gold, silver = (
        make_priority_class(name, value, globalDefault=True) for name, value in (("gold", 2), ("silver", 1))
    )
    found = look(
        "documents",
        Question(Revision(number=1), Revision(number=1, priority_classes=[gold, silver]), [Edit.of(silver)]),
    )
    (said,) = found.lines
    assert said.startswith(
        "PriorityClasses gold, silver: each would be the global default, and Kubernetes allows only one; take"
    )


def test_a_costly_rule_set_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [{"name": "f", "expression": "node.metadata.name != pod.metadata.name", "reason": "no"}]
    asked = question(make_rule_set("web", filters=rules))
    assert look("cost", asked).verdict == PASSED
    monkeypatch.setattr(checks, "_COSTLY_SHARE", 0.0)
    assert "rule set web takes " in look("cost", asked).lines[0]


@pytest.mark.parametrize(
    ("target", "edit", "what"),
    [
        ("everything", make_rule_set("web", filters=[TEAM_FILTER]), "everything"),
        ("everything", make_assignment("all", "web"), "everything"),
        ("everything", make_priority_class("gold", 1), ""),
        ("RuleSet/web", make_rule_set("web", filters=[TEAM_FILTER]), "rule set web"),
        ("RuleSet/web", make_assignment("all", "web"), "rule set web"),
        ("RuleSet/web", make_rule_set("db"), ""),
        ("RuleSet/web/team", make_rule_set("web", filters=[TEAM_FILTER]), "rule team of rule set web"),
        ("Assignment/all", make_assignment("all", "web"), "Assignment all"),
        ("Assignment/all", make_rule_set("web", filters=[TEAM_FILTER]), "Assignment all"),
        ("Assignment/all", make_rule_set("db"), ""),
    ],
)
def test_what_a_pause_keeps_out_of_the_forecast_is_said(target: str, edit: Value, what: str) -> None:
    live = Revision(
        number=1,
        rule_sets=[make_rule_set("web"), make_rule_set("db")],
        assignments=[make_assignment("all", "web")],
        pauses=[make_pause("moved", target, until="2026-02-01T00:00:00Z")],
    )
    edits = [Edit.of(edit)]
    asked = Question(live, with_edits(live, edits), edits, NOTHING, now=datetime(2026, 1, 1, tzinfo=UTC))
    found = look("pauses", asked)
    said = f"{what} is out of force by Pause moved until 2026-02-01T00:00:00Z: what the gate says of Pods leaves it out"
    assert (found.verdict, list(found.lines)) == ((FOUND, [said]) if what else (PASSED, []))
    asked.now = datetime(2026, 3, 1, tzinfo=UTC)
    assert look("pauses", asked).verdict == PASSED


def test_only_conflicts_that_the_edits_bring_are_found() -> None:
    rule_sets = [make_rule_set("web"), make_rule_set("db")]
    old = [make_assignment("all", "web", order=1), make_assignment("late", "db", order=5)]
    new = make_assignment("later", "db", order=6)
    before = Revision(number=1, rule_sets=rule_sets, assignments=old)
    after = Revision(number=1, rule_sets=rule_sets, assignments=[*old, new])
    found = look("assignments", Question(before, after, [Edit.of(new)], NOTHING))
    assert found.lines == [
        "Assignment later is never reached: all before it takes every Pod that it could take",
    ]
    paused = msgspec.structs.replace(after, pauses=[make_pause("moved", "Assignment/all")])
    (said,) = look("assignments", Question(before, paused, [Edit.of(new)], NOTHING)).lines
    assert said.endswith("every Pod that it could take, once Assignment all isn't paused any more")


def test_an_assignment_that_another_one_covered_before_is_not_told_again() -> None:
    rule_sets = [make_rule_set("web"), make_rule_set("db")]
    late = make_assignment("late", "db", order=5)
    old, new = [make_assignment("all", "web", order=2), late], make_assignment("first", "db", order=1)
    before = Revision(number=1, rule_sets=rule_sets, assignments=old)
    after = Revision(number=1, rule_sets=rule_sets, assignments=[*old, new])
    told = ["Assignment all is never reached: first before it takes every Pod that it could take"]
    assert look("assignments", Question(before, after, [Edit.of(new)], NOTHING)).lines == told
    paused = msgspec.structs.replace(before, pauses=[make_pause("moved", "Assignment/all")])
    assert len(look("assignments", Question(paused, after, [Edit.of(new)], NOTHING)).lines) == 2


def test_what_blocks_comes_first_then_what_was_found_and_pods_before_documents() -> None:
    results = [
        Result("documents", PASSED, "no faults"),
        Result("cost", FOUND, "a rule set is costly", ["web"]),
        Result("refused", FOUND, "5 Pods run", ["a", "b", "c", "d", "e"]),
        Result("taken", UNKNOWN, "taken could not look at the cluster"),
    ]
    levels = {**GATE_CHECKS, "cost": "blocking"}
    assert [each.check for each in in_order(results, levels)] == ["cost", "refused", "taken", "documents"]
    lines = list(lines_of(results, levels))
    assert [line for line in lines if not line.startswith(" ")] == [
        "✗ a rule set is costly",
        "! 5 Pods run",
        "? taken could not look at the cluster",
        "✓ no faults",
    ]
    assert blocked(results, levels).startswith("The gate blocks it: a rule set is costly (web).")
    assert "5 Pods run (a, b, c, …)" in blocked(results, {"refused": "blocking"})
    assert blocked(results, GATE_CHECKS) == ""


def test_pods_that_there_was_no_time_for_are_said_and_not_taken_for_right() -> None:
    asked = question(forecast=Forecast(1, 9, [], [], [], [], [], 1_200, 3))
    assert look("left-with-none", asked).says == "every Pod that waits keeps a node; there was no time for 1,200 Pods"
    assert [look(check, asked).verdict for check in ("left-with-none", "refused", "best-node")] == [UNKNOWN] * 3
    refused = [Refused("shop/c", "n1", "team", "another team's")]
    assert look("refused", question(forecast=Forecast(1, 9, [], refused, [], [], [], 0, 3))).verdict == FOUND


def test_a_backtest_counts_by_the_pods_that_would_have_got_no_node() -> None:
    asked = question(backtest=None)
    assert look("backtest", asked).says == "no backtest of these edits has ended: run one"
    assert look("backtest", asked).verdict == UNKNOWN
    asked.backtest = backtested("shop/a", "shop/b")
    result = look("backtest", asked)
    assert (result.verdict, result.count) == (FOUND, 2)
    assert result.says == "2 Pods would have got no node, by the backtest over 10 Decisions, on Revision 3"
    asked.backtest = backtested()
    assert look("backtest", asked).verdict == PASSED
    asked.backtest = backtested(decided=0)
    assert look("backtest", asked).verdict == UNKNOWN
