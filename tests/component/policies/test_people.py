"""People as links: each name leads to what waits for that person, what they have open and what they did; who may not see it reads the name."""

import html
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.utils import timezone

from policies import publishing
from policies.admin.person_links import person_link
from policies.models import Assignment, RuleSetVersion
from policies.publishing import CLOCK
from scheduler.models import CanaryRun, Delivery, Webhook
from tests.builders import make_assignment, make_priority_class, make_rule_set
from tests.component.pages import change_url, get, opened, publish_all, text_of

pytestmark = pytest.mark.django_db
LISTS = "/admin/policies/"


def page_of(name: str) -> str:
    return f"{LISTS}people/{name}/"


def link_to(name: str) -> str:
    return f'<a class="berth-link" href="{page_of(name)}">{name}</a>'


@pytest.fixture
def anna(django_user_model: Any) -> User:
    user: User = django_user_model.objects.create_user("anna", is_staff=True)
    user.groups.add(Group.objects.get(name="Operator"))
    return user


@pytest.fixture
def bert(django_user_model: Any) -> User:
    user: User = django_user_model.objects.create_user("bert", is_staff=True)
    user.groups.add(Group.objects.get(name="Approver"))
    return user


@pytest.fixture
def asked(anna: User, bert: User) -> Any:
    """A Change of anna's that waits for bert, beside what she published."""
    publish_all(make_rule_set("web"), make_assignment("all", "web"), make_priority_class("batch"), by=anna)
    change = opened(make_rule_set("shop"), by=anna, title="a shop's rules")
    publishing.submit_change(change=change, by=anna, expected_digest=change.digest)
    return publishing.ask_for_review(change=change, by=anna, whom="bert")


@pytest.mark.parametrize("role", ["operator", "approver", "auditor"])
def test_every_role_sees_what_somebody_did_and_has_open(role: str, asked: Any, request: pytest.FixtureRequest) -> None:
    page = get(request.getfixturevalue(role), page_of("anna"))
    text = text_of(page)
    assert "An account, role Operator." in text
    assert f"{asked} : a shop's rules, in review since" in text
    assert "published a Change" in text
    html = page.content.decode()
    assert change_url("change", asked.pk) in html
    assert change_url("revision", 1) in html
    assert f"{LISTS}audit/?thing=Account%2Fanna" in html


def test_a_review_that_waits_for_somebody_stands_on_their_page_with_who_asked(auditor: Client, asked: Any) -> None:
    page = get(auditor, page_of("bert"))
    assert f"{asked} : a shop's rules, asked by anna since" in text_of(page)
    assert link_to("anna") in page.content.decode()
    assert "No review waits for anna." in text_of(get(auditor, page_of("anna")))


def test_who_has_done_the_review_is_not_said_to_have_been_asked_by_nobody(auditor: Client, asked: Any) -> None:
    publishing.reject_change(
        change=asked, by=User.objects.get(username="bert"), expected_digest=asked.digest, text="not so"
    )
    assert "No review waits for bert." in text_of(get(auditor, page_of("bert")))


def test_more_than_a_page_of_acts_leads_to_all_of_them(auditor: Client, asked: Any, anna: User) -> None:
    for number in range(20):
        publishing.comment_on_change(change=asked, by=anna, text=f"comment {number}")
    page = get(auditor, page_of("anna"))
    assert page.content.decode().count("commented on a Change") == 20
    assert "All events by anna" in text_of(page)
    assert f"{LISTS}audit/?by=anna" in page.content.decode()


def test_more_than_a_page_of_open_changes_leads_to_all_of_them_whatever_the_name_is(auditor: Client) -> None:
    for number in range(21):
        opened(make_rule_set(f"web-{number}"), by="r&d@shop", title=f"title {number}")
    page = get(auditor, f"{LISTS}people/r&d@shop/")
    found = re.search(r'href="([^"]+)">All open Changes', page.content.decode())
    assert found is not None
    assert get(auditor, html.unescape(found[1])).context["cl"].result_count == 21


