"""explain POD, as people call it: recorded Decisions in words and as JSON."""

import io
import json
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import Client

from policies import publishing
from policies.engine.decision import CompiledRevision, CompiledRuleSet, decide
from policies.engine.errors import DeadlineError, RuleSetError
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.preemption.vetoes import Candidate, narrow
from policies.engine.rule import Cycle
from policies.engine.ruleset import RuleSet, encode
from policies.engine.victims import Victim
from scheduler.binder.cycle import Profile
from scheduler.binder.recording import cycle_entry
from scheduler.decisions.explaining import explain_decision, sentences_of
from scheduler.decisions.reading import body_of
from scheduler.decisions.record import NodesEntry, store_json
from scheduler.models import Decision, PendingPod
from tests.builders import TEAM_FILTER, make_assignment, make_node, make_pod, make_rule_set
from tests.component.controlplane.test_pages import make_decision
from tests.component.pages import change_url, get, publish, publish_all, text_of
from tests.recording import History, row_of

pytestmark = pytest.mark.django_db

AT = datetime(2026, 1, 1, tzinfo=UTC)
POD = Pod.from_json(make_pod("web-1", labels={"team": "web"}))
TEAMS = {"n1": "web", "n2": "data", **{f"x{number}": "other" for number in range(7)}}
RULES: dict[str, Any] = {
    "params": {"weight": 2},
    "filters": [
        TEAM_FILTER,
        {"builtin": "PodFitsResources"},
        {"name": "dry", "expression": "usage.free.cpu < params.weight", "reason": "dry run", "mode": "shadow"},
        {"name": "broken", "expression": "int(node.metadata.labels.nope) > 0", "mode": "shadow"},
    ],
    "scores": [{"name": "short", "expression": "20 - size(node.metadata.name)"}],
}


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("explain", *arguments, stdout=out)
    return out.getvalue()


def report(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, "--output", "json"))
    return found


@pytest.fixture
def rule_set() -> RuleSet:
    """Version 1 of rule set web, in the database."""
    made = make_rule_set(**RULES)
    publish(made)
    return msgspec.structs.replace(made, version=1)


def record(rule_set: RuleSet, verb: str = "filter", *, seconds: int = 0, **fields: Any) -> Decision:
    """Decide and record as the extender does."""
    compiled = CompiledRuleSet(rule_set).without(fields.pop("without", []))
    snapshot = Snapshot.of(Node.from_json(make_node(name, labels={"team": team})) for name, team in TEAMS.items())
    cycle = Cycle(pod=POD, snapshot=snapshot, now=AT, params=compiled.params)
    scoring = verb == "prioritize"
    rows = snapshot.table.rows(["n1"]) if scoring else snapshot.table.all_rows()
    answer = decide(compiled, cycle, rows, filtering=not scoring, scoring=scoring)
    names = [info.name for info in snapshot.table.infos]
    entry = NodesEntry(
        verb=verb,
        pod=POD,
        now=AT + timedelta(seconds=seconds),
        mode=fields.pop("mode", "enforce"),
        notes=fields.pop("notes", {}),
        assignment=make_assignment(),
        revision=CompiledRevision(by) if (by := fields.pop("by", None)) else None,
        rule_set=compiled,
        snapshot=snapshot,
        names=["n1"] if scoring else names,
        answer=answer,
    )
    return row_of(entry, sequence=Decision.objects.count() + 1, **({"revision": 4} | fields))


def row(verb: str = "filter", *, seconds: int = 0, **fields: Any) -> Decision:
    base: dict[str, Any] = {"pod_namespace": "default", "pod_name": "web-1", "pod_uid": POD.uid, "revision": 4}
    at = AT + timedelta(seconds=seconds)
    return Decision.objects.create(
        at=at, process="p", sequence=Decision.objects.count() + 1, verb=verb, **(base | fields)
    )


def test_what_the_pod_requested_is_shown_without_a_snapshot() -> None:
    source = "requests.cpu + requests.?gpu.orValue(0) < 0"
    made = make_rule_set(filters=[{"name": "small", "expression": source, "reason": "too large"}])
    publish(made)
    record(msgspec.structs.replace(made, version=1))
    assert "It read requests.cpu = 0 and requests.gpu = nothing" in run("web-1")


