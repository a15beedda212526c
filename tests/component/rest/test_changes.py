"""Changes over REST: from a document to a Revision, by two people, and what is refused on the way."""

import io
from typing import Any
from urllib.parse import quote

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from policies import publishing
from policies.management.commands import change as change_command
from policies.models import AuditEvent, Change, ChangeEvent, Revision
from tests.builders import (
    TEAM_FILTER,
    assignment_document,
    make_assignment,
    make_pause,
    make_rule_set,
    rule_set_document,
)
from tests.component.pages import publish_all
from tests.component.rest.asking import ask, begun, told

pytestmark = pytest.mark.django_db

WEB = ("rule-sets/web", rule_set_document("web", filters=[TEAM_FILTER]))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("changes/99", "There is no Change 99."),
        ("revisions/99", "There is no Revision 99."),
        ("rule-sets/web", "There is no RuleSet web."),
    ],
)
def test_what_there_isnt_is_named(operator: Client, path: str, said: str) -> None:
    assert told(ask(operator, "get", f"/{path}"), 404)["detail"] == said


@pytest.mark.usefixtures("reviewed")
def test_a_document_goes_live_by_two_people(operator: Client, approver: Client) -> None:
    path, tag = begun(operator, WEB)
    assert told(ask(operator, "post", f"{path}/submit", {"reason": "look"}, match=tag))["state"] == "in_review"
    refused = ask(operator, "post", f"{path}/publish", {}, match=tag)
    assert told(refused, 409)["detail"].startswith("It needs 1 more approval")
    shown = told(ask(approver, "post", f"{path}/approve", {"reason": "good"}, match=tag))
    assert (shown["state"], shown["approved_by"], shown["missing"]) == ("approved", ["approver"], [])
    shown = told(ask(operator, "post", f"{path}/publish", {"reason": "now"}, match=tag))
    assert shown["state"] == "published"
    assert Revision.objects.get().number == shown["revision"]
    assert [event["act"] for event in shown["events"]] == ["open", "edit", "submit", "approve", "publish"]
    assert {event.door for event in AuditEvent.objects.filter(kind__startswith="change.")} == {"rest"}


@pytest.mark.usefixtures("reviewed")
def test_a_draft_tells_each_caller_a_way_to_its_approvals_that_the_caller_has(
    operator: Client, approver: Client
) -> None:
    path, tag = begun(operator, WEB)
    said = "It needs 1 more approval from people who didn't edit it: "
    assert told(ask(operator, "get", path))["missing"] == [f"{said}send it to review."]
    assert told(ask(approver, "get", path))["missing"] == [f"{said}an Operator has to send it to review."]
    commented = told(ask(approver, "post", f"{path}/comment", {"comment": "Why?"}, match=tag))
    assert commented["missing"] == [f"{said}an Operator has to send it to review."]


def test_what_a_change_makes_is_shown_in_documents_and_in_sentences(operator: Client) -> None:
    path, _ = begun(operator, WEB)
    shown = told(ask(operator, "get", path))
    (edit,) = shown["edits"]
    assert (edit["kind"], edit["name"], edit["author"]) == ("RuleSet", "web", "operator")
    assert edit["document"]["spec"]["filters"][0]["name"] == "team"
    assert any("team" in line for line in edit["changes"])


def test_a_fault_of_a_whole_document_names_the_document_once(operator: Client) -> None:
    path, tag = begun(operator, ("rule-sets/web", rule_set_document("web", filters=[])))
    problem = told(ask(operator, "post", f"{path}/submit", {}, match=tag), 422)
    assert problem["detail"] == "web: web has no rule; add one before publishing."
    assert [each["path"] for each in problem["faults"]] == ["web"]


def test_nobody_edits_what_they_have_not_seen(operator: Client) -> None:
    path, tag = begun(operator, WEB)
    other = rule_set_document("other", filters=[TEAM_FILTER])
    refused = ask(operator, "put", f"{path}/rule-sets/other", other)
    assert told(refused, 428)["title"] == "Precondition Required"
    assert refused["Content-Type"] == "application/problem+json"
    moved = ask(operator, "put", f"{path}/rule-sets/other", other, match='"something-else"')
    assert "operator edited it" in told(moved, 412)["detail"]
    assert len(told(ask(operator, "put", f"{path}/rule-sets/other", other, match=tag))["edits"]) == 2


