"""The pages of accounts and roles: who is added can sign in, words are Berth's, and who loses a role is named."""

import threading
from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.db.models.signals import post_save
from django.test import Client
from django.utils import timezone

from policies.models import AuditEvent
from policies.origin import system_user
from policies.publishing.locks import Lock
from tests.component.pages import form_data, get, text_of
from tests.component.threads import at_once
from tests.conftest import HTTPSClient

pytestmark = pytest.mark.django_db
PASSWORD = "a long and unlikely sentence"


@pytest.fixture
def root() -> HTTPSClient:
    """Who manages accounts."""
    client = HTTPSClient()
    client.force_login(User.objects.create(username="root", is_staff=True, is_superuser=True))
    return client


def test_an_account_that_is_added_can_sign_in(root: Client, client: Client) -> None:
    fields = {"username": "bob", "usable_password": "true", "password1": PASSWORD, "password2": PASSWORD}
    root.post("/admin/auth/user/add/", fields)
    client.post("/admin/login/?next=/admin/", {"username": "bob", "password": PASSWORD})
    assert "Your account has no role yet" in text_of(get(client, "/admin/"))


def test_an_account_gets_its_roles_on_the_page_that_adds_it(root: Client) -> None:
    auditor = Group.objects.get(name="Auditor")
    page = text_of(get(root, "/admin/auth/user/add/"))
    assert "Roles" in page
    assert "Without a role it sees nothing." in page
    assert "edit more user options" not in page
    fields = {"username": "bob", "usable_password": "true", "password1": PASSWORD, "password2": PASSWORD}
    root.post("/admin/auth/user/add/", {**fields, "groups": [auditor.pk]})
    assert list(User.objects.get(username="bob").groups.all()) == [auditor]
    kinds = set(AuditEvent.objects.filter(thing_name="bob").values_list("kind", flat=True))
    assert kinds == {"account.make", "account.change"}, "the second names the role"


def test_its_page_says_that_rights_of_its_own_come_on_top_of_those_of_its_roles(root: Client) -> None:
    page = get(root, f"/admin/auth/user/{User.objects.get().pk}/change/")
    assert "Rights of its own" in text_of(page)
    assert 'data-field-name="roles"' in page.content.decode()
    assert 'data-field-name="rights"' in page.content.decode()


def test_who_may_not_sign_in_any_more_stays_so(root: Client) -> None:
    ann = User.objects.create(username="ann", is_staff=True)
    page = f"/admin/auth/user/{ann.pk}/change/"
    fields = {"username": "ann", "is_active": "on"}
    assert "Somebody else saved this page" in text_of(root.post(page, fields)), "who sent it has seen no page"
    root.post(page, fields | {"seen": form_data(get(root, page))["seen"]})
    ann.refresh_from_db()
    assert not ann.is_staff


def test_who_may_not_sign_in_any_more_is_signed_out_of_pages_and_of_rest(operator: Client) -> None:
    assert operator.get("/api/v1/rule-sets").status_code == 200
    User.objects.filter(username="operator").update(is_staff=False)
    assert operator.get("/api/v1/rule-sets").status_code == 401
    assert operator.post("/api/v1/changes", {"title": "t"}, "application/json").status_code == 401
    assert operator.get("/admin/profile/").status_code == 302


@pytest.mark.parametrize("right", ["is_active", "is_staff"])
def test_a_session_that_ended_with_its_account_stays_so_when_the_account_is_let_in_again(
    operator: Client, right: str
) -> None:
    account = User.objects.get(username="operator")
    for may in (False, True):
        setattr(account, right, may)
        account.save()
    assert operator.get("/admin/profile/").status_code == 302
    assert operator.get("/api/v1/rule-sets").status_code == 401
    event = AuditEvent.objects.get(kind="session.end")
    assert (event.by, event.thing_name) == (system_user(), "operator")


def test_its_page_speaks_of_roles_and_of_signing_in(root: Client) -> None:
    text = text_of(get(root, f"/admin/auth/user/{User.objects.get().pk}/change/"))
    assert "May sign in" in text
    assert "Roles" in text
    assert "Staff status" not in text
    assert "The groups this user belongs to" not in text


