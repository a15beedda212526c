"""Pausing in the admin: the pages that ask, and the banner that says on every page what is paused."""

import html
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from policies import publishing
from policies.engine import ruleset as engine
from policies.models import Assignment, Change, RuleSet
from tests.builders import TEAM_FILTER, make_assignment, make_exemption, make_pause, make_rule_set
from tests.component.pages import change_url, get, publish_all, text_of

pytestmark = pytest.mark.django_db
PAUSE, RESUME = "/admin/policies/pauses/pause/?target=", "/admin/policies/pauses/resume/?target="
EXEMPT = "/admin/policies/pauses/exempt/"


@pytest.fixture(autouse=True)
def published(db: None) -> None:
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]), make_assignment("all", "web"))


def live() -> engine.Revision:
    return publishing.current_revision()


def send(client: Client, page: str, **typed: Any) -> str:
    digest = get(client, page).context["form"]["digest"].value()
    return text_of(client.post(page, {"digest": digest, **typed}, follow=True))


def test_what_is_paused_stands_on_every_page_until_it_is_resumed(operator: Client) -> None:
    said = send(operator, PAUSE + "everything", reason="storm", until="2030-01-02T03:04")
    assert "Pause everything" in said
    assert [(each.target, each.until) for each in live().pauses] == [("everything", "2030-01-02T03:04:00Z")]
    for page in ("/admin/", "/admin/policies/assignment/", "/admin/policies/pauses/", "/admin/scheduler/queue/"):
        shown = text_of(get(operator, page))
        assert re.search(
            r"! Everything is paused until 2030-01-02 03:04 UTC: storm \( ?operator ?, [-\d]+ [:\d]+ UTC\)", shown
        )
        assert f'href="{RESUME}everything"' in get(operator, page).content.decode()
    send(operator, RESUME + "everything", reason="over")
    assert live().pauses == []
    assert 'id="suspensions"' not in get(operator, "/admin/").content.decode()


def test_of_a_long_reason_its_beginning_stands_on_every_page_and_all_of_it_on_that_of_pauses(operator: Client) -> None:
    reason = "the driver is replaced on every node of the rack, " * 6 + "the end"
    send(operator, PAUSE + "everything", reason=reason)
    assert reason[:150] in text_of(get(operator, "/admin/"))
    assert "the end" not in text_of(get(operator, "/admin/"))
    assert 'href="/admin/policies/pauses/">Whole reason' in banner(operator)
    assert reason in text_of(get(operator, "/admin/policies/pauses/"))


def test_of_many_pauses_five_stand_on_every_page_and_the_others_are_folded(operator: Client) -> None:
    """A hundred would be ten screens of a phone, above each page."""
    publish_all(*[make_rule_set(f"web-{number}", filters=[TEAM_FILTER]) for number in range(7)])
    pauses = [make_pause(f"p-{number}", target=f"RuleSet/web-{number}") for number in range(7)]
    publish_all(*pauses[:5])
    assert "<details" not in banner(operator)
    publish_all(*pauses[5:], make_pause("all", target="everything"))
    shown, _, folded = banner(operator).partition("<details")
    assert [page.count("paused</strong>") for page in (shown, folded)] == [5, 3]
    assert "Everything is paused" in shown
    assert "3 more Pauses" in folded


def test_many_exemptions_come_in_pages_and_are_found_by_what_they_mention(auditor: Client) -> None:
    page = "/admin/policies/pauses/"
    publish_all(*[make_exemption(f"e-{number:03}", owner=f"team-{number:03}") for number in range(101)])
    first = get(auditor, page)
    assert (first.content.count(b'data-label="Owner"'), "None on this page." in text_of(first)) == (100, True)
    assert "Page 1 of 2." in text_of(first)
    assert get(auditor, page + "?q=&p=2").content.count(b'data-label="Owner"') == 1
    found = get(auditor, page + "?q=TEAM-042")
    assert found.content.count(b'data-label="Owner"') == 1
    assert "e-042" in text_of(found)
    assert "Show all" in text_of(found)
    assert text_of(get(auditor, page + "?q=nobody")).count("None mentions that.") == 2


