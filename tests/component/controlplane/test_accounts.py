"""The pages of accounts and roles: who is added can sign in, words are Berth's, and who loses a role is named."""

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from tests.component.pages import get, text_of
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


def test_who_may_not_sign_in_any_more_stays_so(root: Client) -> None:
    ann = User.objects.create(username="ann", is_staff=True)
    fields = {"username": "ann", "date_joined_0": "2026-01-01", "date_joined_1": "00:00", "is_active": "on"}
    root.post(f"/admin/auth/user/{ann.pk}/change/", fields)
    ann.refresh_from_db()
    assert not ann.is_staff


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
