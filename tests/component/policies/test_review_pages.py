"""What people see and do of reviews and times on the admin's pages: a Change's, the list, Home, Review settings; and the doctor."""

import io
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.utils import timezone

from policies import publishing
from policies.models import AuditEvent, Change, GateSetting, ReviewSetting, RuleSet
from policies.publishing import Result
from policies.publishing.gates import FOUND
from scheduler.doctor import live_rules
from tests.builders import make_rule_set
from tests.component.pages import edit_page, form_data, get, publish_all, text_of
from tests.component.policies.people import person
from tests.component.policies.test_change_pages import act_of, page_of, typed
from tests.component.policies.test_changes import A, B, do, opened
from tests.component.policies.test_gates import gated
from tests.component.rest.asking import ask, told
from tests.conftest import HTTPSClient

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _reviewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=True))


def signed_in(name: str, *roles: str, superuser: bool = False) -> HTTPSClient:
    user = User.objects.create_user(name, is_staff=True, is_superuser=superuser)
    user.groups.set(Group.objects.filter(name__in=roles))
    client = HTTPSClient()
    client.force_login(user)
    return client


def in_review() -> Change:
    change = opened(make_rule_set("web", **A), by="ops", title="all of web")
    return do(change, publishing.submit_change, "ops")


def press(client: Any, change: Change, **data: Any) -> str:
    return text_of(client.post(act_of(change), typed(client, change, **data), follow=True))


def test_who_is_asked_finds_it_on_home_and_in_the_list() -> None:
    operator, carol, dave = (
        signed_in("alice", "Operator"),
        signed_in("carol", "Approver"),
        signed_in("dave", "Approver"),
    )
    change = in_review()
    assert "Waiting for anybody who may approve it" in text_of(get(operator, page_of(change)))
    assert b"<option>alice" not in get(operator, page_of(change)).content
    assert b"<option>dave" in get(carol, page_of(change)).content
    assert b"<option>carol" not in get(carol, page_of(change)).content, "nobody asks themselves"
    assert "carol need not be asked" in press(carol, change, act="ask", whom="carol")
    assert "carol was asked for a review." in press(operator, change, act="ask", whom="carol")
    assert "Waiting for carol since" in text_of(get(operator, page_of(change)))
    assert "alice asked for a review of carol" in text_of(get(operator, page_of(change)))
    assert "Waits for your review" in text_of(get(carol, "/admin/"))
    assert "Waits for your review" not in text_of(get(dave, "/admin/"))
    assert "all of web" in text_of(get(carol, "/admin/policies/change/?which=asked"))
    assert "all of web" not in text_of(get(dave, "/admin/policies/change/?which=asked"))
    assert b'value="approve"' in get(carol, page_of(change)).content
    press(carol, change, act="approve")
    assert "Waits for your review" not in text_of(get(carol, "/admin/"))
    assert b'value="approve"' not in get(carol, page_of(change)).content, "it is noted"


def test_an_approval_that_does_not_count_is_said_so() -> None:
    carol, dave = signed_in("carol", "Approver"), signed_in("dave", "Approver")
    Group.objects.create(name="Payments").user_set.add(User.objects.get(username="dave"))
    RuleSet.objects.create(name="web")
    publishing.set_review(rule_set="web", approvals=1, group="Payments", by="root")
    change = in_review()
    press(carol, change, act="approve")
    page = text_of(get(carol, page_of(change)))
    assert "For rule set web: 0 of 1 approval of Payments." in page
    assert "The approval of carol doesn't count for rule set web: carol isn't in Payments." in page
    press(dave, change, act="approve")
    assert "For rule set web: 1 of 1 approval of Payments, by dave ." in text_of(get(carol, page_of(change)))
    assert Change.objects.get(pk=change.pk).state == "approved"


