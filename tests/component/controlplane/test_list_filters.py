"""Filters in the URLs of the admin's lists: what can't be used is refused, and never shows rows that nobody asked for."""

import html

import pytest
from django.contrib.auth.models import User

from policies import publishing
from tests.component.pages import get, text_of
from tests.conftest import HTTPSClient

pytestmark = pytest.mark.django_db

CHANGES, ACCOUNTS = "/admin/policies/change/", "/admin/auth/user/"


@pytest.fixture
def root() -> User:
    return User.objects.create_superuser("root")


@pytest.fixture
def page(root: User) -> HTTPSClient:
    client = HTTPSClient()
    client.force_login(root)
    return client


@pytest.mark.parametrize(
    ("url", "named"),
    [
        (f"{CHANGES}?which=mien", "'which' that takes 'mien'"),
        ("/admin/policies/ruleset/?state=lvie", "'state' that takes 'lvie'"),
        ("/admin/policies/ruleset/?which=archvied", "'which' that takes 'archvied'"),
        ("/admin/policies/ruleset/?builtin=NodeNmae", "'builtin' that takes 'NodeNmae'"),
        (f"{ACCOUNTS}?is_active__exact=yes", "'is_active__exact' that takes 'yes'"),
        (f"{ACCOUNTS}?groups__id__exact=Auditor", "'groups__id__exact' that takes 'Auditor'"),
        ("/admin/policies/revision/?created_at__year=0", "'created_at__year' that takes '0'"),
        ("/admin/policies/revision/?created_at__year=9999", "'created_at__year' that takes '9999'"),
        (
            "/admin/policies/revision/?created_at__year=2026&created_at__month=2&created_at__day=30",
            "'created_at__day' that takes '30'",
        ),
    ],
)
def test_a_list_refuses_a_value_that_its_filter_does_not_have(page: HTTPSClient, url: str, named: str) -> None:
    answer = page.get(url)
    said = html.unescape(text_of(answer))
    assert (answer.status_code, "This list has no filter" in said, named in said) == (400, True, True), said


@pytest.mark.parametrize(
    "url", [f"{CHANGES}?which=", "/admin/policies/ruleset/?state=&owner=", f"{CHANGES}?which=mine"]
)
def test_a_list_takes_a_choice_that_it_has_and_none(page: HTTPSClient, url: str) -> None:
    assert get(page, url).status_code == 200


def test_a_page_that_is_gone_meanwhile_is_the_last_one_of_the_same_filter(page: HTTPSClient, root: User) -> None:
    for number in range(60):
        change = publishing.begin_change(title=f"number {number}", by=root)
        if number < 55:
            publishing.withdraw_change(change=change, by=root)
    answer = get(page, f"{CHANGES}?which=done&p=9")
    shown = answer.context["cl"]
    assert (shown.page_num, shown.result_count, len(shown.result_list)) == (2, 55, 5)
    assert {row.state for row in shown.result_list} == {"withdrawn"}