@pytest.mark.parametrize("door", ["rest", "command"])
def test_what_is_edited_just_then_is_not_withdrawn_unseen(
    operator: Client, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, tag = begun(operator, WEB)
    change, withdraw = Change.objects.get(), publishing.withdraw_change

    def while_another_edits(**asked: Any) -> Change:
        edits = [publishing.Edit.of(make_rule_set("other", filters=[TEAM_FILTER]))]
        publishing.edit_change(change=change, edits=edits, by="sam", expected_digest="")
        return withdraw(**asked)

    if door == "rest":
        monkeypatch.setattr(publishing, "withdraw_change", while_another_edits)
        assert "sam edited it" in told(ask(operator, "post", f"{path}/withdraw", {}, match=tag), 412)["detail"]
    else:
        act = change_command._simple(while_another_edits, looks_at_edits=False)
        monkeypatch.setitem(change_command._ACTS, "withdraw", act)
        with pytest.raises(CommandError, match="sam edited it"):
            call_command("change", "withdraw", change.pk, digest=change.digest[:12])
    assert Change.objects.get().state == "draft"


@pytest.mark.parametrize("act", ["submit", "withdraw"])
def test_who_sends_a_digest_without_quotes_is_told_of_them(operator: Client, act: str) -> None:
    path, tag = begun(operator, WEB)
    refused = ask(operator, "post", f"{path}/{act}", {}, match=tag.strip('"'))
    assert "in double quotes" in told(refused, 428)["detail"]
    assert Change.objects.get().state == "draft"


@pytest.mark.parametrize("match", ['""', 'W/""', "*", '"", ""'])
def test_an_if_match_that_names_nothing_is_none(match: str, operator: Client, approver: Client) -> None:
    path, tag = begun(operator, WEB)
    told(ask(operator, "delete", f"{path}/rule-sets/web", match=match), 428)
    told(ask(operator, "post", f"{path}/submit", {}, match=tag))
    told(ask(approver, "post", f"{path}/approve", {}, match=match), 428)
    told(ask(operator, "post", f"{path}/publish", {}, match=match), 428)


@pytest.mark.parametrize("match", ['""', "digest"], ids=["an unset variable in quotes", "without quotes"])
def test_acts_that_need_no_if_match_refuse_one_that_names_nothing(match: str, operator: Client) -> None:
    path, _ = begun(operator, WEB)
    told(ask(operator, "post", f"{path}/withdraw", {}, match=match), 428)
    told(ask(operator, "post", "/pauses", {"target": "everything", "reason": "INC-1"}, match=match), 428)
    assert told(ask(operator, "get", "/pauses"))["results"] == []


def test_of_several_tags_any_may_be_what_is_there(operator: Client, approver: Client) -> None:
    """RFC 9110, section 13.1.1."""
    path, tag = begun(operator, WEB)
    several = f'"before", {tag}, "after"'
    other = rule_set_document("other", filters=[TEAM_FILTER])
    refused = ask(operator, "put", f"{path}/rule-sets/other", other, match='"before", "after"')
    assert "operator edited it" in told(refused, 412)["detail"]
    told(ask(operator, "patch", path, {"title": "another"}, match=several))
    told(ask(operator, "post", f"{path}/submit", {}, match=several))
    told(ask(approver, "post", f"{path}/approve", {}, match=several))
    told(ask(operator, "post", f"{path}/rebase", {}, match=several))
    told(ask(operator, "post", f"{path}/publish", {}, match=several))


def test_every_fault_of_a_document_comes_with_its_path(operator: Client) -> None:
    path, tag = begun(operator)
    faulty = rule_set_document("web", filters=[{"builtin": "Nope"}, {"name": "a", "expression": "1 +"}])
    found = told(ask(operator, "put", f"{path}/rule-sets/web", faulty, match=tag), 422)
    assert [each["path"] for each in found["faults"]] == ["spec.filters[0].builtin", "spec.filters[1].expression"]
    misplaced = told(ask(operator, "put", f"{path}/assignments/else", WEB[1], match=tag), 422)
    assert [each["path"] for each in misplaced["faults"]] == ["kind", "metadata.name"]


def test_an_edit_can_be_taken_out_and_a_thing_removed(operator: Client) -> None:
    publish_all(make_rule_set("old", filters=[TEAM_FILTER]))
    path, tag = begun(operator, WEB)
    response = ask(operator, "delete", f"{path}/rule-sets/old", match=tag)
    assert [edit["document"] is None for edit in told(response)["edits"]] == [True, False]
    left = told(ask(operator, "post", f"{path}/rule-sets/web/discard", match=response["ETag"]))
    assert [edit["name"] for edit in left["edits"]] == ["old"]


def test_what_is_neither_live_nor_in_the_change_is_not_removed(operator: Client) -> None:
    path, tag = begun(operator, WEB)
    refused = told(ask(operator, "delete", f"{path}/rule-sets/webb", match=tag), 404)
    assert (
        refused["detail"]
        == f"There is no RuleSet webb: it isn't live, and Change {path.rpartition('/')[2]} has no edit of it."
    )
    assert told(ask(operator, "delete", f"{path}/rule-sets/web", match=tag))["edits"] == []


def test_pauses_that_end_with_it_are_said_before(operator: Client) -> None:
    publish_all(make_rule_set("old", filters=[TEAM_FILTER]))
    publish_all(make_pause(target="RuleSet/old"))
    path, tag = begun(operator, WEB)
    assert told(ask(operator, "get", path))["ends"] == []
    (said,) = told(ask(operator, "delete", f"{path}/rule-sets/old", match=tag))["ends"]
    assert "ends with it: rule set old would be gone" in said
    shown = io.StringIO()
    call_command("change", "show", int(path.rpartition("/")[2]), stdout=shown)
    assert said in shown.getvalue()


@pytest.mark.parametrize("method", ["put", "delete"])
def test_what_somebody_publishes_after_it_was_read_is_not_edited_unseen(operator: Client, method: str) -> None:
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]))
    seen = ask(operator, "get", "/rule-sets/web")["ETag"]
    path, tag = begun(operator)
    publish_all(make_rule_set("web", filters=[{"name": "theirs", "expression": "true"}]))
    document = rule_set_document("web", filters=[{"name": "mine", "expression": "false"}])
    body = document if method == "put" else None
    moved = told(ask(operator, method, f"{path}/rule-sets/web?seen={quote(seen)}", body, match=tag), 412)
    assert "RuleSet web isn't what you looked at" in moved["detail"]
    assert told(ask(operator, "get", path))["edits"] == []
    seen = ask(operator, "get", "/rule-sets/web")["ETag"]
    edited = ask(operator, method, f"{path}/rule-sets/web?seen={quote(seen)}", body, match=tag)
    assert [edit["name"] for edit in told(edited)["edits"]] == ["web"]


