"""The story of a Pod: attempts, what changed between two and which of it made the difference, the end, who answers for it."""

import html
import io
import json
import re
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.core.management import call_command
from django.test import Client

from policies import publishing
from policies.engine.decision import CompiledRevision, decide
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.engine.ruleset import RuleSet
from policies.models import Change
from scheduler.decisions import causes
from scheduler.decisions.causes import causes_of
from scheduler.decisions.record import Entry, NodesEntry, notes_of_suspensions
from scheduler.decisions.story import Story, story_of
from scheduler.decisions.time_limit import TimeLimit
from scheduler.decisions.workload_story import workload_story
from scheduler.models import Decision, Outcome
from tests.builders import TEAM_FILTER, make_assignment, make_node, make_pause, make_pod, make_rule_set
from tests.component.pages import get, publish_all, text_of
from tests.recording import History

pytestmark = pytest.mark.django_db

AT = datetime(2026, 1, 1, tzinfo=UTC)
PAGE = "/admin/scheduler/pods/default/web-1/"


def rules(*names: str) -> RuleSet:
    """Rules that let Pods of a team onto nodes of some teams."""
    expression = f"node.metadata.?labels.team.orValue('') in {list(names)}"
    return make_rule_set("team", filters=[{"name": "team", "expression": expression, "reason": "another team"}])


