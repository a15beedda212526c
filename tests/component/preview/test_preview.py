"""Previews: a draft beside what is live, on one Pod and the nodes of now; and the test that is made of it."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.test import Client

from policies import publishing
from policies.admin.rule_tests import results_of, with_test
from policies.engine import ruleset as engine
from policies.engine.decision import CompiledRevision
from policies.engine.errors import RuleSetError
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.models import Change
from scheduler.admin import preview as preview_page
from scheduler.models import Decision
from scheduler.preview import (
    MOST_NODES,
    MOST_PODS,
    PreviewError,
    pending_pods,
    pod_of_decision,
    preview,
)
from scheduler.scenario import ScenarioError, pod_of_cluster, rules_of
from tests.builders import TEAM_FILTER, make_assignment, make_node, make_pause, make_pod, make_rule_set
from tests.component.backtest.corpus import Corpus
from tests.component.controlplane.test_pages import make_decision
from tests.component.pages import change_url, get, opened, publish_all, text_of
from tests.recording import History

pytestmark = pytest.mark.django_db

SCORE = {"name": "short", "expression": "20 - size(node.metadata.name)", "bounds": [0, 20]}
POD = make_pod("billing-1", labels={"team": "data"})
PAGE, SAVE = "/admin/scheduler/preview/", "/admin/scheduler/preview/save-test/"


def cluster(pods: int = 0) -> Snapshot:
    nodes = [Node.from_json(make_node(f"n{number}", labels={"team": "ab"[number % 2]})) for number in range(6)]
    nodes.append(Node.from_json(make_node("n-data", labels={"team": "data"})))
    running = [
        Pod.from_json(make_pod(f"p{number}", requests={"cpu": "10m"}, nodeName="n-data")) for number in range(pods)
    ]
    return Snapshot.of(nodes, running)


@pytest.fixture
def change() -> Change:
    """A rule set that is live without the rule of teams, and a Change that adds it."""
    publish_all(make_rule_set("web", scores=[SCORE]), make_assignment("all", "web"))
    return opened(make_rule_set("web", filters=[TEAM_FILTER], scores=[SCORE]))


def drafted(change: Change) -> engine.RuleSet:
    found = publishing.found_in(change, ("RuleSet", "web")).value
    assert isinstance(found, engine.RuleSet)
    return found


def test_a_draft_stands_beside_what_is_live_in_words_first(change: Change) -> None:
    found = preview(POD, "web", rules_of(change.pk), cluster())
    assert found.sentences == [
        f"By Change {change.pk}, 1 of 7 nodes passes; n-data wins with 7 of 10 points",
        "By what is live, 7 of 7 nodes pass; n0 wins with 9 of 10 points, as good as 5 nodes more",
        "By the draft 6 nodes may be used no more: n0, n1, n2 and 3 more",
        "The winner changes: n0 → n-data",
        "team refuses 6 nodes: node belongs to another team (n0, n1, n2 and 3 more)",
        "Assignment all gives this Pod the rule set",
    ]
    groups = [(each.nodes[0], len(each.nodes), each.differs) for each in found.both]
    assert groups == [("n-data", 1, True), ("n1", 5, True), ("n0", 1, True)]


def test_a_pod_that_runs_is_tried_as_it_would_be_made_anew() -> None:
    """It doesn't stand in its own way, and isn't bound to its node: as the gate has it."""
    alone = {"name": "alone", "expression": "node.count({'app': 'x'}) < 1", "reason": "one a node"}
    room = {"builtin": "PodFitsResources"}
    publish_all(make_rule_set("web", filters=[alone, room, {"builtin": "PodFitsHost"}]), make_assignment("all", "web"))
    pod = make_pod("p", labels={"app": "x"}, requests={"cpu": "3"}, nodeName="n1")
    nodes = [Node.from_json(make_node(name)) for name in ("n1", "n2")]
    snapshot = Snapshot.of(nodes, [Pod.from_json(pod)])
    found = preview(pod, "web", rules_of(None), snapshot)
    assert sorted(found.draft.judged.feasible) == ["n1", "n2"]
    assert found.test["expect"]["feasible"] == ["n1"]
    assert "pods" not in found.test
    then = make_pod("p", labels={"app": "x"}, requests={"cpu": "3"})
    assert sorted(preview(then, "web", rules_of(None), snapshot).draft.judged.feasible) == ["n1", "n2"]
    moved = opened(make_rule_set("web", filters=[alone]))
    both = preview(pod, "web", rules_of(moved.pk), snapshot)
    assert both.live is not None
    assert both.live.judged.feasible == both.draft.judged.feasible == {"n1", "n2"}


def test_a_test_without_a_member_that_the_rules_read_says_so() -> None:
    """Values of env may be secret, so the test doesn't have them."""
    named = "pod.spec.containers.all(c, c.?env.orValue([]).exists(each, each.name == 'TEAM'))"
    rules = make_rule_set("web", filters=[{"name": "named", "expression": named, "reason": "no team"}])
    publish_all(rules, make_assignment("all", "web"))
    pod = make_pod("p")
    pod["spec"]["containers"] = [{"name": "main", "env": [{"name": "TEAM", "value": "data"}]}]
    found = preview(pod, "web", rules_of(None), Snapshot.of([Node.from_json(make_node("n1"))]))
    assert found.draft.judged.feasible == {"n1"}
    assert found.test["expect"]["feasible"] == []
    (note,) = found.notes
    assert note == (
        "The rules judge n1 by members that the test leaves out, such as env and args of containers or addresses of nodes: "
        "what it expects isn't what they say"
    )