def test_each_rule_says_which_nodes_it_refused_what_it_read_and_what_has_to_hold(rule_set: RuleSet) -> None:
    record(rule_set)
    said = run("web-1")
    head = "2026-01-01T00:00:00+00:00 filter, Revision 4: default/web-1: 1 of 9 nodes may be used, by rule set web version 1 (Assignment all-web)."
    assert said.startswith(head)
    assert "- filter team (version 1) lets n1 pass." in said
    assert (
        '- filter team (version 1) refused n2, x0, x1, x2, x3 and 3 more: "node belongs to another team". It read '
        'pod.metadata.labels.team = "web" and node.metadata.labels.team = "(not recorded)"; it has to be true: '
        f"{TEAM_FILTER['expression']}." in said
    )
    assert "- filter PodFitsResources (version 1) wasn't asked about n2, x0, x1, x2, x3 and 3 more: an earlier" in said
    assert (
        '(mode shadow, so that it doesn\'t count) would have refused n1: "dry run". It read params.weight = 2 and'
        in said
    )
    assert "Evaluating it ended with: " in said
    assert "  ✗ | · | · | · | · | n2, x0, x1, x2, x3 and 3 more" in said


def test_json_has_sentences_with_all_nodes_and_the_table(rule_set: RuleSet) -> None:
    made = record(rule_set)
    found = report("web-1")
    assert found["ok"] is True
    (decision,) = found["decisions"]
    assert decision["id"] == str(made.id)
    assert (decision["ruleSet"], decision["ruleSetVersion"], decision["ruleSetKnown"]) == ("web", 1, True)
    refusal = next(rule for rule in decision["rules"] if rule.get("reason") == "node belongs to another team")
    assert refusal["nodes"] == [name for name in TEAMS if name != "n1"]
    assert refusal["code"] == "UnschedulableAndUnresolvable"
    assert refusal["wanted"] == TEAM_FILTER["expression"]
    assert refusal["seen"]["pod.metadata.labels.team"] == "web"
    assert decision["matrix"]["filters"] == ["team", "PodFitsResources", "dry", "broken"]
    assert decision["matrix"]["rows"][0]["nodes"] == refusal["nodes"]


def test_one_node_is_explained_by_itself(rule_set: RuleSet) -> None:
    record(rule_set)
    (decision,) = report("web-1", "--node", "n2")["decisions"]
    assert [(rule["rule"], rule["code"]) for rule in decision["rules"]] == [
        ("team", "UnschedulableAndUnresolvable"),
        ("PodFitsResources", "NotEvaluated"),
        ("dry", "NotEvaluated"),
        ("broken", "NotEvaluated"),
    ]
    assert all(rule["nodes"] == ["n2"] for rule in decision["rules"])
    assert [row["nodes"] for row in decision["matrix"]["rows"]] == [["n2"]]
    said = run("web-1", "--node", "n2")
    assert "refused n2:" in said
    assert "  ✗ | · | · | · | · | n2\n" in f"{said}\n"


def test_a_node_that_nobody_asked_about_is_said_with_what_to_do(rule_set: RuleSet) -> None:
    record(rule_set)
    with pytest.raises(CommandError, match=r"nobody asked about n99 .*kubectl describe pod"):
        run("web-1", "--node", "n99")


def test_scores_come_after_the_filters_that_went_before_them(rule_set: RuleSet) -> None:
    record(rule_set, "filter", seconds=0)
    record(rule_set, "filter", seconds=5)
    record(rule_set, "prioritize", seconds=6, feasible=1)
    row("filter", seconds=9, mode="shadow")
    found = report("web-1")["decisions"]
    assert [(each["verb"], each["at"]) for each in found] == [
        ("filter", "2026-01-01T00:00:05+00:00"),
        ("prioritize", "2026-01-01T00:00:06+00:00"),
    ]
    assert "score short (version 1) gives n1 100 of 100, weight 1. It scores by: 20 - size(node.metadata.name)." in run(
        "web-1"
    )


def test_scores_alone_are_explained_when_there_is_nothing_else(rule_set: RuleSet) -> None:
    record(rule_set, "prioritize")
    assert [each["verb"] for each in report("web-1")["decisions"]] == ["prioritize"]


