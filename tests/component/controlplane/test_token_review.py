"""Tokens of ServiceAccounts: what an answer of the API server has to say, and which roles and account they give."""

import base64
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import User

from controlplane import token_review
from controlplane.env import ConfigurationError, read_environment
from controlplane.env_values import READERS
from controlplane.token_review import (
    AT_ONCE,
    IN_ALL,
    OF_ADDRESS,
    AwayError,
    Strangers,
    TooOftenError,
    roles_of,
    service_account_of,
)
from controlplane.tokens import RefusedError
from policies.models import AuditEvent
from scheduler.cluster.errors import APIForbiddenError
from tests.conftest import HTTPSClient
from tests.tokens import bearer

TOKEN = "aaaa.bbbb.cccc"
DEPLOYER = "system:serviceaccount:ci:deployer"


class FakeServer:
    """Answers a TokenReview, and keeps what was asked."""

    def __init__(
        self, username: str = DEPLOYER, *, audiences: tuple[str, ...] = ("berth",), knows: bool = True
    ) -> None:
        self.status = {"authenticated": knows, "user": {"username": username}, "audiences": list(audiences)}
        self.asked: list[Any] = []
        self.fault: Exception | None = None

    def post(self, *, path: str, body: bytes, timeout_seconds: float) -> bytes:
        assert timeout_seconds <= 5
        self.asked.append((path, msgspec.json.decode(body)))
        if self.fault:
            raise self.fault
        return msgspec.json.encode({"kind": "TokenReview", "status": self.status})


def account_of(server: Any) -> str:
    return service_account_of(TOKEN, "berth", server)


def test_the_api_server_is_asked_for_the_audience() -> None:
    server = FakeServer()
    assert account_of(server) == "ci/deployer"
    ((path, asked),) = server.asked
    assert path == "/apis/authentication.k8s.io/v1/tokenreviews"
    assert asked["spec"] == {"token": TOKEN, "audiences": ["berth"]}


@pytest.mark.parametrize(
    "server",
    [
        FakeServer(knows=False),
        FakeServer(audiences=("https://kubernetes.default.svc",)),
        FakeServer(audiences=()),
        FakeServer("kubernetes-admin"),
        FakeServer("system:node:n1"),
        FakeServer("system:serviceaccount:ci"),
        FakeServer("system:serviceaccount:ci:"),
        FakeServer("system:serviceaccounts:ci:deployer"),
    ],
)
def test_what_is_not_for_this_berth_or_no_service_account_is_refused(server: FakeServer) -> None:
    with pytest.raises(RefusedError):
        account_of(server)


@pytest.mark.parametrize("fault", [APIForbiddenError("POST: 403", status=403), msgspec.DecodeError("not JSON")])
def test_without_an_answer_nobody_can_say(fault: Exception) -> None:
    server = FakeServer()
    server.fault = fault
    with pytest.raises(AwayError):
        account_of(server)


GIVEN = "ci/deployer=Operator,ci/*=Auditor,*/approver=Approver,team-*/ci=Operator,team-*/ci=Approver"


@pytest.mark.parametrize(
    ("account", "roles"),
    [
        ("ci/deployer", {"Operator", "Auditor"}),
        ("ci/other", {"Auditor"}),
        ("cd/approver", {"Approver"}),
        ("team-a/ci", {"Operator", "Approver"}),
        ("team-a/ci2", set()),
        ("xci/other", set()),
    ],
)
def test_a_pattern_is_of_namespace_and_name(account: str, roles: set[str]) -> None:
    read, _ = READERS["token_review_roles"]
    assert roles_of(account, read(GIVEN)) == roles


@pytest.fixture
def server(db: None, monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    server = FakeServer()
    token_review.STRANGERS.forget()
    monkeypatch.setattr("controlplane.token_review.time.monotonic", lambda: 6_000.0)
    monkeypatch.setattr(token_review, "_client", lambda _kubeconfig: server)
    changed = {"token_review_audience": "berth", "token_review_roles": (("ci/deployer", "Operator"),)}
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, **changed))
    return server


def asked(token: str = TOKEN, address: str = "192.0.2.1") -> Any:
    return HTTPSClient().get("/api/v1/rule-sets", headers=bearer(token), REMOTE_ADDR=address)


def test_it_comes_in_with_an_account_of_its_own_and_its_roles(server: FakeServer) -> None:
    assert asked().status_code == 200
    user = User.objects.get(username=DEPLOYER)
    assert [group.name for group in user.groups.all()] == ["Operator"]
    assert (user.is_staff, user.is_superuser, user.has_usable_password()) == (False, False, False)
    made = AuditEvent.objects.get(kind="account.make")
    assert (made.thing_name, made.via) == (DEPLOYER, "TokenReview")
    events = AuditEvent.objects.count()
    assert asked().status_code == 200
    assert (User.objects.filter(username=DEPLOYER).count(), AuditEvent.objects.count()) == (1, events)