def pod(uid: str = "u1", **labels: str) -> Pod:
    made = make_pod("web-1", labels=labels)
    made["metadata"]["uid"] = uid
    made["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "night", "uid": "o", "controller": True}]
    return Pod.from_json(made)


def snapshot(**teams: str) -> Snapshot:
    return Snapshot.of(Node.from_json(make_node(name, labels={"team": team})) for name, team in teams.items())


class Asking:
    """Asks about a Pod as kube-scheduler does, and records it."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._seconds = 0

    def pass_time(self, seconds: int) -> None:
        """Let so long pass before the next question."""
        self._seconds += seconds

    def filter(self, asked: Pod, seen: Snapshot, names: Sequence[str] = ()) -> str:
        self._seconds += 10
        now = AT + timedelta(seconds=self._seconds)
        revision = CompiledRevision(publishing.current_revision())
        enforced = revision.choose(asked, seen, now).enforced
        assert enforced is not None
        assignment, rule_set = enforced
        cycle = Cycle(pod=asked, snapshot=seen, now=now, params=rule_set.params)
        names = names or [info.name for info in seen.table.infos]
        rows = seen.table.rows(names)
        answer = decide(rule_set, cycle, rows[rows >= 0], scoring=False)
        key = str(uuid.uuid4())
        entry = NodesEntry(id=key, verb="filter", pod=asked, now=now, revision=revision, assignment=assignment,
                           rule_set=rule_set, snapshot=seen, names=names, answer=answer)  # fmt: skip
        self._history.recorder.record(entry)
        return key

    def fail(self, asked: Pod, error: str) -> None:
        self._seconds += 10
        self._history.recorder.record(
            Entry(verb="filter", pod=asked, now=AT + timedelta(seconds=self._seconds), error=error)
        )

    def bind(self, asked: Pod) -> None:
        self._seconds += 1
        self._history.recorder.record(Entry(verb="bind", pod=asked, now=AT + timedelta(seconds=self._seconds)))


@pytest.fixture
def asking(history: History) -> Asking:
    publish_all(rules("data"), make_assignment("all", "team", match={}))
    return Asking(history)


def told(history: History, uid: str = "") -> Story:
    history.settle()
    story = story_of("default", "web-1", uid, with_causes=True)
    assert story is not None
    return story


def test_attempts_with_the_same_answer_are_told_once_and_another_rule_is_what_made_the_difference(
    history: History, asking: Asking
) -> None:
    seen = snapshot(n1="web", n2="ops")
    for _ in range(3):
        asking.filter(pod(), seen)
    publish_all(rules("data", "web"))
    asking.filter(pod(), seen)
    newest, first = told(history).attempts
    assert (first.times, first.feasible, [each.nodes for each in first.refusals]) == (3, 0, [["n1", "n2"]])
    assert (newest.times, newest.newly_allowed, newest.newly_refused) == (1, ["n1"], [])
    assert "the rules changed: team v1 became team v2" in newest.changed
    assert newest.causes is not None
    assert (newest.causes.alone, newest.causes.needed) == (["the rules"], ["the rules"])
    assert "It was the rules" in newest.causes.sentence


def test_what_kubernetes_writes_into_a_pod_at_each_attempt_is_no_change_of_it(history: History, asking: Asking) -> None:
    asking.filter(pod(), snapshot(n1="web"))
    written = msgspec.json.decode(msgspec.json.encode(pod().json))
    written["metadata"] |= {"resourceVersion": "7", "generation": 2, "managedFields": [{"manager": "kube-scheduler"}]}
    written["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    asking.filter(Pod.from_json(written), snapshot(n1="web"))
    (only,) = told(history).attempts
    assert (only.times, only.changed) == (2, [])


def test_another_assignment_that_took_the_pod_is_not_laid_at_the_rules_door(history: History, asking: Asking) -> None:
    nobody = make_rule_set("nobody", filters=[{"name": "none", "expression": "false", "reason": "none"}])
    match = {"podSelector": {"matchLabels": {"held": "yes"}}}
    publish_all(nobody, make_assignment("held", "nobody", match=match, order=1))
    asking.filter(pod(held="yes"), snapshot(n1="data"))
    asking.filter(pod(), snapshot(n1="data"))
    newest, _ = told(history).attempts
    assert {"the Pod changed: metadata.labels.held", "Assignment held became all"} < set(newest.changed)
    assert "another Assignment's rules: nobody v1 became team v1" in newest.changed
    assert newest.causes is not None
    assert newest.causes.sentence == (
        "It was the Assignment that took it: with nothing else changed, the answer is the new one."
    )


def test_the_end_of_a_pause_is_not_laid_at_the_rules_door(history: History, asking: Asking) -> None:
    until = (AT + timedelta(seconds=15)).isoformat()
    publish_all(make_pause("team-paused", "RuleSet/team/team", until=until))
    for _ in range(2):
        asking.filter(pod(), snapshot(n1="web"))
    newest, first = told(history).attempts
    assert (first.feasible, newest.newly_refused) == (1, ["n1"])
    assert newest.causes is not None
    assert newest.causes.sentence == (
        "It was a Pause or an Exemption that began or ended: with nothing else changed, the answer is the new one."
    )


def test_attempts_that_asked_in_another_order_and_came_to_the_same_answer_are_told_once(
    history: History, asking: Asking
) -> None:
    refuses = {"name": "small", "expression": "node.metadata.name != 'n3'", "reason": "too small"}
    publish_all(make_rule_set("team", filters=[refuses, {"name": "never", "expression": "false", "reason": "never"}]))
    seen = snapshot(n1="web", n2="ops", n3="data", n4="web")
    for names in (["n1", "n2", "n3", "n4"], ["n4", "n3", "n1", "n2"], ["n3", "n2", "n4", "n1"]):
        asking.filter(pod(), seen, names)
    (only,) = told(history).attempts
    assert (only.times, only.changed, [len(each.nodes) for each in only.refusals]) == (3, [], [3, 1])


def test_a_change_of_the_cluster_is_told_from_one_of_the_pod(history: History, asking: Asking) -> None:
    asking.filter(pod(), snapshot(n1="web"))
    asking.filter(pod(), snapshot(n1="data"))
    asking.filter(pod(app="x"), snapshot(n1="data"))
    third, second, _ = told(history).attempts
    assert second.causes is not None
    assert second.causes.alone == ["the cluster"]
    assert third.changed[0] == "the Pod changed: metadata.labels.app"
    assert (third.is_turn, third.causes) == (False, None)


def test_what_took_two_changes_together_is_said_so(history: History, asking: Asking) -> None:
    asking.filter(pod(), snapshot(n1="web"))
    publish_all(rules("ops"))
    asking.filter(pod(), snapshot(n1="ops"))
    newest, _ = told(history).attempts
    assert newest.causes is not None
    assert (newest.causes.alone, newest.causes.needed) == ([], ["the rules", "the cluster"])
    assert newest.causes.sentence == "It took several changes together: the rules and the cluster."


def test_a_node_that_berth_had_not_seen_yet_is_told_as_one_that_was_refused(history: History, asking: Asking) -> None:
    asking.filter(pod(), snapshot(n1="web"), ["n9"])
    first = told(history)
    assert first.now == "It waits: by the last answer it may use none of 1 node."
    asking.filter(pod(), snapshot(n1="web", n9="data"), ["n9"])
    newest, _ = told(history).attempts
    assert (newest.newly_allowed, newest.newly_refused) == (["n9"], [])
    assert not [said for said in newest.changed if "asked about" in said]
    assert newest.causes is not None
    assert newest.causes.alone == ["the cluster"]


def test_nodes_that_came_and_went_are_told_apart_from_those_that_are_treated_otherwise(
    history: History, asking: Asking
) -> None:
    seen = snapshot(n1="data", n2="web", n3="data")
    asking.filter(pod(), seen, ["n1", "n2"])
    asking.filter(pod(), seen, ["n2", "n3"])
    newest, _ = told(history).attempts
    assert (newest.changed, newest.is_turn) == (["asked about n3 too", "not asked about n1 any more"], False)


def test_a_pod_for_which_there_was_no_node_waits(history: History, asking: Asking) -> None:
    """The cluster has none, or none has the label of those that Berth's own scheduler uses."""
    asking.filter(pod(), snapshot())
    assert told(history).now == "It waits: by the last answer there was no node to ask about."


def test_a_rule_over_time_that_closed_is_told_from_a_change_of_the_cluster(history: History, asking: Asking) -> None:
    over = {"name": "early", "expression": "now.getSeconds() < 15", "reason": "too late"}
    publish_all(make_rule_set("team", filters=[over]))
    asking.filter(pod(), snapshot(n1="web"))
    asking.filter(pod(), snapshot(n1="data"))
    newest, _ = told(history).attempts
    assert newest.causes is not None
    assert newest.causes.sentence == "It was the time: with nothing else changed, the answer is the new one."


def test_rules_that_are_the_same_are_not_taken_from_both_answers(
    history: History, asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = {"name": "early", "expression": "now.getSeconds() < 15", "reason": "too late"}
    publish_all(make_rule_set("team", filters=[over]))
    for team in ("web", "data"):
        asking.filter(pod(), snapshot(n1=team))
    verdict, decided = causes._verdict, []
    monkeypatch.setattr(causes, "_verdict", lambda *asked, **more: decided.append(asked) or verdict(*asked, **more))
    told(history)
    assert len(decided) == 8


@pytest.mark.parametrize(
    ("before", "after", "needed", "sentence"),
    [
        ("true", "!({x} || {ops})", ["the rules"], "the Pod and the rules, or the rules and the cluster."),
        (
            "!({x} && {ops})",
            "!({x} || {ops})",
            [],
            "the Pod and the rules, or the Pod and the cluster, or the rules and the cluster.",
        ),
    ],
)
def test_what_took_one_change_with_another_of_several_names_them_all(
    history: History, asking: Asking, before: str, after: str, needed: list[str], sentence: str
) -> None:
    for number, expression in enumerate((before, after)):
        says = expression.format(x="'x' in pod.metadata.labels", ops="node.metadata.labels.team == 'ops'")
        publish_all(make_rule_set("team", filters=[{"name": "team", "expression": says, "reason": "no"}]))
        asking.filter(pod(**({"x": "y"} if number else {})), snapshot(n1="ops" if number else "web"))
    newest, _ = told(history).attempts
    assert newest.causes is not None
    assert (newest.causes.alone, newest.causes.needed) == ([], needed)
    assert newest.causes.sentence == f"It took several changes together: {sentence}"


def test_a_difference_that_cant_be_decided_anew_says_why(history: History, asking: Asking) -> None:
    asking.filter(pod(), snapshot(n1="web"))
    asking.filter(pod(), snapshot(n1="data"))
    history.settle()
    before, after = Decision.objects.order_by("at")
    after.error = "too late"
    assert "no rule was asked: too late" in causes_of(before, after, TimeLimit()).fault
    before.verb = "bind"
    assert "different questions" in causes_of(before, after, TimeLimit()).fault
    before.verb, before.chain, after.error = "filter", 0, ""
    assert "refers to no Snapshot" in causes_of(before, after, TimeLimit()).fault


def test_a_name_that_was_used_again_has_a_story_for_each_uid(history: History, asking: Asking, auditor: Client) -> None:
    asking.filter(pod("old"), snapshot(n1="data"))
    asking.filter(pod("new"), snapshot(n1="web"))
    assert (told(history).uid, told(history).uids) == ("new", ["new", "old"])
    assert told(history, "old").attempts[0].feasible == 1
    assert story_of("default", "web-1", "nobody's") is None
    page = get(auditor, PAGE)
    assert b"?uid=old" in page.content
    assert "UID old" in text_of(get(auditor, f"{PAGE}?uid=old"))


def test_an_attempt_that_began_on_another_day_says_on_which(history: History, asking: Asking, auditor: Client) -> None:
    for _ in range(2):
        asking.filter(pod(), snapshot(n1="ops"))
    history.settle()
    assert "2026-01-01 00:00:20 UTC , 2 times since 00:00:10 UTC:" in text_of(get(auditor, PAGE))
    asking.pass_time(24 * 60 * 60)
    asking.filter(pod(), snapshot(n1="ops"))
    history.settle()
    assert "2026-01-02 00:00:30 UTC , 3 times since 2026-01-01 00:00:10 UTC:" in text_of(get(auditor, PAGE))


def test_where_there_was_no_node_nobody_says_that_none_of_them_passed(
    history: History, asking: Asking, auditor: Client
) -> None:
    key = asking.filter(pod(), snapshot())
    told(history)
    text = text_of(get(auditor, PAGE))
    assert "– no node to ask about , by team v1" in text
    assert "It waits: by the last answer there was no node to ask about." in text
    pages = [text, text_of(get(auditor, f"/admin/scheduler/decision/{key}/change/"))]
    pages.append(text_of(get(auditor, "/admin/scheduler/workloads/default/Job/night/")))
    version: Any = auditor.get("/admin/scheduler/versions/team/1/", follow=True)
    pages.append(text_of(version))
    for options in ([], ["--story"]):
        out = io.StringIO()
        call_command("explain", "web-1", *options, stdout=out)
        pages.append(out.getvalue())
    for page in pages:
        assert "0 of 0" not in page
        assert "no node to ask about" in page


def test_an_attempt_is_pinned_and_each_other_one_stands_beside_it(
    history: History, asking: Asking, auditor: Client
) -> None:
    first = asking.filter(pod(), snapshot(n1="data"))
    second = asking.filter(pod(), snapshot(n1="web"))
    told(history)
    decision = get(auditor, f"/admin/scheduler/decision/{first}/change/").content.decode()
    (link,) = re.findall(r'href="([^"]*pin=[^"]*)"', decision)
    page = get(auditor, link.replace("&amp;", "&").partition("#")[0])
    assert [(each["is_pinned"], each["against"]) for each in page.context["attempts"]] == [
        (False, f"/admin/scheduler/decision/{first}/beside/{second}/"),
        (True, ""),
    ]
    assert "Unpin it" in text_of(page)
    assert "Unpin it" not in text_of(get(auditor, f"{PAGE}?pin=none"))


def approved(value: RuleSet) -> Change:
    """Publish rules as alice, approved by carol; and once by dave, before the last edit."""
    change = publishing.open_change(title="Let web Pods run", edits=[publishing.Edit.of(value)], by="alice")
    change.events.create(act="approve", by="dave", at=AT, digest="of something else")
    change.events.create(act="approve", by="carol", at=AT, digest=change.digest)
    publishing.publish_change(change=change, by="alice", expected_digest=change.digest, reason="ticket 7")
    return change


def test_one_page_leads_to_the_end_and_to_who_approved_the_rules(
    history: History, asking: Asking, auditor: Client
) -> None:
    change = approved(rules("web"))
    publish_all(make_rule_set("other", filters=[TEAM_FILTER]))  # a later Revision, which has nothing to do with it
    key = asking.filter(pod(), snapshot(n1="web", n2="ops"))
    asking.bind(pod())
    Outcome.objects.create(kind="bound", at=AT, process="p", pod_namespace="default", pod_name="web-1", pod_uid="u1",
                           node_name="n1", by="default-scheduler", decision=uuid.UUID(key))  # fmt: skip
    story = told(history)
    assert [step.verb for step in story.attempts[0].steps] == ["filter", "bind"]
    assert (story.now, story.decided_by) == ("The Pod was bound to n1 by default-scheduler.", key)
    text = text_of(get(auditor, PAGE))
    for said in (
        "The Pod was bound to n1 by default-scheduler.",
        "of Job/night",
        "published by alice",
        f"Change {change.pk}: Let web Pods run , approved by carol .",
        "1 node refused by team : “another team”. n2",
    ):
        assert said in text, said
    assert "dave" not in text


def test_who_let_a_pod_onto_its_node_answers_for_it_and_not_who_refused_it_before_or_asked_about_it_later(
    history: History, asking: Asking
) -> None:
    asking.filter(pod(), snapshot(n1="web"))
    approved(rules("web"))
    key = asking.filter(pod(), snapshot(n1="web"))
    asking.bind(pod())
    publish_all(rules("ops"), by="erin")
    asking.filter(pod(), snapshot(n1="web"))
    Outcome.objects.create(kind="bound", at=AT, process="p", pod_namespace="default", pod_name="web-1", pod_uid="u1",
                           node_name="n1", by="default-scheduler", decision=uuid.UUID(key))  # fmt: skip
    story = told(history)
    assert story.decided_by == key
    assert ("RuleSet", "alice") in [(each.kind, each.published_by) for each in story.provenance]


def test_who_paused_the_rules_answers_for_a_pod_that_got_its_node_meanwhile(history: History, auditor: Client) -> None:
    approved(rules("web"))
    live: list[Any] = [make_assignment("all", "team", match={}), make_pause("storm", "RuleSet/team")]
    publish_all(*live, by="erin")
    asked = pod()
    revision = CompiledRevision(publishing.current_revision())
    choice = revision.choose(asked, snapshot(n1="ops"), AT)
    assert choice.enforced is None
    entry = NodesEntry(id=str(uuid.uuid4()), verb="filter", pod=asked, now=AT, revision=revision, assignment=None,
                       rule_set=None, snapshot=snapshot(n1="ops"), names=["n1"], answer=None,
                       notes=notes_of_suspensions(choice.suspended_by))  # fmt: skip
    history.recorder.record(entry)
    story = told(history)
    assert [(each.kind, each.name, each.published_by) for each in story.provenance] == [("Pause", "storm", "erin")]
    text = text_of(get(auditor, PAGE))
    assert "Pause storm: live since Revision" in text
    assert "None of Berth's rules applied" not in text


def ended(*ends: tuple[str, int]) -> list[str]:
    """Return what the story says became of the Pod, of outcomes of these kinds at minutes by their writers' clocks."""
    for kind, minute in ends:
        Outcome.objects.create(kind=kind, at=AT + timedelta(minutes=minute), process="p", pod_namespace="default",
                               pod_name="web-1", pod_uid="u1", node_name="" if kind == "gone" else "n1")  # fmt: skip
    story = story_of("default", "web-1")
    assert story is not None
    return [story.now, *(end.says for end in story.ends)]


@pytest.fixture
def asked_about(history: History, asking: Asking) -> None:
    asking.filter(pod(), snapshot(n1="data"))
    history.settle()


@pytest.mark.usefixtures("asked_about")
def test_a_pod_was_bound_before_it_ended_whatever_its_writers_clocks_say() -> None:
    said = ended(("deleted", 1), ("bound", 24 * 60))
    assert said == ["The Pod was deleted from n1.", "bound to n1", "deleted from n1"]
    assert workload_story("default", "Job", "night", AT, set()).ended == {"deleted": 1}


@pytest.mark.usefixtures("asked_about")
def test_a_pod_that_may_have_run_to_its_end_is_not_said_to_be_deleted() -> None:
    says = "ended on n1: it ran to its end, or was deleted at once"
    assert ended(("bound", 1), ("ended", 2)) == [f"The Pod has {says}.", "bound to n1", says]
    assert workload_story("default", "Job", "night", AT, set()).ended == {"ended": 1}


@pytest.mark.usefixtures("asked_about")
def test_who_saw_how_a_pod_ended_is_told_and_not_who_saw_only_that_it_did() -> None:
    assert ended(("bound", 1), ("deleted", 2), ("ended", 3)) == [
        "The Pod was deleted from n1.",
        "bound to n1",
        "deleted from n1",
    ]
    assert workload_story("default", "Job", "night", AT, set()).ended == {"deleted": 1}


@pytest.mark.usefixtures("asked_about")
def test_a_pod_that_was_found_gone_is_told_by_what_others_saw_of_it() -> None:
    assert ended(("gone", 9))[0] == "The Pod is gone, and nobody saw whether it had a node."
    gone = "gone, and nobody saw how it ended"
    assert ended(("bound", 1)) == [f"The Pod is {gone}.", "bound to n1", gone]
    assert workload_story("default", "Job", "night", AT, set()).ended == {"bound": 1}
    assert ended(("evicted", 2)) == ["The Pod was evicted from n1.", "bound to n1", "evicted from n1"]
    assert workload_story("default", "Job", "night", AT, set()).ended == {"evicted": 1}


def test_a_preempted_pods_rules_are_those_of_its_own_node_and_not_of_who_it_had_to_go_for(
    history: History, asking: Asking
) -> None:
    first = asking.filter(pod(), snapshot(n1="data"))
    later = asking.filter(pod(), snapshot(n1="data"))
    history.settle()
    fields = {"process": "p", "pod_namespace": "default", "pod_name": "web-1", "pod_uid": "u1", "node_name": "n1"}
    Outcome.objects.create(kind="bound", at=AT, decision=later, by="berth", **fields)
    who = {"preemptor_uid": "u2", "preemptor_namespace": "shop", "preemptor_name": "urgent"}
    Outcome.objects.create(kind="preempted", at=AT, decision=first, **who, **fields)
    story = story_of("default", "web-1")
    assert story is not None
    assert [end.says for end in story.ends] == ["bound to n1 by berth", "preempted from n1 for shop/urgent"]
    assert story.decided_by == later


def test_of_many_pods_that_had_a_name_the_page_names_the_newest_and_links_to_the_rest(
    history: History, asking: Asking, auditor: Client
) -> None:
    for number in range(20):
        asking.filter(pod(f"uid-{number}"), snapshot(n1="web"))
    history.settle()
    page = get(auditor, PAGE)
    assert [uid for uid, _ in page.context["others"]] == [f"uid-{number}" for number in range(18, 6, -1)]
    assert "uid-7 and 7 more" in text_of(page)
    assert len(get(auditor, page.context["of_name"]).context["rows"]) == 20


def test_a_pod_has_its_story_though_the_newest_decisions_are_all_of_one_of_its_name(
    history: History, asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.decisions.story._MOST_SEEN", 2)
    asking.filter(pod("old"), snapshot(n1="data"))
    for _ in range(3):
        asking.filter(pod("new"), snapshot(n1="web"))
    story = told(history, "old")
    assert (story.uids, [each.feasible for each in story.attempts]) == (["new", "old"], [1])


def test_an_attempt_without_an_answer_says_why_and_names_no_number_of_nodes(
    history: History, asking: Asking, auditor: Client
) -> None:
    asking.filter(pod(), snapshot(n1="web"))
    unseen = "Berth has not seen the cluster yet"
    for _ in range(2):
        asking.fail(pod(), unseen)
    story = told(history)
    assert story.now == f"It waits: the last question about it couldn't be answered: {unseen}."
    assert [(each.error, each.times) for each in story.attempts] == [(unseen, 2), ("", 1)]
    page = text_of(get(auditor, f"{PAGE}?uid=u1"))
    assert f"! no answer: {unseen}" in page
    assert "0 of 0 nodes" not in page
    out = io.StringIO()
    call_command("explain", "web-1", "--story", stdout=out)
    assert f"filter, 2 times: no answer: {unseen}\n" in out.getvalue()


def test_an_answer_is_told_beside_the_one_before_it_and_not_beside_a_question_that_had_none(
    history: History, asking: Asking
) -> None:
    asking.fail(pod(), "Berth has not seen the cluster yet")
    asking.filter(pod(), snapshot(n1="web"))
    asking.fail(pod(), "it could not be evaluated in time")
    asking.filter(pod(), snapshot(n1="data"))
    latest, unanswered, refused, unseen = told(history).attempts
    assert (unseen.changed, unanswered.changed, refused.changed) == ([], [], [])
    assert (refused.former_id, latest.former_id) == ("", refused.id)
    assert latest.newly_allowed == ["n1"]
    assert latest.causes is not None


def test_explain_and_rest_tell_the_same(history: History, asking: Asking, auditor: Client) -> None:
    asking.filter(pod(), snapshot(n1="web"))
    asking.filter(pod(), snapshot(n1="data"))
    history.settle()
    out = io.StringIO()
    call_command("explain", "web-1", "--story", "--output", "json", stdout=out)
    found: dict[str, Any] = json.loads(out.getvalue())
    over_rest = auditor.get("/api/v1/pods/default/web-1").json()
    assert found["ok"] is True
    # REST says too whether the Pod is Pending, and what would help.
    assert found["story"] | {"pending": None, "remedies": None} == over_rest
    assert over_rest["attempts"][0]["causes"]["alone"] == ["the cluster"]
    out = io.StringIO()
    call_command("explain", "web-1", "--story", stdout=out)
    assert "- It was the cluster: with nothing else changed" in out.getvalue()
    assert "RuleSet team: live since Revision" in out.getvalue()


def test_what_made_the_difference_is_a_piece_that_the_page_loads(
    history: History, asking: Asking, auditor: Client
) -> None:
    asking.filter(pod(), snapshot(n1="web"))
    asking.filter(pod(), snapshot(n1="data"))
    history.settle()
    before, after = Decision.objects.order_by("at")
    piece = f"/admin/scheduler/difference/{before.pk}/{after.pk}/"
    assert f'hx-get="{piece}"' in get(auditor, PAGE).content.decode()
    assert "It was the cluster" in get(auditor, piece).content.decode()
    beside = f"/admin/scheduler/decision/{before.pk}/beside/{after.pk}/"
    assert beside in get(auditor, PAGE).content.decode()
    assert "They differ on 1 node." in text_of(get(auditor, beside))


@pytest.mark.django_db
def test_a_pod_that_nobody_asked_about_says_what_to_do(auditor: Client) -> None:
    page = auditor.get("/admin/scheduler/pods/default/nobody/")
    assert page.status_code == 404
    assert "No Decision about default/nobody is recorded" in text_of(page)
    assert auditor.get("/api/v1/pods/default/nobody").status_code == 404


def test_revisions_and_assignments_that_the_page_names_lead_to_theirs(
    auditor: Client, history: History, asking: Asking
) -> None:
    key = asking.filter(pod(), snapshot(n1="web"))
    history.settle()
    page = get(auditor, PAGE).content.decode()
    assert ', <a class="berth-link" href="/admin/policies/revision/1/change/">Revision 1</a></p>' in page
    of_assignment = 'href="/admin/policies/assignment/?q=all">Assignment all</a>'
    assert of_assignment in page
    assert of_assignment in get(auditor, f"/admin/scheduler/decision/{key}/change/").content.decode()


def test_what_a_workload_was_refused_for_leads_to_these_decisions(
    auditor: Client, history: History, asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.component.decisions.test_story.AT", datetime.now(UTC))
    asking.filter(pod(), snapshot(n1="web"))
    history.settle()
    page = get(auditor, "/admin/scheduler/workloads/default/Job/night/").content.decode()
    (led,) = re.findall(r'mostly because: <a class="berth-link" href="([^"]+)">another team</a>', page)
    assert "default/web-1" in text_of(get(auditor, html.unescape(led)))