def test_a_draft_that_says_the_same_is_said_to(change: Change) -> None:
    pod = make_pod("free")
    found = preview(pod, "web", rules_of(change.pk), cluster())
    assert "Both let the same nodes pass, and the same one wins" in found.sentences
    assert not any(each.differs for each in found.both)


def test_a_rule_set_of_which_nothing_is_live_has_one_side() -> None:
    found = preview(POD, "new", rules_of(opened(make_rule_set("new", filters=[TEAM_FILTER])).pk), cluster())
    assert found.live is None
    assert "Nothing of it is live: there is nothing beside it" in found.sentences
    assert "No Assignment gives this Pod a rule set: new is tried on it all the same" in found.sentences
    assert found.sentences[0].endswith(
        "1 of 7 nodes passes; it has no scores, so the scheduler's own choose among them"
    )


def test_what_is_out_of_force_is_said_beside_what_a_draft_would_do(change: Change) -> None:
    """Who pauses a rule and mends it would else read that their draft changes nothing."""
    publish_all(make_rule_set("web", filters=[TEAM_FILTER], scores=[SCORE]), make_pause("moved", "RuleSet/web/team"))
    other = opened(make_rule_set("web", filters=[{**TEAM_FILTER, "expression": "false"}], scores=[SCORE]))
    assert preview(POD, "web", rules_of(other.pk), cluster()).sentences[-2:] == [
        "Assignment all gives this Pod the rule set",
        "Rule team isn't asked: it is out of force for this Pod by Pause moved",
    ]
    publish_all(make_pause("whole", "RuleSet/web"))
    said = "What Assignments would give this Pod is out of force by Pause whole: "
    whole = preview(POD, "web", rules_of(other.pk), cluster()).sentences[-1]
    assert whole == f"{said}web is tried on it all the same, as Assignment all would give it"
    unused = opened(make_rule_set("unused", filters=[TEAM_FILTER]))
    own = preview(POD, "unused", rules_of(unused.pk), cluster()).sentences[-1]
    assert own == f"{said}unused is tried on it all the same, with its own params"