def test_who_ends_an_exemption_comes_back_to_the_search_and_the_page(operator: Client) -> None:
    page = "/admin/policies/pauses/"
    publish_all(*[make_exemption(f"e-{number:03}") for number in range(102)])
    shown = get(operator, page + "?q=e-&p=2").content.decode()
    end = html.unescape(re.findall(r'href="([^"]*end-exemption[^"]*)"', shown)[0])
    assert get(operator, end).context["back"] == page + "?q=e-&p=2"
    digest = get(operator, end).context["form"]["digest"].value()
    assert operator.post(end, {"digest": digest, "reason": "over"}).headers["Location"] == page + "?q=e-&p=2"


def test_who_pauses_or_exempts_from_the_list_comes_back_to_the_search_and_the_page(operator: Client) -> None:
    page = "/admin/policies/pauses/"
    publish_all(*[make_exemption(f"e-{number:03}") for number in range(102)])
    shown = get(operator, page + "?q=e-&p=2").content.decode()
    for button in ("Pause everything…", "Add an Exemption…"):
        link = html.unescape(re.findall(rf'href="([^"]*)">{button}', shown)[0])
        assert get(operator, link).context["back"] == page + "?q=e-&p=2"


def banner(client: Client) -> str:
    return get(client, "/admin/").content.decode().partition('id="suspensions"')[2].partition("</section>")[0]


@pytest.mark.parametrize("until", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"])
def test_an_end_that_has_no_date_in_utc_is_refused_at_its_field(operator: Client, until: str) -> None:
    assert "Enter a valid date/time." in send(operator, PAUSE + "everything", reason="storm", until=until)
    assert live().pauses == []


def test_a_pause_for_some_hours_ends_by_itself(operator: Client) -> None:
    began = timezone.now()
    send(operator, PAUSE + "everything", reason="storm", hours="4")
    (pause,) = live().pauses
    assert timedelta(hours=4) - timedelta(minutes=1) < datetime.fromisoformat(pause.until) - began
    assert datetime.fromisoformat(pause.until) - began < timedelta(hours=4, minutes=1)


def test_who_pauses_what_is_paused_is_told_what_is_replaced_and_keeps_its_end(operator: Client) -> None:
    assert "replaces that Pause" not in text_of(get(operator, PAUSE + "everything"))
    publishing.pause(target="everything", by="ops", reason="storm", until="2090-01-01T00:00:00Z")
    answer = get(operator, PAUSE + "everything")
    said = text_of(answer)
    assert "paused until 2090-01-01 00:00 UTC: storm" in said
    assert "It is paused already. This replaces that Pause: its reason, and its end." in said
    kept = re.findall(r'name="until" value="([^"]*)"', answer.content.decode())
    assert kept == ["2090-01-01T00:00:00"]  # as browsers want it
    send(operator, PAUSE + "everything", reason="storm and flood", until=kept[0])
    (pause,) = live().pauses
    assert (pause.reason, datetime.fromisoformat(pause.until)) == ("storm and flood", datetime(2090, 1, 1, tzinfo=UTC))


def test_hours_are_chosen_in_place_of_the_end_that_the_pause_has(operator: Client) -> None:
    publishing.pause(target="everything", by="ops", reason="storm", until="2090-01-01T00:00:00Z")
    send(operator, PAUSE + "everything", reason="nearly over", hours="1", until="2090-01-01T00:00")
    (pause,) = live().pauses
    assert datetime.fromisoformat(pause.until) < timezone.now() + timedelta(hours=2)


def test_a_pause_that_has_ended_is_no_end_for_the_next_one(operator: Client) -> None:
    publish_all(make_pause(target="RuleSet/web", until="2020-01-01T00:00:00Z"))
    page = get(operator, PAUSE + "RuleSet%2Fweb")
    assert page.context["form"]["until"].value() == ""
    assert "It is paused already" not in text_of(page)


def test_a_pause_has_one_end(operator: Client) -> None:
    said = send(operator, PAUSE + "everything", reason="storm", hours="1", until="2030-01-02T03:04")
    assert "Choose how long, or until when, but not both." in said
    assert live().pauses == []


def test_a_reason_of_many_lines_is_as_long_as_its_field_says(operator: Client) -> None:
    """Browsers count a line end as one character against the field's length, and send two."""
    lines = ["x" * 19] * 50
    send(operator, PAUSE + "everything", reason="\r\n".join(lines))
    assert [each.reason for each in live().pauses] == ["\n".join(lines)]


def test_a_pause_that_has_ended_is_shown_as_ended_and_can_be_removed(operator: Client) -> None:
    publish_all(make_pause(target="RuleSet/web/team", until="2020-01-01T00:00:00Z"))
    # What it was about may be paused by another one still.
    said = "The Pause of rule team of rule set web ended at 2020-01-01 00:00 UTC and no longer has any effect."
    assert said in text_of(get(operator, "/admin/"))
    assert "ended at 2020-01-01 00:00 UTC" in text_of(get(operator, "/admin/policies/pauses/"))
    send(operator, RESUME + "RuleSet/web/team", reason="tidy")
    assert live().pauses == []


def test_pages_of_rule_sets_and_assignments_lead_to_pausing_them(operator: Client) -> None:
    rule_set, assignment = RuleSet.objects.get(name="web"), Assignment.objects.get(name="all")
    for page, targets in (
        (f"/admin/policies/ruleset/{rule_set.pk}/change/", ["RuleSet%2Fweb", "RuleSet%2Fweb%2Fteam"]),
        (f"/admin/policies/assignment/{assignment.pk}/change/", ["Assignment%2Fall"]),
    ):
        shown = get(operator, page).content.decode()
        for target in targets:
            assert f'href="{PAUSE}{target}"' in shown
    shown = get(operator, f"/admin/policies/ruleset/{rule_set.pk}/change/").content.decode()
    assert 'href="/admin/policies/pauses/exempt/?target=RuleSet%2Fweb%2Fteam"' in shown
    send(operator, PAUSE + "RuleSet%2Fweb%2Fteam", reason="storm")
    shown = text_of(get(operator, f"/admin/policies/ruleset/{rule_set.pk}/change/"))
    assert "! paused until somebody resumes it: storm" in shown


def test_who_looked_at_another_revision_is_asked_to_look_again(operator: Client) -> None:
    digest = get(operator, PAUSE + "everything").context["form"]["digest"].value()
    publishing.pause(target="RuleSet/web", by="ops", reason="first")
    answer = operator.post(PAUSE + "everything", {"digest": digest, "reason": "storm"})
    assert "changed since you looked" in text_of(answer)
    assert answer.context["form"]["reason"].value() == "storm"
    assert [each.target for each in live().pauses] == ["RuleSet/web"]


def test_where_review_is_required_it_leads_to_the_change(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=True))
    said = send(operator, PAUSE + "everything", reason="storm")
    change = Change.objects.latest("pk")
    assert f"{change} is in review" in said
    assert live().pauses == []