def test_an_object_that_was_read_compressed_is_edited_with_its_etag(operator: Client) -> None:
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]))
    seen = ask(operator, "get", "/rule-sets/web", **{"Accept-Encoding": "gzip"})["ETag"]
    assert seen.startswith("W/")
    path, tag = begun(operator)
    mine = rule_set_document("web", filters=[{"name": "mine", "expression": "false"}])
    assert told(ask(operator, "put", f"{path}/rule-sets/web?seen={quote(seen)}", mine, match=tag))["edits"]


def test_what_somebody_publishes_where_nothing_was_is_not_edited_unseen(operator: Client) -> None:
    path, tag = begun(operator)
    mine = rule_set_document("web", filters=[TEAM_FILTER])
    assert told(ask(operator, "put", f"{path}/rule-sets/web?seen=", mine, match=tag))["edits"]
    publish_all(make_rule_set("other", filters=[TEAM_FILTER]))
    other = rule_set_document("other", filters=[{"name": "mine", "expression": "false"}])
    tag = ask(operator, "get", path)["ETag"]
    told(ask(operator, "put", f"{path}/rule-sets/other?seen=", other, match=tag), 412)


def test_the_same_document_again_edits_nothing(operator: Client) -> None:
    path, tag = begun(operator, WEB)
    again = ask(operator, "put", f"{path}/{WEB[0]}", WEB[1], match=tag)
    assert (told(again)["digest"], again["ETag"]) == (tag.strip('"'), tag)
    assert ChangeEvent.objects.filter(act="edit").count() == 1