def test_the_list_is_narrowed_by_roles_as_its_column_is_called(root: Client) -> None:
    cleo = User.objects.create(username="cleo")
    cleo.groups.add(Group.objects.get(name="Auditor"))
    page = "/admin/auth/user/"
    assert "By roles" in text_of(get(root, page))
    assert "groups" not in text_of(get(root, page))
    narrowed = get(root, f"{page}?groups__id__exact={Group.objects.get(name='Auditor').pk}")
    assert [row.username for row in narrowed.context["cl"].result_list] == ["cleo"]


def test_who_would_lose_a_role_is_named_before_it_is_deleted(root: Client) -> None:
    role = Group.objects.get(name="Auditor")
    page = f"/admin/auth/group/{role.pk}/delete/"
    assert "Role Auditor, which nobody has" in text_of(get(root, page))
    for name in ("cleo", "anna"):
        User.objects.create(username=name).groups.add(role)
    text = text_of(get(root, page))
    assert "Role Auditor, taken from anna, cleo" in text
    assert "relationship" not in text
    root.post(page, {"post": "yes"})
    assert not Group.objects.filter(name="Auditor").exists()


def test_an_old_page_does_not_give_back_what_a_colleague_took(root: Client) -> None:
    ann = User.objects.create(username="ann", is_staff=True)
    ann.groups.add(Group.objects.get(name="Approver"))
    page = f"/admin/auth/user/{ann.pk}/change/"
    old = form_data(get(root, page))
    User.objects.filter(pk=ann.pk).update(last_login=timezone.now())
    assert root.post(page, {**old, "email": "a@example.org"}).status_code == 302, "a sign-in is no edit"
    old = form_data(get(root, page))
    ann.groups.clear()
    User.objects.filter(pk=ann.pk).update(is_active=False)
    said = root.post(page, {**old, "email": "ann@example.org"})
    assert "Somebody else saved this page since you opened it." in text_of(said)
    assert "ann@example.org" in said.content.decode()
    ann.refresh_from_db()
    assert (ann.is_active, ann.groups.count()) == (False, 0)


def test_saving_an_account_changes_neither_its_last_sign_in_nor_since_when_it_exists(root: Client) -> None:
    ann = User.objects.create(username="ann", is_staff=True)
    page = f"/admin/auth/user/{ann.pk}/change/"
    old = form_data(get(root, page))
    assert not {name for name in old if name.startswith(("last_login", "date_joined"))}, "nobody writes them by hand"
    signed_in = timezone.now()
    User.objects.filter(pk=ann.pk).update(last_login=signed_in)
    typed = {
        "last_login_0": "2020-01-01",
        "last_login_1": "00:00",
        "date_joined_0": "2020-01-01",
        "date_joined_1": "00:00",
    }
    assert root.post(page, {**old, **typed, "email": "a@example.org"}).status_code == 302
    saved = User.objects.get(pk=ann.pk)
    assert (saved.email, saved.last_login, saved.date_joined) == ("a@example.org", signed_in, ann.date_joined)


@pytest.mark.parametrize("right", ["is_superuser", "is_staff", "is_active"])
def test_the_last_superuser_stays_one(root: Client, right: str) -> None:
    User.objects.create(username="gone", is_staff=True, is_superuser=True, is_active=False)
    account = User.objects.get(username="root")
    page = f"/admin/auth/user/{account.pk}/change/"
    fields = form_data(get(root, page))
    without = {name: value for name, value in fields.items() if name != right}
    assert "This is the only superuser who may sign in." in text_of(root.post(page, without))
    account.refresh_from_db()
    assert getattr(account, right)
    User.objects.create(username="ann", is_staff=True, is_superuser=True)
    assert root.post(page, without).status_code == 302