def test_nodes_that_preemption_was_kept_off_are_explained_after_the_filter(rule_set: RuleSet) -> None:
    stays = {"name": "stays", "expression": "victim.metadata.?labels.env.orValue('') != 'prod'"}
    compiled = CompiledRuleSet(make_rule_set(victims=[stays]))
    victims = [Victim(name, Pod.from_json(make_pod(name, labels={"env": "prod"}))) for name in ("a", "b")]
    candidates = [Candidate(node, [victim]) for node, victim in zip(("n1", "n2"), victims, strict=True)]
    vetoes = narrow(compiled, POD, Snapshot({}), candidates, AT).vetoes
    record(rule_set, "filter")
    row(
        "preempt",
        seconds=1,
        rule_set="web",
        rule_set_version=1,
        body=store_json({"notes": {"vetoes": msgspec.to_builtins(vetoes)}}),
    )
    filtered, preempted = report("web-1")["decisions"]
    assert (filtered["verb"], preempted["verb"]) == ("filter", "preempt")
    assert [(rule["kind"], rule["nodes"], rule["reason"]) for rule in preempted["rules"]] == [
        ("victims", ["n1"], "protected by rule stays"),
        ("victims", ["n2"], "protected by rule stays"),
    ]
    said = run("web-1", "--node", "n2")
    assert '- victims rule stays protects default/b on n2: "protected by rule stays". It read victim.metadata' in said
    assert "default/a" not in said


def preempted(**said: object) -> str:
    row("schedule", body=store_json({"notes": {"preemption": said}}))
    return run("web-1")


def test_the_pods_that_were_to_go_are_named_with_the_node_and_how_many_could_be_freed() -> None:
    victims = [{"name": "default/a", "uid": "ua", "priority": 0}, {"name": "prod/b", "uid": "ub", "priority": -5}]
    assert (
        "- preemption: default/a (priority 0), prod/b (priority -5) were to leave n1, chosen from 3 nodes that could be freed; "
        "1 of them against a PodDisruptionBudget"
    ) in preempted(node="n1", victims=victims, pdbViolations=1, candidateCount=3)


def test_where_no_budget_was_violated_nothing_is_said_of_budgets() -> None:
    victims = [{"name": "default/a", "uid": "ua", "priority": 0}]
    said = preempted(node="n1", victims=victims, pdbViolations=0, candidateCount=1)
    assert "was to leave n1, the only node that could be freed\n" in f"{said}\n"
    assert "Budget" not in said


def test_why_nobody_could_be_preempted_is_said() -> None:
    assert "- preemption: nobody to preempt" in preempted(reason="nobody to preempt")


def test_nodes_that_werent_scored_are_said(rule_set: RuleSet) -> None:
    made = record(rule_set, "prioritize")
    body = body_of(made)
    body["scores"][0]["raw"] = [None]
    made.body = store_json(body)
    made.save()
    assert "score short (version 1) wasn't asked about n1." in run("web-1")


def test_without_the_rule_sets_version_the_reasons_still_stand(rule_set: RuleSet) -> None:
    record(msgspec.structs.replace(rule_set, version=7))
    said = run("web-1")
    assert 'refused n2, x0, x1, x2, x3 and 3 more: "node belongs to another team".\n' in said
    assert "- version 7 of web isn't in this database, or this Berth can't evaluate it: no rule is shown." in said


def went_live_formerly(expression: str = "", **builtin: Any) -> RuleSet:
    """Return version 1 of rule set web, which an earlier version of Berth let go live without this one's checks."""
    plain = make_rule_set(filters=[TEAM_FILTER, {"builtin": "NodeAffinity"}])
    first, second = plain.spec.filters
    first = msgspec.structs.replace(first, expression=expression or first.expression)
    filters = (first, msgspec.structs.replace(second, **builtin)) if builtin else (first,)
    made = msgspec.structs.replace(plain, spec=msgspec.structs.replace(plain.spec, filters=filters))
    live = publishing.current_revision()
    with transaction.atomic():
        publishing.make_live(live, [publishing.Edit.of(made)], by="ops", reason="", authors={})
    return msgspec.structs.replace(made, version=1)


