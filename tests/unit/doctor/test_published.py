"""What the lint knows of the rules that are live."""

from typing import Any

import pytest

from policies.engine.ruleset import Assignment, FilterRule, Revision, RuleSet, RuleSetSpec, ScoreRule
from scheduler.doctor.published import Known, known_of

FILTER = FilterRule(name="team", expression="true", reason="no")
COUNTING = FilterRule(name="few", expression="node.count({'app': 'web'}) < 3", reason="full")
SCORE = ScoreRule(builtin="LeastRequestedPriority")


def known(mode: str = "enforce", **spec: Any) -> Known:
    rule_set = RuleSet(name="web", spec=RuleSetSpec(**spec))
    assignment = Assignment(name="all", rule_set="web", mode=mode)  # type: ignore[arg-type]
    return known_of(Revision(number=1, rule_sets=[rule_set], assignments=[assignment]))


def test_nothing_is_live_before_anything_is_published() -> None:
    assert known_of(Revision(number=0)) == Known(refuses=False, scores=False, counts_pods=False, protects_victims=False)


def test_a_filter_that_counts_refuses_and_counts() -> None:
    live = known(filters=[COUNTING])
    assert (live.refuses, live.counts_pods, live.scores) == (True, True, False)


def test_a_score_refuses_nobody() -> None:
    live = known(scores=[SCORE])
    assert (live.refuses, live.counts_pods, live.scores) == (False, False, True)


@pytest.mark.parametrize("mode", ["shadow", "off"])
def test_a_rule_that_is_not_enforced_does_nothing(mode: str) -> None:
    rule = FilterRule(name="team", expression="true", reason="no", mode=mode)  # type: ignore[arg-type]
    assert known(filters=[rule]).refuses is False


def test_a_filter_in_shadow_that_counts_is_not_asked_at_binding() -> None:
    shadow = FilterRule(name="few", expression=COUNTING.expression, reason="full", mode="shadow")
    assert known(filters=[FILTER, shadow]).counts_pods is False


def test_a_score_that_counts_is_not_asked_at_binding() -> None:
    score = ScoreRule(name="fewest", expression="10 - node.count({'app': 'web'})")
    assert known(scores=[score]).counts_pods is False


def test_an_assignment_that_only_watches_does_nothing() -> None:
    assert known("shadow", filters=[FILTER], scores=[SCORE]) == known_of(Revision(number=0))


def test_a_rule_set_that_nobody_gets_does_nothing() -> None:
    rule_set = RuleSet(name="web", spec=RuleSetSpec(filters=[FILTER]))
    assert known_of(Revision(number=1, rule_sets=[rule_set])).refuses is False