def test_an_exemption_takes_the_place_of_another_of_its_name_only_once_that_was_shown(operator: Client) -> None:
    publish_all(make_exemption(owner="team shop"))
    until = f"{timezone.now() + timedelta(days=3):%Y-%m-%dT%H:%M}"
    typed = {"name": "cart", "owner": "team cart", "target": "RuleSet/web/team", "pods": "default/cart-0"}
    typed |= {"until": until, "reason": "moving"}
    digest = get(operator, EXEMPT).context["form"]["digest"].value()
    answer = operator.post(EXEMPT, {**typed, "digest": digest})
    assert "There is an Exemption cart already: rule set web passes over Pod cart in default" in text_of(answer)
    assert [each.owner for each in live().exemptions] == ["team shop"]
    again = {name: answer.context["form"][name].value() for name in (*typed, "digest", "replaces")}
    publish_all(make_exemption(owner="team desk"))
    overtaken = operator.post(EXEMPT, again)
    assert "for team desk" in text_of(overtaken)
    again = {name: overtaken.context["form"][name].value() for name in again}
    operator.post(EXEMPT, again)
    assert [each.owner for each in live().exemptions] == ["team cart"]


def test_an_exemption_is_added_shown_announced_and_ended(operator: Client) -> None:
    lines = "default/cart-0\ndefault/Deployment/cart\n\nshop team=web, tier in (a, b)"
    typed = {"name": "cart", "owner": "team cart", "target": "RuleSet/web/team", "pods": lines}
    until = timezone.now() + timedelta(days=1, hours=1)
    said = send(operator, EXEMPT, **typed, until=f"{until:%Y-%m-%dT%H:%M}", reason="moving")
    assert "Exemption cart" in said
    [exemption] = live().exemptions
    assert (exemption.owner, exemption.until, len(exemption.pods)) == ("team cart", f"{until:%Y-%m-%dT%H:%M}:00Z", 3)
    shown = text_of(get(operator, "/admin/policies/pauses/"))
    assert f"! soon: {until:%Y-%m-%d %H:%M} UTC, in 1 d" in shown
    assert re.search(r"moving by operator ?, \d+ s ago ?, Revision \d+", shown)
    for words in (
        "Pod cart-0 in default",
        "Pods of Deployment cart in default",
        "Pods with labels team=web,tier in (a,b)",
    ):
        assert words in shown
    assert "cart of team cart" in text_of(get(operator, "/admin/"))
    ending = "/admin/policies/pauses/end-exemption/?name=cart"
    asked = text_of(get(operator, ending))
    assert "Rule team of rule set web passes over Pod cart-0 in default; " in asked
    assert f"until {until:%Y-%m-%d %H:%M} UTC, for team cart: moving" in asked
    send(operator, ending, reason="over")
    assert live().exemptions == []


