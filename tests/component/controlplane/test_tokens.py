"""Tokens at REST's door and by their command: whom they let in, with which rights, until when, and what is kept of them."""

import io
import json
import logging
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from controlplane.models import Token
from controlplane.tokens import TokenError, make_token, revoke_token
from policies import publishing
from policies.models import AuditEvent
from policies.scopes import SCOPES
from tests.builders import make_rule_set
from tests.component.pages import publish
from tests.conftest import HTTPSClient
from tests.tokens import bearer, secret_of

pytestmark = pytest.mark.django_db

RULE_SETS = "/api/v1/rule-sets"
EVENTS = "/api/v1/events"


@pytest.fixture
def ann() -> User:
    user = User.objects.create_user("ann", is_staff=True)
    user.groups.add(Group.objects.get(name="Operator"))
    return user


def asked(secret: str, path: str = RULE_SETS, **more: Any) -> Any:
    return HTTPSClient().get(path, headers=bearer(secret), **more)


def test_a_token_reads_what_its_owner_may_read(ann: User) -> None:
    publish(make_rule_set())
    answer = asked(secret_of(ann, ["read"]))
    assert answer.status_code == 200
    assert [each["name"] for each in answer.json()["results"]] == ["web"]


@pytest.mark.parametrize("path", [RULE_SETS, "/api/v1/decisions", "/api/v1/pods/a/b", EVENTS, "/api/v1/backtests"])
def test_without_the_scope_read_nothing_is_read(ann: User, path: str) -> None:
    refused = asked(secret_of(ann, ["edit", "review", "publish"]), path)
    assert refused.status_code == 403
    assert "lacks the scope read, which each call needs" in refused.json()["detail"]


def test_a_token_has_no_right_that_its_owner_lacks() -> None:
    secret = secret_of(User.objects.create_user("nobody"))
    assert asked(secret).status_code == 403
    assert not any(asked(secret, "/api/v1/whoami").json()["may"].values())


def test_scopes_narrow_a_superuser_as_anybody() -> None:
    root = User.objects.create_superuser("root")
    assert asked(secret_of(root, ["edit"])).status_code == 403
    assert asked(secret_of(root, ["read"])).status_code == 200


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("Bearer berth_abcdefgh.nothing", "There is no such token"),
        ("Bearer ", "takes one token"),
        ("Bearer a b", "takes one token"),
        ("Bearer ümlaut", "takes one token"),
        ("Bearer " + "x" * 9000, "takes one token"),
    ],
)
def test_what_is_no_token_is_refused_with_a_sentence(header: str, says: str) -> None:
    answer = HTTPSClient().get(RULE_SETS, headers={"Authorization": header})
    assert answer.status_code == 401
    assert says in answer.json()["detail"]
    assert answer["WWW-Authenticate"].startswith('Bearer realm="Berth", error="invalid_token"')


def test_who_shows_nothing_is_asked_for_a_token(client: Client) -> None:
    answer = client.get(RULE_SETS)
    assert (answer.status_code, answer["WWW-Authenticate"]) == (401, 'Bearer realm="Berth"')


def test_half_a_secret_lets_nobody_in(ann: User) -> None:
    secret = secret_of(ann)
    assert asked(secret[:-1]).status_code == 401
    assert asked(secret.partition(".")[0] + "." + "x" * 32).status_code == 401


def test_a_wrong_token_is_not_made_good_by_a_session(ann: User) -> None:
    browser = HTTPSClient()
    browser.force_login(ann)
    assert browser.get(RULE_SETS).status_code == 200
    assert browser.get(RULE_SETS, headers=bearer("berth_abcdefgh.nothing")).status_code == 401


def test_revoked_it_is_refused_from_the_next_request_on(ann: User) -> None:
    secret = secret_of(ann)
    assert asked(secret).status_code == 200
    token = Token.objects.get()
    assert revoke_token(token=token, by="ops", now=timezone.now())
    assert not revoke_token(token=token, by="ops", now=timezone.now())
    answer = asked(secret)
    assert answer.status_code == 401
    assert f"The token {token} was revoked at" in answer.json()["detail"]


def test_expired_it_is_refused(ann: User) -> None:
    secret = secret_of(ann)
    Token.objects.update(expires_at=timezone.now())
    assert asked(secret).status_code == 401
    assert "has expired" in asked(secret).json()["detail"]


