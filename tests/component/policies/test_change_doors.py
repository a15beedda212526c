"""Each act of each role in each state through each door: the same answer, the one of the reviewed table."""

import io
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from policies import publishing
from policies.models import Change, ChangeEvent, GateRun
from tests.builders import make_rule_set
from tests.component.policies.test_changes import A, do, opened
from tests.component.rest.asking import act_on_change
from tests.conftest import HTTPSClient
from tests.unit.policies.publishing.test_lifecycle import ACTS, STATES, TABLE

pytestmark = pytest.mark.django_db

GROUPS = {
    "outsider": (),
    "viewer": ("Auditor",),
    "operator": ("Operator",),
    "author": ("Operator",),
    "approver": ("Approver",),
    "administrator": ("Operator", "Approver"),
    "emergency": ("Emergency",),
}
# An edit that every door can make: when it goes back is a part of what a Change makes.
NAMED = {"edit": "expire"}


@pytest.fixture(autouse=True)
def _reviewed(monkeypatch: pytest.MonkeyPatch) -> None:
    berth = msgspec.structs.replace(settings.BERTH, review_required=True, rest_writes_per_minute=1_000_000)
    monkeypatch.setattr(settings, "BERTH", berth)
    monkeypatch.setattr(settings, "PASSWORD_HASHERS", ["django.contrib.auth.hashers.MD5PasswordHasher"])


@pytest.fixture
def clients() -> dict[str, Client]:
    found = {}
    for name, groups in {**GROUPS, "reviewer": ("Approver",), "somebody": ("Approver",)}.items():
        user = User.objects.create_user(name, password="secret", is_staff=True)
        user.groups.set(Group.objects.filter(name__in=groups))
        found[name] = HTTPSClient()
        found[name].force_login(user)
    return found


def change_in(state: str) -> Change:
    author, somebody = User.objects.get(username="author"), User.objects.get(username="somebody")
    change = opened(make_rule_set("web", **A), by=author)
    steps: dict[str, list[tuple[Callable[..., Any], User, dict[str, Any]]]] = {
        "in_review": [(publishing.submit_change, author, {})],
        "approved": [(publishing.submit_change, author, {}), (publishing.approve_change, somebody, {})],
        "rejected": [(publishing.submit_change, author, {}), (publishing.reject_change, somebody, {"text": "no"})],
    }
    steps["published"] = [*steps["approved"], (publishing.publish_change, author, {})]
    for act, by, more in steps.get(state, []):
        do(change, act, by, **more)
    if state == "withdrawn":
        publishing.withdraw_change(change=change, by=author)
    found = Change.objects.get(pk=change.pk)
    assert found.state == state
    return found


def by_admin(client: Client, change: Change, act: str) -> None:
    later = f"{timezone.now() + timedelta(hours=2):%Y-%m-%dT%H:%M}"
    data = {"act": NAMED.get(act, act), "text": "because", "digest": change.digest, "whom": "reviewer"}
    data |= {"publish_at": later, "expires_at": later, "revision": str(publishing.current_revision().number)}
    response = client.post(f"/admin/policies/change/{change.pk}/act/", data)
    assert response.status_code in (200, 302, 403)