def test_times_are_set_on_its_page_and_what_was_held_back_stands_on_home() -> None:
    alice = signed_in("alice", "Operator")
    change = in_review()
    at = timezone.now() + timedelta(hours=1)
    said = press(alice, change, act="schedule", publish_at=f"{at:%Y-%m-%dT%H:%M}")
    assert f"The Change goes live at {at:%Y-%m-%d %H:%M}:00 UTC, as it is now." in said
    assert told(ask(alice, "get", f"/changes/{change.pk}"))["is_scheduled"]
    assert f"to go live at {at:%Y-%m-%d %H:%M} UTC" in text_of(get(alice, "/admin/"))
    assert "all of web" in text_of(get(alice, "/admin/policies/change/?which=timed"))
    publishing.publish_due(now=at)
    for page in ("/admin/", page_of(change)):
        assert "It needs 1 more approval" in text_of(get(alice, page))
    back = at + timedelta(days=1)
    assert "The Change expires at" in press(alice, change, act="expire", expires_at=f"{back:%Y-%m-%dT%H:%M}")
    assert "everything it changed then goes back to what was live before" in text_of(get(alice, page_of(change)))
    assert "which is past" in press(alice, change, act="schedule", publish_at="2020-01-01T00:00")


def field_of(client: Any, change: Change, name: str) -> str:
    page = get(client, page_of(change)).content.decode()
    return value_of(page, name)


def value_of(page: str, name: str) -> str:
    return page.partition(f'name="{name}"')[2].partition('value="')[2].partition('"')[0]


@pytest.mark.parametrize("microsecond", [0, 250_000])
def test_a_time_with_seconds_that_is_saved_unchanged_is_no_edit(microsecond: int) -> None:
    alice, carol = signed_in("alice", "Operator"), signed_in("carol", "Approver")
    change = in_review()
    back = (timezone.now() + timedelta(days=1)).replace(second=17, microsecond=microsecond)
    do(change, publishing.set_expiry, "ops", expires_at=back)
    press(carol, change, act="approve")
    press(alice, change, act="expire", expires_at=field_of(alice, change, "expires_at"))
    kept = Change.objects.get(pk=change.pk)
    assert (kept.state, kept.expires_at) == ("approved", back)
    at = back - timedelta(hours=1)
    do(change, publishing.schedule_change, "ops", publish_at=at)
    press(alice, change, act="schedule", **{name: field_of(alice, change, name) for name in ("publish_at", "shown_at")})
    assert Change.objects.get(pk=change.pk).publish_at == at


def test_a_time_that_a_colleague_took_back_is_not_set_again_by_an_older_page_and_the_page_says_so() -> None:
    alice, change = signed_in("alice", "Operator"), in_review()
    at = timezone.now() + timedelta(hours=1)
    do(change, publishing.schedule_change, "ops", publish_at=at)
    older = {name: field_of(alice, change, name) for name in ("publish_at", "shown_at")}
    do(change, publishing.schedule_change, "bob", publish_at=None)
    said = press(alice, change, act="schedule", **older)
    assert f"Somebody changed the time of {change} since you looked at it: it isn't scheduled now." in said
    assert Change.objects.get(pk=change.pk).publish_at is None
    press(alice, change, act="schedule", publish_at=older["publish_at"])
    assert Change.objects.get(pk=change.pk).publish_at == at.replace(microsecond=0)


def test_a_time_that_is_sent_twice_is_set_once() -> None:
    alice, change = signed_in("alice", "Operator"), in_review()
    sent = typed(alice, change, act="schedule", publish_at=f"{timezone.now() + timedelta(hours=1):%Y-%m-%dT%H:%M}")
    for _ in range(2):
        assert "The Change goes live at" in text_of(alice.post(act_of(change), sent, follow=True))
    assert change.events.filter(act="schedule").count() == 1


@pytest.mark.parametrize("field", ["publish_at", "expires_at"])
@pytest.mark.parametrize("time", ["2020-01-01T00:00:07", "20266-12-01T09:00"])
def test_a_refused_time_is_still_in_its_field(field: str, time: str) -> None:
    alice = signed_in("alice", "Operator")
    change = in_review()
    act = {"publish_at": "schedule", "expires_at": "expire"}[field]
    page = alice.post(act_of(change), typed(alice, change, act=act, **{field: time})).content.decode()
    assert value_of(page, field) == time


