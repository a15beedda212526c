"""What would let a Pod run where no rule of its own refuses it: Pods nominated to the node, no time, nobody asked."""

from datetime import UTC, datetime
from typing import Any

import pytest

from policies import publishing
from policies.engine.decision import CompiledRevision, decide, stop_before
from policies.engine.errors import DeadlineError
from policies.engine.failures import Conditions
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from scheduler.binder.cycle import Profile
from scheduler.binder.recording import cycle_entry
from scheduler.decisions.rebuilding import ReplayError
from scheduler.decisions.record import Entry, NodesEntry
from scheduler.decisions.remedies import Remedies, remedies_of
from scheduler.models import Decision
from tests.builders import make_assignment, make_node, make_pod, make_rule_set
from tests.component.pages import publish_all
from tests.recording import History

pytestmark = pytest.mark.django_db

AT = datetime(2026, 1, 1, tzinfo=UTC)
POD = Pod.from_json(make_pod("web-1", requests={"cpu": "800m"}, priority=0))
SNAPSHOT = Snapshot.of([Node.from_json(make_node("n1", cpu="1"))])


@pytest.fixture
def revision() -> CompiledRevision:
    """A rule set that wants Redis."""
    rules = make_rule_set(filters=[{"builtin": "PodFitsResources"}], failures={"redis": "refuse"})
    publish_all(rules, make_assignment())
    return CompiledRevision(publishing.current_revision())


def scheduled(history: History, revision: CompiledRevision, snapshot: Snapshot = SNAPSHOT, **more: Any) -> Decision:
    """A cycle that finds no node."""
    placement = Profile(revision).place(POD, snapshot, snapshot.table.all_rows(), now=AT, **more)
    assert placement.row == -1
    history.recorder.record(cycle_entry(placement, 0.001, {}))
    history.settle()
    return Decision.objects.get()


def test_a_node_that_nominated_pods_fill_is_not_said_to_be_allowed(
    history: History, revision: CompiledRevision
) -> None:
    first = Pod.from_json(make_pod("first", requests={"cpu": "800m"}, priority=5))
    found = remedies_of(scheduled(history, revision, SNAPSHOT.changed({}, nominated={"n1": [first]})))
    (said,) = found.sentences
    assert said == (
        "Without the Pods nominated there 1 node would be allowed, n1: beside these Pods, rule PodFitsResources refuses it "
        "(“Insufficient cpu”)."
    )


def test_a_node_that_there_was_no_time_for_is_not_said_to_be_kept_by_others(
    history: History, revision: CompiledRevision
) -> None:
    def give_way() -> None:
        raise DeadlineError

    found = remedies_of(scheduled(history, revision, give_way=give_way))
    assert found.sentences == ["There was no time for all rules. Asked again, they let it onto n1."]