def test_a_version_that_would_be_refused_now_is_explained_as_it_decided(auditor: Client) -> None:
    expression = "pod.spec.containers.exists(requests, requests.name == node.metadata.name)"
    with pytest.raises(RuleSetError, match="requests"):
        make_rule_set(filters=[{**TEAM_FILTER, "expression": expression}])
    made = record(went_live_formerly(expression), revision=publishing.current_revision().number)
    said = run("web-1", "--node", "n2")
    assert '"node belongs to another team"' in said
    assert f"{expression}.\n" in said
    assert "isn't in this database" not in said
    assert expression in text_of(get(auditor, f"{change_url('decision', made.pk)}?node=n2"))


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"expression": "forgotten(node)"}, id="a function"),
        pytest.param({"builtin": "Forgotten"}, id="a built-in"),
        pytest.param({"arguments": {"addedAffinity": 3}}, id="arguments"),
    ],
)
def test_a_version_that_cant_be_evaluated_any_more_is_as_one_that_isnt_there(
    rule_set: RuleSet, auditor: Client, changed: dict[str, Any]
) -> None:
    went_live_formerly(**changed)
    made = record(msgspec.structs.replace(rule_set, version=2), revision=publishing.current_revision().number)
    assert "version 2 of web isn't in this database" in run("web-1", "--node", "n2")
    assert "node belongs to another team" in text_of(get(auditor, f"{change_url('decision', made.pk)}?node=n2"))


def test_a_table_with_very_many_rows_says_how_many_are_left_out_and_shows_the_node_that_was_asked_for() -> None:
    numbers = list(range(502))
    score = {"rule": "a", "weight": 1, "raw": numbers}
    body = {"nodes": [f"n{number}" for number in numbers], "scores": [score], "totals": numbers}
    row(body=store_json(body), rule_set="gone")
    assert run("web-1").endswith("  and 2 more groups of nodes\n")
    assert run("web-1", "--node", "n0").endswith("  0 | 0 | n0\n")


def test_the_namespace_may_stand_before_the_name_or_by_itself(rule_set: RuleSet) -> None:
    record(rule_set, pod_namespace="shop")
    assert report("shop/web-1")["pod"] == report("web-1", "--namespace", "shop")["pod"] == "shop/web-1"


def test_a_pod_that_no_assignment_takes_is_said_so() -> None:
    row(body=store_json({"pod": POD.json, "nodes": ["n1"]}), nodes=1, feasible=1)
    assert "is taken by no Assignment: every node passes and none gets a score" in run("web-1")


@pytest.mark.parametrize("body", [b"x", b"\x02", bytes(40)])
def test_a_decision_that_somebody_damaged_is_said_to_be(auditor: Client, body: bytes, capsys: Any) -> None:
    row = make_decision(pod_name="web-1", pod_namespace="shop", body=body)
    for output in ("text", "json"):
        with pytest.raises(CommandError, match=r"what is recorded about shop/web-1 is damaged: .*manage\.py verify"):
            call_command("explain", "shop/web-1", "--output", output)
    assert json.loads(capsys.readouterr().out)["ok"] is False
    answer = auditor.get(f"/api/v1/decisions/{row.pk}")
    assert answer.status_code == 409
    assert "is damaged" in answer.json()["detail"]


def test_a_decision_that_was_a_fault_says_which() -> None:
    row(error="no Revision is published")
    assert "could not be decided: no Revision is published" in run("web-1")


def test_a_shadow_decision_is_taken_when_there_is_no_other(rule_set: RuleSet) -> None:
    record(rule_set, mode="shadow")
    assert "Revision 4: [shadow] default/web-1" in run("web-1")


def test_without_a_decision_it_says_what_to_do() -> None:
    with pytest.raises(CommandError, match=r"no Decision about default/web-1 is recorded\. Is the Pod there") as caught:
        run("web-1")
    assert caught.value.returncode == 1


def test_without_a_decision_json_is_not_ok() -> None:
    out = io.StringIO()
    with pytest.raises(CommandError):
        call_command("explain", "web-1", "--output", "json", stdout=out)
    found = json.loads(out.getvalue())
    assert (found["ok"], found["decisions"]) == (False, [])
    assert "no Decision about default/web-1" in found["error"]