def test_it_ends_with_its_owners_account_and_rests_while_that_is_inactive(ann: User) -> None:
    secret = secret_of(ann)
    User.objects.update(is_active=False)
    assert "whose account is inactive" in asked(secret).json()["detail"]
    User.objects.update(is_active=True)
    assert asked(secret).status_code == 200
    ann.groups.clear()
    assert asked(secret).status_code == 403
    ann.delete()
    assert asked(secret).status_code == 401
    assert not Token.objects.exists()


def test_refused_use_is_written_down_once_a_minute_and_what_nobody_has_never_is(ann: User) -> None:
    secret = secret_of(ann)
    revoke_token(token=Token.objects.get(), by="ops", now=timezone.now())
    for _ in range(3):
        asked(secret)
        asked("berth_abcdefgh.nothing")
    (event,) = AuditEvent.objects.filter(kind="token.refuse")
    assert (event.by, event.door, event.thing_kind) == ("ann", "rest", "Token")
    assert "was revoked at" in publishing.said_by(event).more["why"]
    assert publishing.is_as_written(event)


def test_its_last_use_is_kept_and_written_seldom(ann: User) -> None:
    secret = secret_of(ann)
    asked(secret, REMOTE_ADDR="10.0.0.7")
    first = Token.objects.get()
    assert first.last_used_from == "10.0.0.7"
    asked(secret, REMOTE_ADDR="10.0.0.8")
    assert Token.objects.get().last_used_at == first.last_used_at
    assert first.last_used_at is not None
    Token.objects.update(last_used_at=first.last_used_at - timedelta(minutes=2))
    asked(secret, REMOTE_ADDR="10.0.0.8")
    assert Token.objects.get().last_used_from == "10.0.0.8"


def test_a_post_by_a_token_needs_no_csrf_and_one_by_a_session_does(ann: User) -> None:
    document = {"apiVersion": "berth/v1", "kind": "RuleSet", "metadata": {"name": "web"}, "spec": {}}
    browser = HTTPSClient(enforce_csrf_checks=True)
    said = {"data": json.dumps(document), "content_type": "application/json"}
    assert browser.post("/api/v1/validate", headers=bearer(secret_of(ann)), **said).status_code == 200
    browser.force_login(ann)
    answer = browser.post("/api/v1/validate", **said)
    assert (answer.status_code, "CSRF" in answer.json()["detail"]) == (403, True)


def test_a_token_opens_no_page_of_the_admin(ann: User) -> None:
    answer = HTTPSClient().get("/admin/", headers=bearer(secret_of(ann)))
    assert (answer.status_code, answer["Location"].partition("?")[0]) == (302, "/admin/login/")


def test_all_tokens_of_an_account_together_may_ask_so_often_in_a_minute(
    ann: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, token_requests_per_minute=2))
    cache.clear()
    monkeypatch.setattr("controlplane.bearer.TokenThrottle.timer", lambda _: 1000.0)  # within one minute
    one, other = secret_of(ann), secret_of(ann)
    assert [asked(secret).status_code for secret in (one, other, one, other)] == [200, 200, 429, 429]
    somebody_else = User.objects.create_user("ben")
    somebody_else.groups.add(Group.objects.get(name="Operator"))
    assert asked(secret_of(somebody_else)).status_code == 200
    browser = HTTPSClient()
    browser.force_login(ann)
    assert {browser.get(RULE_SETS).status_code for _ in range(4)} == {200}


def test_the_secret_is_nowhere_but_with_who_made_it(ann: User, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = secret_of(ann)
    asked(secret)
    asked(secret + "x")
    revoke_token(token=Token.objects.get(), by="ops", now=timezone.now())
    asked(secret)
    behind = secret.partition(".")[2]
    for table in connection.introspection.table_names():
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
            for row in cursor.fetchall():
                texts = [bytes(each).decode(errors="replace") if isinstance(each, bytes | memoryview) else str(each) for each in row]  # fmt: skip
                assert not any(behind in text for text in texts), table
    logged = "".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)
    assert "was refused" in logged
    assert behind not in logged


def made(**options: Any) -> str:
    out = io.StringIO()
    call_command("token", "create", stdout=out, stderr=io.StringIO(), owner="ann", scopes="read,edit", **options)
    return out.getvalue()


def listed(*arguments: str) -> Any:
    out = io.StringIO()
    call_command("token", *arguments, "--output", "json", stdout=out, stderr=io.StringIO())
    return json.loads(out.getvalue())