def test_a_node_that_there_was_no_time_for_is_not_blamed_on_others_by_the_record_alone(
    history: History, revision: CompiledRevision, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_way() -> None:
        raise DeadlineError

    def pruned(*_: object) -> None:
        raise ReplayError("pruned")

    decision = scheduled(history, revision, give_way=give_way)
    monkeypatch.setattr("scheduler.decisions.remedies.Snapshots.of", pruned)
    found = remedies_of(decision)
    assert found.sentences == ["There was no time to ask all rules about n1."]
    assert found.fault == "Only as far as it is recorded: pruned."


def test_the_record_alone_says_nothing_about_rules_that_were_not_asked(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pruned(*_: object) -> None:
        raise ReplayError("pruned")

    rules = [{"name": name, "expression": "false", "reason": "no"} for name in ("first", "second")]
    publish_all(make_rule_set(filters=rules), make_assignment())
    decision = scheduled(history, CompiledRevision(publishing.current_revision()))
    assert (
        remedies_of(decision).sentences[0] == "No single rule keeps it waiting: the node is refused by 2 rules or more."
    )
    monkeypatch.setattr("scheduler.decisions.remedies.Snapshots.of", pruned)
    assert remedies_of(decision) == Remedies(sentences=[], fault="Only as far as it is recorded: pruned.")


def test_several_nodes_that_nominated_pods_fill_are_told_in_one_sentence(
    history: History, revision: CompiledRevision
) -> None:
    names = ("n1", "n2")
    first = {name: [Pod.from_json(make_pod(name, requests={"cpu": "800m"}, priority=5))] for name in names}
    snapshot = Snapshot.of([Node.from_json(make_node(name, cpu="1")) for name in names])
    (said,) = remedies_of(scheduled(history, revision, snapshot.changed({}, nominated=first))).sentences
    assert said == (
        "Without the Pods nominated there 2 nodes would be allowed, n1 and n2: beside these Pods, rule PodFitsResources refuses them "
        "(“Insufficient cpu”)."
    )


def test_a_rule_that_refuses_a_node_alone_is_not_all_that_keeps_the_pod_from_one_that_nominated_pods_fill(
    history: History,
) -> None:
    refuses = {"name": "team", "expression": "false", "reason": "another team"}
    publish_all(make_rule_set(filters=[{"builtin": "PodFitsResources"}, refuses]), make_assignment())
    first = Pod.from_json(make_pod("first", requests={"cpu": "800m"}, priority=5))
    snapshot = Snapshot.of([Node.from_json(make_node(name, cpu="1")) for name in ("n1", "n2")])
    snapshot = snapshot.changed({}, nominated={"n1": [first]})
    found = remedies_of(scheduled(history, CompiledRevision(publishing.current_revision()), snapshot))
    assert found.sentences[:2] == [
        "Without rule team (“another team”) and without the Pods nominated there 1 node would be allowed: n1.",
        "Without rule team (“another team”) 1 node would be allowed: n2.",
    ]
    assert found.rules == {"team": ["n2"]}


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("refuse", "There was no time for all rules. Asked again, they let it onto n2."),
        (
            "pass",
            "Berth's rules let it onto n2: what keeps it from there is its scheduler's own filters, or the binding.",
        ),
    ],
)
def test_a_node_that_passed_for_want_of_time_is_said_to_be_kept_by_others(
    history: History, choice: str, said: str
) -> None:
    filters = [{"name": name, "expression": "node.metadata.name != 'n1'", "reason": "no"} for name in ("first", "last")]
    publish_all(make_rule_set(filters=filters, failures={"deadline": choice}), make_assignment())
    revision = CompiledRevision(publishing.current_revision())
    (rule_set,) = revision.rule_sets.values()
    snapshot = Snapshot.of([Node.from_json(make_node(name)) for name in ("n1", "n2")])
    rows, cycle = snapshot.table.all_rows(), Cycle(pod=POD, snapshot=snapshot, now=AT)
    answer = decide(rule_set, cycle, rows, scoring=False, deadline=stop_before(1))
    asked: dict[str, Any] = {"snapshot": snapshot, "names": ["n1", "n2"], "rows": rows, "answer": answer}
    rules: dict[str, Any] = {"revision": revision, "assignment": make_assignment(), "rule_set": rule_set}
    notes = {"missed": answer.missed}
    history.recorder.record(NodesEntry(verb="filter", pod=POD, now=AT, notes=notes, **rules, **asked))
    history.settle()
    assert remedies_of(Decision.objects.get()).sentences[0].startswith(said)


def test_nodes_that_berth_did_not_know_are_not_said_to_be_its_schedulers(
    history: History, revision: CompiledRevision
) -> None:
    (rule_set,) = revision.rule_sets.values()
    answer = decide(rule_set, Cycle(pod=POD, snapshot=SNAPSHOT, now=AT), SNAPSHOT.table.rows([]), scoring=False)
    asked: dict[str, Any] = {"snapshot": SNAPSHOT, "names": ["n8", "n9"], "answer": answer, "rule_set": rule_set}
    history.recorder.record(
        NodesEntry(verb="filter", pod=POD, now=AT, revision=revision, assignment=make_assignment(), **asked)
    )
    history.settle()
    assert remedies_of(Decision.objects.get()).sentences == [
        "Berth hadn't seen n8 and n9 yet when it was asked: once its watch has, its rules decide there, too."
    ]


def test_where_no_rule_was_asked_it_says_why(history: History, revision: CompiledRevision) -> None:
    away = Conditions(snapshot_age_seconds=0.0, redis_reachable=False)
    assert remedies_of(scheduled(history, revision, conditions=away)).sentences == [
        "No rule was asked: Berth can't reach Redis."
    ]


def test_where_the_extender_asked_no_rule_it_says_why(history: History, revision: CompiledRevision) -> None:
    rules: dict[str, Any] = {
        "revision": revision,
        "assignment": make_assignment(),
        "rule_set": revision.rule_sets["web"],
    }
    fallback: dict[str, Any] = {
        "error": "Berth can't reach Redis",
        "notes": {"fallback": "refuse"},
        "nodes": 3,
        "feasible": 0,
    }
    history.recorder.record(Entry(verb="filter", pod=POD, now=AT, **rules, **fallback))
    history.settle()
    found = remedies_of(Decision.objects.get())
    assert (found.sentences, found.fault) == (["No rule was asked: Berth can't reach Redis."], "")
