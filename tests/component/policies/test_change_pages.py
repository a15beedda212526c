"""The pages of Changes: what a person may do there is what the verbs say, and nothing typed is lost."""

import re
from datetime import timedelta
from itertools import product
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.test import Client

from policies import publishing
from policies.models import Change, RuleSet, RuleSetVersion
from policies.publishing import Edit, PublishingError, lifecycle
from tests.builders import make_assignment, make_priority_class, make_rule_set
from tests.component.pages import confirmed, get, opened, publish_all, text_of
from tests.conftest import HTTPSClient

pytestmark = pytest.mark.django_db

A = {"filters": [{"builtin": "PodFitsHost"}]}
B = {"filters": [{"builtin": "MatchNodeSelector"}]}
ROLES = {"viewer": ["Auditor"], "operator": ["Operator"], "approver": ["Approver"], "administrator": []}
VERBS = {
    "submit": publishing.submit_change,
    "comment": publishing.comment_on_change,
    "approve": publishing.approve_change,
    "reject": publishing.reject_change,
    "reopen": publishing.reopen_change,
    "withdraw": publishing.withdraw_change,
    "publish": publishing.publish_change,
}


@pytest.fixture(autouse=True)
def _reviewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=True))


def account(role: str) -> tuple[User, Client]:
    user, _ = User.objects.get_or_create(
        username=role, defaults={"is_staff": True, "is_superuser": role == "administrator"}
    )
    user.groups.set(Group.objects.filter(name__in=ROLES[role]))
    client = HTTPSClient()
    client.force_login(user)
    return User.objects.get(pk=user.pk), client


def change_in(state: str) -> Change:
    """A Change of somebody else's in a state, made by the verbs."""
    author = User.objects.create_superuser("author")
    other = User.objects.create_superuser("other")
    change = publishing.open_change(title="all of web", edits=[Edit.of(make_rule_set(**A))], by=author, reason="why")
    steps: dict[str, list[Any]] = {
        "draft": [],
        "in_review": [("submit", author)],
        "approved": [("submit", author), ("approve", other)],
        "published": [("submit", author), ("approve", other), ("publish", author)],
        "rejected": [("submit", author), ("reject", other)],
        "withdrawn": [("withdraw", author)],
    }
    for act, by in steps[state]:
        call(act, change, by)
        change.refresh_from_db()
    assert change.state == state
    return change


def call(act: str, change: Change, by: User) -> None:
    given = {} if act in {"comment", "reopen", "withdraw"} else {"expected_digest": change.digest}
    text = {} if act == "publish" else {"text": "because"}
    VERBS[act](change=change, by=by, **given, **text)  # type: ignore[operator] # each verb takes these


def typed(client: Client, change: Change, **more: Any) -> dict[str, Any]:
    """What the page would send, with what was typed."""
    shown = get(client, page_of(change)).context
    held = {name: shown["form"][name].value() for name in ("digest", "revision")}
    return held | {"shown_at": shown["time"]["shown_at"]} | more


def page_of(change: Change) -> str:
    return f"/admin/policies/change/{change.pk}/change/"


def act_of(change: Change) -> str:
    return f"/admin/policies/change/{change.pk}/act/"


@pytest.mark.parametrize(
    ("role", "state"), list(product(ROLES, lifecycle.OPEN | {"published", "rejected", "withdrawn"}))
)
def test_the_page_and_the_verbs_give_each_role_the_same_answer(role: str, state: str) -> None:
    user, client = account(role)
    change = change_in(state)
    offered = set(re.findall(r'name="act" value="(\w+)"', get(client, page_of(change)).content.decode()))
    for act in VERBS:
        with transaction.atomic():
            try:
                call(act, change, user)
                said = ""
            except PublishingError as error:
                said = str(error)
            transaction.set_rollback(True)
        with transaction.atomic():
            data = typed(client, change, act=act, text="because")
            page = text_of(client.post(act_of(change), data, follow=True))
            moved = Change.objects.get(pk=change.pk).events.filter(act=act, by=role).exists()
            transaction.set_rollback(True)
        assert moved == (not said), (act, said)
        assert not said or said in page
        assert (act in offered) == (not said), act