def test_names_longer_than_an_accounts_give_an_account_each(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ServiceAccount's name may have 253 characters, its namespace's 63."""
    roles = (("ci/*", "Operator"),)
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, token_review_roles=roles))
    for name in ("d" * 253, "d" * 252 + "e"):
        server.status["user"] = {"username": f"system:serviceaccount:ci:{name}"}
        assert [asked().status_code, asked().status_code] == [200, 200]
    names = User.objects.filter(username__startswith="system:serviceaccount:ci:ddd").values_list("username", flat=True)
    assert [len(name) for name in names] == [150, 150]


def test_each_request_is_judged_anew(server: FakeServer) -> None:
    assert asked().status_code == 200
    server.status["authenticated"] = False
    assert asked().status_code == 401
    assert len(server.asked) == 2


def test_roles_that_the_settings_take_away_end_at_once(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked().status_code == 200
    monkeypatch.setattr(
        settings, "BERTH", msgspec.structs.replace(settings.BERTH, token_review_roles=(("a/b", "Operator"),))
    )
    answer = asked()
    assert (answer.status_code, "has no role here" in answer.json()["detail"]) == (401, True)
    assert not User.objects.get(username=DEPLOYER).groups.exists()


def test_an_inactive_account_is_refused_and_one_that_is_somebody_elses_is_not_taken_over(server: FakeServer) -> None:
    User.objects.create_user(DEPLOYER)
    answer = asked()
    assert (answer.status_code, "Another account is called" in answer.json()["detail"]) == (401, True)
    User.objects.update(username="renamed")
    assert asked().status_code == 200
    User.objects.filter(username=DEPLOYER).update(is_active=False)
    assert asked().status_code == 401


def test_while_the_api_server_is_away_it_says_so(server: FakeServer) -> None:
    server.fault = APIForbiddenError("POST: 403", status=403)
    answer = asked()
    assert answer.status_code == 503
    assert TOKEN not in answer.content.decode()


def test_tokens_that_are_not_taken_reach_the_api_server_so_often_of_one_address(server: FakeServer) -> None:
    server.status["authenticated"] = False
    of_one = [f"2001:db8::{number:x}" for number in range(1, OF_ADDRESS + 1)]
    assert {asked(f"a.b.{address}", address).status_code for address in of_one} == {401}
    refused = asked(address="2001:db8::ffff")
    assert (refused.status_code, int(refused["Retry-After"]) <= 60, len(server.asked)) == (429, True, OF_ADDRESS)
    assert asked(address="2001:db8:0:1::1").status_code == 401


def test_of_all_addresses_together_so_often(server: FakeServer) -> None:
    server.status["authenticated"] = False
    answers = [asked(address=f"192.0.2.{number}").status_code for number in range(IN_ALL + 9)]
    assert (answers.count(401), answers.count(429)) == (IN_ALL, 9)


def test_a_token_that_was_taken_is_reviewed_whatever_strangers_send(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked().status_code == 200
    server.status["authenticated"] = False
    for number in range(IN_ALL):
        asked(f"a.b.{number}")
    server.status["authenticated"] = True
    assert [asked().status_code, asked("new.to.berth").status_code] == [200, 429]
    server.status["authenticated"] = False
    assert [asked().status_code, asked().status_code] == [401, 429]
    server.status["authenticated"] = True
    monkeypatch.setattr("controlplane.token_review.time.monotonic", lambda: 6_060.0)
    assert asked().status_code == 200


def test_who_has_no_role_is_a_stranger(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    none = msgspec.structs.replace(settings.BERTH, token_review_roles=(("a/b", "Operator"),))
    monkeypatch.setattr(settings, "BERTH", none)
    answers = [asked().status_code for _ in range(OF_ADDRESS + 1)]
    assert answers == [401] * OF_ADDRESS + [429]


def test_while_reviews_of_strangers_do_not_come_back_no_more_are_begun() -> None:
    strangers = Strangers()
    with ExitStack() as asking:
        for number in range(AT_ONCE):
            asking.enter_context(strangers.asking(f"a.b.{number}", f"192.0.2.{number}", 1))
        with pytest.raises(TooOftenError), strangers.asking("a.b.c", "192.0.2.99", 1):
            pass
    with strangers.asking("a.b.c", "192.0.2.99", 1):
        pass


def test_switched_off_it_asks_nobody(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    off = {"token_review_audience": "", "token_review_roles": ()}
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, **off))
    assert asked().status_code == 401
    assert asked(base64.b64encode(b"x").decode()).status_code == 401
    assert server.asked == []


@pytest.mark.parametrize(
    "variables",
    [
        {"BERTH_TOKEN_REVIEW_AUDIENCE": "berth"},
        {"BERTH_TOKEN_REVIEW_ROLES": "ci/a=Operator"},
        {"BERTH_TOKEN_REVIEW_AUDIENCE": "berth", "BERTH_TOKEN_REVIEW_ROLES": "ci/a=Administrator"},
        {"BERTH_TOKEN_REVIEW_AUDIENCE": "berth", "BERTH_TOKEN_REVIEW_ROLES": "ci=Operator"},
        {"BERTH_TOKEN_REVIEW_AUDIENCE": "a b", "BERTH_TOKEN_REVIEW_ROLES": "ci/a=Operator"},
    ],
)
def test_settings_that_make_no_sense_are_named(variables: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="BERTH_TOKEN_REVIEW"):
        read_environment(variables)