def test_who_only_reads_may_do_none_of_it(operator: Client, auditor: Client) -> None:
    path, tag = begun(operator, WEB)
    assert told(ask(auditor, "get", path))["state"] == "draft"
    for act in ("submit", "approve", "reject", "publish", "publish-urgently", "withdraw", "reopen", "gate"):
        refused = told(
            ask(auditor, "post", f"{path}/{act}", None if act == "gate" else {"reason": "x"}, match=tag), 403
        )
        assert refused["detail"].startswith("auditor may not"), act
    assert told(ask(auditor, "post", "/changes", {"title": "mine"}), 403)["detail"].startswith("auditor may not edit")


def test_what_moved_is_named_and_rebased(operator: Client) -> None:
    path, tag = begun(operator, WEB)
    publish_all(make_rule_set("web", filters=[{"name": "mine", "expression": "true"}]))
    (conflict,) = told(ask(operator, "get", path))["conflicts"]
    assert (conflict["kind"], conflict["name"]) == ("RuleSet", "web")
    assert told(ask(operator, "get", path))["live"] == publishing.current_revision().number
    assert "rebase it" in told(ask(operator, "post", f"{path}/publish", {}, match=tag), 409)["detail"]
    number = publishing.current_revision().number
    stale = ask(operator, "post", f"{path}/rebase", {"revision": number - 1}, match=tag)
    assert "was made since you looked" in told(stale, 412)["detail"]
    sides = [{"kind": "RuleSet", "name": "web", "take": "mine"}]
    rebased = ask(operator, "post", f"{path}/rebase", {"revision": number, "sides": sides}, match=tag)
    assert told(rebased)["conflicts"] == []
    assert told(ask(operator, "post", f"{path}/publish", {}, match=rebased["ETag"]))["state"] == "published"


def test_of_a_rule_set_that_both_changed_each_part_is_taken_as_asked(operator: Client) -> None:
    path, tag = begun(operator, WEB)
    mine = {**TEAM_FILTER, "reason": "theirs is another one"}
    publish_all(make_rule_set("web", filters=[mine, {"builtin": "PodFitsHost"}]))
    (conflict,) = told(ask(operator, "get", path))["conflicts"]
    # There was none when the Change began, so there is nothing to put together: one side is taken as a whole.
    assert conflict["parts"] == []
    side = {"kind": "RuleSet", "name": "web", "take": "mine"}
    tag = ask(operator, "post", f"{path}/rebase", {"sides": [side]}, match=tag)["ETag"]
    publish_all(make_rule_set("web", filters=[{**TEAM_FILTER, "reason": "a third one"}, {"builtin": "PodFitsHost"}]))
    (conflict,) = told(ask(operator, "get", path))["conflicts"]
    assert conflict["parts"] == ["filters/team"]
    merge = {**side, "take": "merge"}
    twice = told(ask(operator, "post", f"{path}/rebase", {"sides": [side, merge]}, match=tag), 400)
    assert "RuleSet/web is given twice" in twice["detail"]
    refused = told(ask(operator, "post", f"{path}/rebase", {"sides": [merge]}, match=tag), 409)
    assert "choose a side for filters/team" in refused["detail"]
    parts = {"parts": {"filters/team": "theirs"}}
    for take in ("mine", "theirs"):
        unmerged = told(
            ask(operator, "post", f"{path}/rebase", {"sides": [{**side, "take": take, **parts}]}, match=tag), 400
        )
        assert [each["path"] for each in unmerged["faults"]] == ["sides.0.parts"]
    assert told(ask(operator, "post", f"{path}/rebase", {"sides": [{**merge, **parts}]}, match=tag))["conflicts"] == []