@pytest.mark.parametrize("target", ["everything", "RuleSet/web", "Assignment/all"])
def test_what_is_paused_is_tried_with_the_params_of_the_assignment_that_would_give_it(target: str) -> None:
    rule = {"name": "zone", "expression": "node.metadata.labels.team == params.team", "reason": "another"}
    publish_all(
        make_rule_set("web", filters=[rule], params={"team": "a"}),
        make_rule_set("rest"),
        make_assignment("all", "web", order=1, params={"team": "data"}),
        make_assignment("rest", "rest", order=2),
    )
    publish_all(make_pause("moved", target))
    found = preview(POD, "web", rules_of(None), cluster())
    assert found.draft.judged.feasible == {"n-data"}
    assert found.sentences[-1].endswith("web is tried on it all the same, as Assignment all would give it")


def test_scores_in_mode_shadow_have_no_winner() -> None:
    publish_all(make_rule_set("web", scores=[SCORE | {"mode": "shadow"}]), make_assignment("all", "web"))
    found = preview(POD, "web", rules_of(None), cluster())
    assert found.sentences[0] == (
        "By what is live, 7 of 7 nodes pass; it has no scores that count, so the scheduler's own choose among them"
    )
    assert not any(both.draft.best for both in found.both)
    assert found.test["name"] == "billing-1 may use n-data, n0"
    assert "best" not in found.test["expect"]


def test_params_are_those_of_the_pods_assignment() -> None:
    rule = {"name": "zone", "expression": "node.metadata.labels.team == params.team", "reason": "another"}
    publish_all(
        make_rule_set("web", filters=[rule], params={"team": "a"}),
        make_assignment("all", "web", params={"team": "data"}),
    )
    found = preview(POD, "web", rules_of(None), cluster())
    assert found.draft.judged.feasible == {"n-data"}


def test_a_test_that_goes_by_other_params_than_the_pods_assignment_says_so() -> None:
    rule = {"name": "zone", "expression": "node.metadata.labels.team == params.team", "reason": "another"}
    publish_all(
        make_rule_set("web", filters=[rule], params={"team": "a"}),
        make_assignment("all", "web", params={"team": "data"}),
    )
    found = preview(POD, "web", rules_of(None), cluster())
    assert found.test["expect"]["feasible"] == ["n0"]
    (said,) = found.notes
    assert said == (
        "The test uses the rule set's own params and all of its rules, which say something else of n-data, n0 than "
        "with what the Pod's Assignment gives and what is out of force for it"
    )


def test_a_test_whose_winner_goes_by_other_params_than_the_pods_assignment_says_so() -> None:
    score = {"name": "own", "expression": "node.metadata.labels.team == params.team ? 100 : 0"}
    publish_all(
        make_rule_set("web", scores=[score], params={"team": "a"}),
        make_assignment("all", "web", params={"team": "data"}),
    )
    found = preview(POD, "web", rules_of(None), cluster())
    assert (found.draft.judged.best, found.test["expect"]["best"]) == ("n-data", "n0")
    assert "which say something else of n-data, n0 than" in "".join(found.notes)


def test_what_cannot_be_previewed_says_why(change: Change) -> None:
    with pytest.raises(PreviewError, match="has no rule set none"):
        preview(POD, "none", rules_of(change.pk), cluster())
    with pytest.raises(PreviewError, match="no rule set none is live"):
        preview(POD, "none", rules_of(None), cluster())
    with pytest.raises(PreviewError, match="this is a Job, not a Pod"):
        preview({"kind": "Job"}, "web", rules_of(change.pk), cluster())
    with pytest.raises(PreviewError, match="Pod"):
        preview({"metadata": 3}, "web", rules_of(change.pk), cluster())


def test_the_test_holds_a_few_nodes_of_each_kind_and_passes(change: Change) -> None:
    test = dict(preview(POD, "web", rules_of(change.pk), cluster()).test)
    assert test["name"] == "billing-1 goes to n-data"
    assert [node["metadata"]["name"] for node in test["nodes"]] == ["n-data", "n0", "n1"]
    assert test["expect"]["feasible"] == ["n-data"]
    assert test["expect"]["reasons"] == {"n0": "node belongs to another team", "n1": "node belongs to another team"}
    wanted = with_test(drafted(change), test)
    assert results_of(wanted).heading == "Tests: 1 passed, 0 failed"
    assert len(with_test(wanted, test).spec.tests) == 1