def test_the_command_prints_the_secret_alone_and_lists_what_it_made(ann: User) -> None:
    secret = made(name="ci", days=7, rule_sets="team-a-*", namespaces="team-a,team-a-*").strip()
    assert secret.startswith("berth_")
    assert asked(secret).status_code == 200
    (told,) = listed("list", "--owner", "ann")["tokens"]
    assert (told["name"], told["state"], told["scopes"]) == ("ci", "active", ["read", "edit"])
    assert (told["rule_sets"], told["namespaces"]) == (["team-a-*"], ["team-a", "team-a-*"])
    event = AuditEvent.objects.get(kind="token.make")
    assert (event.thing_name, event.door) == (f"ci ({told['prefix']})", "command")
    out = io.StringIO()
    call_command("token", "list", stdout=out)
    assert "ci  active  read,edit  rule sets team-a-*  namespaces team-a,team-a-*  until" in out.getvalue()
    assert listed("revoke", told["prefix"])["token"]["state"] == "revoked"
    assert asked(secret).status_code == 401
    revoked = AuditEvent.objects.get(kind="token.revoke", thing_name=event.thing_name)
    assert (event.before, revoked.before, revoked.after) == ("", event.after, "")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"owner": "bob"}, "There is no account bob"),
        ({"scopes": "read,write"}, "of read, edit, review, publish"),
        ({"scopes": ""}, "A token needs one scope or more, of read, edit, review, publish"),
        ({"days": 0}, "lives from 1 to 366 days"),
        ({"days": 367}, "BERTH_TOKEN_MAX_DAYS"),
        ({"rule_sets": "team a"}, "'team a' is no pattern"),
        ({"rule_sets": ""}, "--rule-sets names no pattern: leave it out"),
        ({"namespaces": " ,"}, "--namespaces names no pattern"),
        ({"name": "x" * 51}, "a name of 1 to 50 characters"),
        ({"name": "ci\x1b[2J"}, "a name of 1 to 50 characters"),
    ],
)
def test_what_cannot_be_made_is_said_and_nothing_is_made(ann: User, options: dict[str, Any], says: str) -> None:
    with pytest.raises(CommandError, match=says):
        call_command("token", "create", **{"owner": "ann", "scopes": "read", **options})
    assert not Token.objects.exists()


def test_a_name_is_one_tokens_of_an_owner_until_that_is_over(ann: User) -> None:
    fields: dict[str, Any] = {"name": "ci", "owner": ann, "scopes": SCOPES, "days": 1, "by": ann}
    first, _ = make_token(**fields, now=timezone.now())
    with pytest.raises(TokenError, match="has a token ci already"):
        make_token(**fields, now=timezone.now())
    make_token(**fields, now=timezone.now() + timedelta(days=2))
    first.refresh_from_db()
    assert first.revoked_by == "ann"


def test_an_account_has_so_many_active_tokens_and_may_make_another_once_one_is_over(
    ann: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.tokens.MOST_ACTIVE", 2)
    now = timezone.now()

    def make(name: str, owner: User = ann, days: int = 9) -> Token:
        return make_token(name=name, owner=owner, scopes=["read"], days=days, by=owner, now=now)[0]

    first, _ = make("a"), make("b", days=1)
    with pytest.raises(TokenError, match="ann has 2 active tokens, the most of an account"):
        make("c")
    make("c", owner=User.objects.create_user("bob"))
    revoke_token(token=first, by=ann, now=now)
    make("c")
    now += timedelta(days=2)
    make("d")


def test_there_is_no_token_to_revoke_that_was_never_made(ann: User) -> None:
    with pytest.raises(
        CommandError, match="No token is called abcdefgh: give the 8 characters that `token list` shows"
    ):
        call_command("token", "revoke", "abcdefgh")


def test_a_beginning_that_is_too_short_revokes_nothing_and_how_much_is_wanted_is_said(ann: User) -> None:
    prefix = secret_of(ann).removeprefix("berth_")[:8]
    with pytest.raises(CommandError, match=f"No token is called {prefix[:4]}: give the 8 characters"):
        call_command("token", "revoke", prefix[:4])
    call_command("token", "revoke", prefix)


def test_an_account_as_a_token_shows_it_acts_for_nobody_by_itself(ann: User) -> None:
    from controlplane.tokens import caller_of

    caller = caller_of(secret_of(ann, rule_sets=["a-*"]), now=timezone.now())
    with pytest.raises(TypeError, match="acts by a token here"):
        publishing.actor_of(caller.holder)
    assert publishing.actor_of(caller.acts).name == "ann"
