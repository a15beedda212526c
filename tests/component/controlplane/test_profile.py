"""The page of oneself: what one may do, from where one is signed in, and ending that."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from controlplane.models import Identity, Session
from policies.models import AuditEvent
from policies.publishing import lifecycle
from policies.publishing.actors import actor_of
from tests.component.pages import get, text_of
from tests.conftest import HTTPSClient
from tests.tokens import secret_of

pytestmark = pytest.mark.django_db

PAGE = "/admin/profile/"
PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def _fast(settings: Any) -> None:
    # Many sign in: nothing here is about how passwords are kept.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def ann() -> User:
    account = User.objects.create_user("ann", password=PASSWORD, is_staff=True)
    account.groups.add(Group.objects.get(name="Approver"))
    return account


def signed_in(name: str = "ann", *, address: str, agent: str = "Firefox/140") -> HTTPSClient:
    client = HTTPSClient()
    client.post(
        "/admin/login/",
        {"username": name, "password": PASSWORD},
        REMOTE_ADDR=address,
        headers={"User-Agent": agent},
    )
    return client


def buttons(page: Any) -> list[str]:
    return re.findall(r'action="(/admin/profile/[^"]+/end/)"', page.content.decode())


def test_sessions_are_shown_with_where_they_came_from_and_never_their_keys(ann: User) -> None:
    first, second = signed_in(address="10.0.0.1"), signed_in(address="10.0.0.2", agent="curl/8")
    page = get(second, PAGE)
    said = text_of(page)
    assert "10.0.0.1 Firefox/140" in said
    assert "10.0.0.2 curl/8" in said
    assert [each.is_this for each in page.context["sessions"]] == [True, False]
    assert [each.address for each in page.context["sessions"]] == ["10.0.0.2", "10.0.0.1"]
    for key in Session.objects.values_list("pk", flat=True):
        assert key not in page.content.decode()
    assert get(first, PAGE).status_code == 200


def test_a_session_that_is_ended_lets_nobody_in_and_is_written_down(ann: User) -> None:
    lost, mine = signed_in(address="10.0.0.1"), signed_in(address="10.0.0.2")
    (end,) = buttons(get(mine, PAGE))
    assert "1 session is ended" in text_of(mine.post(end, follow=True))
    assert lost.get(PAGE).status_code == 302
    assert get(mine, PAGE).status_code == 200
    event = AuditEvent.objects.get(kind="session.end")
    assert (event.by, event.thing_name) == ("ann", "ann")
    assert "There was no other session to end." in text_of(mine.post(end, follow=True))
    assert AuditEvent.objects.filter(kind="session.end").count() == 1


def test_all_others_end_by_one_button_and_this_one_stays(ann: User) -> None:
    others = [signed_in(address=f"10.0.0.{number}") for number in range(3)]
    mine = signed_in(address="10.0.0.9")
    assert "3 sessions are ended" in text_of(mine.post("/admin/profile/end-others/", follow=True))
    assert [client.get(PAGE).status_code for client in (*others, mine)] == [302, 302, 302, 200]


def test_nobody_ends_the_session_of_somebody_else(ann: User, operator: Client) -> None:
    theirs, mine = signed_in(address="10.0.0.1"), signed_in(address="10.0.0.2")
    (end,) = buttons(get(mine, PAGE))
    operator.post(end)
    operator.post("/admin/profile/end-others/")
    assert (theirs.get(PAGE).status_code, mine.get(PAGE).status_code) == (200, 200)
    assert operator.get(end).status_code == 405


def test_a_new_password_ends_the_others_on_the_page_too(ann: User) -> None:
    lost, mine = signed_in(address="10.0.0.1"), signed_in(address="10.0.0.2")
    new = "another horse battery"
    mine.post(
        "/admin/password_change/", {"old_password": PASSWORD, "new_password1": new, "new_password2": new}, follow=True
    )
    assert [each.address for each in get(mine, PAGE).context["sessions"]] == ["10.0.0.2"]
    assert lost.get(PAGE).status_code == 302


def test_roles_are_said_in_words_and_sign_ins_with_their_addresses(ann: User) -> None:
    HTTPSClient().post("/admin/login/", {"username": "ann", "password": "wrong"}, REMOTE_ADDR="192.0.2.66")
    said = text_of(get(signed_in(address="10.0.0.1"), PAGE))
    assert (
        "Approver see rule sets, Assignments, Changes, Revisions, Decisions and who did what approve and reject" in said
    )
    assert "edit rule sets" not in said
    assert "✗ failed to sign in 192.0.2.66" in said
    assert "✓ signed in 10.0.0.1" in said


@pytest.mark.parametrize("role", ["Auditor", "Operator", "Approver", "Emergency"])
def test_each_right_of_a_role_has_words(role: str) -> None:
    from controlplane.roles import ROLES, words_of

    # Rights of one kind are said once, by the first of them.
    edits = re.compile(r"(add|change|delete)_(ruleset|rulesetversion|rule|assignment|priorityclass)")
    assert [name for name in ROLES[role] if not edits.fullmatch(name) and not words_of({name})] == []


@pytest.mark.parametrize("role", ["Operator", "Approver", "Emergency"])
def test_a_role_is_said_to_withdraw_changes_where_it_may(role: str) -> None:
    from controlplane.roles import ROLES, words_of

    somebody = User.objects.create_user("somebody")
    somebody.groups.add(Group.objects.get(name=role))
    may = not lifecycle.lack_of_permission("withdraw", actor_of(somebody))
    assert may == (role == "Operator") == any("withdraw" in words for words in words_of(ROLES[role]))


def test_who_gets_the_name_of_another_account_reads_nothing_of_its_sign_ins(ann: User) -> None:
    signed_in(address="10.0.0.1")
    ann.username = "ann-before"
    ann.save()
    User.objects.create_user("ann", password=PASSWORD, is_staff=True)
    said = text_of(get(signed_in(address="10.0.0.2"), PAGE))
    assert "✓ signed in 10.0.0.2" in said
    assert "10.0.0.1" not in said


def test_an_account_without_a_role_reads_who_gives_them() -> None:
    User.objects.create_user("new", password=PASSWORD, is_staff=True)
    assert "An administrator can assign roles" in text_of(get(signed_in("new", address="10.0.0.1"), PAGE))


def test_an_account_of_a_provider_has_no_password_here(operator: Client, settings: Any) -> None:
    settings.AUTHENTICATION_BACKENDS = [*settings.AUTHENTICATION_BACKENDS, "controlplane.provider.Provider"]
    user = User.objects.get(username="operator")
    user.set_unusable_password()
    user.save()
    Identity.objects.create(user=user, issuer="https://id.example.org", subject="1")
    operator.force_login(user, backend="controlplane.provider.Provider")
    page = get(operator, PAGE)
    assert "Berth has none for you: change it at your sign-in provider." in text_of(page)
    assert "https://id.example.org" in text_of(page)


def test_it_counts_tokens_and_is_in_the_menu_of_each_page(operator: Client) -> None:
    assert "No token lets a program act for you." in text_of(get(operator, PAGE))
    secret_of(User.objects.get(username="operator"))
    assert "1 lets programs act for you." in text_of(get(operator, PAGE))
    assert get(operator, "/admin/").content.decode().count(f'href="{PAGE}"') >= 2


def test_sessions_that_are_over_are_forgotten_when_somebody_signs_in(ann: User) -> None:
    signed_in(address="10.0.0.1")
    Session.objects.update(expire_date=timezone.now())
    signed_in(address="10.0.0.2")
    assert Session.objects.filter(user=ann).count() == 1
