"""Whatever differs between two states of a thing stands in the lines that reviewers read, with what it was and what it is."""

from typing import Any

import msgspec
import pytest

from policies.changes_in_words import part_changes, rule_set_changes
from policies.engine import ruleset as engine
from policies.wording import json_text

ASSIGNMENT = engine.Assignment(
    name="web", rule_set="web", mode="canary", percent=10, params={"team": "web"}, description="before"
)
PRIORITY_CLASS = engine.PriorityClass(name="high", value=100, description="before", version=1)
PAUSE = engine.Pause(name="p", target="everything", reason="before", description="before")
EXEMPTION = engine.Exemption(
    name="e",
    owner="before",
    target="RuleSet/web",
    reason="before",
    until="2026-01-01T00:00:00Z",
    pods=[engine.ExemptPods(namespace="before")],
    description="before",
)
FILTER = engine.FilterRule(name="f", expression="before", reason="before")
SCORE = engine.ScoreRule(name="s", expression="before", bounds=(0, 1))
VICTIMS = engine.VictimRule(name="v", expression="before", reason="before")
TEST = engine.RuleSetTest(name="t", pod={"before": 1}, nodes=[], expect=engine.Expectation(feasible=["before"]))
RULE_SET = engine.RuleSet(
    name="web",
    description="before",
    version=1,
    spec=engine.RuleSetSpec(filters=[FILTER], scores=[SCORE], victims=[VICTIMS], params={"team": "web"}, tests=[TEST]),
)


def other(value: Any) -> Any:
    """Something else of the same kind."""
    match value:
        case bool():
            return not value
        case int():
            return value + 7
        case str():
            return f"{value}Z" if value else "after"
        case dict():
            return {**value, "after": 1}
        case _:
            return None


@pytest.mark.parametrize("before", [ASSIGNMENT, PRIORITY_CLASS, PAUSE, EXEMPTION], ids=lambda each: type(each).__name__)
def test_each_field_that_is_text_or_number_shows_what_it_was_and_what_it_is(before: Any) -> None:
    for field in before.__struct_fields__:
        was = getattr(before, field)
        changed = other(was)
        # A moment is said in words, which has a test of its own.
        left = {"name", "version", "target", "mode", "preemption_policy", "deletion_policy", "until"}
        if field in left or changed is None:
            continue
        (line,) = part_changes(before, msgspec.structs.replace(before, **{field: changed}))
        old, _, new = line.partition(" → ")
        for value, side in ((was, old), (changed, new)):
            shown = value if isinstance(value, str) else json_text(value).strip("{}")
            words = shown.replace(":", " ").replace('"', "").split()
            assert not words or words[-1] in side.replace('"', ""), (field, line)


def test_an_exemption_says_until_when_and_for_which_pods_in_words() -> None:
    (line,) = part_changes(None, EXEMPTION)
    assert (
        line
        == "Exemption e added: rule set web passes over Pods in before until 2026-01-01 00:00 UTC, for before: before"
    )
    pods = [engine.ExemptPods(namespace="shop", name="a"), engine.ExemptPods(namespace="data")]
    after = msgspec.structs.replace(EXEMPTION, until="2026-01-01T00:00:05Z", pods=pods)
    (line,) = part_changes(EXEMPTION, after)
    assert line == (
        "Exemption e changed: until “2026-01-01 00:00 UTC” → “2026-01-01 00:00:05 UTC”, "
        "pods “Pods in before” → “Pod a in shop; Pods in data”"
    )