def test_a_name_without_an_account_has_its_page(auditor: Client, asked: Any, anna: User) -> None:
    User.objects.filter(username="anna").update(username="hanna")
    text = text_of(get(auditor, page_of("anna")))
    assert "There is no account of this name" in text
    assert "published a Change" in text
    assert "Nothing is recorded under this name." in text_of(get(auditor, page_of("nobody")))


def test_who_may_not_see_the_audit_may_not_open_it(client: Client, django_user_model: Any, asked: Any) -> None:
    assert client.get(page_of("anna"))["Location"].startswith("/admin/login/")
    client.force_login(django_user_model.objects.create_user("x", is_staff=True))
    assert client.get(page_of("anna")).status_code == 403


def pages(asked: Any) -> list[str]:
    return [
        change_url("change", asked.pk),
        f"{LISTS}change/",
        f"{LISTS}ruleset/",
        f"{LISTS}assignment/",
        f"{LISTS}rulesetversion/",
        change_url("rulesetversion", RuleSetVersion.objects.get().pk),
        f"{LISTS}audit/",
    ]


def test_names_on_pages_are_links(auditor: Client, operator: Client, asked: Any) -> None:
    for path in pages(asked):
        assert link_to("anna") in get(auditor, path).content.decode(), path
    assert link_to("bert") in get(auditor, change_url("change", asked.pk)).content.decode()
    for path in ("/admin/scheduler/priority-classes/batch/", change_url("assignment", Assignment.objects.get().pk)):
        assert link_to("anna") in get(operator, path).content.decode(), path


def test_who_wrote_a_rule_set_first_and_who_set_a_review_are_links(auditor: Client, asked: Any, anna: User) -> None:
    publish_all(make_rule_set("web", scores=[{"builtin": "LeastRequestedPriority"}]), by="ops")
    row = get(auditor, f"{LISTS}ruleset/?q=web").content.decode()
    assert link_to("anna") in row  # its owner
    assert link_to("ops") in row
    publishing.set_review(approvals=1, by="root")
    assert link_to("root") in get(auditor, f"{LISTS}reviewsetting/").content.decode()


def test_who_may_not_see_the_audit_reads_names(client: Client, django_user_model: Any, asked: Any) -> None:
    user = django_user_model.objects.create_user("reader", is_staff=True)
    seen = ["view_change", "view_ruleset", "view_rulesetversion", "view_assignment"]
    user.user_permissions.set(Permission.objects.filter(codename__in=seen))
    client.force_login(user)
    for path in pages(asked)[:-1]:
        html = get(client, path).content.decode()
        assert "anna" in html, path
        assert "/people/" not in html, path


def test_the_clock_and_odd_names_are_no_links() -> None:
    for name in ("", CLOCK, "a/b"):
        assert person_link(name, is_link=True) == name
    assert "&lt;b&gt;" in person_link("<b>", is_link=True)
    assert person_link("anna", is_link=False) == "anna"


def test_home_and_the_inbox_lead_to_who_asked(asked: Any, bert: User, client: Client) -> None:
    client.force_login(bert)
    for path in ("/admin/", "/admin/scheduler/inbox/"):
        assert link_to("anna") in get(client, path).content.decode(), path


def test_who_made_a_revision_asked_for_a_canary_and_for_a_delivery_are_links(client: Client, asked: Any) -> None:
    client.force_login(User.objects.create_superuser("root"))
    at = timezone.now()
    hook = Webhook.objects.create(
        name="ci", made_by="bert", host="https://ci.example", sealed_url="", sealed_secret="", made_at=at
    )
    Delivery.objects.create(webhook=hook, kind="test", body="{}", asked_by="bert", next_at=at, made_at=at)
    for number in range(2):  # the newest stands by itself, those before it in a list
        CanaryRun.objects.create(asked_by=f"asks-{number}", asked_at=at + timedelta(seconds=number))
    paths = {
        change_url("revision", 1): "anna",
        f"{LISTS}revision/": "anna",
        f"/admin/scheduler/webhooks/{hook.pk}/": "bert",
        "/admin/scheduler/doctor/": "asks-0",
    }
    for path, name in paths.items():
        assert link_to(name) in get(client, path).content.decode(), path
    assert link_to("asks-1") in get(client, "/admin/scheduler/doctor/").content.decode()