def test_an_outsider_sees_nothing() -> None:
    client = HTTPSClient()
    change = change_in("in_review")
    assert client.get(page_of(change)).status_code == 302
    client.force_login(User.objects.create_user("outsider", is_staff=True))
    assert client.get(page_of(change)).status_code == 403
    assert client.post(act_of(change), {"act": "publish"}).status_code == 403


def test_it_shows_what_changes_who_wants_it_and_what_was_done() -> None:
    _, client = account("viewer")
    change = change_in("approved")
    text = text_of(get(client, page_of(change)))
    assert f"{change}: all of web" in text
    assert "1 of 1 approval, by other ." in text
    assert "rule set web added" in text
    assert "filter added: PodFitsHost" in text
    assert "author opened: why" in text
    assert "other approved: because" in text


def test_a_refused_act_keeps_what_was_typed() -> None:
    _, client = account("operator")
    change = change_in("in_review")
    page = client.post(act_of(change), typed(client, change, act="publish", text="ticket 7"))
    assert "It needs 1 more approval" in text_of(page)
    assert "ticket 7" in text_of(page)


@pytest.mark.parametrize("data", [{}, {"act": "nonsense"}, {"act": "publish"}, {"act": "publish", "digest": "x"}])
def test_half_a_form_does_nothing(data: dict[str, str]) -> None:
    _, client = account("operator")
    change = change_in("approved")
    assert "The form was incomplete" in text_of(client.post(act_of(change), data))
    assert Change.objects.get(pk=change.pk).state == "approved"


def test_a_field_that_cannot_be_read_is_named_and_the_text_is_kept() -> None:
    _, client = account("operator")
    change = change_in("in_review")
    asked = {"act": "schedule", "text": "ticket 7", "publish_at": "20266-12-01T09:00"}
    page = text_of(client.post(act_of(change), typed(client, change, **asked)))
    assert "Goes live at: Enter a valid date/time." in page
    assert "ticket 7" in page
    assert "The form was incomplete" not in page


def test_a_comment_is_shown_in_the_lines_that_it_was_written_in() -> None:
    _, client = account("operator")
    change = change_in("in_review")
    page = client.post(act_of(change), typed(client, change, act="comment", text="- one\r\n- <b>"), follow=True)
    assert "commented: - one<br>- &lt;b&gt;" in page.content.decode()


def test_a_text_is_as_long_as_its_field_says_however_many_lines_it_has() -> None:
    _, client = account("operator")
    change = change_in("in_review")
    lines = "\r\n".join(["x" * 19] * 100)
    page = client.post(act_of(change), typed(client, change, act="comment", text=lines), follow=True)
    assert "Your comment was added." in text_of(page)
    longer = client.post(act_of(change), typed(client, change, act="comment", text=lines + "and more"))
    assert "Reason or comment: Ensure this value has at most 2000 characters" in text_of(longer)
    assert "and more" in text_of(longer)


def test_what_moved_is_shown_side_by_side_and_rebased_as_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    _, client = account("operator")
    change = change_in("approved")
    with monkeypatch.context() as unreviewed:
        unreviewed.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=False))
        publish_all(make_rule_set(**B))
    page = text_of(get(client, page_of(change)))
    assert "The live state has changed" in page
    theirs = Change.objects.get(state="published")
    assert (
        f"Meanwhile ops published, by {theirs}: {theirs.title} : "
        "rule set web version 1 published web: filter added: MatchNodeSelector"
    ) in page
    # Enter at a choice presses the form's first button.
    html = get(client, page_of(change)).content.decode().partition('id="act_form"')[2]
    assert re.findall(r'name="act" value="([^"]+)"', html)[0] == "rebase"
    data = typed(client, change, act="rebase", text="theirs is better", **{"of RuleSet/web": "theirs"})
    assert "The Change is now based on the live Revision" in text_of(client.post(act_of(change), data, follow=True))
    assert "operator commented: theirs is better" in text_of(get(client, page_of(change)))
    assert "Nothing: this Change has no edits." in text_of(get(client, page_of(change)))


