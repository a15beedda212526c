"""What every request meets before a page is asked, how long statements take, and what is kept of accounts."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import Group, User
from django.contrib.contenttypes.models import ContentType
from django.db import DatabaseError, InternalError, OperationalError, connection, transaction
from django.db.models import ProtectedError
from django.http import HttpResponse
from django.test import Client, RequestFactory

from controlplane.doors import Doors, bound_statements
from controlplane.session_store import SessionStore
from controlplane.sqlite3.base import DatabaseWrapper
from policies.models import Revision
from policies.parameters import page_limit
from scheduler.http_server.connection import OF_AN_ACCOUNT
from tests.builders import TEAM_FILTER, make_assignment, make_rule_set
from tests.component.controlplane.test_pages import make_decision
from tests.component.pages import publish, publish_all, text_of
from tests.conftest import HTTPSClient

pytestmark = pytest.mark.django_db
ENDLESS = (
    "SELECT pg_sleep(30)"
    if connection.vendor == "postgresql"
    else "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
)


@pytest.fixture
def bounded() -> Iterator[None]:
    wrappers = list(connection.execute_wrappers)
    bound_statements(connection, seconds=0.2)
    yield
    connection.execute_wrappers[:] = wrappers
    if connection.vendor == "sqlite":
        connection.connection.set_progress_handler(None, 0)


def stopped() -> OperationalError:
    with connection.cursor() as cursor, pytest.raises(OperationalError) as raised:
        cursor.execute(ENDLESS).fetchall()
    return raised.value


@pytest.mark.usefixtures("bounded")
def test_a_statement_that_takes_too_long_is_ended_and_the_page_says_so() -> None:
    answer = Doors(lambda _: HttpResponse()).process_exception(RequestFactory().get("/"), stopped())
    assert answer is not None
    assert answer.status_code == 503
    assert b"Ask for less" in answer.content


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL bounds statements itself")
def test_a_connection_that_is_made_anew_for_weeks_keeps_one_limit_and_answers(tmp_path: Path) -> None:
    of_its_own = {"NAME": str(tmp_path / "berth.sqlite3"), "OPTIONS": {}}
    made = DatabaseWrapper({**connection.settings_dict, **of_its_own}, "doors")
    try:
        for _ in range(1200):  # each lasts ten minutes (CONN_MAX_AGE)
            made.connect()
            bound_statements(made, seconds=0.2)
            made.close()
        made.connect()
        with made.cursor() as cursor:
            assert cursor.execute("SELECT 1").fetchone() == (1,)
        bound_statements(made, seconds=0.2)
        with made.cursor() as cursor, pytest.raises(OperationalError):
            cursor.execute(ENDLESS).fetchall()
    finally:
        made.close()


@pytest.mark.skipif(connection.vendor != "postgresql", reason="only there a probe sets a limit of its own")
@pytest.mark.django_db(transaction=True)
def test_statements_stay_bounded_after_the_process_was_asked_whether_it_is_ready(client: Client) -> None:
    bound_statements(connection, seconds=0.2)
    try:
        assert client.get("/readyz").status_code == 200
        assert "statement timeout" in str(stopped())
    finally:
        connection.close()  # with what was set of its session


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite compiles nothing")
@pytest.mark.usefixtures("bounded")
def test_postgresql_compiles_no_statement_of_a_page() -> None:
    with connection.cursor() as cursor:
        assert cursor.execute("SHOW jit").fetchone() == ("off",)


@pytest.mark.usefixtures("bounded")
def test_other_faults_stay_faults() -> None:
    answer = Doors(lambda _: HttpResponse()).process_exception(RequestFactory().get("/"), OperationalError("disk full"))
    assert answer is None


class _CodedError(Exception):
    def __init__(self, sqlstate: str | None) -> None:
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("kind", "code", "says"),
    [
        (OperationalError, "53100", "disk is full"),
        (InternalError, "25006", "is read-only"),
        (OperationalError, None, "can't be reached"),
        (OperationalError, "57P01", "can't be reached"),
    ],
)
def test_a_database_that_stores_nothing_is_named_on_pages_and_to_programs(
    kind: type[DatabaseError], code: str | None, says: str, operator: HTTPSClient
) -> None:
    def refuse(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if sql.startswith('INSERT INTO "policies_change"'):
            raise kind("in the driver's words") from _CodedError(code)
        return execute(sql, *rest)

    operator.raise_request_exception = False
    with connection.execute_wrapper(refuse):
        page = operator.post("/admin/policies/change/add/", {"title": "a"})
        answer = operator.post("/api/v1/changes", {"title": "a"}, "application/json")
    assert page.status_code == answer.status_code == 503
    assert says in text_of(page)
    assert says in answer.json()["detail"]
    assert "driver" not in text_of(page)


class TestPriority:
    """The server answers accounts first: anybody may post the sign-in form, and is answered 200 for a wrong password."""

    def test_pages_and_rest_for_an_account_have_it(self, auditor: Client) -> None:
        for path in ("/admin/", "/api/v1/rule-sets"):
            assert OF_AN_ACCOUNT in auditor.get(path, secure=True).wsgi_request.META

    def test_a_failed_sign_in_and_pages_for_anybody_have_none(self, client: Client) -> None:
        wrong = {"username": "nobody", "password": "wrong"}
        answers = [client.post("/admin/login/", wrong, secure=True), client.get("/admin/login/", secure=True)]
        assert [answer.status_code for answer in answers] == [200, 200]
        assert not any(OF_AN_ACCOUNT in answer.wsgi_request.META for answer in answers)

    def test_a_refused_request_has_none(self, auditor: Client) -> None:
        assert OF_AN_ACCOUNT not in auditor.get("/admin/nowhere/", secure=True).wsgi_request.META


@pytest.mark.parametrize("path", ["/admin/%00/", "/api/v1/decisions?pod_name=%00", "/api/v1/rule-sets/a%00b"])
def test_nul_is_refused_before_anybody_is_asked(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 400
    assert "no-store" in answer["Cache-Control"]


def test_a_cookie_with_a_quoted_nul_is_no_session(client: Client) -> None:
    cookie = f'{settings.SESSION_COOKIE_NAME}="\\000{"a" * 31}"'
    assert client.get("/admin/", headers={"Cookie": cookie}).status_code == 302
    assert SessionStore("\0" + "a" * 31).session_key is None


@pytest.mark.parametrize("path", ["/admin/login/", "/api/v1/rule-sets"])
@pytest.mark.parametrize("charset", ["latin-1", "punycode", "utf-16"])
def test_a_form_in_another_encoding_than_utf_8_is_refused_before_it_is_read(
    client: Client, path: str, charset: str
) -> None:
    answer = client.post(path, b"--x--", f"multipart/form-data; boundary=x; charset={charset}")
    assert answer.status_code == 400
    assert "in UTF-8" in answer.content.decode()
    assert client.post(path, b"--x--", "multipart/form-data; boundary=x; charset=UTF-8").status_code != 400


@pytest.mark.parametrize("path", ["/admin/", "/api/v1/whoami", "/api/schema/"])
def test_a_host_that_berth_does_not_answer_for_is_said_with_the_setting_that_names_hosts(
    client: Client, path: str
) -> None:
    answer = client.get(path, headers={"Host": "berth.example.org"})
    said = answer.json()["detail"] if path.startswith("/api/") else answer.content.decode()
    assert answer.status_code == 400
    assert "BERTH_ALLOWED_HOSTS" in said
    assert "a malformed number" not in said


def test_a_piece_of_a_page_says_that_its_reader_is_signed_out_and_is_no_sign_in(client: Client) -> None:
    path = "/admin/scheduler/ledger/verification/"
    assert client.get(path).status_code == 302
    piece = client.get(path, headers={"HX-Request": "true"})
    assert piece.status_code == 200
    assert b"You are signed out" in piece.content
    assert b"password" not in piece.content
    # Ctrl-K shows it, too, where it looks for a list in what comes.
    assert piece.headers["HX-Reselect"] == "#signed-out"


def test_pieces_of_who_is_signed_in_are_what_they_were(auditor: Client) -> None:
    path = "/admin/scheduler/ledger/verification/"
    piece = auditor.get(path, headers={"HX-Request": "true"})
    assert piece.content == auditor.get(path).content
    assert "HX-Reselect" not in piece.headers


@pytest.mark.parametrize("path", ["/api/v1/decisions", "/api/v1/rule-sets", "/api/schema/", "/admin/", "/readyz"])
def test_no_answer_is_kept_by_caches(auditor: Client, path: str) -> None:
    assert "no-store" in auditor.get(path)["Cache-Control"]


@pytest.mark.parametrize(
    "lookup",
    [
        "pod_name__regex=^(a%2B)%2B$",
        "pod_name__iregex=a",
        "pod_uid__contains=a",
        "body__startswith=a",
        "at__date=2026-01-01",
    ],
)
def test_a_look_up_that_no_page_has_is_refused(auditor: Client, lookup: str) -> None:
    make_decision(pod_name="a" * 60 + "!")
    assert auditor.get(f"/admin/scheduler/decision/?{lookup}").status_code == 400


@pytest.mark.parametrize(
    "lookup", ["revision=1", "rule_set=web", "pod_uid=uid-1", "answer=some", "verb=filter", "q=web"]
)
def test_the_look_ups_of_links_and_filters_are_answered(auditor: Client, lookup: str) -> None:
    make_decision()
    page = auditor.get(f"/admin/scheduler/decision/?{lookup}")
    assert len(page.context["rows"]) == 1


@pytest.mark.parametrize("page", ["policies/ruleset", "policies/change", "policies/revision", "scheduler/process"])
def test_a_list_says_which_look_up_it_refuses_and_what_to_do(auditor: Client, page: str) -> None:
    answer = auditor.get(f"/admin/{page}/", {"q": "web", "colour": "<b>\u202ered"})
    assert answer.status_code == 400
    assert "This list has no filter 'colour' that takes '<b>\\u202ered'. Remove it from the URL" in text_of(answer)


def test_nobody_looks_into_accounts_by_their_passwords(admin_client: Client) -> None:
    assert admin_client.get("/admin/auth/user/?password__startswith=p", secure=True).status_code == 400


@pytest.mark.parametrize("text", ["99999999999999999999999999", "-1", "x", "1.5", "１"])
@pytest.mark.parametrize("name", ["limit", "offset"])
def test_a_page_that_cannot_be_counted_to_is_refused(auditor: Client, name: str, text: str) -> None:
    assert auditor.get("/api/v1/decisions", {name: text}).status_code == 400


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/admin/auth/user/{user}/change/?_to_field=", 200),
        ("/admin/policies/assignment/versions/all-web/?before={digits}", 200),
        ("/admin/policies/revision/{revision}/list/changes/?page={digits}", 200),
        ("/admin/scheduler/priority-classes/adopt/?name=", 200),
        ("/admin/scheduler/shadows/?change={digits}", 404),
        ("/api/v1/export?change={digits}", 400),
    ],
)
def test_a_parameter_that_no_link_gives_is_no_fault(
    admin_client: Client, admin_user: User, path: str, status: int
) -> None:
    publish(make_rule_set(filters=[TEAM_FILTER]))
    publish_all(make_assignment())
    answer = admin_client.get(
        path.format(user=admin_user.pk, revision=Revision.objects.latest("number").number, digits="9" * 5_000),
        secure=True,
    )
    assert answer.status_code == status


@pytest.mark.parametrize("key", ["None", "[", "9" * 25, "9" * 5_000, "-1"])
def test_a_form_with_what_can_be_no_rows_key_is_shown_again_or_refused(admin_client: Client, key: str) -> None:
    role = Group.objects.get(name="Operator").pk
    assert admin_client.post("/admin/policies/assignment/add/", {"rule_set": key}, secure=True).status_code == 200
    answer = admin_client.post(
        f"/admin/auth/group/{role}/change/", {"name": "Operator", "permissions": key}, secure=True
    )
    assert answer.status_code in {200, 400}


@pytest.mark.parametrize("page", ["auth/user", "policies/ruleset", "policies/change"])
def test_a_search_has_a_hundred_words_at_most(admin_client: Client, page: str) -> None:
    refused = admin_client.get(f"/admin/{page}/", {"q": "a " * 101}, secure=True)
    assert refused.status_code == 400
    assert "A search can have at most 100 words." in refused.content.decode()
    assert admin_client.get(f"/admin/{page}/", {"q": "a " * 100}, secure=True).status_code == 200


def test_the_menu_of_rule_sets_is_searched_by_a_hundred_words_at_most(admin_client: Client) -> None:
    asked = {"app_label": "policies", "model_name": "assignment", "field_name": "rule_set"}
    statuses = [
        admin_client.get("/admin/autocomplete/", {**asked, "term": "a " * words}, secure=True).status_code
        for words in (100, 101)
    ]
    assert statuses == [200, 400]


def test_a_page_has_a_thousand_rows_at_most(auditor: Client) -> None:
    assert auditor.get("/api/v1/decisions?limit=5000").json()["next"] is None
    assert page_limit("Decisions", "5000") == 1_000


def test_home_tells_an_account_without_a_role_that_it_has_none(client: Client) -> None:
    client.force_login(User.objects.create(username="new", is_staff=True))
    page = client.get("/admin/").content.decode()
    assert "no role yet" in page
    assert "Decisions, last" not in page


def signed(caplog: pytest.LogCaptureFixture) -> list[tuple[str, Any, Any]]:
    found = [record for record in caplog.records if record.name == "berth.signin"]
    return [(record.getMessage(), vars(record)["account"], vars(record)["address"]) for record in found]


def test_who_signs_in_and_out_and_who_fails_to_leaves_a_line_with_the_address(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    User.objects.create_user("ann", password="correct horse", is_staff=True)
    caplog.set_level(logging.INFO, "berth.signin")
    client.post("/admin/login/", {"username": "ann", "password": "wrong"}, REMOTE_ADDR="10.0.0.7")
    client.post("/admin/login/", {"username": "ann", "password": "correct horse"}, REMOTE_ADDR="10.0.0.7")
    client.post("/admin/logout/", REMOTE_ADDR="10.0.0.7", HTTP_X_FORWARDED_FOR="192.0.2.1")
    assert signed(caplog) == [
        ("a sign-in failed", "ann", "10.0.0.7"),
        ("signed in", "ann", "10.0.0.7"),
        ("signed out", "ann", "10.0.0.7 for 192.0.2.1"),
    ]
    assert "wrong" not in caplog.text
    assert "correct horse" not in caplog.text


def test_an_account_that_did_something_is_kept_with_its_lines(admin_client: Client) -> None:
    ann = User.objects.create(username="ann")
    kind = ContentType.objects.get_for_model(User)
    LogEntry.objects.create(user=ann, content_type=kind, object_repr="web", action_flag=CHANGE, change_message="Saved.")
    with pytest.raises(ProtectedError, match="deactivate"), transaction.atomic():
        ann.delete()
    assert LogEntry.objects.get().user.username == "ann"
    assert admin_client.post(f"/admin/auth/user/{ann.pk}/delete/", {"post": "yes"}, secure=True).status_code == 403


def test_an_account_that_did_nothing_can_be_deleted_by_a_command(db: None) -> None:
    User.objects.create(username="typo").delete()
    assert not User.objects.exists()