class TestPodWithoutADecision:
    @pytest.fixture(autouse=True)
    def waiting(self) -> None:
        PendingPod.objects.create(
            uid="new", namespace="default", name="web-1", created_at=AT, since=AT, reason="Insufficient cpu",
            scheduler_name="default-scheduler",
        )  # fmt: skip

    def test_what_holds_one_that_waits_is_said(self) -> None:
        said, next_try = run("web-1").splitlines()
        assert said == (
            "default/web-1 new: It waits for default-scheduler, and no Decision about it is recorded: Insufficient cpu"
        )
        assert next_try.startswith("Tried next: ")

    def test_json_has_it_as_rest_has(self, auditor: Client) -> None:
        found, over_rest = report("web-1", "--story"), auditor.get("/api/v1/pods/default/web-1").json()
        assert (found["ok"], found["decisions"], found["pending"]) == (True, [], over_rest.pop("pending"))
        assert found["story"] == {name: value for name, value in over_rest.items() if name != "remedies"}
        assert "story" not in report("web-1")

    def test_it_is_not_taken_for_a_former_one_of_its_name(self, rule_set: RuleSet) -> None:
        assert rule_set
        record(rule_set)
        assert "It waits for default-scheduler" in run("web-1")
        Decision.objects.update(pod_uid="new")
        assert "It waits" not in run("web-1")


class TestSuspensions:
    NOTES = {"suspendedBy": [{"kind": "Pause", "name": "storm", "target": "RuleSet/web/team"}]}

    def test_a_rule_that_was_out_of_force_is_named_and_not_asked(self, rule_set: RuleSet) -> None:
        record(rule_set, without=["team"], notes=self.NOTES)
        assert "rule team of rule set web was out of force by Pause storm" in run("web-1")
        (decision,) = report("web-1")["decisions"]
        assert decision["chosenBy"] == ["rule team of rule set web was out of force by Pause storm"]
        assert "team" not in {each["rule"] for each in decision["rules"]}

    def test_a_rule_of_the_same_name_in_another_rule_set_stays_in_force(self, rule_set: RuleSet) -> None:
        notes = {"suspendedBy": [{"kind": "Pause", "name": "storm", "target": "RuleSet/watched-beside/team"}]}
        decision = record(rule_set, notes=notes)
        found = explain_decision(decision)["rules"]
        assert {each["rule"]: each["wanted"] for each in found}["team"] == TEAM_FILTER["expression"]

    def test_a_pod_about_which_nothing_decided_is_said_to_be_so(self) -> None:
        notes = {"suspendedBy": [{"kind": "Pause", "name": "all", "target": "everything"}]}
        row(nodes=2, feasible=2, body=store_json({"notes": notes}))
        assert "every node passes and none gets a score, because everything was out of force by Pause all" in run(
            "web-1"
        )


def test_params_in_force_and_what_canaries_drew_are_said(rule_set: RuleSet, auditor: Client) -> None:
    given = make_assignment(mode="canary", percent=40, params={"weight": 7})
    compiled = CompiledRuleSet(rule_set).with_params(given.params)
    passed = make_assignment("first", mode="canary", percent=10)
    entry = NodesEntry(
        verb="filter",
        pod=POD,
        now=AT,
        assignment=given,
        rule_set=compiled,
        draws=[(passed, 62), (given, 33)],
        snapshot=Snapshot.of([Node.from_json(make_node("n1", labels={"team": "web"}))]),
        names=["n1"],
    )
    cycle = Cycle(pod=POD, snapshot=entry.snapshot, now=AT, params=compiled.params)
    entry.answer = decide(compiled, cycle, entry.snapshot.table.all_rows(), scoring=False)
    made = row_of(entry, sequence=1, revision=4)
    said = run("web-1")
    for line in (
        "canary all-web takes it: the Pod's workload drew 33, and 40 % are those below",
        "canary first passes it over: the Pod's workload drew 62, and 10 % are those below",
        "the Assignment gives params: weight 7",
    ):
        assert f"- {line}\n" in said
        assert line in text_of(get(auditor, change_url("decision", made.pk)))
    assert "It read params.weight = 7 and" in said


def test_the_params_in_force_are_the_numbers_that_were_live() -> None:
    """On PostgreSQL the columns of the rows say otherwise."""
    made = make_rule_set("doubles", filters=[TEAM_FILTER], params={"factor": 1e16, "limit": 1e300})
    publish(made)
    assert explain_decision(record(msgspec.structs.replace(made, version=1)))["ruleSetKnown"]