def test_a_test_is_bounded_and_holds_no_secrets() -> None:
    pod: dict[str, Any] = make_pod("p")
    pod["metadata"] |= {
        "managedFields": [{}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
    }
    pod["spec"]["containers"][0] |= {"env": [{"name": "PASSWORD", "value": "secret"}], "args": ["--token=secret"]}
    debugger = {"name": "debugger", "env": [{"name": "TOKEN", "value": "secret"}], "command": ["sh", "-c", "secret"]}
    pod["spec"]["ephemeralContainers"] = [debugger]
    pod["spec"]["volumes"] = [{"name": "kube-api-access-x"}, {"name": "data", "emptyDir": {}}]
    rule = {"name": "each", "expression": "20 - usage.requested.cpu - size(node.metadata.name)", "bounds": [0, 20]}
    rules = rules_of(opened(make_rule_set("web", scores=[rule], filters=[{"builtin": "PodFitsResources"}])).pk)
    nodes = [Node.from_json(make_node("n" * (number + 1))) for number in range(20)]
    running = [Pod.from_json(make_pod(f"p{number}", requests={"cpu": "1m"}, nodeName="n")) for number in range(60)]
    found = preview(pod, "web", rules, Snapshot.of(nodes, running), datetime(2026, 1, 2, tzinfo=UTC))
    test = found.test
    assert (len(test["nodes"]), len(test["pods"])) == (MOST_NODES, MOST_PODS)
    assert b"secret" not in msgspec.json.encode(test)
    assert b"managedFields" not in msgspec.json.encode(test)
    assert [volume["name"] for volume in test["pod"]["spec"]["volumes"]] == ["data"]
    assert test["pods"][0]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1m"
    assert "now" not in test
    assert found.notes[0] == "The test holds 50 of 60 Pods on these nodes"


def test_a_pod_whose_ephemeral_containers_are_no_objects_is_previewed_all_the_same(change: Change) -> None:
    asked = {**POD, "spec": {**POD["spec"], "ephemeralContainers": ["debug", None]}}
    found = preview(asked, "web", rules_of(change.pk), cluster())
    assert found.test["pod"]["spec"]["ephemeralContainers"] == ["debug", None]


def test_a_pod_with_limits_that_no_api_server_takes_is_not_previewed() -> None:
    pressed = {"name": "pressed", "builtin": "CheckNodeMemoryPressure"}
    publish_all(make_rule_set("web", filters=[pressed]), make_assignment("all", "web"))
    asked = {**POD, "spec": {"containers": [{"name": "main", "resources": {"limits": 5}}]}}
    with pytest.raises(PreviewError, match="limits of resources are no object"):
        preview(asked, "web", rules_of(None), cluster())


def test_a_test_holds_no_value_that_is_masked_in_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"mask_annotations": ("vault/*",), "mask_labels": ("customer",)}
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, **names))
    hidden: dict[str, Any] = {"labels": {"customer": "secret"}, "annotations": {"vault/key": "secret"}}
    pod: dict[str, Any] = make_pod("p")
    pod["metadata"] |= hidden
    node: dict[str, Any] = make_node("n1")
    node["metadata"] |= hidden
    running = Pod.from_json(make_pod("r", labels={"customer": "secret"}, nodeName="n1"))
    own = {"name": "own", "expression": "namespaceObject.metadata.labels.customer == pod.metadata.labels.customer"}
    alone = {"name": "alone", "expression": "node.count({'app': 'x'}) < 1", "reason": "one a node"}
    rules = rules_of(opened(make_rule_set("web", filters=[own, alone])).pk)
    snapshot = Snapshot.of([Node.from_json(node)], [running], {"default": {"customer": "secret"}})
    found = preview(pod, "web", rules, snapshot)
    assert b"secret" not in msgspec.json.encode(found.test)
    assert found.test["pods"][0]["metadata"]["labels"] == {"customer": "masked"}
    assert found.test["expect"]["feasible"] == ["n1"]
    assert found.notes == ["The test holds “masked” as the value of annotation vault/key, label customer"]