def test_an_exemption_that_has_ended_is_announced_as_ended(operator: Client) -> None:
    pods = [{"namespace": "default", "name": "cart-0"}]
    publish_all(
        make_exemption("cart", owner="team cart", target="RuleSet/web", pods=pods, until="2020-01-01T00:00:00Z")
    )
    assert "cart of team cart ended at 2020-01-01 00:00 UTC" in text_of(get(operator, "/admin/"))
    assert "✗ ended at 2020-01-01 00:00 UTC" in text_of(get(operator, "/admin/policies/pauses/"))


@pytest.mark.parametrize("page", [PAUSE + "everything", EXEMPT])
def test_an_end_that_is_past_is_refused_beside_what_was_typed(operator: Client, page: str) -> None:
    typed = {"name": "cart", "owner": "team", "target": "RuleSet/web", "pods": "default/cart-0", "reason": "why"}
    digest = get(operator, page).context["form"]["digest"].value()
    answer = operator.post(page, {"digest": digest, "until": "2020-01-01T00:00", **typed})
    said = r"It would end at 2020-01-01 00:00:00 UTC, which is past: it is [-\d]+ [:\d]+ UTC now\."
    assert re.search(said, text_of(answer))
    assert answer.context["form"]["reason"].value() == "why"
    assert (live().pauses, live().exemptions) == ([], [])


def test_who_resumes_is_told_what_is_paused_why_and_by_whom(operator: Client) -> None:
    publishing.pause(target="RuleSet/web/team", by="ops", reason="storm", until="2090-01-01T00:00:00Z")
    shown = text_of(get(operator, RESUME + "RuleSet%2Fweb%2Fteam"))
    assert "Rule team of rule set web is paused until 2090-01-01 00:00 UTC: storm ( ops" in shown.replace(
        "(ops", "( ops"
    )


@pytest.mark.parametrize(
    ("target", "of_rule_set", "of_assignment"),
    [
        ("everything", ["! Everything is paused", "! Everything is paused"], ["! Everything is paused"]),
        (
            "RuleSet/web",
            ["! paused until somebody resumes it: storm", "! Rule set web is paused"],
            ["! Rule set web is paused"],
        ),
        ("RuleSet/web/team", ["active", "! paused until somebody resumes it: storm"], ["active"]),
        ("Assignment/all", ["active", "active"], ["! paused until somebody resumes it: storm"]),
    ],
)
def test_what_is_paused_with_something_larger_is_not_called_active(
    operator: Client, target: str, of_rule_set: list[str], of_assignment: list[str]
) -> None:
    publishing.pause(target=target, by="ops", reason="storm")

    def now(model: str, key: int) -> list[str]:
        panel = get(operator, change_url(model, key)).content.decode().partition('id="pause-panel"')[2]
        # On a phone each row is a card: in columns, a long reason pushes the ways to pause and resume off the screen.
        cells = re.findall(r'<td data-label="Now">(.*?)</td>', panel.partition("</table>")[0], re.DOTALL)
        return [html.unescape(" ".join(each.split())) for each in cells]

    assert now("ruleset", RuleSet.objects.get().pk) == of_rule_set
    assert now("assignment", Assignment.objects.get().pk) == of_assignment