def test_who_was_to_be_asked_is_still_chosen_after_a_refusal() -> None:
    alice = signed_in("alice", "Operator")
    for name in ("carol", "dave"):
        signed_in(name, "Approver")
    change = in_review()
    asked = typed(alice, change, act="ask", whom="dave", text="please\u202e")
    assert "<option selected>dave" in alice.post(act_of(change), asked).content.decode()


def test_a_time_that_was_set_for_a_former_state_is_said_so() -> None:
    alice = signed_in("alice", "Operator")
    change = in_review()
    press(alice, change, act="schedule", publish_at=f"{timezone.now() + timedelta(hours=1):%Y-%m-%dT%H:%M}")
    do(change, publishing.edit_change, "ops", edits=[publishing.Edit.of(make_rule_set("web", **B))])
    assert "It was edited after it was scheduled for" in text_of(get(alice, page_of(change)))
    assert "! edited since it was scheduled for" in text_of(get(alice, "/admin/"))
    assert "! somebody: edited since it was scheduled" in text_of(get(alice, "/admin/policies/change/"))
    shown = io.StringIO()
    call_command("change", "show", change.pk, stdout=shown)
    assert "and was edited since: set the time again" in shown.getvalue()
    assert not told(ask(alice, "get", f"/changes/{change.pk}"))["is_scheduled"]


def test_the_list_says_who_has_to_act_before_the_time_of_a_scheduled_change() -> None:
    alice, change = signed_in("alice", "Operator"), opened(make_rule_set("web", **A), by="ops")
    at = timezone.now().replace(microsecond=0) + timedelta(hours=1)
    do(change, publishing.schedule_change, User.objects.create_superuser("root"), publish_at=at)

    def says(what: str) -> bool:
        return f"{what}{publishing.said_at(at)}" in text_of(get(alice, "/admin/policies/change/"))

    assert says("! an author, to submit it, before ")
    do(change, publishing.submit_change, "ops")
    assert says("anybody who may approve, before ")
    publishing.approve_change(change=change, by=User.objects.create_superuser("carol"), expected_digest=change.digest)
    assert not says("before ")
    gated(change, [Result("refused", FOUND, "5 Pods stand")])
    publishing.set_gate_level(rule_set="web", check="refused", level="blocking", by="root")
    assert says("! the gate, which blocks it, before ")


def test_an_approval_that_an_edit_dropped_is_said_to_be_of_a_former_state_whatever_it_is_now() -> None:
    alice, carol = signed_in("alice", "Operator"), signed_in("carol", "Approver")
    change = in_review()
    press(carol, change, act="approve")
    assert "approved an earlier state" not in text_of(get(alice, page_of(change)))
    for rules in (B, A):
        do(change, publishing.edit_change, "ops", edits=[publishing.Edit.of(make_rule_set("web", **rules))])
        assert "carol approved an earlier state" in text_of(get(alice, page_of(change)))
    press(carol, change, act="approve")
    assert text_of(get(alice, page_of(change))).count("approved an earlier state") == 1


def test_administrators_change_review_settings_and_everybody_sees_who_did() -> None:
    root, alice = signed_in("root", superuser=True), signed_in("alice", "Operator", "Approver")
    add = "/admin/policies/reviewsetting/add/"
    assert alice.get(add).status_code == 403
    RuleSet.objects.create(name="web")
    data = {"rule_set": "web", "approvals": "2", "group": "Approver", "roll_backs": "on", "reason": "audit"}
    assert "Enter how many people" in text_of(root.post(add, {**data, "approvals": "0"}, follow=True))
    assert root.post(add, data).status_code == 302
    row = ReviewSetting.objects.get()
    assert (row.rule_set, row.approvals, row.group, row.set_by) == ("web", 2, "Approver", "root")
    text = text_of(get(alice, "/admin/policies/reviewsetting/"))
    assert "2 people of Approver who didn't edit it" in text
    assert "audit" in text
    said = text_of(get(alice, f"/admin/policies/reviewsetting/{row.pk}/change/"))
    for words in ("Changes of rule set web", "2 people of Approver who didn't edit it", "State holds", "Reason audit"):
        assert words in said, words
    for page in ("change", "delete"):
        assert root.post(f"/admin/policies/reviewsetting/{row.pk}/{page}/", data).status_code in (302, 403)
    assert ReviewSetting.objects.count() == 1


