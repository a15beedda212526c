"""The inbox as each account sees its own, its count in the navigation, and what the first page says of it."""

import html
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from policies import publishing
from scheduler.models import InboxEntry, Notice
from scheduler.notices.inbox import MOST_COUNTED, unread_count
from tests.builders import make_rule_set
from tests.component.pages import get, text_of
from tests.component.policies.people import person
from tests.component.policies.test_changes import A, do, opened
from tests.conftest import HTTPSClient

pytestmark = pytest.mark.django_db
INBOX, READ, UNREAD = "/admin/scheduler/inbox/", "/admin/scheduler/inbox/read/", "/admin/scheduler/inbox/unread/"


@pytest.fixture
def carol(db: None) -> User:
    return person("carol", "Approver")


@pytest.fixture
def page(carol: User) -> Client:
    User.objects.filter(pk=carol.pk).update(is_staff=True)
    client = HTTPSClient()
    client.force_login(carol)
    return client


def told(user: User, *numbers: int, **fields: Any) -> None:
    values = {"at": timezone.now(), "kind": "rejected", "sentence": "said", "link": "/admin/"} | fields
    for number in numbers:
        notice = Notice.objects.create(number=number, **values)
        InboxEntry.objects.create(notice=notice, user=user)


def shown(client: Client, query: str = "") -> list[int]:
    return [each["row"].notice_id for each in get(client, INBOX + query).context["rows"]]


def test_an_empty_inbox_says_what_will_come(page: Client) -> None:
    said = text_of(get(page, INBOX))
    assert "Your inbox is empty" in said
    assert "lost Decisions" in said


def test_the_newest_stands_first_with_why_and_a_way_to_it(page: Client, carol: User) -> None:
    told(
        carol, 1, sentence="bob rejected Change 7 (<b>x</b>)", text="too wide", link="/admin/policies/change/7/change/"
    )
    told(carol, 2, kind="drift", sentence="PriorityClass batch is drifted")
    answer = get(page, INBOX)
    said = text_of(answer)
    assert said.index("batch is drifted") < said.index("bob rejected Change 7 (<b>x</b>)")
    assert "too wide" in said
    assert 'href="/admin/policies/change/7/change/"' in answer.content.decode()
    assert "<b>x</b>" not in answer.content.decode()


def test_it_is_narrowed_to_a_kind_and_to_what_is_unread(page: Client, carol: User) -> None:
    told(carol, 1, 2)
    told(carol, 3, kind="drift")
    page.post(READ, {"number": "2"})
    assert shown(page, "?kind=drift") == [3]
    assert shown(page, "?unread=1") == [3, 1]
    assert "None of your Notices matches these filters" in text_of(get(page, f"{INBOX}?kind=paused"))


def test_a_kind_that_there_is_none_of_is_refused_with_those_that_there_are(page: Client, carol: User) -> None:
    told(carol, 1)
    answer = page.get(f"{INBOX}?kind=nonsense")
    assert (answer.status_code, answer.context["rows"]) == (400, [])
    assert "'nonsense' is none of review-asked, approved, " in html.unescape(text_of(answer))


@pytest.mark.parametrize("asked", ["?knd=drift", "?unread=true", "?before=abc", "?kind=drift&unred=1"])
def test_what_is_no_filter_of_the_inbox_is_refused_and_shows_no_notices(page: Client, carol: User, asked: str) -> None:
    told(carol, 1)
    answer = page.get(INBOX + asked)
    assert (answer.status_code, answer.context["rows"]) == (400, [])
    assert "Not a valid search" in text_of(answer)


def test_marking_is_by_post_and_of_ones_own_entries_alone(page: Client, carol: User) -> None:
    other = person("eve", "Approver")
    told(carol, 1, 2)
    told(other, 3)
    assert page.get(READ).status_code == 405
    page.post(READ, {"number": ["1", "3", "x", "9" * 30]})
    assert (unread_count(carol), unread_count(other)) == (1, 1)
    page.post(UNREAD, {"number": "1"})
    assert unread_count(carol) == 2


def test_all_are_marked_up_to_what_the_page_showed(page: Client, carol: User) -> None:
    told(carol, 1, 2)
    newest = get(page, INBOX).context["newest"]
    told(carol, 3)
    answer = page.post(READ, {"until": newest, "back": f"{INBOX}?unread=1"})
    assert answer["Location"] == f"{INBOX}?unread=1"
    assert shown(page, "?unread=1") == [3], "it came while the page stood open"


def test_a_button_leads_back_to_the_inbox_and_nowhere_else(page: Client, carol: User) -> None:
    for back in ("https://evil.example/", "//evil.example", f"{INBOX}../../evil", ""):
        assert page.post(READ, {"number": "1", "back": back})["Location"] == INBOX


def test_pages_are_asked_for_by_number_and_their_queries_dont_grow(page: Client, carol: User) -> None:
    told(carol, 1)
    with CaptureQueriesContext(connection) as few:
        shown(page)
    told(carol, *range(2, 121))
    with CaptureQueriesContext(connection) as many:
        first = shown(page)
    assert len(many) == len(few)
    second = shown(page, f"?before={first[-1]}")
    third = shown(page, f"?before={second[-1]}")
    assert first + second + third == list(range(120, 0, -1))


def test_the_navigation_counts_what_is_unread_up_to_many(page: Client, carol: User) -> None:
    assert "badge" not in _item(page)
    told(carol, 1, 2)
    assert _item(page)["badge"] == "2"
    told(carol, *range(3, MOST_COUNTED + 4))
    assert _item(page)["badge"] == "99+"


def test_who_has_no_role_any_more_reads_no_notices(page: Client, carol: User) -> None:
    told(carol, 1, sentence="bob rejected Change 7", text="too wide")
    carol.groups.clear()
    assert (shown(page), "badge" in _item(page)) == ([], False)
    assert "too wide" not in text_of(get(page, INBOX))


def _item(client: Client) -> dict[str, Any]:
    groups = get(client, INBOX).context["sidebar_navigation"]
    return next(item for group in groups for item in group["items"] if item["title"] == "Inbox")


def test_the_first_page_and_the_inbox_say_what_waits_for_ones_review(page: Client, carol: User) -> None:
    change = opened(make_rule_set("web", **A), title="Cap web")
    do(change, publishing.submit_change, "ops")
    publishing.ask_for_review(change=change, by="ops", whom="carol")
    told(carol, 1, sentence="somebody asked carol")
    for url in ("/admin/", INBOX):
        said = text_of(get(page, url))
        assert "Waits for your review" in said
        assert "Cap web" in said
        assert "somebody asked carol" in said
    page.post(READ, {"number": "1"})
    assert "somebody asked carol" not in text_of(get(page, "/admin/"))
