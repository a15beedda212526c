"""Single acts over REST: a document put in place of what is live, pauses, exemptions, roll-backs, canary Pods."""

import gzip
import json
from contextvars import Context
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.test import Client
from kombu.exceptions import OperationalError

from policies import publishing
from policies.engine.documents import document_of
from policies.models import AuditEvent, Change, Revision
from scheduler.api import canaries
from scheduler.api.things import AssignmentDoor, RuleSetDoor
from scheduler.applying import apply
from scheduler.models import CanaryRun
from tests.builders import (
    TEAM_FILTER,
    assignment_document,
    exemption_document,
    make_assignment,
    make_priority_class,
    make_rule_set,
    priority_class_document,
    rule_set_document,
)
from tests.component.pages import publish_all
from tests.component.rest.asking import ask, begun, told
from tests.component.rest.world import schema

pytestmark = pytest.mark.django_db

WEB = rule_set_document("web", filters=[TEAM_FILTER])
OTHER = rule_set_document("web", filters=[{"name": "none", "expression": "false"}])


@pytest.fixture(autouse=True)
def _no_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.api.things.examine_documents", lambda *_, **__: None)


def test_the_same_document_again_makes_nothing(operator: Client) -> None:
    made = told(ask(operator, "put", "/rule-sets/web", WEB))
    assert (made["changed"], made["state"], made["revision"]) == (True, "published", Revision.objects.get().number)
    again = told(ask(operator, "put", "/rule-sets/web", WEB))
    assert again == {"changed": False, "change": None, "state": "", "revision": None}
    assert Change.objects.count() == 1


def test_a_document_that_was_read_changes_nothing_when_it_is_put_back_whatever_its_numbers(operator: Client) -> None:
    doubles = {"factor": 1e16, "limit": 1e300, "least": -0.0, "spare": 1.0}
    scores = [{"name": "s", "expression": "1.0", "bounds": [0, 1e20]}]
    for path, document, member in (
        ("/rule-sets/web", rule_set_document("web", filters=[TEAM_FILTER], scores=scores, params=doubles), "published"),
        ("/assignments/all-web", assignment_document(params={"factor": 2e16, "least": 0.0}), "document"),
        ("/priority-classes/high", priority_class_document("high"), "document"),
    ):
        told(ask(operator, "put", path, document))
        read = ask(operator, "get", path)
        assert not told(ask(operator, "put", path, told(read)[member], match=read["ETag"]))["changed"], path


def test_what_is_there_is_replaced_by_who_has_seen_it(operator: Client) -> None:
    tag = ask(operator, "put", "/rule-sets/web", WEB)["ETag"]
    assert ask(operator, "get", "/rule-sets/web")["ETag"] == tag
    told(ask(operator, "put", "/rule-sets/web", OTHER), 428)
    told(ask(operator, "put", "/rule-sets/web", OTHER, match='"x"'), 412)
    replaced = ask(operator, "put", "/rule-sets/web?reason=because", OTHER, match=f'"before", {tag}')
    assert told(replaced)["changed"]
    assert replaced["ETag"] != tag
    assert Change.objects.first().reason == "because"  # type: ignore[union-attr]


def test_who_reads_it_while_another_is_published_cant_overwrite_that_one(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]))
    found = RuleSetDoor.get_object

    def overtaken(door: RuleSetDoor) -> Any:
        row = found(door)
        Context().run(publish_all, make_rule_set("web", filters=OTHER["spec"]["filters"]))
        return row

    with monkeypatch.context() as patched:
        patched.setattr(RuleSetDoor, "get_object", overtaken)
        read = ask(operator, "get", "/rule-sets/web")
    document = told(read)["published"]
    assert document["spec"]["filters"] == WEB["spec"]["filters"]
    document["metadata"]["description"] = "of teams"
    told(ask(operator, "put", "/rule-sets/web", document, match=read["ETag"]), 412)


