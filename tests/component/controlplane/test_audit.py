"""Who signed in, what became of accounts, what processes are set to: written down by whichever door, with the request's id and address."""

import getpass
import io
import logging
import tomllib
import uuid
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import Group, Permission, User
from django.core.management import call_command
from django.db import DatabaseError
from django.test import Client
from msgspec.structs import replace

from controlplane import sign_in_form, starts
from controlplane.logs import KeyValueFormatter
from controlplane.provider import account
from controlplane.tally import UNKNOWN
from policies import publishing
from policies.audit_words import sentence_of
from policies.models import AuditEvent
from policies.models.audit import digest_of
from policies.origin import Origin, coming_from
from policies.publishing import starts as what_is_set
from tests.builders import make_rule_set
from tests.component.pages import opened, publish
from tests.conftest import HTTPSClient

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).resolve().parents[3]
PASSWORD = "correct horse battery"


@pytest.fixture
def ann() -> User:
    return User.objects.create_user("ann", password=PASSWORD, is_staff=True)


@pytest.fixture
def root(ann: User) -> HTTPSClient:
    client = HTTPSClient()
    client.force_login(User.objects.create(username="root", is_staff=True, is_superuser=True))
    return client


def newest(kind: str) -> AuditEvent:
    event = AuditEvent.objects.filter(kind=kind).first()
    assert event is not None, kind
    assert publishing.is_as_written(event)
    return event


def sign_in(client: Client, name: str = "ann", password: str = PASSWORD, **more: Any) -> Any:
    return client.post("/admin/login/", {"username": name, "password": password}, **more)


def test_signing_in_and_out_is_written_down_with_address_and_request(client: Client, ann: User) -> None:
    answer = sign_in(client, headers={"X-Request-Id": "req-0000-1"}, REMOTE_ADDR="10.0.0.7")
    assert answer["X-Request-Id"] == "req-0000-1"
    event = newest("login")
    assert (event.by, event.door, event.address, event.request_id) == ("ann", "admin", "10.0.0.7", "req-0000-1")
    client.post("/admin/logout/")
    assert newest("logout").by == "ann"


def test_a_failed_sign_in_stays_and_a_name_that_nobody_has_is_not_kept(client: Client, ann: User) -> None:
    sign_in(client, password="wrong")
    assert (newest("login.failed").thing_name, newest("login.failed").by) == ("ann", "")
    sign_in(client, name=PASSWORD, password="ann")
    event = newest("login.failed")
    assert event.thing_name == ""
    assert PASSWORD.encode() not in bytes(event.body)


def test_who_guesses_too_often_is_written_down_as_locked_out(client: Client, ann: User) -> None:
    for _ in range(settings.BERTH.sign_in_failures):
        sign_in(client, password="wrong")
    assert newest("lockout").thing_name == "ann"


def test_who_fails_without_end_from_one_address_writes_few_rows(
    client: Client, ann: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_in_form, "OF_ADDRESS", 100)  # as if more passwords were compared than are
    count = UNKNOWN.count
    monkeypatch.setattr(UNKNOWN, "count", lambda address, _: count(address, 1))  # all within a minute
    answers = {sign_in(client, password="wrong").status_code for _ in range(70)}
    assert answers == {200, 429}
    for kind in ("login.failed", "lockout"):
        events = AuditEvent.objects.filter(kind=kind)
        assert 10 < events.count() < 15
        assert publishing.said_by(newest(kind)).more == {"known": True, "times": 64}
        assert "(64 times within a minute from there)" in sentence_of(newest(kind), {"times": 64})
    # Somebody else's failure in the same minute is written down as ever.
    sign_in(client, password="wrong", REMOTE_ADDR="10.0.0.9")
    assert newest("login.failed").address == "10.0.0.9"


@pytest.mark.parametrize("said", ["", "short", "x" * 65, 'a b="c"', "line\nbreak", "naïve-naïve"])
def test_an_id_that_is_not_well_formed_is_replaced(client: Client, said: str) -> None:
    answer = client.get("/admin/login/", headers={"X-Request-Id": said})
    assert answer["X-Request-Id"] != said
    assert len(answer["X-Request-Id"]) == 32


def test_lines_of_the_log_name_the_request_that_they_belong_to() -> None:
    record = logging.makeLogRecord({"msg": "x"})
    with coming_from(Origin(request_id="req-0000-1")):
        assert "request=req-0000-1" in KeyValueFormatter("admin").format(record)
    assert "request=" not in KeyValueFormatter("admin").format(record)


def test_an_acts_event_names_the_page_it_came_by(operator: Client) -> None:
    change = opened(make_rule_set("web"))
    operator.post(
        f"/admin/policies/change/{change.pk}/act/",
        {"act": "comment", "text": "hm", "digest": change.digest, "revision": 0},
        REMOTE_ADDR="10.0.0.8",
        headers={"X-Forwarded-For": "192.0.2.1"},
    )
    event = newest("change.comment")
    assert (event.by, event.door, event.address) == ("operator", "admin", "10.0.0.8 for 192.0.2.1")