def test_who_moved_a_thing_is_named_also_after_another_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=False))
    _, client = account("operator")
    publish_all(make_rule_set("web"))
    change = publishing.open_change(title="mine", edits=[Edit.of(make_rule_set("web", **B))], by="ops")
    removal = publishing.open_change(title="web goes", edits=[Edit("RuleSet", "web", None)], by="ops")
    publishing.publish_change(change=removal, by="ops", expected_digest=removal.digest)
    other = [Edit.of(make_rule_set("data"))]
    publishing.edit_change(change=change, edits=other, by="ops", expected_digest=change.digest)
    assert f"Meanwhile ops published, by {removal}: web goes : " in text_of(get(client, page_of(change)))


def test_edits_of_different_rules_are_offered_together_and_conflicts_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=False))
    _, client = account("operator")

    def weighted(weight: int, *filters: str) -> Any:
        scores = [{"builtin": "LeastRequestedPriority", "weight": weight}]
        return make_rule_set("web", filters=[{"builtin": name} for name in filters], scores=scores)

    publish_all(weighted(1, "PodFitsResources"))
    change = publishing.open_change(title="mine", edits=[Edit.of(weighted(2, "PodFitsResources"))], by="ops")
    publish_all(weighted(1, "PodFitsResources", "PodFitsHost"))
    page = text_of(get(client, page_of(change)))
    assert "both, rule by rule" in page
    assert "Merged the result differs from what is live by" in page
    data = typed(client, change, act="rebase", **{"of RuleSet/web": "merge"})
    assert "The Change is now based on the live Revision" in text_of(client.post(act_of(change), data, follow=True))
    publish_all(weighted(3, "PodFitsResources", "PodFitsHost"))
    page = text_of(get(client, page_of(change)))
    assert "Both sides changed LeastRequestedPriority of scores. Which side should be kept?" in page
    refused = client.post(act_of(change), typed(client, change, act="rebase", **{"of RuleSet/web": "merge"}))
    assert "choose a side for scores/LeastRequestedPriority" in text_of(refused)
    chosen = {"of RuleSet/web": "merge", "of RuleSet/web scores/LeastRequestedPriority": "theirs"}
    data = typed(client, change, act="rebase", **chosen)
    assert "The Change is now based on the live Revision" in text_of(client.post(act_of(change), data, follow=True))
    assert publishing.edits_of(change) == []


def test_an_emergency_is_marked_on_its_page_and_on_home_until_it_is_approved() -> None:
    _, approver = account("approver")
    user = User.objects.create_user("erin", is_staff=True)
    user.groups.set(Group.objects.filter(name="Emergency"))
    erin = HTTPSClient()
    erin.force_login(user)
    change = change_in("in_review")
    assert "Publish without approval" in text_of(get(erin, page_of(change)))
    assert "Publish without approval" not in text_of(get(approver, page_of(change)))
    data = typed(erin, change, act="urgent", text="fire")
    assert "Somebody else has to approve it now" in text_of(erin.post(act_of(change), data, follow=True))
    for page in ("/admin/", page_of(change)):
        assert "Published without approval" in text_of(get(approver, page))
    assert "all of web" in text_of(get(approver, "/admin/policies/change/?which=waiting"))
    data = typed(approver, change, act="approve")
    assert "Your approval of the emergency publish is recorded" in text_of(
        approver.post(act_of(change), data, follow=True)
    )
    for page in ("/admin/", page_of(change)):
        assert "Published without approval" not in text_of(get(approver, page))


def test_home_names_open_changes_and_a_revision_its_change() -> None:
    _, client = account("viewer")
    change = change_in("published")
    other = publishing.open_change(title="of batch", edits=[Edit.of(make_rule_set("batch"))], by="ops")
    home = text_of(get(client, "/admin/"))
    assert f"{other} is a draft: of batch, by ops" in home
    assert "all of web" not in home
    assert f"{change}: all of web" in text_of(get(client, "/admin/policies/revision/1/change/"))