def test_changes_are_found_by_what_they_are_about(operator: Client, approver: Client) -> None:
    first, tag = begun(operator, WEB)
    second, _ = begun(operator, ("rule-sets/other", rule_set_document("other", filters=[TEAM_FILTER])))
    told(ask(operator, "post", f"{first}/submit", {}, match=tag))
    told(ask(operator, "post", f"{first}/request-review", {"whom": "approver"}))

    def found(query: str) -> list[str]:
        return [f"/changes/{each['number']}" for each in told(ask(operator, "get", f"/changes?{query}"))["results"]]

    assert found("") == [second, first]
    assert found("state=draft") == [second]
    assert found("state=open&author=operator") == [second, first]
    assert found("thing=RuleSet/web") == found("waiting=approver") == [first]
    assert found("author=nobody") == []
    assert "'rule-sets' isn't a kind" in told(ask(operator, "get", "/changes?thing=rule-sets/web"), 400)["detail"]
    assert "must be one of draft, in_review" in told(ask(operator, "get", "/changes?state=in-review"), 400)["detail"]


def test_the_gate_is_asked_as_the_page_asks_it(operator: Client) -> None:
    path, _ = begun(operator, WEB)
    assert told(ask(operator, "post", f"{path}/gate"), 202)["gate"]["state"] == "queued"
    assert Change.objects.get().gate_runs.get().asked_by == "operator"


@pytest.mark.parametrize(
    ("body", "path"), [({"title": "a", "titel": "b"}, "titel"), ({}, "title"), ({"title": 7 * "x" * 100}, "title")]
)
def test_a_slip_in_a_body_is_named(operator: Client, body: dict[str, Any], path: str) -> None:
    assert told(ask(operator, "post", "/changes", body), 400)["faults"][0]["path"] == path


def test_times_are_set_and_taken_back(operator: Client) -> None:
    path, tag = begun(operator, WEB)
    set_at = ask(operator, "post", f"{path}/schedule", {"publish_at": "2126-01-01T00:00:00Z"}, match=tag)
    assert told(set_at)["publish_at"] == "2126-01-01T00:00:00Z"
    expires = ask(operator, "post", f"{path}/expire", {"expires_at": "2126-02-01T00:00:00Z"}, match=tag)
    assert told(expires)["expires_at"] == "2126-02-01T00:00:00Z"
    assert expires["ETag"] != tag  # it is a part of what is approved
    past = ask(operator, "post", f"{path}/schedule", {"publish_at": "2020-01-01T00:00:00Z"}, match=expires["ETag"])
    assert "past" in told(past, 409)["detail"]


@pytest.mark.parametrize("at", ["2126-01-01T00:00:00", "2126-01-01 00:00", "2126-01-01", "noon"])
def test_a_time_without_a_zone_is_refused_as_in_a_pause(operator: Client, at: str) -> None:
    path, tag = begun(operator, WEB)
    asked = [("schedule", {"publish_at": at}), ("expire", {"expires_at": at}),
             ("schedule", {"publish_at": "2126-01-01T00:00:00Z", "seen_publish_at": at})]  # fmt: skip
    for act, body in asked:
        said = told(ask(operator, "post", f"{path}/{act}", body, match=tag), 400)
        assert [each["message"] for each in said["faults"]] == [
            "must be a time with its zone, such as 2126-01-31T22:00:00Z"
        ]
    assert told(ask(operator, "get", path))["publish_at"] is None