def test_the_reason_of_a_pause_alone_is_said_to_be_shown_while_the_pause_lasts(operator: Client) -> None:
    publishing.pause(target="RuleSet/web", by="ops", reason="storm")
    for page, says in (
        (f"{PAUSE}everything", "shown to everybody while the Pause lasts"),
        (f"{RESUME}RuleSet/web", "Kept with the Revision; auditors read it."),
        (EXEMPT, "Kept with the Revision; auditors read it."),
    ):
        assert says in text_of(get(operator, page)), page


def test_faults_of_an_exemption_are_told_and_what_was_typed_stays(operator: Client) -> None:
    typed = {"name": "cart", "owner": "team", "target": "RuleSet/gone", "until": "2030-01-01T00:00", "reason": "why"}
    page = EXEMPT
    assert "no rule set gone is live" in send(operator, page, **typed, pods="default/cart")
    assert "doesn't select Pods" in send(operator, page, **typed, pods="default")
    assert "isn't a label selector" in send(operator, page, **typed, pods="default ((")
    assert "There is no Exemption cart" in send(operator, "/admin/policies/pauses/end-exemption/?name=cart", reason="x")


def test_all_faults_of_an_exemption_are_told_at_once_each_at_its_field(operator: Client) -> None:
    typed = {"name": "The Cart", "owner": "team", "until": "2030-01-01T00:00", "reason": "why"}
    digest = get(operator, EXEMPT).context["form"]["digest"].value()

    def errors(target: str, pods: str) -> dict[str, str]:
        page = operator.post(EXEMPT, {**typed, "digest": digest, "target": target, "pods": pods})
        assert page.context["form"]["owner"].value() == "team"
        return {name: " ".join(said) for name, said in page.context["form"].errors.items()}

    found = errors("RuleSet/gone", "default\nshop ((")
    assert sorted(found) == ["name", "pods", "target"]
    assert "lower-case letters" in found["name"]
    assert "“default” doesn't select Pods" in found["pods"]
    assert "isn't a label selector" in found["pods"]
    assert found["target"] == "no rule set gone is live"
    found = errors("web", "default/cart-0\n\nShop/cart-0")
    assert found["pods"] == "“Shop/cart-0”: 'Shop' is no namespace's name: a-z, 0-9 and dashes, at most 63"
    assert "must be RuleSet/NAME" in found["target"]
    assert live().exemptions == []


def test_who_may_not_publish_sees_it_and_can_not_change_it(auditor: Client, client: Client) -> None:
    publishing.pause(target="everything", by="ops", reason="storm")
    assert "! Everything is paused" in text_of(get(auditor, "/admin/policies/pauses/"))
    assert "Resume" not in text_of(get(auditor, "/admin/policies/pauses/"))
    for page in (PAUSE + "everything", RESUME + "everything", EXEMPT):
        assert auditor.get(page).status_code == 403
    assert client.get(PAUSE + "everything").status_code == 302


def test_a_revisions_page_lists_what_is_out_of_force_in_it(operator: Client) -> None:
    publishing.pause(target="everything", by="ops", reason="storm")
    shown = text_of(get(operator, f"/admin/policies/revision/{live().number}/change/"))
    assert "everything: everything is paused until it is resumed: storm" in shown


def test_who_publishes_and_does_not_edit_may_not_pause(approver: Client) -> None:
    assert approver.get(PAUSE + "everything").status_code == 403