def test_only_a_superuser_who_loses_rights_is_saved_one_after_the_other(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Lock] = []
    monkeypatch.setattr("policies.publishing.locks.take", taken.append)
    for name, is_superuser in (("ann", False), ("bea", True)):
        account = User.objects.create(username=name, is_staff=True, is_superuser=is_superuser)
        page = f"/admin/auth/user/{account.pk}/change/"
        fields = form_data(get(root, page))
        del fields["is_staff"]
        assert root.post(page, fields).status_code == 302
        assert taken == ([Lock.SUPERUSERS] if is_superuser else [])


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer")
def test_of_the_last_two_superusers_who_are_saved_at_once_one_stays(root: Client) -> None:
    User.objects.create(username="ann", is_staff=True, is_superuser=True)
    keeper = User.objects.create(username="keeper", is_staff=True)
    keeper.user_permissions.add(Permission.objects.get(codename="change_user"))
    posts = []
    for account in User.objects.filter(is_superuser=True):
        page = f"/admin/auth/user/{account.pk}/change/"
        fields = form_data(get(root, page))
        posts.append((page, {name: value for name, value in fields.items() if name != "is_superuser"}))
    checked = threading.Barrier(2)

    def meet(*_: Any, **__: Any) -> None:
        with suppress(threading.BrokenBarrierError):
            checked.wait(2)

    def save(index: int) -> int:
        client = HTTPSClient()
        client.force_login(keeper)
        return client.post(*posts[index]).status_code

    # Each waits for the other between its check and its commit, if that one gets so far.
    post_save.connect(meet, sender=User)
    try:
        assert sorted(at_once(2, save)) == [200, 302]
    finally:
        post_save.disconnect(meet, sender=User)
    assert User.objects.filter(is_superuser=True).count() == 1


def test_an_old_page_of_a_role_does_not_give_back_a_permission(root: Client) -> None:
    role = Group.objects.get(name="Approver")
    page = f"/admin/auth/group/{role.pk}/change/"
    old = form_data(get(root, page))
    role.permissions.remove(role.permissions.get(codename="lift_legalhold"))
    assert "Somebody else saved this page" in text_of(root.post(page, {**old, "name": "Renamed"}))
    assert not role.permissions.filter(codename="lift_legalhold").exists()
    assert root.post(page, {**form_data(get(root, page)), "name": "Renamed"}).status_code == 302


@pytest.mark.parametrize("model", [User, Group])
def test_the_page_holds_what_it_showed_for_those_who_change_it_only(root: Client, model: type[User | Group]) -> None:
    kind = model.__name__.lower()
    page = f"/admin/auth/{kind}/{model._default_manager.earliest('pk').pk}/change/"
    shown = get(root, page)
    assert '<input type="hidden" name="seen"' in shown.content.decode()
    assert "Seen" not in text_of(shown)
    reader = HTTPSClient()
    account = User.objects.create(username="reader", is_staff=True)
    account.user_permissions.add(Permission.objects.get(codename=f"view_{kind}"))
    reader.force_login(account)
    assert 'name="seen"' not in get(reader, page).content.decode()


@pytest.mark.parametrize("whose", ["another's", "one's own"])
def test_who_is_deactivated_while_a_password_is_set_stays_so(
    root: Client, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """Hashing takes a third of a second; whoever is meant was read before."""
    user = User.objects.get(username="root") if whose == "one's own" else User.objects.create(username="ann")
    user.set_password(PASSWORD)
    user.save()
    root.force_login(User.objects.get(username="root"))
    set_password = User.set_password

    def set_slowly(account: User, raw_password: str) -> None:
        User.objects.filter(pk=account.pk).update(is_active=False)
        set_password(account, raw_password)

    monkeypatch.setattr(User, "set_password", set_slowly)
    new = "another long and unlikely sentence"
    if whose == "one's own":
        fields = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
        root.post("/admin/password_change/", fields)
    else:
        fields = {"password1": new, "password2": new, "usable_password": "true", "set-password": "set"}
        root.post(f"/admin/auth/user/{user.pk}/password/", fields)
    user.refresh_from_db()
    assert user.check_password(new)
    assert not user.is_active
    kinds = list(AuditEvent.objects.filter(thing_name=user.username).values_list("kind", flat=True))
    assert (kinds.count("account.password"), kinds.count("account.change")) == (2, 0)