def test_a_rule_that_reads_the_time_gets_the_moment_into_its_test() -> None:
    rule = {"name": "day", "expression": "now.getHours() < 12", "reason": "mornings only"}
    rules = rules_of(opened(make_rule_set("web", filters=[rule])).pk)
    found = preview(POD, "web", rules, cluster(), datetime(2026, 1, 2, 18, tzinfo=UTC))
    assert found.test["now"] == "2026-01-02T18:00:00Z"
    assert found.test["name"] == "billing-1 finds no node"


def test_a_rule_that_reads_the_namespace_gets_it_into_its_test() -> None:
    rule = {"name": "theirs", "expression": "node.metadata.labels.team == namespaceObject.metadata.labels.team"}
    rules = rules_of(opened(make_rule_set("web", filters=[rule])).pk)
    nodes = cluster().table.infos
    labelled = Snapshot.of([info.node for info in nodes], (), {"default": {"team": "data"}, "other": {"team": "web"}})
    found = preview(POD, "web", rules, labelled)
    assert found.test["namespaces"] == [{"metadata": {"name": "default", "labels": {"team": "data"}}}]
    assert found.test["expect"]["feasible"] == ["n-data"]


@pytest.mark.parametrize("namespace", ["default", "other"])
def test_a_pod_whose_affinity_selects_namespaces_gets_them_into_its_test(namespace: str) -> None:
    term = {
        "labelSelector": {"matchLabels": {"app": "db"}},
        "namespaceSelector": {"matchLabels": {"team": "data"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    beside = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    document = make_rule_set("web", filters=[{"builtin": "MatchInterPodAffinity"}])
    rules = rules_of(opened(document).pk)
    nodes = [Node.from_json(make_node(name)) for name in ("n1", "n2")]
    running = [Pod.from_json(make_pod("db", namespace=namespace, labels={"app": "db"}, nodeName="n1"))]
    labelled = Snapshot.of(nodes, running, {namespace: {"team": "data"}})
    found = preview(make_pod("web-1", affinity=beside), "web", rules, labelled)
    assert found.test["expect"]["feasible"] == ["n1"]
    assert results_of(with_test(document, found.test)).passed == 1


def test_a_test_expects_what_its_rules_say_at_its_own_moment() -> None:
    document = make_rule_set("web", filters=[{"name": "late", "expression": "now.getMilliseconds() >= 500"}])
    now = datetime(2026, 1, 2, 18, 0, 0, 700_000, tzinfo=UTC)
    found = preview(POD, "web", rules_of(opened(document).pk), cluster(), now)
    assert results_of(with_test(document, found.test)).passed == 1


class Server:
    """Stands in for the API server."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self._pods = pods

    def get(self, *, path: str, query: Any = None, timeout_seconds: float) -> bytes:
        del timeout_seconds
        if query is not None:
            return msgspec.json.encode({"items": self._pods})
        return msgspec.json.encode(next(each for each in self._pods if path.endswith(each["metadata"]["name"])))


def test_pods_come_from_the_cluster_those_that_wait_first() -> None:
    server: Any = Server(POD, make_pod("a", namespace="shop"))
    assert pending_pods(server) == ["default/billing-1", "shop/a"]
    assert pod_of_cluster(server, "billing-1")["metadata"]["labels"] == {"team": "data"}
    with pytest.raises(ScenarioError, match="NAMESPACE/NAME"):
        pod_of_cluster(server, "no name")
    with pytest.raises(PreviewError, match="no Decision has the id"):
        pod_of_decision("00000000-0000-0000-0000-000000000000")


def test_a_pod_comes_from_a_decision(tmp_path: Path) -> None:
    publish_all(make_rule_set("web"), make_assignment("all", "web"))
    history = History(tmp_path / "spool")
    Corpus(history, CompiledRevision(publishing.current_revision()), nodes=3).ask("first")
    history.settle()
    history.spool.close()
    row = Decision.objects.order_by("sequence")[0]
    assert pod_of_decision(str(row.pk))["metadata"]["name"] == "first"


@pytest.fixture
def on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview_page, "live_snapshot", lambda *_: cluster())
    monkeypatch.setattr(preview_page, "connect", lambda: Server(POD))


@pytest.mark.usefixtures("on_a_cluster")
def test_an_operator_previews_and_saves_a_test(operator: Client, change: Change) -> None:
    form = operator.get(PAGE, {"rule_set": "web", "change": change.pk})
    assert "default/billing-1" in text_of(form)
    shown = operator.post(PAGE, {"rule_set": "web", "change": change.pk, "pending": "default/billing-1"})
    text = text_of(shown)
    assert "The winner changes: n0 → n-data" in text
    assert "≠ The draft differs from the live version on 7 nodes" in text
    kept = {name: shown.context["test"][name].value() for name in ("rule_set", "change", "seen", "test")}
    said = text_of(operator.post(SAVE, kept, follow=True))
    assert f"The test “billing-1 goes to n-data” is in Change {change.pk}." in said
    assert "Tests: 1 passed, 0 failed" in said
    assert [test.name for test in drafted(change).spec.tests] == ["billing-1 goes to n-data"]


@pytest.mark.usefixtures("on_a_cluster")
def test_why_not_a_node_is_answered_by_the_draft(operator: Client, change: Change) -> None:
    asked = {"rule_set": "web", "change": change.pk, "pod": "default/billing-1"}
    said = text_of(operator.post(PAGE, {**asked, "why": "n1"}))
    assert f"Results of Change {change.pk} for n1:" in said
    assert 'filter team refused n1: "node belongs to another team"' in said
    assert "The cluster has no node n99" in text_of(operator.post(PAGE, {**asked, "why": "n99"}))
    assert "What Change" not in text_of(operator.post(PAGE, asked))


@pytest.mark.usefixtures("on_a_cluster")
def test_a_pod_that_a_link_brings_is_tried_on_the_draft_that_is_chosen(
    operator: Client, auditor: Client, change: Change
) -> None:
    decision = make_decision(rule_set="web")
    links = re.findall(
        r'id="preview-link" href="([^"]+)"', get(operator, change_url("decision", decision.pk)).content.decode()
    )
    page = get(operator, links[0].replace("&amp;", "&"))
    assert page.context["drafts"][0][0] == f"web in {change}: {change.title}"
    there = get(operator, page.context["drafts"][0][1])
    assert (there.context["name"], there.context["change"]) == ("web", change)
    assert f'value="{decision.pk}"' in there.content.decode()
    assert 'id="preview-link"' not in get(auditor, change_url("decision", decision.pk)).content.decode()


@pytest.mark.usefixtures("on_a_cluster")
def test_without_a_draft_the_page_says_how_to_begin_one(operator: Client) -> None:
    assert "No rule set has a draft." in text_of(get(operator, f"{PAGE}?pod=shop/web-1"))


def test_while_the_cluster_is_away_nobody_says_that_no_pod_waits(
    operator: Client, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        message = "Pods that wait can't be listed: nobody answers"
        raise PreviewError(message)

    monkeypatch.setattr(preview_page, "connect", away)
    shown = text_of(get(operator, f"{PAGE}?rule_set=web&change={change.pk}"))
    assert "nobody answers" in shown
    assert "no Pod is pending" not in shown


@pytest.mark.usefixtures("on_a_cluster")
def test_a_test_over_somebody_elses_edit_is_refused_and_keeps_what_was_typed(operator: Client, change: Change) -> None:
    shown = operator.post(PAGE, {"rule_set": "web", "change": change.pk, "pod": "default/billing-1"})
    kept = {name: shown.context["test"][name].value() for name in ("rule_set", "change", "seen", "test")}
    theirs = publishing.Edit.of(make_rule_set("web", filters=[{"builtin": "PodFitsHost"}]))
    publishing.edit_change(
        change=change, edits=[theirs], by="carol", expected_digest=Change.objects.get(pk=change.pk).digest
    )
    refused = operator.post(SAVE, kept)
    assert "Somebody was faster" in text_of(refused)
    assert refused.context["test"]["test"].value() == kept["test"]
    assert not drafted(change).spec.tests


@pytest.mark.usefixtures("on_a_cluster")
def test_a_test_for_a_change_that_was_withdrawn_meanwhile_is_kept_on_the_page(operator: Client, change: Change) -> None:
    shown = operator.post(PAGE, {"rule_set": "web", "change": change.pk, "pod": "default/billing-1"})
    kept = {name: shown.context["test"][name].value() for name in ("rule_set", "change", "seen", "test")}
    publishing.withdraw_change(change=change, by="carol")
    refused = operator.post(SAVE, kept)
    assert "That Change can no longer be edited: nothing was saved" in text_of(refused)
    assert refused.context["test"]["test"].value() == kept["test"]


@pytest.mark.usefixtures("on_a_cluster")
def test_a_test_that_is_none_says_so_at_its_field(operator: Client, change: Change) -> None:
    seen = publishing.seen_of(change, ("RuleSet", "web"))
    sent = {"rule_set": "web", "change": change.pk, "seen": seen, "test": "name: x\npod: {}\nexpected: {}"}
    assert "unknown member; did you mean expect?" in text_of(operator.post(SAVE, sent))


@pytest.mark.usefixtures("on_a_cluster")
def test_a_change_with_more_digits_than_a_number_may_have_is_none(operator: Client) -> None:
    asked = {"rule_set": "web", "change": "9" * 5_000}
    assert operator.get(PAGE, asked).status_code == 200
    assert "That Change can no longer be edited: nothing was saved" in text_of(operator.post(SAVE, asked))


@pytest.mark.usefixtures("on_a_cluster")
@pytest.mark.parametrize("name", ["we\0b", "no name", "edit:web"])
def test_a_text_that_is_no_rule_sets_name_is_not_looked_for(operator: Client, change: Change, name: str) -> None:
    asked = {"rule_set": name, "change": change.pk, "pod": "default/billing-1"}
    assert operator.post(PAGE, asked).status_code == 200
    assert operator.post(SAVE, asked | {"seen": "-", "test": "{}"}).status_code == 200


@pytest.mark.usefixtures("on_a_cluster")
def test_an_auditor_previews_nothing(auditor: Client, change: Change) -> None:
    asked = {"rule_set": "web", "change": change.pk, "pending": "default/billing-1"}
    assert "Only Operators can run this." in text_of(auditor.get(PAGE, asked))
    shared = text_of(auditor.get(PAGE, {"pod": "shop/web-1"}))
    assert "Here Operators can try a Pod with the draft of a rule set." in shared
    assert "No rule set has a draft" not in shared
    assert auditor.post(PAGE, asked).status_code == 403
    assert auditor.post(SAVE, asked).status_code == 403


def test_a_failing_test_is_said_in_a_sentence() -> None:
    rule_set = make_rule_set(
        "web",
        filters=[TEAM_FILTER],
        tests=[{"name": "all pass", "pod": POD, "nodes": [make_node("n1")], "expect": {"feasible": ["n1"]}}],
    )
    assert results_of(rule_set).sentences == ["all pass: should pass: n1; passes: none"]
    with pytest.raises(RuleSetError):
        with_test(rule_set, {"name": "no Pod", "expect": {}})