@pytest.mark.parametrize("path", ["/assignments", "/assignments/all-web"])
def test_an_assignment_that_is_published_while_it_is_read_is_shown_as_it_was_or_as_it_is(
    path: str, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = [{"name": "s", "expression": "params.factor", "bounds": [0, 10]}]
    former, later = (make_assignment("all-web", "web", order=order, params={"factor": order}) for order in (5, 7))
    publish_all(make_rule_set("web", filters=[TEAM_FILTER], scores=scores, params={"factor": 1}), former)
    rows = AssignmentDoor.filter_queryset

    def overtaken(door: AssignmentDoor, queryset: Any) -> Any:
        read = rows(door, queryset)
        assert len(read) == 1
        Context().run(publish_all, later)
        return read

    with monkeypatch.context() as patched:
        patched.setattr(AssignmentDoor, "filter_queryset", overtaken)
        answer = told(ask(operator, "get", path))
    shown = answer["results"][0] if "results" in answer else answer
    assert shown["document"] in (document_of(former), document_of(later))


def test_who_put_it_while_another_is_published_cant_overwrite_that_one(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(*args: Any, **named: Any) -> Any:
        applied = apply(*args, **named)
        publish_all(make_rule_set("web", filters=OTHER["spec"]["filters"]))
        return applied

    with monkeypatch.context() as patched:
        patched.setattr("scheduler.api.things.apply", overtaken)
        tag = ask(operator, "put", "/rule-sets/web", WEB)["ETag"]
    document = {**WEB, "metadata": {"name": "web", "description": "of teams"}}
    told(ask(operator, "put", "/rule-sets/web", document, match=tag), 412)


def test_what_waits_for_review_is_answered_with_the_tag_of_what_its_sender_saw(
    operator: Client, request: pytest.FixtureRequest
) -> None:
    publish_all(make_priority_class("batch", 7))
    request.getfixturevalue("reviewed")
    seen = ask(operator, "get", "/priority-classes/batch")["ETag"]
    for method, body in (("put", priority_class_document("batch")), ("delete", None)):
        sent = ask(operator, method, "/priority-classes/batch", body, match=seen)
        assert (told(sent)["state"], sent["ETag"]) == ("in_review", seen)


def test_who_saw_it_before_is_told_by_which_revision_it_became_another_and_not_of_the_newest(operator: Client) -> None:
    seen = ask(operator, "put", "/rule-sets/web", WEB)["ETag"]
    theirs = ask(operator, "put", "/rule-sets/web", OTHER, match=seen)
    told(ask(operator, "put", "/rule-sets/beside", {**WEB, "metadata": {"name": "beside"}}))
    refused = told(ask(operator, "put", "/rule-sets/web", WEB, match=seen), 412)
    assert refused["detail"].endswith(f": Revision {theirs.json()['revision']} by operator made it live.")


def test_what_is_to_be_new_takes_the_place_of_nothing(operator: Client) -> None:
    new = {"If-None-Match": "*"}
    made = told(ask(operator, "put", "/rule-sets/web", WEB, **new))
    assert made["changed"]
    refused = told(ask(operator, "put", "/rule-sets/web", OTHER, **new), 412)
    assert (
        refused["detail"]
        == f"RuleSet web isn't what you looked at: Revision {made['revision']} by operator made it live."
    )
    assert not told(ask(operator, "put", "/rule-sets/web", WEB, **new))["changed"]


def test_who_looked_at_what_was_never_live_is_not_told_that_it_was(operator: Client) -> None:
    refused = told(ask(operator, "put", "/rule-sets/web", WEB, match='"x"'), 412)
    assert refused["detail"] == "RuleSet web isn't what you looked at: none of this name is live, or ever was."
    seen = ask(operator, "put", "/rule-sets/web", WEB)["ETag"]
    told(ask(operator, "delete", "/rule-sets/web", match=seen))
    refused = told(ask(operator, "put", "/rule-sets/web", OTHER, match=seen), 412)
    assert refused["detail"] == "RuleSet web isn't what you looked at: it isn't live any more."


def test_a_rule_set_that_was_never_published_is_answered_as_the_schema_says(operator: Client) -> None:
    begun(operator, ("rule-sets/web", WEB))
    schema = operator.get("/api/schema/", headers={"Accept": "application/json"}).json()["components"]["schemas"]
    assert told(ask(operator, "get", "/rule-sets/web"))["published"] is None
    assert schema["RuleSetDetail"]["properties"]["published"]["nullable"]


def test_lists_are_narrowed_by_what_names_are_like(operator: Client) -> None:
    publish_all(*(make_rule_set(name, filters=[TEAM_FILTER]) for name in ("team-a-web", "team-a", "team-b-web")))

    def names(pattern: str) -> list[str]:
        found = told(ask(operator, "get", f"/rule-sets?fields=name&name={pattern}"))["results"]
        return [each["name"] for each in found]

    assert names("team-a*") == ["team-a", "team-a-web"]
    assert names("*-web") == ["team-a-web", "team-b-web"]
    assert names("team-a") == ["team-a"]
    assert names("team") == names("tea*m") == []
    refused = told(ask(operator, "get", "/rule-sets?name=team.*"), 400)
    assert refused["faults"][0]["path"] == "name"


@pytest.mark.timeout(60)  # naive matching takes hours
def test_a_pattern_of_many_stars_takes_no_longer_than_one_of_few(auditor: Client, operator: Client) -> None:
    told(
        ask(
            operator,
            "put",
            "/rule-sets/max-replicas-per-node",
            rule_set_document("max-replicas-per-node", filters=[TEAM_FILTER]),
        )
    )
    for stars, names in (("*" * 14 + "0", []), ("*a" * 2 + "*" * 12 + "e", ["max-replicas-per-node"])):
        found = told(ask(auditor, "get", f"/rule-sets?fields=name&name={stars}"))["results"]
        assert [each["name"] for each in found] == names


def test_names_of_priority_classes_are_narrowed_with_their_dots(operator: Client) -> None:
    publish_all(*(make_priority_class(name) for name in ("shop.batch-low", "shop-batch-low", "x" * 253)))

    def names(pattern: str) -> list[str]:
        found = told(ask(operator, "get", f"/priority-classes?fields=name&name={pattern}"))["results"]
        return [each["name"] for each in found]

    assert names("shop.batch-low") == names("shop.*") == ["shop.batch-low"]
    assert names("shop*low") == ["shop-batch-low", "shop.batch-low"]
    assert names("x" * 253) == ["x" * 253]
    told(ask(operator, "get", "/priority-classes?name=shop(batch"), 400)


def test_a_rule_set_that_there_isnt_is_a_fault_with_its_place(operator: Client) -> None:
    refused = told(ask(operator, "put", "/assignments/all-web", assignment_document("all-web", "none")), 422)
    assert [each["path"] for each in refused["faults"]] == ["spec.ruleSet"]
    assert "no rule set is called none" in refused["faults"][0]["message"]


def test_a_thing_is_removed_by_who_has_seen_it(operator: Client) -> None:
    tag = ask(operator, "put", "/rule-sets/web", WEB)["ETag"]
    told(ask(operator, "put", "/assignments/all-web", assignment_document()))
    told(ask(operator, "delete", "/rule-sets/web"), 428)
    in_use = told(ask(operator, "delete", "/rule-sets/web", match=tag), 422)
    assert in_use["faults"][0]["path"] == "all-web"
    tag_of_assignment = ask(operator, "get", "/assignments/all-web")["ETag"]
    assert told(ask(operator, "delete", "/assignments/all-web", match=tag_of_assignment))["changed"]
    assert told(ask(operator, "delete", "/rule-sets/web", match=f'"before", {tag}'))["changed"]
    gone = told(ask(operator, "delete", "/rule-sets/web", match=tag), 404)
    assert gone["detail"] == "No RuleSet web is live."  # it is still there to be read, with its versions


def test_an_assignment_called_which_is_put_read_and_removed_as_any_other(operator: Client) -> None:
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]))
    assert "pod" in told(ask(operator, "get", "/assignments/which"), 400)["detail"]
    told(ask(operator, "put", "/assignments/which", assignment_document("which")))
    read = ask(operator, "get", "/assignments/which")
    assert told(read)["name"] == "which"
    assert "pod" in told(ask(operator, "get", "/assignments/which?pod="), 400)["detail"]
    removed = ask(operator, "delete", "/assignments/which", match=read["ETag"])
    assert told(removed)["changed"]
    assert not publishing.current_revision().assignments