def test_a_time_is_compared_with_the_one_that_was_read_where_that_is_sent(operator: Client) -> None:
    path, tag = begun(operator, WEB)
    wanted = {"publish_at": "2126-01-01T00:00:00Z"}
    first = ask(operator, "post", f"{path}/schedule", wanted | {"seen_publish_at": None}, match=tag)
    assert told(first)["is_scheduled"]
    told(ask(operator, "post", f"{path}/schedule", {"publish_at": None}, match=tag))
    late = {"publish_at": "2126-03-01T00:00:00Z", "seen_publish_at": wanted["publish_at"]}
    said = told(ask(operator, "post", f"{path}/schedule", late, match=tag), 412)["detail"]
    assert "it isn't scheduled now" in said
    assert told(ask(operator, "get", path))["publish_at"] is None


def test_an_assignment_follows_its_rule_set(operator: Client) -> None:
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]), make_assignment())
    path, tag = begun(operator)
    told(ask(operator, "delete", f"{path}/rule-sets/web", match=tag))
    shown = told(ask(operator, "get", path))
    refused = told(ask(operator, "post", f"{path}/publish", {}, match=f'"{shown["digest"]}"'), 422)
    assert refused["faults"][0]["path"] == "all-web"


def test_params_that_its_rule_set_does_not_have_are_refused_at_once_with_their_place(operator: Client) -> None:
    publish_all(make_rule_set("web", filters=[TEAM_FILTER], params={"zone": "a", "share": 1}))
    path, tag = begun(operator)
    document = assignment_document("all-web", "web", params={"zone": 5, "shore": 2})
    refused = told(ask(operator, "put", f"{path}/assignments/all-web", document, match=tag), 422)
    assert {each["path"] for each in refused["faults"]} == {"spec.params.zone", "spec.params.shore"}
    assert told(ask(operator, "get", path))["edits"] == []
    # By what the Change makes of its rule set, and of one that isn't there yet nothing is said.
    rules = rule_set_document("web", filters=[TEAM_FILTER], params={"zone": 4, "shore": 1})
    tag = ask(operator, "put", f"{path}/rule-sets/web", rules, match=tag)["ETag"]
    tag = ask(operator, "put", f"{path}/assignments/all-web", document, match=tag)["ETag"]
    later = assignment_document("later", "new", params={"any": 1})
    shown = told(ask(operator, "put", f"{path}/assignments/later", later, match=tag))
    assert [edit["name"] for edit in shown["edits"]] == ["all-web", "later", "web"]


@pytest.mark.usefixtures("reviewed")
def test_another_title_and_reason_leave_what_it_makes_and_its_approvals(operator: Client, approver: Client) -> None:
    path, tag = begun(operator, WEB)
    ask(operator, "post", f"{path}/submit", {}, match=tag)
    ask(approver, "post", f"{path}/approve", {}, match=tag)
    changed = ask(operator, "patch", path, {"title": "Web Pods", "reason": "TICKET-2"}, match=tag)
    shown = told(changed)
    assert (shown["title"], shown["reason"], shown["state"]) == ("Web Pods", "TICKET-2", "approved")
    assert (changed["ETag"], shown["approved_by"]) == (tag, ["approver"])
    assert shown["events"][-1] | {"at": ""} == {
        "act": "describe", "by": "operator", "via": "", "whom": "", "at": "", "digest": tag.strip('"'),
        "text": "title was: mine; reason was: empty",
    }  # fmt: skip
    again = told(ask(operator, "patch", path, {"title": "Web Pods"}, match=tag))
    assert len(again["events"]) == len(shown["events"]), "the same again is nothing"


def test_a_title_is_given_only_to_what_was_looked_at_and_is_open(operator: Client, approver: Client) -> None:
    path, tag = begun(operator, WEB)
    assert told(ask(operator, "patch", path, {"title": "x"}), 428)
    assert told(ask(operator, "patch", path, {"title": "x"}, match='"another"'), 412)
    assert told(ask(operator, "patch", path, {"title": " "}, match=tag), 400)
    assert told(ask(operator, "patch", path, {"titel": "x"}, match=tag), 400)
    assert told(ask(approver, "patch", path, {"title": "x"}, match=tag), 403)
    told(ask(operator, "post", f"{path}/publish", {}, match=tag))
    assert "It is published" in told(ask(operator, "patch", path, {"title": "x"}, match=tag), 409)["detail"]