def test_a_review_setting_that_is_sent_twice_is_set_once_and_counts_again_where_something_differs() -> None:
    root, other = signed_in("root", superuser=True), signed_in("other", superuser=True)
    add = "/admin/policies/reviewsetting/add/"
    data = {"rule_set": "", "approvals": "1", "group": "", "roll_backs": "on", "reason": "audit"}
    for _again in range(2):
        assert root.post(add, data).status_code == 302
    assert ReviewSetting.objects.count() == AuditEvent.objects.filter(kind="review.set").count() == 1
    root.post(add, data | {"approvals": "2"})
    root.post(add, data)
    root.post(add, data | {"reason": "another"})
    other.post(add, data | {"reason": "another"})
    assert ReviewSetting.objects.count() == 5
    ReviewSetting.objects.update(set_at=timezone.now() - timedelta(minutes=2))
    other.post(add, data | {"reason": "another"})
    assert ReviewSetting.objects.count() == 6


@pytest.mark.parametrize(
    ("path", "data", "other", "said"),
    [
        (
            "reviewsetting",
            {"approvals": "2", "group": "", "roll_backs": "on"},
            {"approvals": "1"},
            "Required approvals: 1 person who didn't edit it.",
        ),
        (
            "gatesetting",
            {"check_name": "tests", "level": "blocking"},
            {"level": "warning"},
            "Effect of the check tests: a warning.",
        ),
    ],
)
def test_a_setting_is_not_set_over_one_that_was_made_since_the_page_was_opened(
    path: str, data: dict[str, str], other: dict[str, str], said: str
) -> None:
    root, ann = signed_in("root", superuser=True), signed_in("ann", superuser=True)
    for name in ("web", "data"):
        RuleSet.objects.create(name=name)
    add = f"/admin/policies/{path}/add/"
    opened = {**data, "rule_set": "web", "reason": "r", "seen": form_data(get(ann, add))["seen"]}
    made = ReviewSetting if path == "reviewsetting" else GateSetting
    assert root.post(add, opened | other).status_code == 302
    refused = ann.post(add, opened)
    assert (
        f"This was set since you opened the page, by root. {said} Nothing is saved yet, and your input is below. "
        "Save again to set yours after it." in text_of(refused)
    )
    assert made.objects.count() == AuditEvent.objects.filter(kind__endswith=".set").count() == 1
    assert ann.post(add, opened | {"rule_set": "data"}).status_code == 302, "of another thing"
    again = form_data(refused)
    assert again["reason"] == "r", "typed text isn't lost"
    assert ann.post(add, again).status_code == 302, "over what the refusal told of"
    assert made.objects.filter(rule_set="web").count() == 2


def test_a_setting_of_which_a_refusal_tells_hides_no_other_that_was_made_since() -> None:
    root, ann = signed_in("root", superuser=True), signed_in("ann", superuser=True)
    for name in ("web", "data"):
        RuleSet.objects.create(name=name)
    add = "/admin/policies/gatesetting/add/"
    data = {"check_name": "tests", "level": "blocking", "reason": "r", "seen": form_data(get(ann, add))["seen"]}
    for name in ("data", "web"):
        root.post(add, data | {"rule_set": name, "level": "warning"})
    again = form_data(ann.post(add, data | {"rule_set": "web"}))
    assert "by root. Effect of the check tests: a warning." in text_of(ann.post(add, again | {"rule_set": "data"}))
    assert ann.post(add, again).status_code == 302
    assert list(GateSetting.objects.filter(level="blocking").values_list("rule_set", flat=True)) == ["web"]