@pytest.mark.usefixtures("reviewed")
def test_where_approvals_are_needed_it_is_sent_to_review(operator: Client) -> None:
    made = told(ask(operator, "put", "/priority-classes/batch", priority_class_document()))
    assert (made["changed"], made["state"], made["revision"]) == (True, "in_review", None)
    assert Change.objects.get().state == "in_review"
    again = told(ask(operator, "put", "/priority-classes/batch", priority_class_document()))
    assert (again["change"], again["state"]) == (made["change"], "in_review")
    other = told(ask(operator, "put", "/priority-classes/batch", priority_class_document(value=7)))
    assert other["change"] != made["change"]


def test_a_pause_holds_until_it_is_resumed(operator: Client) -> None:
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]))
    made = told(ask(operator, "post", "/pauses", {"target": "RuleSet/web/team", "reason": "INC-1"}), 201)
    assert made["state"] == "published"
    (shown,) = told(ask(operator, "get", "/pauses"))["results"]
    assert (shown["target"], shown["reason"], shown["by"]) == ("RuleSet/web/team", "INC-1", "operator")
    assert told(ask(operator, "delete", "/pauses/RuleSet/web/team?reason=over"))["changed"]
    told(ask(operator, "delete", "/pauses/RuleSet/web/team"), 404)