def test_an_older_version_has_a_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=False))
    _, client = account("operator")
    for spec in (A, B):
        publish_all(make_rule_set("web", **spec))
    first, second = RuleSetVersion.objects.order_by("number")
    page = f"/admin/policies/rulesetversion/{first.pk}/go-back/"
    assert "filter added: PodFitsHost" in text_of(get(client, page))
    assert "Revision 3 was made" in confirmed(client, page, "B was wrong")
    assert "Nothing to do: web v1 is already live" in text_of(get(client, page))
    assert page not in get(client, f"/admin/policies/rulesetversion/{first.pk}/change/").content.decode()
    assert client.get(f"/admin/policies/rulesetversion/{second.pk}/go-back/").status_code == 200
    draft = RuleSetVersion.objects.create(rule_set=first.rule_set, number=9, state=RuleSetVersion.State.DRAFT)
    refused = client.post(f"/admin/policies/rulesetversion/{draft.pk}/go-back/", {"reason": "never live"})
    assert refused.status_code == 403


def test_the_list_is_narrowed_to_what_waits() -> None:
    _, client = account("approver")
    change_in("in_review")
    for which, found in (("waiting", True), ("open", True), ("done", False), ("mine", False)):
        text = text_of(get(client, f"/admin/policies/change/?which={which}"))
        assert ("all of web" in text) == found, which


@pytest.mark.parametrize(
    ("term", "found"), [("web", True), ("author", True), ("web author", True), ("batch", False), ("of web", True)]
)
def test_the_list_is_searched_by_what_is_touched_and_by_who_edited_it(term: str, found: bool) -> None:
    _, client = account("viewer")
    change_in("in_review")
    assert ("all of web" in text_of(get(client, f"/admin/policies/change/?q={term}"))) == found


def test_the_list_says_how_far_each_change_is() -> None:
    _, client = account("viewer")
    change = change_in("in_review")
    text = text_of(get(client, "/admin/policies/change/"))
    assert "0 of 1" in text
    assert "… looking" in text
    assert "rule set web" in text
    publishing.approve_change(
        change=change, by=User.objects.get(username="other"), expected_digest=change.digest, text=""
    )
    assert "1 of 1" in text_of(get(client, "/admin/policies/change/?state__exact=approved"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=False))
        publish_all(make_rule_set(**B))
    text = text_of(get(client, "/admin/policies/change/?state__exact=in_review"))
    assert "0 of 1" in text
    assert "rule set web , ! 1 changed meanwhile" in text
    assert "all of web" not in text_of(get(client, "/admin/policies/change/?state__exact=draft"))


def test_the_list_names_what_a_change_touches_and_counts_what_is_too_much_to_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, client = account("viewer")
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=False))
    publish_all(make_rule_set("live"))
    opened(make_rule_set("live", scores=[{"builtin": "LeastRequestedPriority"}]), make_assignment("all", "live"))
    opened(*(make_rule_set(f"rules-{number}") for number in range(4)))
    page = get(client, "/admin/policies/change/")
    key = RuleSet.objects.get(name="live").pk
    assert (
        f'Assignment all, <a class="berth-link" href="/admin/policies/ruleset/{key}/change/">rule set live</a>'
        in page.content.decode()
    )
    assert "4 things" in text_of(page)


def test_a_change_that_is_done_needs_nothing_any_more() -> None:
    _, client = account("viewer")
    change_in("published")
    row = get(client, "/admin/policies/change/").content.decode().split('id="result_list"')[1]
    assert " of 1" not in row
    assert "looking" not in row


def test_an_empty_list_says_how_one_comes_to_be() -> None:
    _, client = account("viewer")
    assert "apply FILE" in text_of(get(client, "/admin/policies/change/"))


def test_who_gave_no_reason_is_not_told_to_ask_themselves_but_where_to_write_it() -> None:
    author, client = account("operator")
    change = publishing.open_change(title="untold", edits=[Edit.of(make_rule_set(**A))], by=author)
    said = text_of(get(client, page_of(change)))
    assert "ask operator" not in said
    assert "What you write beside Send to review becomes the reason" in said