def test_what_is_paused_and_what_passes_over_pods_lead_to_the_things(operator: Client) -> None:
    web = RuleSet.objects.get(name="web")
    page = f'<a class="berth-link" href="/admin/policies/ruleset/{web.pk}/change/">'
    send(operator, PAUSE + "RuleSet/web", reason="storm")
    shown = get(operator, "/admin/policies/pauses/").content.decode()
    assert f"{page}Rule set web</a>" in shown
    assert "/admin/policies/revision/" in shown.split('id="pauses"')[1]
    send(operator, PAUSE + "everything", reason="storm")
    assert ">Everything</a>" not in get(operator, "/admin/policies/pauses/").content.decode()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (RESUME + "everything", "Berth as a whole isn't paused."),
        (RESUME + "RuleSet/web", "Rule set web isn't paused."),
        ("/admin/policies/pauses/end-exemption/?name=cart", "There is no Exemption cart:"),
        ("/admin/policies/pauses/end-exemption/", "The URL doesn't name an Exemption."),
    ],
)
def test_no_reason_is_asked_for_ending_what_is_not_there(operator: Client, path: str, said: str) -> None:
    """Somebody else ended it, and this tab still shows the way here."""
    page = get(operator, path)
    assert said in text_of(page)
    assert 'id="pause_form"' not in page.content.decode()


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("RuleSet/web/team", "the rule refuses no node, gives no score and protects no Pod"),
        ("RuleSet/web", "none of its rules decides about the Pods that its Assignments go on taking"),
        ("Assignment/all", "it takes no Pod, and the next Assignment in order may take"),
    ],
)
def test_the_page_that_pauses_says_what_that_means_for_pods(operator: Client, target: str, said: str) -> None:
    assert said in text_of(get(operator, f"{PAUSE}{target}"))


@pytest.mark.parametrize(
    "target", ["everything", "Assignment/all", "RuleSet/web", "RuleSet/web/team", "RuleSet/gone", "a/b/c/d"]
)
def test_that_a_pause_needs_review_is_said_before_it_is_asked_for(
    operator: Client, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    pages = (PAUSE + target, f"{EXEMPT}?target={target}")
    for page in pages:
        shown = text_of(get(operator, page))
        assert "Review is required here" not in shown
        assert "Send to review" not in shown
    reviewed = msgspec.structs.replace(settings.BERTH, review_required=True, review_pauses=True)
    monkeypatch.setattr(settings, "BERTH", reviewed)
    for page in pages:
        shown = text_of(get(operator, page))
        assert "Review is required here: this opens a Change and sends it to review." in shown
        assert "Send to review" in shown


def test_that_resuming_needs_review_is_said_where_pausing_needs_none(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = msgspec.structs.replace(settings.BERTH, review_required=True, review_pauses=False)
    monkeypatch.setattr(settings, "BERTH", free)
    assert "Review is required here" not in text_of(get(operator, PAUSE + "everything"))
    send(operator, PAUSE + "everything", reason="storm")
    assert "Review is required here" in text_of(get(operator, RESUME + "everything"))


def test_who_is_refused_sees_the_pause_that_the_next_press_ends(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A colleague's Pause comes while the verb waits for the lock: after the page has read what is paused."""
    publish_all(make_pause(target="RuleSet/web", reason="first"))
    page = RESUME + "RuleSet%2Fweb"
    data = {"digest": get(operator, page).context["form"]["digest"].value(), "reason": "over"}
    resume = publishing.resume

    def resume_late(**asked: Any) -> Any:
        monkeypatch.setattr(publishing, "resume", resume)
        publishing.pause(target="RuleSet/web", by="ops", reason="second")
        return resume(**asked)

    monkeypatch.setattr(publishing, "resume", resume_late)
    refused = text_of(operator.post(page, data))
    assert "Somebody was faster" in refused
    assert "second" in refused
    assert "first" not in refused


def test_who_pauses_what_files_paused_twice_begins_with_the_later_end(operator: Client) -> None:
    publish_all(make_pause("first", until="2029-01-01T00:00:00Z"), make_pause("second", until="2030-01-01T00:00:00Z"))
    page = get(operator, PAUSE + "RuleSet%2Fweb")
    assert page.context["form"]["until"].value() == "2030-01-01T00:00:00"
    assert "This replaces the Pause that lasts longest, and no other outlasts it." in text_of(page)


@pytest.mark.parametrize("untils", [("", "2020-01-01T00:00:00Z"), ("2020-01-01T00:00:00Z", "")])
def test_of_two_pauses_of_a_target_the_panel_shows_the_one_in_force(operator: Client, untils: tuple[str, str]) -> None:
    """Files can make several."""
    names = zip(("first", "second"), untils, strict=True)
    publish_all(*(engine.Pause(name=name, target="RuleSet/web", reason="storm", until=until) for name, until in names))
    page = get(operator, change_url("ruleset", RuleSet.objects.get(name="web").pk)).content.decode()
    panel = page.partition('id="pause-panel"')[2]
    assert "! paused until somebody resumes it: storm" in panel.partition("</tr>")[2].partition("</tr>")[0]