@pytest.mark.parametrize(
    ("wrong", "path", "says"),
    [
        ({"target": "RuleSet/nope"}, "target", "no rule set nope is live"),
        ({"target": "nope"}, "target", "must be everything, "),
        ({"until": "2020-01-01T00:00:00Z"}, "until", "It would end at 2020-01-01 00:00:00 UTC, which is past"),
        ({"until": "noon"}, "until", "must be a time"),
    ],
)
def test_a_faulty_pause_is_refused_with_the_member_of_its_body(
    operator: Client, wrong: dict[str, str], path: str, says: str
) -> None:
    found = told(ask(operator, "post", "/pauses", {"target": "everything", "reason": "INC-1", **wrong}), 422)
    (fault,) = found["faults"]
    assert (fault.keys(), fault["path"]) == ({"path", "message"}, path)
    assert fault["message"].startswith(says)
    assert found["detail"] == f"{path}: {fault['message']}"


def test_an_end_that_is_empty_as_from_an_unset_variable_makes_no_pause_without_an_end(operator: Client) -> None:
    wanted = {"target": "everything", "reason": "INC-1", "until": ""}
    assert told(ask(operator, "post", "/pauses", wanted), 400)["detail"] == "until: This field may not be blank."
    assert told(ask(operator, "get", "/pauses"))["results"] == []


@pytest.mark.parametrize(("coding", "status"), [("gzip", 415), ("identity", 201)])
def test_a_compressed_body_is_refused_and_not_read_as_json(operator: Client, coding: str, status: int) -> None:
    wanted: Any = json.dumps({"target": "everything", "reason": "INC-1"}).encode()
    body = gzip.compress(wanted) if coding == "gzip" else wanted
    answer = ask(operator, "post", "/pauses", body, **{"Content-Encoding": coding})
    assert told(answer, status).get("detail", "").startswith("A body with Content-Encoding: gzip" * (status == 415))


def test_an_exemption_that_has_ended_already_is_refused_at_its_end(operator: Client) -> None:
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]))
    document = exemption_document("for-now", "RuleSet/web/team", until="2020-01-01T00:00:00Z")
    found = told(ask(operator, "post", "/exemptions", document), 422)
    assert [each["path"] for each in found["faults"]] == ["spec.until"]


def test_a_text_that_no_database_stores_is_a_fault_with_its_path(operator: Client) -> None:
    document = rule_set_document("web", filters=[TEAM_FILTER], params={"zone": "a\0b"})
    document["metadata"]["description"] = "\0"
    found = told(ask(operator, "put", "/rule-sets/web", document, match='""'), 422)
    assert [each["path"] for each in found["faults"]] == ["metadata.description", "spec.params.zone"]