def test_reopening_is_explained_to_those_who_may_and_others_read_who_may() -> None:
    change = change_in("rejected")
    assert "Reopen makes it a draft again" in text_of(get(account("operator")[1], page_of(change)))
    said = text_of(get(account("viewer")[1], page_of(change)))
    assert "Reopen makes" not in said
    assert "An Operator may reopen it" in said


def test_what_it_touches_and_what_it_stands_on_are_links_and_a_reason_that_is_missing_is_said() -> None:
    _, client = account("viewer")
    first = publishing.open_change(title="first", edits=[Edit.of(make_rule_set(**A))], by="ops")
    publishing.publish_urgently(
        change=first, by=User.objects.create_superuser("root"), expected_digest=first.digest, reason="x"
    )
    change = publishing.open_change(title="untold", edits=[Edit.of(make_rule_set(**B))], by="ops")
    page = get(client, page_of(change))
    rule_set = f"/admin/policies/ruleset/{RuleSet.objects.get().pk}/change/"
    assert f'<a class="berth-link" href="{rule_set}">rule set web</a>' in page.content.decode()
    assert '<a class="berth-link" href="/admin/policies/revision/1/change/">Revision 1</a>' in page.content.decode()
    assert "Reason: none was given; ask ops" in text_of(page)
    publishing.describe_change(change=change, by="ops", expected_digest=change.digest, reason="OPS-3")
    assert "Reason: OPS-3" in text_of(get(client, page_of(change)))


def test_a_change_of_all_kinds_keeps_within_the_queries_of_a_page(django_assert_max_num_queries: Any) -> None:
    _, client = account("operator")
    values = [make_rule_set(**B), make_assignment(), make_priority_class()]
    change = publishing.open_change(title="all kinds", edits=map(Edit.of, values), by="ops")
    get(client, page_of(change))
    with django_assert_max_num_queries(20):
        assert "Assignment all-web added" in text_of(get(client, page_of(change)))


def test_a_role_that_may_run_the_gate_and_not_comment_runs_it_and_keeps_its_text() -> None:
    change = change_in("draft")
    user, client = account("viewer")
    user.groups.set(Group.objects.filter(name__in=["Auditor", "Emergency"]))
    said = text_of(client.post(act_of(change), typed(client, change, act="gate", text="see ticket 7"), follow=True))
    assert "Your role can't comment, so this isn't kept: see ticket 7" in said
    assert publishing.gate_of(change).run is not None


def test_a_page_of_many_edits_says_how_many_they_are_and_leads_to_each() -> None:
    _, client = account("operator")
    few, many = (opened(*(make_rule_set(f"{n}-of-{size}", **A) for n in range(size))) for size in (10, 11))
    assert "10 objects" not in text_of(get(client, page_of(few)))
    page = get(client, page_of(many))
    assert "11 objects" in text_of(page)
    for number in range(1, 12):
        found = page.content.decode().split(f'href="#object-{number}">')
        assert len(found) == 2, number
        heading = found[1].partition(f'id="object-{number}">')[2].partition("</h3>")[0]
        assert f">{found[1].partition('<')[0]}</a>" in heading


def test_the_top_of_a_change_says_what_the_reader_can_do_and_leads_to_the_buttons() -> None:
    change = change_in("in_review")
    _, approver = account("approver")
    page = get(approver, page_of(change))
    assert "You can: Approve, " in text_of(page)
    assert all(part in page.content.decode() for part in ('href="#acts"', 'id="acts"'))
    _, viewer = account("viewer")
    assert "You can:" not in text_of(get(viewer, page_of(change)))


def test_what_was_typed_stays_where_somebody_else_ended_the_change_meanwhile() -> None:
    change = change_in("published")
    _, client = account("administrator")
    typed = {"act": "reject", "text": "it breaks the night jobs", "digest": change.digest}
    assert "it breaks the night jobs" in text_of(client.post(act_of(change), typed))


def test_a_comment_that_is_sent_twice_is_kept_once_and_the_same_words_count_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, client = account("operator")
    change = change_in("in_review")
    sent = typed(client, change, act="comment", text="any news?")
    comments = change.events.filter(act="comment")
    for _again in range(2):
        assert client.post(act_of(change), sent).status_code == 302
    assert comments.count() == 1
    monkeypatch.setattr("policies.publishing.changes.SAME_CLICK", timedelta(0))
    client.post(act_of(change), sent)
    assert comments.count() == 2


