"""Signing in: what a provider's claims make of somebody, whose tokens are taken, who is locked out, what pages may load."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from io import StringIO
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import jwt
import pytest
import requests
from axes.models import AccessAttempt
from cryptography.hazmat.primitives.asymmetric import rsa
from django.conf import settings
from django.contrib.auth import authenticate, login
from django.contrib.auth.models import AnonymousUser, User
from django.contrib.messages.storage.fallback import FallbackStorage
from django.core.exceptions import SuspiciousOperation
from django.core.management import call_command
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.urls import path
from django.utils import timezone
from msgspec.structs import replace

from controlplane import provider, sign_in_form
from controlplane.accounts import LocalAccounts, address
from controlplane.env_values import READERS
from controlplane.models import Identity, Session
from controlplane.provider import Provider, ProviderError, Return, SignIn, SignOut, account, roles_of
from policies.models import AuditEvent
from policies.publishing import AuditKind

ISSUER = "https://sign-in.example.org"
OPS = {"sub": "7", "preferred_username": "sam", "email": "sam@example.org"}

pytestmark = pytest.mark.django_db


@pytest.fixture
def provided(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """A provider is set."""
    settings.BERTH = replace(settings.BERTH, oidc_issuer=ISSUER, oidc_client_id="berth")
    settings.OIDC_RP_CLIENT_ID = "berth"


def roles(user: User) -> set[str]:
    return set(User.objects.get(pk=user.pk).groups.values_list("name", flat=True))


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"groups": ["kube-ops", "football"]}, {"Operator"}),
        ({"groups": "kube-leads"}, {"Approver", "Emergency"}),
        ({"groups": ["kube-ops", "kube-leads", 7, None]}, {"Operator", "Approver", "Emergency"}),
        ({"groups": None}, set()),
        ({"groups": {"kube-ops": True}}, set()),
        ({}, set()),
    ],
)
def test_roles_are_those_that_the_claim_names(claims: dict[str, Any], expected: set[str]) -> None:
    read, _ = READERS["oidc_roles"]
    given = read("kube-ops=Operator,kube-leads=Approver,kube-leads=Emergency")
    assert roles_of(claims, "groups", given) == expected


def test_the_first_time_makes_an_account_and_each_time_sets_its_roles() -> None:
    user = account(ISSUER, OPS, {"Operator"})
    assert (user.username, roles(user), user.is_staff, user.is_superuser) == ("sam", {"Operator"}, True, False)
    again = account(ISSUER, {**OPS, "preferred_username": "samira"}, {"Approver", "Administrator"})
    assert (again.pk, again.username) == (user.pk, "sam")
    assert roles(user) == {"Approver"}
    assert User.objects.get(pk=user.pk).is_superuser


def test_nobody_takes_over_an_account_by_its_name_or_address() -> None:
    User.objects.create_user("sam", "sam@example.org", is_superuser=True)
    user = account(ISSUER, OPS, {"Auditor"})
    assert user.username == "sam-2"
    assert not user.is_superuser
    elsewhere = account("https://another.example.org", OPS, {"Auditor"})
    assert elsewhere.pk != user.pk


@pytest.mark.parametrize(
    ("claimed", "name"),
    [
        ("sam\u200b", "sam-2"),
        ("\u202esam", "sam-2"),
        ("\uff53\uff41\uff4d", "sam-2"),
        ("SAM", "SAM-2"),
        ("s\u0430m", "s@example.org"),
        ("sam\nlevel=error", "s@example.org"),
        ("s\0m", "sm"),
        (["sam"], "s@example.org"),
        ("9" * 5_000, "s@example.org"),
        ("jörg", "jörg"),
        ("IŞIK", "IŞIK-2"),
        ("işik", "işik-2"),
        ("ışık", "ışık-2"),
        ("İŞİK", "İŞİK-2"),
    ],
)
def test_nobody_gets_a_name_that_looks_like_anothers(claimed: Any, name: str) -> None:
    User.objects.create_user("sam")
    User.objects.create_user("Işik")
    made = account(ISSUER, {"sub": "8", "preferred_username": claimed, "email": "s@example.org"}, {"Operator"})
    assert made.username == name


@pytest.mark.django_db(transaction=True)
def test_people_of_one_name_who_come_at_the_same_moment_each_get_one_account() -> None:
    together = threading.Barrier(3)

    def come(subject: str) -> str:
        together.wait()
        try:
            return account(ISSUER, OPS | {"sub": subject}, {"Operator"}).username
        finally:
            connection.close()

    with ThreadPoolExecutor(3) as threads:
        first, again, other = threads.map(come, ("7", "7", "8"))
    assert first == again
    assert {first, other} == {"sam", "sam-2"}


def test_claims_of_which_nothing_is_a_name_make_one_of_the_subject() -> None:
    made = account(ISSUER, {"sub": "auth0|8 \u0430", "given_name": "A\0\u202e", "email": 7}, {"Operator"})
    assert (made.username, made.first_name, made.email) == ("auth0-8--", "A", "")


def test_who_has_no_role_gets_no_account() -> None:
    with pytest.raises(ProviderError, match="none of Berth's roles"):
        account(ISSUER, OPS, set())
    assert not User.objects.exists()


def test_who_has_lost_all_roles_keeps_the_account_and_no_right() -> None:
    user = account(ISSUER, OPS, {"Operator", "Administrator"})
    with pytest.raises(ProviderError):
        account(ISSUER, OPS, set())
    user.refresh_from_db()
    assert (roles(user), user.is_staff, user.is_superuser) == (set(), False, False)
    assert Identity.objects.filter(user=user).exists()


KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def token(**members: Any) -> str:
    said = {"iss": ISSUER, "aud": "berth", "sub": "7", "nonce": "n", "exp": int(time.time()) + 600, **members}
    return jwt.encode(said, KEY, algorithm="RS256", headers={"kid": "one"})


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch, provided: None) -> Provider:
    monkeypatch.setattr(Provider, "retrieve_matching_jwk", lambda *_: KEY.public_key())
    return Provider()


def test_a_token_for_us_is_taken(backend: Provider) -> None:
    assert backend.verify_token(token(), nonce="n")["sub"] == "7"
    assert backend.verify_token(token(aud=["berth", "other"], azp="berth"), nonce="n")["sub"] == "7"


@pytest.mark.parametrize(
    "members",
    [
        {"iss": "https://evil.example"},
        {"aud": "other"},
        {"aud": ["berth"], "azp": "other"},
        {"nonce": "m"},
        {"exp": 1},
        {"iat": time.time() + 3_600},
    ],
    ids=["issuer", "audience", "authorised party", "nonce", "expired", "of an hour to come"],
)
def test_any_other_token_is_refused(backend: Provider, members: dict[str, Any]) -> None:
    with pytest.raises((SuspiciousOperation, jwt.PyJWTError)):
        backend.verify_token(token(**members), nonce="n")


def test_a_token_without_an_end_is_refused(backend: Provider) -> None:
    said = {"iss": ISSUER, "aud": "berth", "sub": "7", "nonce": "n"}
    with pytest.raises(ProviderError, match="never ends"):
        backend.verify_token(jwt.encode(said, KEY, algorithm="RS256", headers={"kid": "one"}), nonce="n")


class Asked:
    """A provider that is asked by HTTP, from memory: its answers by URL."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, settings: Any, *, algorithm: str = "RS256") -> None:
        settings.ROOT_URLCONF = __name__
        settings.BERTH = replace(settings.BERTH, oidc_roles=(("kube-ops", "Operator"),))
        settings.OIDC_RP_SIGN_ALGO = algorithm
        self.algorithm = algorithm
        self.key = {**jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True), "kid": "one"}
        endpoints = {
            "authorization_endpoint": "a",
            "token_endpoint": "token",
            "userinfo_endpoint": "who",
            "jwks_uri": "keys",
        }
        self.answers: dict[str, Any] = {
            f"{ISSUER}/.well-known/openid-configuration": {"issuer": ISSUER, **endpoints},
            "keys": {"keys": [{"kty": "oct"}, {**self.key, "use": "enc"}, self.key]},
            "who": OPS | {"groups": ["kube-ops"]},
        }
        self.gives()
        provider._document.cache_clear()
        for method in ("get", "post"):
            monkeypatch.setattr(requests, method, self._answer)

    def gives(self, kid: str | None = "one", **members: Any) -> None:
        said = {"iss": ISSUER, "aud": "berth", "sub": "7", "nonce": "n", "exp": time.time() + 600, **members}
        signed = jwt.encode(said, KEY, algorithm=self.algorithm, headers={"kid": kid} if kid else {})
        self.answers["token"] = {"id_token": signed, "access_token": "x"}

    def _answer(self, url: str, **_: Any) -> requests.Response:
        answer = requests.Response()
        answer.status_code, answer._content = 200, json.dumps(self.answers[url]).encode()
        return answer

    def signed_in(self) -> Any:
        request = RequestFactory().get("/oidc/callback/?code=c&state=s")
        request.session = {}  # type: ignore[assignment]
        return Provider().authenticate(request, nonce="n", code_verifier="v")