def test_a_document_without_a_kind_is_read_as_what_the_url_takes(operator: Client) -> None:
    faults = {each["path"]: each["message"] for each in told(ask(operator, "post", "/exemptions", {}), 422)["faults"]}
    assert faults["kind"] == "must be Exemption at this URL"
    assert {"spec.target", "spec.until", "spec.pods"} <= faults.keys()


def test_a_document_of_another_kind_is_refused_for_its_kind_alone(operator: Client) -> None:
    answer = told(ask(operator, "post", "/exemptions", {"kind": "RuleSet", "spec": 5}), 422)
    assert [each["path"] for each in answer["faults"]] == ["kind"]


def test_an_exemption_is_made_and_ended(operator: Client) -> None:
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]))
    document = exemption_document("for-now", "RuleSet/web/team", until="2126-01-01T00:00:00Z")
    assert told(ask(operator, "post", "/exemptions", document), 201)["state"] == "published"
    (shown,) = told(ask(operator, "get", "/exemptions"))["results"]
    assert shown["name"] == "for-now"
    later = exemption_document("for-now", "RuleSet/web/team", until="2126-02-01T00:00:00Z")
    told(ask(operator, "post", "/exemptions", later), 428)
    assert "428" in schema()["paths"]["/api/v1/exemptions"]["post"]["responses"]
    told(ask(operator, "post", "/exemptions", later, match='"another"'), 412)
    told(ask(operator, "post", "/exemptions", later, match=f'"{shown["digest"]}"'), 201)
    assert told(ask(operator, "get", "/exemptions"))["results"][0]["ends_at"] == "2126-02-01T00:00:00Z"
    assert told(ask(operator, "delete", "/exemptions/for-now?reason=done"))["changed"]
    told(ask(operator, "delete", "/exemptions/for-now"), 404)


def test_a_revision_is_gone_back_to(operator: Client) -> None:
    first = publish_all(make_rule_set("web", filters=[TEAM_FILTER]))
    publish_all(make_rule_set("web", filters=[{"name": "none", "expression": "false"}]))
    made = told(ask(operator, "post", f"/revisions/{first.number}/rollback", {"reason": "worse"}))
    assert made["revision"] == publishing.current_revision().number
    again = told(ask(operator, "post", f"/revisions/{first.number}/rollback", {"reason": "worse"}))
    assert not again["changed"]


def test_going_back_is_reviewed_where_that_is_set(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    first = publish_all(make_rule_set("web", filters=[TEAM_FILTER]))
    publish_all(make_rule_set("web", filters=[{"name": "none", "expression": "false"}]))
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=True))
    made = told(ask(operator, "post", f"/revisions/{first.number}/rollback", {"reason": "worse"}))
    assert made["state"] == "in_review"
    # What is live already needs nobody's approval: a pipeline that asks twice is told the same as without reviews.
    live = publishing.current_revision().number
    assert not told(ask(operator, "post", f"/revisions/{live}/rollback", {"reason": "worse"}))["changed"]
    assert Change.objects.filter(state="in_review").count() == 1


def test_going_back_is_at_once_where_only_that_needs_no_review(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = publish_all(make_rule_set("web", filters=[TEAM_FILTER]))
    publish_all(make_rule_set("web", filters=[{"name": "none", "expression": "false"}]))
    berth = msgspec.structs.replace(settings.BERTH, review_required=True, review_roll_backs=False)
    monkeypatch.setattr(settings, "BERTH", berth)
    made = told(ask(operator, "post", f"/revisions/{first.number}/rollback", {"reason": "worse"}))
    assert (made["state"], made["revision"]) == ("published", publishing.current_revision().number)


@pytest.mark.parametrize(("in_url", "body"), [("?reason=over", None), ("", {"reason": "over"})])
def test_why_a_pause_ends_is_kept_whether_the_url_or_the_body_says_it(
    operator: Client, in_url: str, body: dict[str, str] | None
) -> None:
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]))
    told(ask(operator, "post", "/pauses", {"target": "RuleSet/web", "reason": "INC-1"}), 201)
    made = told(ask(operator, "delete", f"/pauses/RuleSet/web{in_url}", body))
    assert Change.objects.get(pk=made["change"]).reason == "over"


