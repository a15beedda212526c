"""Rows and documents: what goes in comes out."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import compiler
from policies.engine.documents import document_of, read_assignment
from policies.engine.ruleset import RuleSet
from policies.engine.validation import read_rule_set
from policies.models import Assignment, Rule, RuleSetVersion
from policies.models import RuleSet as RuleSetRow
from tests.builders import TEAM_FILTER, assignment_document, make_node, make_pod, make_rule_set, rule_set_document
from tests.component.pages import publish, publish_all

DOCUMENTS = [
    pytest.param({"filters": [TEAM_FILTER]}, id="an expression"),
    pytest.param({"filters": [{"builtin": "PodFitsResources", "name": "room", "mode": "shadow"}]}, id="a built-in"),
    pytest.param(
        {"filters": [TEAM_FILTER | {"onError": "pass", "preemptionHelps": True, "mode": "off"}]}, id="all of a filter"
    ),
    pytest.param(
        {"scores": [{"name": "s", "expression": "1.5", "bounds": [-0.5, 20], "weight": 7}]}, id="all of a score"
    ),
    pytest.param(
        {"scores": [{"name": "s", "expression": "1.5", "bounds": [-1e300, 1e20]}]}, id="bounds beyond 64 bits"
    ),
    pytest.param({"scores": [{"builtin": "LeastRequestedPriority"}]}, id="a built-in score"),
    pytest.param(
        {"victims": [{"name": "v", "expression": "victim.metadata.name != 'a'", "reason": "r", "onError": "pass"}]},
        id="a victims rule",
    ),
    pytest.param({"failures": {"deadline": "pass", "apiServer": "refuse", "staleAfterSeconds": 100}}, id="failures"),
    pytest.param({"params": {"zone": "a", "n": 1.0, "deep": [{"x": None}]}}, id="params"),
    pytest.param(
        {"tests": [{"name": "t", "pod": make_pod(), "nodes": [make_node()], "expect": {"feasible": ["n1"]}}]},
        id="tests",
    ),
]


@pytest.mark.django_db
@pytest.mark.parametrize("spec", DOCUMENTS)
def test_a_rule_set_survives_its_rows(spec: dict[str, Any]) -> None:
    value = read_rule_set(rule_set_document(**spec))
    version = RuleSetVersion.objects.create(
        rule_set=RuleSetRow.objects.create(name="web"), number=1, **compiler.version_fields(value)
    )
    Rule.objects.bulk_create(compiler.rules_of(value, version=version))
    document = compiler.rule_set_document(version)
    assert read_rule_set(document) == value
    assert json.loads(json.dumps(document)) == json.loads(json.dumps(document_of(value)))


@given(
    st.lists(
        st.builds(
            lambda name, weight, low, span: {
                "name": name,
                "expression": "1.0",
                "weight": weight,
                "bounds": [low, low + span],
            },
            st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True),
            st.integers(1, 1000),
            st.integers(-1000, 1000) | st.floats(-1000, 1000, width=32),
            st.integers(1, 50),
        ),
        unique_by=lambda rule: rule["name"],
        max_size=4,
    )
)
def test_scores_survive_unsaved_rows(scores: list[dict[str, Any]]) -> None:
    value = read_rule_set(rule_set_document(scores=scores))
    rows = compiler.rules_of(value, version=RuleSetVersion(rule_set=RuleSetRow(name="web")))
    document = compiler.document_of_rules(name="web", description="", params={}, tests=[], rules=rows)
    assert read_rule_set(document) == value


@pytest.mark.django_db
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="every Pod"),
        pytest.param({"order": 3, "mode": "shadow"}, id="order and mode"),
        pytest.param({"match": {"schedulerNames": ["berth"], "namespaces": ["a", "b"]}}, id="names"),
        pytest.param(
            {
                "match": {
                    "podSelector": {"matchLabels": {"app": "x"}},
                    "namespaceSelector": {"matchExpressions": [{"key": "t", "operator": "In", "values": ["a"]}]},
                    "priorityClassNames": ["high"],
                }
            },
            id="selectors",
        ),
    ],
)
def test_an_assignment_survives_its_row(spec: dict[str, Any]) -> None:
    publish(make_rule_set())
    value = read_assignment(assignment_document(**spec))
    publish_all(value)
    row = Assignment.objects.get()
    assert read_assignment(compiler.assignment_document(row)) == value


def test_a_revision_is_the_same_bytes_whatever_the_order() -> None:
    sets = [RuleSet(name="b"), RuleSet(name="a")]
    one = compiler.revision_document(number=1, published_at="", rule_sets=sets, assignments=[])
    other = compiler.revision_document(number=1, published_at="", rule_sets=sets[::-1], assignments=[])
    assert compiler.digest_of(one) == compiler.digest_of(other)