def test_a_review_setting_that_nobody_can_meet_is_said_when_it_is_set() -> None:
    Group.objects.create(name="Payments")
    root = signed_in("root", superuser=True)
    data = {"rule_set": "", "approvals": 2, "group": "Payments", "roll_backs": "on", "reason": "money"}
    page = root.post("/admin/policies/reviewsetting/add/", data, follow=True)
    assert "Too few people can approve. Nobody of Payments may approve." in text_of(page)


def test_the_page_of_a_review_setting_leads_to_its_rule_set_and_to_what_replaced_it() -> None:
    root = signed_in("root", superuser=True)
    rule_set = RuleSet.objects.create(name="web")
    for approvals in (2, 1, 0):
        publishing.set_review(rule_set="web", approvals=approvals, by=User.objects.get(username="root"))
    newest, newer, oldest = ReviewSetting.objects.order_by("-pk")
    page = get(root, f"/admin/policies/reviewsetting/{oldest.pk}/change/").content.decode()
    assert f'href="/admin/policies/reviewsetting/{newer.pk}/change/">replaced by a newer one' in page
    assert f'href="/admin/policies/ruleset/{rule_set.pk}/change/">rule set web' in page
    said = text_of(get(root, f"/admin/policies/reviewsetting/{newest.pk}/change/"))
    assert "nothing beyond the environment's settings" in said
    assert "Reason none was given" in said
    assert "State holds" in said


def test_a_change_in_review_that_needs_no_approval_any_more_waits_for_nobody_who_may_approve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alice, change = signed_in("alice", "Operator"), in_review()
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=False))
    said = text_of(get(alice, page_of(change)))
    assert "It needs no approval here." in said
    assert "It needs no approval and can be published." in said
    assert "somebody to publish it" in text_of(get(alice, "/admin/policies/change/"))
    for page in (page_of(change), "/admin/policies/change/"):
        assert "anybody who may approve" not in text_of(get(alice, page))


def test_a_change_that_waits_for_the_gate_alone_is_not_said_to_be_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    alice, change = signed_in("alice", "Operator"), in_review()
    needed = msgspec.structs.replace(settings.BERTH, review_required=False, gate_required=True)
    monkeypatch.setattr(settings, "BERTH", needed)
    said = text_of(get(alice, page_of(change)))
    assert "It needs no approval, and waits for the gate." in said
    assert "can be published" not in said
    listed = text_of(get(alice, "/admin/policies/change/"))
    assert "looking the gate" in listed
    assert "somebody to publish it" not in listed


def test_the_list_says_of_an_approved_change_that_it_waits_for_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    alice, change = signed_in("alice", "Operator"), in_review()
    other = User.objects.create_superuser("other")
    publishing.approve_change(change=change, by=other, expected_digest=change.digest)
    assert Change.objects.get(pk=change.pk).state == "approved"
    assert "the gate" not in text_of(get(alice, "/admin/policies/change/"))
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, gate_required=True))
    assert "the gate" in text_of(get(alice, "/admin/policies/change/"))


def test_the_doctor_names_what_was_published_without_approval_is_held_back_or_overdue() -> None:
    assert live_rules.changes().state == "ok"
    erin = person("erin", "Emergency")
    urgent = opened(make_rule_set("web", **A), by="ops")
    do(urgent, publishing.publish_urgently, erin, reason="fire")
    assert live_rules.changes().says == f"{urgent} published without approval"
    late = opened(make_rule_set("data", **A), by="ops")
    at = timezone.now() + timedelta(hours=1)
    do(late, publishing.schedule_change, "ops", publish_at=at)
    Change.objects.filter(pk=late.pk).update(publish_at=timezone.now() - timedelta(minutes=5))
    assert live_rules.changes().says == f"{late} should be live by now"
    publishing.publish_due(now=timezone.now())
    assert f"{late} held back at its time" in live_rules.changes().says