@pytest.mark.parametrize("act", ["gate", "discard RuleSet/web", "schedule", "expire"])
def test_what_is_typed_with_an_act_that_records_no_words_is_kept_as_a_comment(act: str) -> None:
    _, client = account("operator")
    change = change_in("in_review")
    page = text_of(client.post(act_of(change), typed(client, change, act=act, text="see ticket 7"), follow=True))
    assert "Your comment is kept." in page
    assert "operator commented: see ticket 7" in page


def test_the_forms_of_times_send_the_comment_along() -> None:
    _, client = account("operator")
    page = get(client, page_of(change_in("in_review"))).content.decode()
    assert page.count('data-berth-with="id_text"') == 2
    assert page.count('id="id_text"') == 1


def test_a_refused_rebase_keeps_the_sides_that_were_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=False))
    _, client = account("operator")

    def weighted(name: str, weight: int) -> Any:
        return make_rule_set(name, scores=[{"builtin": "LeastRequestedPriority", "weight": weight}])

    publish_all(weighted("data", 1), weighted("web", 1))
    change = opened(weighted("data", 2), weighted("web", 2))
    publish_all(weighted("data", 3), weighted("web", 3))
    part = "scores/LeastRequestedPriority"
    chosen = {"of RuleSet/data": "theirs", "of RuleSet/web": "merge", f"of RuleSet/data {part}": "theirs"}
    refused = client.post(act_of(change), typed(client, change, act="rebase", **chosen)).content.decode()
    assert f"choose a side for {part}" in refused
    assert dict(re.findall(r'type="radio" name="([^"]+)" value="(\w+)" checked', refused)) == chosen


def test_the_title_in_the_list_leads_to_the_change() -> None:
    _, client = account("viewer")
    change = change_in("draft")
    shown = get(client, "/admin/policies/change/").content.decode()
    assert re.search(rf'<a [^>]*href="{page_of(change)}[^"]*"[^>]*>\s*all of web', shown)


def test_of_two_reasons_that_are_added_at_once_the_first_stays() -> None:
    """Each was read as missing before the other's act locked the Change."""
    user = User.objects.create_superuser("ann")
    change = publishing.open_change(title="t", edits=[Edit.of(make_rule_set(**A))], by=user)
    seen = [Change.objects.get(pk=change.pk) for _ in range(2)]
    add = {"by": user, "expected_digest": change.digest, "expected_reason": ""}
    publishing.describe_change(change=seen[0], reason="ticket 7", **add)
    with pytest.raises(PublishingError, match="has got a reason since you looked"):
        publishing.describe_change(change=seen[1], reason="another", **add)
    assert Change.objects.get(pk=change.pk).reason == "ticket 7"


def test_a_change_that_was_sent_to_review_without_a_reason_gets_one_once() -> None:
    user, client = account("operator")
    change = publishing.open_change(title="t", edits=[Edit.of(make_rule_set(**A))], by=user)
    assert "Add as reason" not in text_of(get(client, page_of(change)))
    publishing.submit_change(change=change, by=user, expected_digest=change.digest)
    publishing.approve_change(change=change, by=User.objects.create_superuser("other"), expected_digest=change.digest)
    page = get(client, page_of(change))
    assert "What you write beside Add as reason becomes the reason" in text_of(page)
    assert 'value="describe"' not in get(account("viewer")[1], page_of(change)).content.decode()
    data = typed(client, change, act="describe")
    assert "Enter the reason below." in text_of(client.post(act_of(change), data | {"text": " "}))
    said = text_of(client.post(act_of(change), data | {"text": "ticket 7"}, follow=True))
    assert "Reason: ticket 7" in said
    assert "operator described anew: reason was: empty" in said
    assert "Add as reason" not in said
    second = client.post(act_of(change), data | {"text": "another"})
    assert "has got a reason since you looked" in text_of(second)
    change.refresh_from_db()
    assert (change.reason, change.state) == ("ticket 7", "approved")
