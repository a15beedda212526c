"""The page of tokens: whose are shown to whom, the secret that is shown once, and revoking."""

import html
import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from controlplane.models import Token
from tests.component.pages import get, text_of
from tests.conftest import HTTPSClient
from tests.tokens import bearer, secret_of

pytestmark = pytest.mark.django_db

PAGE, MAKE = "/admin/tokens/", "/admin/tokens/make/"
WANTED = {"name": "ci", "scopes": ["read", "edit"], "days": "30", "rule_sets": "team-a-*, shared", "namespaces": ""}


@pytest.fixture
def root(db: None) -> HTTPSClient:
    client = HTTPSClient()
    client.force_login(User.objects.create(username="root", is_staff=True, is_superuser=True))
    return client


def shown_secret(answer: Any) -> str:
    found = re.search(r'id="token-secret"[^>]*>([^<]+)<', answer.content.decode())
    assert found is not None
    return html.unescape(found[1])


def test_a_token_is_made_for_who_asks_and_shown_once(operator: Client) -> None:
    assert "There are no tokens." in text_of(get(operator, PAGE))
    answer = operator.post(MAKE, WANTED)
    secret = shown_secret(answer)
    assert "no-store" in answer["Cache-Control"]
    assert HTTPSClient().get("/api/v1/rule-sets", headers=bearer(secret)).status_code == 200
    row = Token.objects.get()
    assert (row.owner.username, row.made_by, row.rule_sets) == ("operator", "operator", ["team-a-*", "shared"])
    page = get(operator, PAGE)
    assert secret.partition(".")[2] not in page.content.decode()
    assert "read, edit team-a-*, shared; no Assignments" in text_of(page)
    assert "testserver" not in row.last_used_from


def test_one_that_lets_somebody_in_is_shown_however_many_others_are_newer(
    operator: Client, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.token_pages._MOST_OVER", 2)
    for name in ("kept", "over-0", "over-1", "over-2"):
        secret_of(User.objects.get(username="operator"))
        Token.objects.filter(name__startswith="token ").update(name=name)
    Token.objects.filter(name__startswith="over").update(revoked_at=timezone.now(), revoked_by="operator")
    for client in (operator, root):
        said = text_of(get(client, PAGE))
        assert [name in said for name in ("kept", "over-0", "over-1", "over-2")] == [True, False, True, True]
        assert "Older tokens that have expired or were revoked aren't shown" in said
    operator.post(f"/admin/tokens/{Token.objects.get(name='kept').pk}/revoke/")
    assert "Older tokens" in text_of(get(operator, PAGE))
    Token.objects.filter(name__startswith="over").delete()
    assert "Older tokens" not in text_of(get(operator, PAGE))


def test_what_is_wrong_is_said_beside_the_form(operator: Client) -> None:
    answer = text_of(operator.post(MAKE, WANTED | {"days": "9000", "rule_sets": "a b"}))
    assert "A token lives from 1 to 366 days" in answer
    assert "'a b' is no pattern" in answer
    assert not Token.objects.exists()


def test_people_see_and_revoke_their_own_and_an_administrator_all(
    operator: Client, approver: Client, root: Client
) -> None:
    secret = secret_of(User.objects.get(username="operator"))
    row = Token.objects.get()
    assert row.prefix not in get(approver, PAGE).content.decode()
    assert approver.post(f"/admin/tokens/{row.pk}/revoke/").status_code == 404
    assert row.prefix in get(root, PAGE).content.decode()
    said = text_of(root.post(f"/admin/tokens/{row.pk}/revoke/", follow=True))
    assert f"The token {row} is revoked and no longer accepted." in said
    assert "revoked by root" in said
    assert HTTPSClient().get("/api/v1/rule-sets", headers=bearer(secret)).status_code == 401
    assert "was already revoked" in text_of(operator.post(f"/admin/tokens/{row.pk}/revoke/", follow=True))


def test_a_token_of_an_inactive_account_says_that_it_is_not_accepted(operator: Client, root: Client) -> None:
    secret_of(User.objects.get(username="operator"))
    inactive = "not accepted while the owner's account is inactive"
    assert inactive not in text_of(get(root, PAGE))
    User.objects.filter(username="operator").update(is_active=False)
    said = text_of(get(root, PAGE))
    assert inactive in said
    assert "Revoke" in said  # it counts again once the account is active


def test_the_way_to_it_is_in_everybodys_navigation(auditor: Client) -> None:
    assert f'href="{PAGE}"' in get(auditor, "/admin/").content.decode()