@pytest.mark.parametrize(("reason", "said"), [("", "refuse nodes unless"), ("full", "refuse nodes as “full” unless")])
def test_a_filter_without_a_reason_is_told_without_one(reason: str, said: str) -> None:
    rule = engine.FilterRule(name="team", expression="true", reason=reason)
    made = engine.RuleSet(name="web", spec=engine.RuleSetSpec(filters=[rule]))
    assert f"web: filter added: team: {said} true" in part_changes(None, made)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (
            engine.FilterRule(builtin="CheckNodeLabelPresence", arguments={"presence": False, "labels": ["gpu"]}),
            'filter added: CheckNodeLabelPresence with labels ["gpu"], presence false (',
        ),
        (
            engine.ScoreRule(builtin="NodeLabelPriority", arguments={"label": "gpu"}, weight=3),
            'score added: NodeLabelPriority with label "gpu", weight 3 (',
        ),
        (
            engine.FilterRule(name="f", expression="true", on_error="pass", preemption_helps=True),
            "filter added: f: refuse nodes unless true; a node passes where it can't be evaluated; preemption may help",
        ),
        (
            engine.VictimRule(name="v", expression="true", on_error="pass"),
            "victims rule added: v: protect Pods from preemption unless true; a Pod isn't protected where it can't be evaluated",
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_new_rule_is_told_with_everything_that_its_answer_depends_on(rule: Any, said: str) -> None:
    member = {"FilterRule": "filters", "ScoreRule": "scores", "VictimRule": "victims"}[type(rule).__name__]
    made = engine.RuleSet(name="web", spec=engine.RuleSetSpec(**{member: [rule]}))
    (line,) = rule_set_changes(None, made)
    assert line.startswith(said)


def test_a_pause_that_gets_an_end_says_that_it_had_none() -> None:
    (line,) = part_changes(PAUSE, msgspec.structs.replace(PAUSE, until="2026-05-01T00:00:00Z"))
    assert line == "Pause p changed: until “it is resumed” → “2026-05-01 00:00 UTC”"


def test_arguments_that_change_are_written_as_in_the_document() -> None:
    was = engine.FilterRule(builtin="CheckNodeLabelPresence", arguments={"labels": ["gpu"], "presence": True})
    now = msgspec.structs.replace(was, arguments={"labels": ["gpu"], "presence": False})
    before, after = (engine.RuleSet(name="web", spec=engine.RuleSetSpec(filters=[each])) for each in (was, now))
    assert (
        'arguments {"labels":["gpu"],"presence":true} → {"labels":["gpu"],"presence":false}'
        in part_changes(before, after)[-1]
    )


def test_an_assignment_of_which_the_description_changes_alone_says_so_and_nothing_else() -> None:
    (line,) = part_changes(ASSIGNMENT, msgspec.structs.replace(ASSIGNMENT, description="after"))
    assert line == "Assignment web changed: description “before” → “after”"


def test_an_assignment_that_changes_otherwise_too_says_both() -> None:
    (line,) = part_changes(ASSIGNMENT, msgspec.structs.replace(ASSIGNMENT, description="after", order=7))
    assert "order 100, " in line
    assert "→ order 7, " in line
    assert line.endswith("; description “before” → “after”")


def test_an_assignment_whose_sentence_stays_shows_the_field() -> None:
    enforced = engine.Assignment(name="web", rule_set="web")
    (line,) = part_changes(enforced, msgspec.structs.replace(enforced, percent=5))
    assert line == "Assignment web changed: percent 0 → 5"


def test_a_rule_set_says_which_description_and_which_params_it_had_and_has() -> None:
    spec = msgspec.structs.replace(RULE_SET.spec, params={"limit": "5", "late": True})
    after = msgspec.structs.replace(RULE_SET, description="after", spec=spec, version=0)
    lines = part_changes(RULE_SET, after)
    assert "web: description “before” → “after”" in lines
    assert 'web: params changed: limit added: "5", late added: true, team removed: "web"' in lines


def test_a_param_of_another_type_differs() -> None:
    spec = msgspec.structs.replace(RULE_SET.spec, params={"team": 5})
    after = msgspec.structs.replace(RULE_SET, spec=spec, version=0)
    assert 'web: params changed: team "web" → 5' in part_changes(RULE_SET, after)


@pytest.mark.parametrize("kind", ["filters", "scores", "victims", "tests"])
def test_each_field_of_a_rule_and_of_a_test_that_changes_makes_a_line(kind: str) -> None:
    (was,) = getattr(RULE_SET.spec, kind)
    for field in was.__struct_fields__:
        changed = other(getattr(was, field))
        if changed is None:
            continue
        spec = msgspec.structs.replace(RULE_SET.spec, **{kind: [msgspec.structs.replace(was, **{field: changed})]})
        after = msgspec.structs.replace(RULE_SET, spec=spec, version=0)
        assert len(part_changes(RULE_SET, after)) > 1, field


def test_of_tests_of_one_name_the_one_that_changed_is_named() -> None:
    def with_tests(*nodes: str) -> engine.RuleSet:
        tests = [msgspec.structs.replace(TEST, expect=engine.Expectation(feasible=[node])) for node in nodes]
        return msgspec.structs.replace(RULE_SET, spec=msgspec.structs.replace(RULE_SET.spec, tests=tests))

    before = with_tests("n1", "n2")
    assert rule_set_changes(before, with_tests("n3", "n2")) == ["test t changed: expects “feasible n1” → “feasible n3”"]
    assert rule_set_changes(before, with_tests("n1")) == ["test t (2) removed: feasible n2"]


@pytest.mark.parametrize("number", [True, 1.0])
def test_a_test_that_differs_in_the_type_of_a_number_says_where(number: float) -> None:
    def with_priority(value: object) -> engine.RuleSet:
        tests = [msgspec.structs.replace(TEST, pod={"spec": {"priority": value}})]
        return msgspec.structs.replace(RULE_SET, spec=msgspec.structs.replace(RULE_SET.spec, tests=tests))

    assert rule_set_changes(with_priority(1), with_priority(number)) == ["test t changed: different pod"]


def test_a_large_number_is_written_with_its_thousands_so_that_a_zero_too_much_is_seen() -> None:
    more = msgspec.structs.replace(PRIORITY_CLASS, value=10_000_000)
    (line,) = part_changes(msgspec.structs.replace(PRIORITY_CLASS, value=1_000_000), more)
    assert "value 1,000,000 → 10,000,000" in line