def test_the_list_marks_an_emergency_until_it_is_approved() -> None:
    carol, erin = signed_in("carol", "Approver"), person("erin", "Emergency")
    change = opened(make_rule_set("web", **A), by="ops")
    do(change, publishing.publish_urgently, erin, reason="fire")
    assert "! an approval after the fact" in text_of(get(carol, "/admin/policies/change/"))
    press(carol, change, act="approve")
    assert "! an approval after the fact" not in text_of(get(carol, "/admin/policies/change/"))


@pytest.mark.parametrize("required", ["review_required", "gate_required", ""])
def test_a_form_offers_to_publish_only_where_nothing_has_to_come_before(
    required: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = {"review_required": False, "gate_required": False}
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, **nothing))
    publish_all(make_rule_set("web", **A))
    set_to = {required: True} if required else {}
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, **set_to))
    page = get(signed_in("alice", "Operator"), edit_page("web"))
    assert ("Save and publish" in text_of(page)) == (not required)


def test_a_form_offers_no_publishing_where_a_setting_asks_for_a_review_of_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=False))
    alice = signed_in("alice", "Operator")
    publish_all(make_rule_set("web", **A))
    publishing.set_review(approvals=1, by="root")
    assert "Save and publish" not in text_of(get(alice, edit_page("web")))
    publishing.set_review(approvals=0, by="root")
    assert "Save and publish" in text_of(get(alice, edit_page("web")))


def test_a_form_sends_to_review_where_only_its_rule_set_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=False))
    alice = signed_in("alice", "Operator")
    publish_all(make_rule_set("web", **A))
    publishing.set_review(rule_set="web", approvals=1, by="root")
    page = edit_page("web")
    data = form_data(get(alice, page)) | {"description": "more", "policies_rulesetversion_save_and_publish": ""}
    assert "but not published: It needs 1 more approval" in text_of(alice.post(page, data, follow=True))


def test_what_is_said_when_a_change_is_sent_to_review_is_why_unless_a_reason_was_given() -> None:
    alice, carol = signed_in("alice", "Operator"), signed_in("carol", "Approver")
    edits = [publishing.Edit.of(make_rule_set("web", **A))]
    untold = publishing.open_change(title="all of web", edits=edits, by="ops")
    assert "Reason: ticket 7" in press(alice, untold, act="submit", text="ticket 7")
    press(carol, untold, act="approve")
    press(alice, untold, act="publish")
    untold.refresh_from_db()
    assert untold.revision is not None
    assert untold.revision.reason == "ticket 7"
    told_before = opened(make_rule_set("web", **B), title="more of web")
    assert "Reason: why" in press(alice, told_before, act="submit", text="please be quick")


def test_why_a_change_was_rejected_stands_at_the_top_of_its_page_until_it_is_opened_again() -> None:
    alice, carol = signed_in("alice", "Operator"), signed_in("carol", "Approver")
    change = in_review()
    press(carol, change, act="reject", text="search has its own nodes")
    above = text_of(get(alice, page_of(change))).partition("What it does to the Pods")[0]
    assert "✗ Rejected carol : search has its own nodes" in above
    press(alice, change, act="reopen")
    assert "✗ Rejected" not in text_of(get(alice, page_of(change)))


def test_a_change_whose_base_moved_waits_for_a_rebase_before_anybody_can_approve_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alice, _carol = signed_in("alice", "Operator"), signed_in("carol", "Approver")
    change = in_review()
    press(alice, change, act="ask", whom="carol")
    with monkeypatch.context() as unreviewed:
        unreviewed.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=False))
        publish_all(make_rule_set("web", **B))
    assert "Waiting for an author to rebase it, then for carol (asked by alice )." in text_of(
        get(alice, page_of(change))
    )
    assert "! an author, to rebase it" in text_of(get(alice, "/admin/policies/change/"))