def by_command(account: str, change: Change, act: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    later = (timezone.now() + timedelta(hours=2)).isoformat()
    options = {
        "reason": "because",
        "digest": change.digest[:12],
        "whom": "reviewer",
        "at": later,
        "stdout": io.StringIO(),
    }
    with suppress(CommandError):
        call_command("change", NAMED.get(act, act), change.pk, account=account, **options)


def by_rest(client: Client, change: Change, act: str) -> None:
    later = (timezone.now() + timedelta(hours=2)).isoformat()
    answer = act_on_change(client, change.pk, NAMED.get(act, act), change.digest, at=later, whom="reviewer")
    assert answer.status_code in (200, 202, 403, 409), answer.content


def done(change: Change, name: str, act: Callable[[], None]) -> bool:
    """Whether an act is done: each leaves an event, or a run of the gate. Nothing of it stays."""
    with transaction.atomic():
        GateRun.objects.filter(change=change).delete()
        if name == "rebase":  # of what hasn't moved it leaves nothing
            change.edits.update(base_digest="another")
        before = ChangeEvent.objects.filter(change=change).count()
        act()
        is_done = ChangeEvent.objects.filter(change=change).count() > before or change.gate_runs.exists()
        transaction.set_rollback(True)
    return is_done


def lines_of(state: str, doors: dict[str, Callable[[str], None]], change: Change) -> Iterator[str]:
    for role, act in doors.items():
        acts = [name for name in ACTS if done(change, name, lambda act=act, name=name: act(name))]  # type: ignore[misc]
        yield f"{role:>13}  {state:<9}  {' '.join(acts) or '-'}"


# A minute and more: what is decided is pure, so that another database gives the same. `make long` asks it, too.
@pytest.mark.skipif(
    connection.vendor != "sqlite" and "CHANGE_DOORS" not in os.environ, reason="on SQLite; CHANGE_DOORS asks here, too"
)
@pytest.mark.parametrize("state", STATES)
def test_every_door_gives_the_answers_of_the_table(
    state: str, clients: dict[str, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the page says beside a refusal is other tests' matter; rendering it a thousand times takes long.
    monkeypatch.setattr("policies.admin.changes.TemplateResponse", lambda *_, **__: HttpResponse())
    change = change_in(state)
    expected = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if line.split()[1] == state]
    admin = {role: lambda act, role=role: by_admin(clients[role], change, act) for role in GROUPS}
    command = {role: lambda act, role=role: by_command(role, change, act, monkeypatch) for role in GROUPS}
    rest = {role: lambda act, role=role: by_rest(clients[role], change, act) for role in GROUPS}
    command["command"] = lambda act: by_command("", change, act, monkeypatch)
    assert list(lines_of(state, admin, change)) == expected[:-1]  # type: ignore[arg-type]
    assert list(lines_of(state, rest, change)) == expected[:-1]  # type: ignore[arg-type]
    assert list(lines_of(state, command, change)) == expected  # type: ignore[arg-type]


def test_a_command_proves_whose_account_it_uses(clients: dict[str, Client], monkeypatch: pytest.MonkeyPatch) -> None:
    change = change_in("in_review")
    monkeypatch.setattr("sys.stdin", io.StringIO("wrong\n"))
    with pytest.raises(CommandError, match="There is no account approver with this password"):
        call_command("change", "approve", change.pk, account="approver", digest=change.digest)
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    with pytest.raises(CommandError, match="Give the digest of what you looked at: --digest"):
        call_command("change", "approve", change.pk, account="approver")
    with pytest.raises(CommandError, match="at least the 12 characters"):
        call_command("change", "approve", change.pk, account="approver", digest=change.digest[:11])
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    call_command("change", "approve", change.pk, account="approver", digest=change.digest[:12], stdout=io.StringIO())
    event = change.events.get(act="approve")
    assert (event.by, event.via) == ("approver", "manage.py")


# Bytes of a command line that aren't UTF-8, and more than the database has room for.
@pytest.mark.parametrize("name", ["\udcff", "x" * 300])
def test_a_name_that_no_account_can_have_is_no_account(
    name: str, clients: dict[str, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    change = change_in("in_review")
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    with pytest.raises(CommandError, match=r"There is no account .* with this password"):
        call_command("change", "comment", change.pk, account=name, reason="because")
    with pytest.raises(CommandError, match=r"There is no account xxx|bytes that aren't UTF-8"):
        call_command("change", "ask", change.pk, whom=name)
    with pytest.raises(CommandError, match="--whom USER"):
        call_command("change", "ask", change.pk)
    with pytest.raises(CommandError, match=r"spec\.target"):
        call_command("pause", name, reason="because")


def test_who_guesses_by_a_command_is_locked_out(clients: dict[str, Client], monkeypatch: pytest.MonkeyPatch) -> None:
    change = change_in("in_review")
    for password in [*["wrong"] * settings.BERTH.sign_in_failures, "secret"]:
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{password}\n"))
        with pytest.raises(CommandError, match="There is no account approver with this password"):
            call_command("change", "approve", change.pk, account="approver", digest=change.digest)


def test_a_change_is_shown_with_what_it_waits_for(clients: dict[str, Client]) -> None:
    change = change_in("in_review")
    publishing.ask_for_review(change=change, by="ops", whom="reviewer")
    out = io.StringIO()
    call_command("change", "show", change.pk, stdout=out)
    call_command("change", "list", stdout=out)
    for said in ("It needs 1 more approval", "waits for reviewer since", f"digest {change.digest[:12]}", "in review:"):
        assert said in out.getvalue()
    out = io.StringIO()
    call_command("change", "show", change.pk, output="json", stdout=out)
    shown = msgspec.json.decode(out.getvalue())
    assert shown["ok"]
    assert shown["changes"][0]["waiting"][0]["name"] == "reviewer"
    out = io.StringIO()
    with pytest.raises(CommandError, match="There is no Change 999"):
        call_command("change", "show", 999, output="json", stdout=out)
    assert msgspec.json.decode(out.getvalue()) == {"ok": False, "error": "There is no Change 999."}


def test_a_change_is_given_another_title_by_a_command(clients: dict[str, Client]) -> None:
    change = change_in("in_review")
    out = io.StringIO()
    call_command("change", "rename", change.pk, title="Web Pods fit", stdout=out)
    assert out.getvalue().splitlines()[0].endswith("in review: Web Pods fit")
    call_command("change", "rename", change.pk, reason="TICKET-1", stdout=io.StringIO())
    with pytest.raises(CommandError, match="Give the new title with --title TITLE"):
        call_command("change", "rename", change.pk)
    digest = change.digest
    change.refresh_from_db()
    assert (change.title, change.reason, change.digest) == ("Web Pods fit", "TICKET-1", digest)


@pytest.mark.parametrize("door", ["rest", "command"])
def test_a_change_that_a_newer_berth_edited_is_shown_and_withdrawn(clients: dict[str, Client], door: str) -> None:
    change = change_in("draft")
    change.edits.create(kind="Assignment", name="all", document='{"name": []}', author="ann", edited_at=timezone.now())
    unread = f"Assignment all in {change} can't be read: it was written by a newer version of Berth."
    if door == "rest":
        shown = clients["author"].get(f"/api/v1/changes/{change.pk}")
        done = act_on_change(clients["author"], change.pk, "withdraw", change.digest)
        assert (shown.status_code, done.status_code) == (200, 200)
        assert any(line.startswith(unread) for line in shown.json()["changes"])
        said = next(each for each in done.json()["edits"] if each["name"] == "all")
        assert said["document"] is None
        assert said["changes"][0].startswith(unread)
    else:
        for act in ("show", "withdraw"):
            out = io.StringIO()
            call_command("change", act, change.pk, stdout=out)
            assert unread in out.getvalue()
    change.refresh_from_db()
    assert change.state == "withdrawn"
