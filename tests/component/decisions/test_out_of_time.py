"""A Decision whose rules weren't all asked in time, where the rule set refuses nodes then: every reader says that they were refused."""

from datetime import UTC, datetime
from typing import Any

import pytest

from policies import publishing
from policies.engine.decision import NOT_IN_TIME, CompiledRevision, decide, stop_before
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from scheduler.admin.links import decision_url
from scheduler.decisions.beside import compared
from scheduler.decisions.explaining import explain_decision
from scheduler.decisions.matrix import Refusal, matrix_of, refusals_of
from scheduler.decisions.node_story import node_story
from scheduler.decisions.reading import read_decision
from scheduler.decisions.record import NodesEntry
from scheduler.decisions.search import Search
from scheduler.decisions.story import story_of
from scheduler.models import Decision
from tests.builders import make_assignment, make_node, make_pod, make_rule_set
from tests.component.pages import publish_all
from tests.conftest import HTTPSClient
from tests.recording import History

pytestmark = pytest.mark.django_db

AT = datetime(2026, 1, 1, tzinfo=UTC)
POD = Pod.from_json(make_pod("web-1"))
NAMES = ["n1", "n2", "n3"]
IN_VAIN = Refusal("last", "Error", NOT_IN_TIME.reason, ["n2", "n3"])


def decided(history: History, *, choice: str, rules: int, first: str = "node.metadata.name != 'n1'") -> Decision:
    """A Decision for which there was time for so many rules: the first refuses n1, or others."""
    filters = [
        {"name": "first", "expression": first, "reason": "no"},
        {"name": "last", "expression": "true", "reason": "never"},
    ]
    publish_all(make_rule_set(filters=filters, failures={"deadline": choice}), make_assignment())
    revision = CompiledRevision(publishing.current_revision())
    (rule_set,) = revision.rule_sets.values()
    snapshot = Snapshot.of([Node.from_json(make_node(name)) for name in NAMES])
    rows, cycle = snapshot.table.all_rows(), Cycle(pod=POD, snapshot=snapshot, now=AT)
    answer = decide(rule_set, cycle, rows, scoring=False, deadline=stop_before(rules))
    asked: dict[str, Any] = {"snapshot": snapshot, "names": NAMES, "rows": rows, "answer": answer}
    by: dict[str, Any] = {"revision": revision, "assignment": make_assignment(), "rule_set": rule_set}
    notes = {"missed": answer.missed} if answer.missed else {}
    history.recorder.record(NodesEntry(verb="filter", pod=POD, now=AT, notes=notes, **by, **asked))
    history.settle()
    return Decision.objects.get()


@pytest.fixture
def refused(history: History) -> Decision:
    return decided(history, choice="refuse", rules=1)


def test_its_table_has_them_refused_and_says_that_there_was_no_time(refused: Decision) -> None:
    answer = read_decision(refused).answer
    rows = matrix_of(answer, best="").rows
    assert {name: row.feasible for row in rows for name in row.nodes} == dict.fromkeys(NAMES, False)
    assert [cell.reason for row in rows if "n2" in row.nodes for cell in row.cells] == [
        "passes",
        "not evaluated: there was no time",
    ]
    assert refusals_of(answer) == [IN_VAIN, Refusal("first", "UnschedulableAndUnresolvable", "no", ["n1"])]


def test_explain_gives_the_reason_that_kube_scheduler_got(refused: Decision) -> None:
    said = explain_decision(refused)
    assert [row["feasible"] for row in said["matrix"]["rows"]] == [False, False]
    (sentence,) = (rule["sentence"] for rule in said["rules"] if rule.get("reason") == NOT_IN_TIME.reason)
    assert sentence == (
        "filter last (version 1) wasn't asked about n2 and n3: there was no time left for them, so that the rule set "
        'refuses them: "rules could not be evaluated in time".'
    )


def test_the_stories_of_the_pod_and_of_a_node_count_them_as_refused(refused: Decision) -> None:
    story = story_of(refused.pod_namespace, refused.pod_name)
    assert story is not None
    assert story.attempts[0].refusals[0] == IN_VAIN
    found = node_story("n2", Search())
    assert (found.accepted, found.refused) == (0, 1)
    assert [(each.rule, each.reason) for each in found.reasons] == [("last", NOT_IN_TIME.reason)]


def test_the_story_of_a_node_that_there_was_no_time_for_names_no_rule_that_refused_more_nodes(history: History) -> None:
    decided(history, choice="refuse", rules=1, first="node.metadata.name == 'n3'")
    assert [each.rule for each in node_story("n3", Search()).reasons] == ["last"]
    assert [each.rule for each in node_story("n1", Search()).reasons] == ["first"]


def test_beside_another_decision_they_are_refused(refused: Decision) -> None:
    answer = read_decision(refused).answer
    assert {pair.first.verdict for pair in compared(answer, answer) if "n2" in pair.nodes} == {
        "last: rules could not be evaluated in time"
    }


def test_its_page_counts_it_among_what_refused(refused: Decision, auditor: HTTPSClient) -> None:
    page = auditor.get(decision_url(refused.pk)).content.decode()
    assert "No rule refused a node" not in page
    assert "so that the rule set refuses them" in page


@pytest.mark.parametrize(("choice", "rules"), [("pass", 1), ("refuse", 2)])
def test_who_passes_then_or_was_asked_in_time_is_not_refused(history: History, choice: str, rules: int) -> None:
    answer = read_decision(decided(history, choice=choice, rules=rules)).answer
    assert answer.feasible == ["n2", "n3"]
    assert [refusal.rule for refusal in refusals_of(answer)] == ["first"]