urlpatterns = [path("oidc/callback/", lambda _: HttpResponse(), name="oidc_authentication_callback")]


@pytest.fixture
def asked(provided: None, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Asked]:
    yield Asked(monkeypatch, settings)
    provider._document.cache_clear()


def test_a_provider_whose_clock_is_a_little_ahead_lets_people_in(asked: Asked) -> None:
    asked.gives(iat=time.time() + 20, nbf=time.time() + 20)
    assert asked.signed_in().username == "sam"


def test_a_provider_with_one_key_need_not_name_it(asked: Asked) -> None:
    asked.gives(kid=None)
    del asked.key["kid"]
    assert asked.signed_in().username == "sam"


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512"])
def test_keys_need_not_say_their_algorithm(
    algorithm: str, provided: None, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    assert Asked(monkeypatch, settings, algorithm=algorithm).signed_in().username == "sam"
    provider._document.cache_clear()


@pytest.mark.parametrize(
    ("url", "answer"),
    [
        (f"{ISSUER}/.well-known/openid-configuration", ["issuer"]),
        ("token", []),
        ("token", {"id_token": None}),
        ("token", {"id_token": 7}),
        ("who", None),
        ("who", "sam"),
        ("keys", {}),
        ("keys", {"keys": "one"}),
        ("keys", {"keys": [7, {"kid": "one"}, {"kid": "one", "kty": "RSA"}]}),
    ],
)
def test_whatever_a_provider_answers_nobody_is_let_in_and_nothing_breaks(asked: Asked, url: str, answer: Any) -> None:
    asked.answers[url] = answer
    assert asked.signed_in() is None
    assert not User.objects.exists()


def test_a_token_signed_in_another_way_is_refused_and_the_setting_is_named(
    asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    asked.algorithm = "RS512"
    asked.gives()
    assert asked.signed_in() is None
    assert "BERTH_OIDC_SIGNING_ALGORITHM" in caplog.records[-1].fault  # type: ignore[attr-defined]


def test_claims_of_somebody_else_are_refused(backend: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Provider, "get_userinfo", lambda *_: {"sub": "8", "groups": ["kube-ops"]})
    with pytest.raises(ProviderError, match="claims are of '8'"):
        backend.get_or_create_user("access", "id", {"sub": "7"})
    assert not User.objects.exists()


def test_beside_a_provider_a_password_is_for_administrators_alone(provided: None, rf: RequestFactory) -> None:
    User.objects.create_user("clerk", password="a long enough password", is_staff=True)
    User.objects.create_superuser("breakglass", password="a long enough password")
    request = rf.post("/admin/login/")
    assert authenticate(request, username="clerk", password="a long enough password") is None
    found = authenticate(request, username="breakglass", password="a long enough password")
    assert found is not None
    assert found.username == "breakglass"


def test_a_session_from_a_provider_is_over_when_its_account_may_no_longer_sign_in(backend: Provider) -> None:
    user = User.objects.create_user("sam", is_staff=True)
    assert backend.get_user(user.pk) == user
    User.objects.update(is_staff=False)
    assert backend.get_user(user.pk) is None


@pytest.mark.parametrize(("state", "stays"), [("", True), ("&state=guessed", True), ("&state=asked", False)])
def test_a_link_to_an_error_of_the_provider_signs_out_nobody_who_asked_nothing_there(
    client: Client, rf: RequestFactory, state: str, stays: bool
) -> None:
    client.force_login(User.objects.create_user("sam", is_staff=True))
    request = rf.get(f"/oidc/callback/?error=access_denied{state}")
    request.session, request.user = client.session, User.objects.get()
    request.session["oidc_states"] = {"asked": {"nonce": "n", "code_verifier": "v"}}
    request._messages = SimpleNamespace(add=lambda *_: None)  # type: ignore[attr-defined] # what the middleware gives
    answer = Return.as_view()(request)
    assert (answer.status_code, answer["Location"]) == (302, "/admin/login/")
    assert request.user.is_authenticated == stays


def come_back(client: Client, query: str, **session: Any) -> tuple[HttpResponse, list[str]]:
    """Come back from the provider; returns the answer and what it says."""
    request = RequestFactory().get(f"/oidc/callback/?{query}")
    request.session, request.user = client.session, AnonymousUser()
    request.session.update(session)
    request._messages = FallbackStorage(request)  # type: ignore[attr-defined]
    answer = Return.as_view()(request)
    return answer, [str(each) for each in request._messages]  # type: ignore[attr-defined]


BEGUN = {"asked": {"nonce": "n", "code_verifier": "v"}}


def test_why_the_provider_refused_is_in_the_log(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    query = f"error=invalid_scope&error_description=groups{'x' * 900}&state=asked"
    answer, said = come_back(client, query, oidc_states={**BEGUN})
    assert answer["Location"] == "/admin/login/"
    assert "The log says which." in said[0]
    assert caplog.records[-1].fault.startswith("invalid_scope: groupsx")  # type: ignore[attr-defined]
    assert len(caplog.records[-1].fault) == 300  # type: ignore[attr-defined]


@pytest.mark.parametrize("query", ["code=c&state=asked", "error=access_denied&state=asked", ""])
def test_who_comes_back_too_late_reads_that_and_not_that_a_role_is_missing(client: Client, query: str) -> None:
    answer, said = come_back(client, query)
    assert answer["Location"] == "/admin/login/"
    assert len(said) == 1
    assert "wasn't finished within 10 minutes of its beginning, or began in another browser" in said[0]


def test_who_signs_in_at_the_provider_while_signed_in_is_written_down_and_begins_a_new_session(
    client: Client, rf: RequestFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = User.objects.create_user("sam", is_staff=True)
    user.backend = "controlplane.provider.Provider"
    client.force_login(user, user.backend)
    monkeypatch.setattr("mozilla_django_oidc.views.auth.authenticate", lambda **_: user)
    request = rf.get("/oidc/callback/?code=c&state=asked")
    request.session, request.user = client.session, user
    began = timezone.now() - timedelta(hours=7)
    request.session.update({"oidc_states": {**BEGUN}, "berth_began": {"at": began.isoformat()}})
    assert Return.as_view()(request)["Location"] == "/admin/"
    assert AuditEvent.objects.filter(kind=AuditKind.LOG_IN, thing_name="sam").count() == 2
    assert request.session.get_expiry_date() > timezone.now() + timedelta(hours=7)


@pytest.mark.parametrize(("groups", "hints"), [(1, True), (500, False)])
def test_the_link_to_sign_out_at_the_provider_is_one_that_servers_take(
    asked: Asked, rf: RequestFactory, monkeypatch: pytest.MonkeyPatch, groups: int, hints: bool
) -> None:
    monkeypatch.setattr(provider, "reverse", lambda _: "/admin/login/")
    asked.answers[f"{ISSUER}/.well-known/openid-configuration"]["end_session_endpoint"] = f"{ISSUER}/end"
    asked.gives(groups=[f"a-group-of-kubernetes-{number}" for number in range(groups)])
    request = rf.post("/admin/logout/")
    request.session = {"oidc_id_token": asked.answers["token"]["id_token"]}  # type: ignore[assignment]
    found = provider.signed_out_url(request)
    assert found.startswith(f"{ISSUER}/end?client_id=berth&")
    assert len(found) < 8_000
    assert ("id_token_hint" in found) == hints


@pytest.mark.parametrize(
    ("end", "status"), [(f"{ISSUER}/end", 302), ("https://another.example/end", 200), (None, 302)], ids=str
)
def test_signing_out_leads_to_the_provider_wherever_it_signs_people_out(
    asked: Asked,
    client: Client,
    rf: RequestFactory,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    end: str | None,
    status: int,
) -> None:
    settings.PROVIDER_ORIGIN = [ISSUER]
    settings.LOGOUT_REDIRECT_URL = "/admin/login/"
    settings.OIDC_OP_LOGOUT_URL_METHOD = "controlplane.provider.signed_out_url"
    monkeypatch.setattr(provider, "reverse", lambda _: "/admin/login/")
    asked.answers[f"{ISSUER}/.well-known/openid-configuration"]["end_session_endpoint"] = end
    request = rf.post("/admin/logout/")
    request.session, request.user = client.session, User.objects.create_user("sam", is_staff=True)
    answer: Any = SignOut.as_view()(request)
    assert answer.status_code == status
    assert not request.user.is_authenticated
    if status == 302:
        # Browsers let a form lead there.
        assert answer["Location"].startswith(end or "http://testserver/admin/login/")
        return
    assert answer["Refresh"].startswith(f"0; url={end}?client_id=berth&")
    assert f'href="{end}?client_id=berth&amp;' in answer.render().content.decode()


def test_a_query_in_the_urls_of_a_provider_stays_where_berth_adds_its_own(
    asked: Asked, client: Client, rf: RequestFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "reverse", lambda _: "/admin/login/")
    asked.answers[f"{ISSUER}/.well-known/openid-configuration"] |= {
        "authorization_endpoint": f"{ISSUER}/authorize?p=staff&q=",
        "end_session_endpoint": f"{ISSUER}/end?p=staff",
    }
    request = rf.get("/oidc/authenticate/")
    request.session, request.user = client.session, AnonymousUser()
    there = urlsplit(SignIn.as_view()(request)["Location"])
    assert (there.path, there.query.count("?")) == ("/authorize", 0)
    assert {"p": "staff", "q": "", "client_id": "berth", "response_type": "code"}.items() <= dict(
        parse_qsl(there.query, keep_blank_values=True)
    ).items()
    assert provider.signed_out_url(request).startswith(f"{ISSUER}/end?p=staff&client_id=berth&")


def test_who_only_opens_the_link_to_the_provider_leaves_a_session_for_minutes(
    client: Client, rf: RequestFactory, asked: Asked
) -> None:
    Session.objects.create(session_key="old", expire_date=timezone.now() - timedelta(seconds=1))
    request = rf.get("/oidc/authenticate/")
    request.session, request.user = client.session, AnonymousUser()
    assert SignIn.as_view()(request).status_code == 302
    assert request.session.get_expiry_age() <= 600
    assert not Session.objects.filter(session_key="old").exists()
    login(request, User.objects.create_user("sam"), backend=settings.AUTHENTICATION_BACKENDS[0])
    assert request.session.get_expiry_age() == settings.SESSION_COOKIE_AGE


def test_opening_the_link_to_the_provider_prolongs_no_session(client: Client, rf: RequestFactory, asked: Asked) -> None:
    user = User.objects.create_user("sam", is_staff=True)
    client.force_login(user)
    request = rf.get("/oidc/authenticate/")
    request.session, request.user = client.session, user
    hours_ago = timezone.now() - timedelta(hours=7)
    request.session["berth_began"] |= {"at": hours_ago.isoformat()}
    assert SignIn.as_view()(request).status_code == 302
    request.session.save()
    assert Session.objects.get().expire_date == hours_ago + timedelta(seconds=settings.SESSION_COOKIE_AGE)


def test_some_of_the_admins_threads_are_always_for_others_than_who_waits_for_the_provider(
    asked: Asked, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "reverse", lambda name: f"/{name}")
    request = RequestFactory().get("/oidc/authenticate/")
    request.session, request.user = client.session, AnonymousUser()
    request._messages = FallbackStorage(request)  # type: ignore[attr-defined]
    with ExitStack() as stack:
        for _ in range(provider.AT_ONCE):
            stack.enter_context(provider.asking())
        with pytest.raises(provider.BusyError):
            asked.signed_in()
        assert SignIn.as_view()(request).headers["Location"] == "/admin:login"
        assert [str(each).partition(" ")[2] for each in request._messages] == [  # type: ignore[attr-defined]
            "sign-on is slow to answer, and too many people are waiting for it. Try again in a few seconds."
        ]
    assert asked.signed_in().username == "sam"


def test_who_comes_back_while_too_many_wait_for_the_provider_is_told_so(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        message = "four wait"
        raise provider.BusyError(message)

    monkeypatch.setattr(provider, "reverse", lambda name: f"/{name}")
    monkeypatch.setattr("mozilla_django_oidc.views.auth.authenticate", refuse)
    request = RequestFactory().get("/oidc/callback/?code=c&state=s")
    request.session, request.user = client.session, AnonymousUser()
    request.session["oidc_states"] = {"s": {"nonce": "n", "code_verifier": None}}
    request._messages = FallbackStorage(request)  # type: ignore[attr-defined]
    assert Return.as_view()(request).headers["Location"] == "/admin:login"
    assert ["is slow to answer" in str(each) for each in request._messages] == [True]  # type: ignore[attr-defined]


def test_who_comes_back_from_the_provider_in_vain_locks_out_nobody_else_of_the_address(
    asked: Asked, settings: Any, rf: RequestFactory, caplog: pytest.LogCaptureFixture
) -> None:
    settings.AUTHENTICATION_BACKENDS = [*settings.AUTHENTICATION_BACKENDS, "controlplane.provider.Provider"]

    def come() -> Any:
        request = rf.get("/oidc/callback/?code=c&state=s")
        request.session = {}  # type: ignore[assignment]
        return authenticate(request, nonce="n", code_verifier="v")

    asked.gives(sub="8")
    assert [come() for _ in range(settings.AXES_FAILURE_LIMIT + 1)] == [None] * (settings.AXES_FAILURE_LIMIT + 1)
    assert {getattr(line, "status_code", 0) for line in caplog.records if line.name == "berth.signin"} == {401}
    asked.gives()
    assert come().username == "sam"


def sign_in(client: Client, name: str, password: str, **more: Any) -> Any:
    return client.post("/admin/login/", {"username": name, "password": password, "next": "/admin/"}, **more)


def test_a_wrong_password_is_answered_with_what_to_do_alike_for_all_names(client: Client) -> None:
    User.objects.create_user("anna", password="right", is_staff=True)
    User.objects.create_user("off", password="right", is_staff=True, is_active=False)
    for name, password in (("anna", "wrong"), ("nobody", "wrong"), ("off", "right")):
        said = client.post("/admin/login/", {"username": name, "password": password}, follow=True).content.decode()
        assert "both are case-sensitive. An administrator can set a new password." in said, name
        assert "staff account" not in said
        # That sentence is all of it: there is no error below to correct.
        assert "errornote" in said
        assert "orrect the error" not in said


def test_who_guesses_is_locked_out_for_a_while_and_nobody_else_is(client: Client) -> None:
    User.objects.create_user("sam", password="a long enough password", is_staff=True)
    for _ in range(settings.AXES_FAILURE_LIMIT - 1):
        assert sign_in(client, "sam", "a guess").status_code == 200
    assert sign_in(client, "sam", "a guess").status_code == 429
    refused = sign_in(client, "sam", "a long enough password")
    assert refused.status_code == 429
    assert "Locked out" in refused.content.decode()
    # From elsewhere the account's own person goes on.
    assert sign_in(client, "sam", "a long enough password", REMOTE_ADDR="192.0.2.7").status_code == 302


def test_who_guesses_from_many_addresses_of_one_network_of_ipv6_is_locked_out_like_who_has_one(client: Client) -> None:
    User.objects.create_user("sam", password="a long enough password", is_staff=True)
    statuses = [
        sign_in(client, "sam", "a guess", REMOTE_ADDR=f"2001:db8:1:2::{number}").status_code
        for number in range(settings.AXES_FAILURE_LIMIT)
    ]
    assert statuses == [200] * (settings.AXES_FAILURE_LIMIT - 1) + [429]
    assert sign_in(client, "sam", "a long enough password", REMOTE_ADDR="2001:db8:1:2:ffff::1").status_code == 429
    # Another network's, and one of IPv4 as a listener for both writes it, are others.
    for elsewhere in ("2001:db8:1:3::1", "::ffff:192.0.2.7"):
        assert sign_in(client, "sam", "a guess", REMOTE_ADDR=elsewhere).status_code == 200


def test_who_has_somebodys_session_guesses_the_password_no_faster_than_who_signs_in(client: Client) -> None:
    User.objects.create_user("sam", password="a long enough password", is_staff=True)
    assert sign_in(client, "sam", "a long enough password").status_code == 302
    new = "another long password"

    def change(old: str) -> Any:
        typed = {"old_password": old, "new_password1": new, "new_password2": new}
        return client.post("/admin/password_change/", typed)

    for _ in range(settings.AXES_FAILURE_LIMIT - 1):
        refused = change("a guess")
        assert (refused.status_code, "entered incorrectly" in refused.content.decode()) == (200, True)
    assert change("a guess").status_code == 429
    assert change("a long enough password").status_code == 429
    failed = AuditEvent.objects.filter(thing_name="sam", kind=AuditKind.LOG_IN_FAILED)
    assert failed.count() >= settings.AXES_FAILURE_LIMIT
    call_command("axes_reset_username", "sam", stdout=StringIO())
    assert change("a long enough password").status_code == 302
    assert User.objects.get(username="sam").check_password(new)


def test_no_password_of_a_form_that_failed_is_kept(client: Client) -> None:
    User.objects.create_user("sam", password="a long enough password", is_staff=True)
    assert sign_in(client, "sam", "a long enough password").status_code == 302
    new = "another long password"
    typed = {"old_password": "a long enough pasword", "new_password1": new, "new_password2": new}
    assert client.post("/admin/password_change/", typed).status_code == 200
    sign_in(client, "sam", "a long enough pasword")
    kept = [row.post_data for row in AccessAttempt.objects.all()]
    assert kept
    assert [text for text in kept if "pasword" in text or new in text] == []


def test_passwords_are_compared_a_few_at_once_for_a_new_one_as_well(client: Client, compared: list[str]) -> None:
    client.force_login(User.objects.create_user("sam", password="right", is_staff=True))
    typed = {
        "old_password": "right",
        "new_password1": "another long password",
        "new_password2": "another long password",
    }
    with ExitStack() as others:
        for number in range(sign_in_form.AT_ONCE):
            others.enter_context(sign_in_form.TURNS.comparing(f"192.0.2.{number}", int(time.monotonic() // 60)))
        assert "Too many sign-in attempts" in client.post("/admin/password_change/", typed).content.decode()
        assert compared == []
    assert client.post("/admin/password_change/", typed).status_code == 302


@pytest.fixture
def compared(settings: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The accounts whose passwords were compared, which takes a third of a second for each, also of those that there aren't."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    names: list[str] = []
    compare = LocalAccounts.authenticate

    def comparing(self: LocalAccounts, request: Any, username: Any = None, password: Any = None, **more: Any) -> Any:
        names.append(username)
        return compare(self, request, username=username, password=password, **more)

    monkeypatch.setattr(LocalAccounts, "authenticate", comparing)
    return names


@pytest.mark.django_db
class TestManyPasswords:
    """Of strangers, at the page where anybody can try."""

    def test_of_one_address_so_many_wrong_ones_are_compared_in_a_minute(
        self, client: Client, compared: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sign_in_form, "time", SimpleNamespace(monotonic=lambda: 90.0))
        User.objects.create_user("sam", password="a long enough password", is_staff=True)
        for number in range(sign_in_form.OF_ADDRESS + 5):
            refused = sign_in(client, f"nobody-{number}", "a guess")
        assert len(compared) == sign_in_form.OF_ADDRESS
        assert "Too many sign-in attempts" in refused.content.decode()
        # Whoever comes from elsewhere is let in, and so is who waits a minute.
        assert sign_in(client, "sam", "a long enough password", REMOTE_ADDR="192.0.2.7").status_code == 302
        monkeypatch.setattr(sign_in_form, "time", SimpleNamespace(monotonic=lambda: 150.0))
        assert sign_in(client, "sam", "a long enough password").status_code == 302

    def test_right_ones_are_not_counted(
        self, client: Client, compared: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sign_in_form, "OF_ADDRESS", 1)
        User.objects.create_user("sam", password="a long enough password", is_staff=True)
        for _ in range(3):
            assert sign_in(client, "sam", "a long enough password").status_code == 302
        assert compared == ["sam"] * 3

    def test_some_of_the_admins_threads_are_always_for_others(self, client: Client, compared: list[str]) -> None:
        with ExitStack() as stack:
            for number in range(sign_in_form.AT_ONCE):
                stack.enter_context(sign_in_form.TURNS.comparing(f"192.0.2.{number}", 0))
            refused = sign_in(client, "sam", "a guess", REMOTE_ADDR="192.0.2.99")
            assert "Too many sign-in attempts" in refused.content.decode()
            assert compared == []
        sign_in(client, "sam", "a guess", REMOTE_ADDR="192.0.2.99")
        assert compared == ["sam"]


def test_who_may_not_sign_in_is_locked_out_by_the_right_password_like_by_a_wrong_one(client: Client) -> None:
    User.objects.create_user("robot", password="a long enough password")
    tries = range(settings.AXES_FAILURE_LIMIT)
    statuses = [sign_in(client, "robot", "a long enough password").status_code for _ in tries]
    assert statuses[-2:] == [200, 429]
    assert AuditEvent.objects.filter(kind=AuditKind.LOG_IN_FAILED, thing_name="robot").exists()


def test_an_account_that_was_locked_may_sign_in_once_the_lock_ends(client: Client, settings: Any) -> None:
    User.objects.create_user("sam", password="a long enough password", is_staff=True)
    for _ in range(settings.AXES_FAILURE_LIMIT):
        sign_in(client, "sam", "a guess")
    settings.AXES_COOLOFF_TIME = timedelta(0)
    assert sign_in(client, "sam", "a long enough password").status_code == 302


def test_a_right_password_forgets_the_wrong_ones(client: Client) -> None:
    User.objects.create_user("sam", password="a long enough password", is_staff=True)
    for _ in range(3):
        for _ in range(settings.AXES_FAILURE_LIMIT - 1):
            assert sign_in(client, "sam", "a guess").status_code == 200
        assert sign_in(client, "sam", "a long enough password").status_code == 302


@pytest.mark.parametrize(("behind", "expected"), [(False, "10.0.0.1"), (True, "192.0.2.9")])
def test_failures_count_by_the_address_that_our_own_proxy_says(
    behind: bool, expected: str, rf: RequestFactory, settings: Any
) -> None:
    settings.BERTH = replace(settings.BERTH, behind_tls_proxy=behind)
    request: HttpRequest = rf.get("/", REMOTE_ADDR="10.0.0.1", HTTP_X_FORWARDED_FOR="1.2.3.4, 192.0.2.9")
    assert address(request) == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("192.0.2.9:53122", "192.0.2.9"),
        ("[2001:db8::9]:443", "2001:db8::9"),
        ("[2001:db8::9]", "2001:db8::9"),
        ("2001:db8::9", "2001:db8::9"),
        ("unknown", "10.0.0.1"),
        ("192.0.2.9:x", "10.0.0.1"),
    ],
)
def test_an_address_that_a_proxy_says_with_a_port_counts_without_it(
    said: str, expected: str, rf: RequestFactory, client: Client, settings: Any
) -> None:
    """Each connection has a port of its own: by it nobody would ever be locked out. What is no address is no column's value."""
    settings.BERTH = replace(settings.BERTH, behind_tls_proxy=True)
    named: dict[str, Any] = {"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": f"1.2.3.4, {said}"}
    assert address(rf.get("/", **named)) == expected
    typed = {"username": "sam", "password": "wrong"}
    statuses = [client.post("/admin/login/", typed, **named).status_code for _ in range(settings.AXES_FAILURE_LIMIT)]
    assert statuses[-1] == 429


def test_pages_may_load_and_run_nothing_from_elsewhere(client: Client) -> None:
    policy = client.get("/admin/login/").headers["Content-Security-Policy"]
    directives = {part.split()[0]: part.split()[1:] for part in policy.split(";")}
    assert directives["default-src"] == ["'none'"]
    assert directives["script-src"] == ["'self'", "'unsafe-eval'"]
    assert "'unsafe-inline'" not in policy
    assert not any("http" in source for sources in directives.values() for source in sources)