@pytest.mark.parametrize(
    ("in_url", "body", "path"),
    [
        ("?reason=a", {"reason": "b"}, "reason"),
        ("", {"raeson": "a"}, "raeson"),
        (f"?reason={'x' * 2_001}", None, "reason"),
    ],
)
def test_a_reason_that_would_be_lost_ends_no_pause(
    operator: Client, in_url: str, body: dict[str, str] | None, path: str
) -> None:
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]))
    told(ask(operator, "post", "/pauses", {"target": "RuleSet/web", "reason": "INC-1"}), 201)
    refused = told(ask(operator, "delete", f"/pauses/RuleSet/web{in_url}", body), 400)
    assert [each["path"] for each in refused["faults"]] == [path]
    assert told(ask(operator, "get", "/pauses"))["results"]


def test_a_canary_is_asked_for_once(operator: Client, auditor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canaries.run_canary, "apply_async", lambda **_: None)
    told(ask(auditor, "post", "/canary-pods", {}), 403)
    made = told(ask(operator, "post", "/canary-pods", {"namespace": "default"}), 202)
    assert CanaryRun.objects.get().asked_by == "operator"
    told(ask(operator, "post", "/canary-pods", {}), 409)
    assert told(ask(auditor, "get", f"/canary-pods/{made['id']}"))["state"] == "asked"


def test_a_canary_that_no_worker_can_be_told_of_is_kept_beside_its_event_with_the_reason(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> None:
        raise OperationalError

    monkeypatch.setattr(canaries.run_canary, "apply_async", refuse)
    assert "Redis can't be reached" in told(ask(operator, "post", "/canary-pods", {}), 503)["detail"]
    row, event = CanaryRun.objects.get(), AuditEvent.objects.get(kind="canary.ask")
    assert (row.state, row.asked_by, row.report["ok"], event.by) == ("done", "operator", False, "operator")
    assert "Redis" in row.report["summary"]
    told(ask(operator, "post", "/canary-pods", {}), 503)


def test_what_stops_or_goes_back_is_compared_with_what_was_read_where_that_is_sent(operator: Client) -> None:
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]), make_assignment())
    wanted = {"target": "RuleSet/web", "reason": "INC-1"}
    told(ask(operator, "post", "/pauses", wanted), 201)
    read = f'"{told(ask(operator, "get", "/pauses"))["results"][0]["digest"]}"'
    live = f'"{told(ask(operator, "get", "/revisions/2"))["digest"]}"'
    told(ask(operator, "post", "/pauses", wanted | {"reason": "INC-1: stays until monday"}), 201)
    told(ask(operator, "post", "/pauses", wanted | {"reason": "INC-2"}, match=read), 412)
    told(ask(operator, "delete", "/pauses/RuleSet/web", match=read), 412)
    told(ask(operator, "post", "/revisions/1/rollback", {}, match=live), 412)
    assert told(ask(operator, "get", "/pauses"))["results"][0]["reason"] == "INC-1: stays until monday"
    now = f'"{told(ask(operator, "get", "/pauses"))["results"][0]["digest"]}"'
    told(ask(operator, "delete", "/pauses/RuleSet/web", match=now))
    live = f'"{told(ask(operator, "get", "/revisions/4"))["digest"]}"'
    told(ask(operator, "post", "/revisions/1/rollback", {}, match=live))


def test_an_exemption_is_ended_as_it_was_read_where_that_is_sent(operator: Client) -> None:
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]), make_assignment())
    document = exemption_document("for-now", "RuleSet/web/team", until="2126-01-01T00:00:00Z")
    told(ask(operator, "post", "/exemptions", document), 201)
    told(ask(operator, "delete", "/exemptions/for-now", match='"another"'), 412)
    (shown,) = told(ask(operator, "get", "/exemptions"))["results"]
    told(ask(operator, "delete", f"/exemptions/{shown['name']}", match=f'"{shown["digest"]}"'))