def test_a_decision_by_a_revision_that_a_restore_lost_is_not_explained_by_the_one_that_has_its_number_now(
    rule_set: RuleSet, auditor: Client
) -> None:
    live = publishing.current_revision()
    lost = msgspec.structs.replace(live, digest="f" * 64)
    made = record(rule_set, revision=live.number, by=live)
    assert explain_decision(made, "n2")["ruleSetKnown"]
    assert TEAM_FILTER["expression"] in text_of(get(auditor, change_url("decision", made.pk)))

    made = record(rule_set, revision=live.number, by=lost)
    explained = explain_decision(made, "n2")
    assert "node" not in explained
    assert not explained["ruleSetKnown"]
    assert not [each for each in explained["rules"] if "wanted" in each]
    assert TEAM_FILTER["expression"] not in text_of(get(auditor, change_url("decision", made.pk)))


def test_a_decision_that_names_its_revision_by_the_digest_of_the_document_is_explained_as_it_is_replayed(
    rule_set: RuleSet,
) -> None:
    live = publishing.current_revision()
    as_written = sha256(encode(msgspec.structs.replace(live, digest=""))).hexdigest()
    stored = record(rule_set, revision=live.number, by=live)
    made = record(rule_set, revision=live.number, by=msgspec.structs.replace(live, digest=as_written))
    assert explain_decision(made, "n2")["ruleSetKnown"]
    assert sentences_of(made, body_of(made)) == sentences_of(stored, body_of(stored))


def of_node(decision: Decision, node: str) -> dict[str, Any]:
    found: dict[str, Any] = explain_decision(decision, node)["node"]
    return found


def prioritized(folder: Path, **rules: Any) -> Decision:
    """A /prioritize of n1 and n22; n-far-longer is there, too."""
    scores = [{"name": "long", "expression": "size(node.metadata.name)"}]
    publish_all(make_rule_set("web", scores=scores, **rules), make_assignment("all", "web"))
    revision = CompiledRevision(publishing.current_revision())
    rule_set = revision.rule_sets["web"]
    snapshot = Snapshot.of(Node.from_json(make_node(name)) for name in ("n1", "n22", "n-far-longer"))
    names = ["n1", "n22"]
    rows = snapshot.table.rows(names)
    answer = decide(rule_set, Cycle(pod=POD, snapshot=snapshot, now=AT), rows, filtering=False)
    history = History(folder / "spool")
    history.recorder.record(
        NodesEntry(verb="prioritize", pod=POD, now=AT, revision=revision, assignment=make_assignment("all", "web"),
                   rule_set=rule_set, snapshot=snapshot, names=names, rows=rows, answer=answer)
    )  # fmt: skip
    history.settle()
    history.spool.close()
    return Decision.objects.get()


def test_scores_of_a_node_are_those_that_were_given_over_the_nodes_asked_about(tmp_path: Path) -> None:
    decision = prioritized(tmp_path)
    found = {name: of_node(decision, name) for name in ("n1", "n22")}
    assert {name: each["points"] for name, each in found.items()} == {"n1": 0, "n22": 10}
    assert found["n22"]["rules"][0]["raw"] == 100
    # What wasn't asked about would have been scored beside what was.
    assert of_node(decision, "n-far-longer")["points"] == 10


def test_a_node_that_a_filter_had_kept_from_prioritize_has_no_points(tmp_path: Path) -> None:
    short = {"name": "short", "expression": "size(node.metadata.name) < 5", "reason": "too long"}
    found = of_node(prioritized(tmp_path, filters=[short]), "n-far-longer")
    assert (found["feasible"], found["points"]) == (False, None)
    assert found["rules"][-1]["sentence"] == "score long wasn't asked about n-far-longer: a filter refused it."


def scheduled(folder: Path, pod: Pod, snapshot: Snapshot, *, row: int = -1, **more: Any) -> Decision:
    """A cycle of Berth's own scheduler that finds no node, or the one of a row."""
    publish_all(make_rule_set(), make_assignment())
    return placed_by_own_scheduler(folder, pod, snapshot, row=row, **more)


def placed_by_own_scheduler(folder: Path, pod: Pod, snapshot: Snapshot, *, row: int = -1, **more: Any) -> Decision:
    """The same by the rules that are published already."""
    profile = Profile(CompiledRevision(publishing.current_revision()))
    placement = profile.place(pod, snapshot, snapshot.table.all_rows(), now=AT, **more)
    assert placement.row == row
    history = History(folder / "spool")
    history.recorder.record(cycle_entry(placement, 0.001, {}))
    history.settle()
    history.spool.close()
    return Decision.objects.get()