class TestAccounts:
    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("command", ["changepassword", "createsuperuser"])
    def test_what_a_command_of_djangos_does_is_undone_where_its_event_cannot_be_written(
        self, monkeypatch: pytest.MonkeyPatch, command: str
    ) -> None:
        User.objects.create_user("ann", password=PASSWORD)

        def fail(*_: Any, **__: Any) -> None:
            raise DatabaseError

        monkeypatch.setattr(publishing, "record_event", fail)
        monkeypatch.setattr(getpass, "getpass", lambda prompt: "another horse battery")
        arguments = {
            "changepassword": ["ann"],
            "createsuperuser": ["--noinput", "--username", "bob", "--email", "b@example.org"],
        }
        with pytest.raises(DatabaseError):
            call_command(command, *arguments[command])
        assert User.objects.get().check_password(PASSWORD)

    def test_an_account_that_is_made_on_the_page(self, root: HTTPSClient) -> None:
        fields = {"username": "bob", "usable_password": "true", "password1": PASSWORD, "password2": PASSWORD}
        root.post("/admin/auth/user/add/", fields)
        event = newest("account.make")
        assert (event.by, event.thing_name, event.door) == ("root", "bob", "admin")

    def test_what_changes_of_an_account_by_name_and_of_rights_by_value(self, ann: User) -> None:
        ann.is_superuser, ann.email = True, "ann@example.org"
        ann.save()
        said = publishing.said_by(newest("account.change"))
        assert said.more == {"changed": ["is_superuser", "email"], "values": {"is_superuser": [False, True]}}
        assert said.before != said.after
        assert b"example.org" not in bytes(newest("account.change").body)

    def test_nobody_can_try_addresses_with_the_digests_of_an_account(self, ann: User) -> None:
        ann.email = "ann@example.org"
        ann.save()
        event = newest("account.change")
        fields = ("username", "is_active", "is_staff", "is_superuser", "email", "first_name", "last_name")
        tried = digest_of({name: getattr(ann, name) for name in fields})
        assert tried not in {event.before, event.after}
        assert event.before != event.after
        ann.email = ""
        ann.save()
        assert (newest("account.change").before, newest("account.change").after) == (event.after, event.before)

    def test_roles_from_the_accounts_side_and_from_the_roles(self, ann: User) -> None:
        approvers = Group.objects.get(name="Approver")
        ann.groups.add(approvers)
        assert publishing.said_by(newest("account.change")).more == {"added": ["Approver"], "of": "roles"}
        approvers.user_set.remove(ann)
        assert publishing.said_by(newest("account.change")).more == {"removed": ["Approver"], "of": "roles"}
        ann.groups.add(approvers)
        given = newest("account.change")
        ann.groups.clear()
        said = publishing.said_by(newest("account.change"))
        assert said.more == {"removed": ["Approver"], "of": "roles"}
        assert (said.before, said.after) == (given.after, given.before)
        ann.groups.clear()
        assert newest("account.change").pk == uuid.UUID(said.id)  # nothing was there any more

    def test_a_role_that_is_taken_from_all_who_have_it_at_once(self, ann: User) -> None:
        approvers = Group.objects.get(name="Approver")
        ann.groups.add(approvers)
        approvers.user_set.clear()
        event = newest("account.change")
        assert (event.thing_name, publishing.said_by(event).more) == ("ann", {"removed": ["Approver"], "of": "roles"})

    def test_a_role_and_its_permissions(self) -> None:
        made = Group.objects.create(name="Reviewers")
        made.permissions.add(Permission.objects.get(codename="approve"))
        assert newest("role.make").thing_name == "Reviewers"
        said = publishing.said_by(newest("role.change"))
        assert (said.thing_name, said.more) == ("Reviewers", {"added": ["approve"], "of": "permissions"})
        assert said.before != said.after
        count = AuditEvent.objects.count()
        made.save()
        assert AuditEvent.objects.count() == count
        made.name = "Readers"
        made.save()
        said = publishing.said_by(newest("role.change"))
        assert said.more == {"changed": ["name"], "values": {"name": ["Reviewers", "Readers"]}}
        assert sentence_of(newest("role.change"), said.more).endswith("changed role Readers: name Reviewers → Readers")
        assert said.before != said.after

    def test_a_role_that_goes_is_named_with_those_who_lose_it(self, ann: User) -> None:
        made = Group.objects.create(name="Reviewers")
        ann.groups.add(made)
        made.delete()
        said = publishing.said_by(newest("role.delete"))
        assert (said.thing_name, said.more) == ("Reviewers", {"members": ["ann"]})
        assert (said.before, said.after) == (newest("role.make").after, "")
        ann.delete()
        said = publishing.said_by(newest("account.delete"))
        assert (said.thing_name, said.before, said.after) == ("ann", newest("account.make").after, "")

    def test_a_password_that_somebody_sets_for_another(self, root: HTTPSClient, ann: User) -> None:
        url = f"/admin/auth/user/{ann.pk}/password/"
        fields = {"usable_password": "true", "password1": "another horse 1", "password2": "another horse 1"}
        assert root.post(url, fields).status_code == 302
        assert (newest("account.password").by, newest("account.password").thing_name) == ("root", "ann")

    def test_a_password_that_somebody_sets_for_themselves(self, client: Client, ann: User) -> None:
        sign_in(client)
        new = {"old_password": PASSWORD, "new_password1": "another horse 1", "new_password2": "another horse 1"}
        assert client.post("/admin/password_change/", new).status_code == 302
        assert newest("account.password").by == "ann"

    def test_a_password_is_set_together_with_its_event_or_not_at_all(
        self, client: Client, ann: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sign_in(client)

        def broken(*_: Any, **__: Any) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(publishing, "record_event", broken)
        new = {"old_password": PASSWORD, "new_password1": "another horse 1", "new_password2": "another horse 1"}
        with pytest.raises(ZeroDivisionError):
            client.post("/admin/password_change/", new)
        assert User.objects.get(pk=ann.pk).check_password(PASSWORD)

    def test_signing_in_changes_no_account(self, client: Client, ann: User) -> None:
        # A hash with fewer rounds than today's is made anew at sign-in: nobody has set a password.
        ann.password = ann.password.replace(ann.password.split("$")[1], "1000", 1)
        User.objects.filter(pk=ann.pk).update(password=ann.password)
        before = AuditEvent.objects.exclude(kind__startswith="login").count()
        sign_in(client)
        assert AuditEvent.objects.exclude(kind__startswith="login").count() == before

    def test_what_a_provider_says_of_somebody(self) -> None:
        account("https://sign-in.example.org", {"sub": "7", "preferred_username": "sam"}, {"Operator"})
        assert newest("account.make").via == "the provider https://sign-in.example.org"
        assert publishing.said_by(newest("account.change")).more == {"added": ["Operator"], "of": "roles"}

    def test_a_command_is_the_act_of_the_machines_user(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("getpass.getuser", lambda: "ops-host")
        call_command("createoperator", "dora", stdout=io.StringIO())
        event = newest("account.make")
        assert (event.by, event.door, event.thing_name) == ("ops-host", "command", "dora")

    def test_its_name_outlives_an_account(self, ann: User) -> None:
        opened(make_rule_set("web"), by=User.objects.create(username="gone", is_superuser=True))
        User.objects.get(username="gone").delete()
        assert newest("change.open").by == "gone"
        assert newest("account.delete").thing_name == "gone"


class TestStarts:
    def test_a_process_says_its_version_and_what_it_is_set_to_without_secrets(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        secrets = {"secret_key": "s" * 40, "database_url": "postgresql://berth:hunter2@db/berth"}
        monkeypatch.setattr(settings, "BERTH", replace(settings.BERTH, **secrets))
        publishing.record_start("admin@host:1", "admin")
        event = newest("process.start")
        said = publishing.said_by(event)
        assert (event.door, event.thing_kind, event.thing_name) == ("process", "Process", "admin@host:1")
        assert said.more["settings"]["review_approvals"] == settings.BERTH.review_approvals
        assert said.more["version"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
        assert not {b"s" * 40, b"hunter2"} & {text for text in (b"s" * 40, b"hunter2") if text in bytes(event.body)}

    def test_another_setting_makes_another_digest_and_the_same_ones_the_same(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publishing.record_start("admin@host:1", "admin")
        publishing.record_start("admin@host:2", "admin")
        monkeypatch.setattr(settings, "BERTH", replace(settings.BERTH, review_approvals=7))
        publishing.record_start("admin@host:3", "admin")
        third, second, first = AuditEvent.objects.filter(kind="process.start")[:3]
        assert first.after == second.after != third.after

    def test_no_secret_is_among_what_is_shown(self) -> None:
        assert not settings.BERTH.secrets & what_is_set.shown_settings().keys()
        assert settings.BERTH.secrets >= {"secret_key", "database_url", "redis_url"}

    @pytest.mark.django_db(transaction=True)
    def test_a_start_waits_for_no_database_and_is_written_once_it_is_there(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from django.db import OperationalError

        answers = iter([OperationalError("away"), None])

        def record(*_: str) -> None:
            if answer := next(answers):
                raise answer

        monkeypatch.setattr(publishing, "record_start", record)
        monkeypatch.setattr(starts, "_AGAIN_SECONDS", 0.0)
        starts._until_written("beat")
        assert next(answers, "asked twice") == "asked twice"


def test_an_export_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "ops-host")
    publish(make_rule_set("web"))
    call_command("export", stdout=io.StringIO())
    event = newest("export")
    assert (event.by, event.door) == ("ops-host", "command")
    assert len(event.after) == 64