def test_a_node_that_nominated_pods_fill_is_explained_with_them(tmp_path: Path) -> None:
    first = Pod.from_json(make_pod("first", requests={"cpu": "800m"}, priority=5))
    snapshot = Snapshot.of([Node.from_json(make_node("n1", cpu="1"))]).changed({}, nominated={"n1": [first]})
    asked = Pod.from_json(make_pod("web-1", requests={"cpu": "800m"}, priority=0))
    found = of_node(scheduled(tmp_path, asked, snapshot), "n1")
    assert found["feasible"] is False
    assert found["rules"][-1]["sentence"] == (
        'filter PodFitsResources refused n1, beside the Pods nominated there: "Insufficient cpu". The Pod needs 800m cpu, '
        "n1 has 200m of 1,000m free. Would fit if 600m cpu were freed."
    )


def test_a_rule_that_was_asked_once_more_about_some_nodes_is_not_said_to_stand_behind_a_refusal(tmp_path: Path) -> None:
    first = Pod.from_json(make_pod("first", requests={"cpu": "800m"}, priority=5))
    small, large = (Node.from_json(make_node(name, cpu=cpu)) for name, cpu in (("n1", "1"), ("n2", "4")))
    snapshot = Snapshot.of([small, large]).changed({}, nominated={"n1": [first]})
    asked = Pod.from_json(make_pod("web-1", requests={"cpu": "800m"}, priority=0))
    found = explain_decision(scheduled(tmp_path, asked, snapshot, row=1))
    assert found["rules"][-1]["sentence"].startswith("filter PodFitsResources (version 1) ")
    of_rule = [rule["sentence"].partition(") ")[2] for rule in found["rules"] if rule["rule"] == "PodFitsResources"]
    assert of_rule[0].startswith("lets n1 and n2 pass")
    assert of_rule[1].startswith('refused n1, beside the Pods nominated there: "Insufficient cpu"')
    assert [rule["sentence"].partition(") ")[2] for rule in found["rules"] if rule["code"] == "NotEvaluated"] == [
        "wasn't asked once more about n2: no Pods nominated there count."
    ]
    cells = {row["nodes"][0]: row["cells"][-1]["reason"] for row in found["matrix"]["rows"]}
    assert cells == {"n1": "Insufficient cpu", "n2": "not evaluated"}


def test_a_pod_that_no_assignment_takes_is_explained_by_the_classic_default_set_without_a_version(
    tmp_path: Path,
) -> None:
    asked = Pod.from_json(make_pod("own-1", labels={"team": "nobody"}, requests={"cpu": "2"}))
    publish_all(make_rule_set(), make_assignment(match={"namespaces": ["elsewhere"]}))
    decision = placed_by_own_scheduler(tmp_path, asked, Snapshot.of([Node.from_json(make_node("n1", cpu="1"))]))
    found = explain_decision(decision)
    assert found["summary"] == "default/own-1: 0 of 1 nodes may be used, by the classic default set"
    sentences = [rule["sentence"] for rule in found["rules"]]
    assert 'filter PodFitsResources refused n1: "Insufficient cpu". ' in "".join(sentences)
    assert not [sentence for sentence in sentences if "version" in sentence]


def test_a_rule_that_there_was_no_time_for_is_said_to_be_one(tmp_path: Path) -> None:
    def give_way() -> None:
        raise DeadlineError

    snapshot = Snapshot.of([Node.from_json(make_node("n1"))])
    found = explain_decision(scheduled(tmp_path, Pod.from_json(make_pod("web-1")), snapshot, give_way=give_way))
    first, *others = (rule["sentence"] for rule in found["rules"] if rule["kind"] == "filter")
    said = "wasn't asked about n1: there was no time left for it"
    assert first.endswith(f'{said}, so that the rule set refuses it: "rules could not be evaluated in time".')
    assert all(other.endswith(f"{said}.") for other in others)


def test_a_node_is_explained_with_what_berths_own_scheduler_always_asks(tmp_path: Path) -> None:
    asked = Pod.from_json(make_pod("web-1", resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}]))
    found = of_node(scheduled(tmp_path, asked, Snapshot.of([Node.from_json(make_node("n1"))])), "n1")
    refusing = [rule["rule"] for rule in found["rules"] if rule["code"] != "Success"]
    assert (found["feasible"], refusing) == (False, ["CheckResourceClaims"])
