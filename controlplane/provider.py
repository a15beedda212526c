"""Signing in with an OpenID Connect provider: the provider decides who somebody is and which roles they have, at each sign-in.

mozilla-django-oidc implements the flow itself (code, state, nonce, PKCE, signatures). The parts that it leaves to its users
are here: the endpoints come from the provider's discovery document, the issuer and the audience of a token are compared,
people are identified by their subject, and roles come from a claim.
"""

import logging
import re
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import jwt
import msgspec
import requests
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user_model
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import AnonymousUser, Group, User
from django.core.exceptions import SuspiciousOperation
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.decorators import method_decorator
from mozilla_django_oidc import views
from mozilla_django_oidc.auth import OIDCAuthenticationBackend
from mozilla_django_oidc.utils import import_from_settings

from controlplane.models import Identity
from controlplane.session_store import BEGAN, SessionStore
from policies.origin import coming_from, current_origin

logger = logging.getLogger("berth.signin")

_ADMINISTRATOR = "Administrator"
# The time that a provider may take for one answer.
TIMEOUT_SECONDS = 10.0
# How many requests may wait for the provider at once. Anybody can open the link or come back with any code, and each request occupies one
# of the admin's eight threads until the provider answers: half of them are kept for others.
AT_ONCE = 4
_turns = threading.BoundedSemaphore(AT_ONCE)
# The time to sign in there. Whoever opens the link gets a row in the table of sessions, which must not stay for hours.
_SIGN_IN_SECONDS = 600
# How far its clock may be from ours.
_CLOCKS_APART_SECONDS = 60.0
# How much of a provider's own words is logged.
_MAX_FAULT = 300
# The longest ID token that is sent back at sign-out. Most servers take a URL of at most 8 KiB, and a token with hundreds of groups is
# longer; without it, a provider that isn't sure asks the person.
_MAX_HINT = 6_000
# OpenID Connect Core 2, ID Token.
_SUBJECT = re.compile(r"[\x20-\x7e]{1,255}")
_NAME = re.compile(r"[0-9A-Za-zÀ-ÖØ-öø-ſ@.+_-]{1,140}")
# mozilla-django-oidc's settings that come from the discovery document, with their names there.
_ENDPOINTS = {
    "OIDC_OP_AUTHORIZATION_ENDPOINT": "authorization_endpoint",
    "OIDC_OP_TOKEN_ENDPOINT": "token_endpoint",
    "OIDC_OP_USER_ENDPOINT": "userinfo_endpoint",
    "OIDC_OP_JWKS_ENDPOINT": "jwks_uri",
}
_FAILED = "Sign-in with {} failed: the provider refused, or doesn't know you, or gave you none of Berth's roles. The log says which."
_LATE = (
    "Sign-in with {} wasn't finished within {} minutes of its beginning, or began in another browser. Begin again here."
)
_AWAY = "{} can't be reached now: {}. An administrator with a Berth account can sign in without it."
_BUSY = "{} is slow to answer, and too many people are waiting for it. Try again in a few seconds."
_FAULTS = (requests.RequestException, SuspiciousOperation, jwt.PyJWTError)


class ProviderError(SuspiciousOperation):
    """The provider's answer can't be trusted. The text says why."""


class BusyError(ProviderError):
    """The provider isn't called: too many requests wait for it."""


@contextmanager
def asking() -> Iterator[None]:
    """Enclose calls to the provider.

    Raises:
        BusyError: too many other requests wait for it.
    """
    if not _turns.acquire(blocking=False):
        message = f"{AT_ONCE} other sign-ins wait for the provider"
        raise BusyError(message)
    try:
        yield
    finally:
        _turns.release()


@lru_cache(maxsize=1)
def _document(issuer: str) -> Mapping[str, Any]:
    """Return the provider's discovery document (OpenID Connect Discovery 1.0), read once; after an error it is read again.

    Raises:
        requests.RequestException: the provider doesn't answer.
        ProviderError: it is another issuer's document, or one without an endpoint; or too many requests wait for it.
    """
    url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    with asking():
        answer = requests.get(url, timeout=TIMEOUT_SECONDS)
    answer.raise_for_status()
    found = _members(answer.json(), url)
    if found.get("issuer") != issuer:
        message = f"{url} is of issuer {found.get('issuer')!r}; BERTH_OIDC_ISSUER has to be the same text"
        raise ProviderError(message)
    if missing := [name for name in _ENDPOINTS.values() if not found.get(name)]:
        message = f"{url} names no {' and no '.join(missing)}"
        raise ProviderError(message)
    return found


def _members(said: Any, where: str) -> dict[str, Any]:
    """Return the provider's answer, which has to be a JSON object.

    Raises:
        ProviderError: it is none.
    """
    if not isinstance(said, dict):
        message = f"{where} gave no JSON object"
        raise ProviderError(message)
    return said


def _setting(name: str, *default: Any) -> Any:
    if name in _ENDPOINTS:
        return _document(settings.BERTH.oidc_issuer)[_ENDPOINTS[name]]
    return import_from_settings(name, *default)


def roles_of(claims: Mapping[str, Any], claim: str, roles: Iterable[tuple[str, str]]) -> set[str]:
    """Return the roles that a person's claims give them: the claim may hold one value or a list."""
    found = claims.get(claim, [])
    values = found if isinstance(found, list) else [found]
    return {role for value, role in roles if value in values}


class Provider(OIDCAuthenticationBackend):  # type: ignore[misc]  # untyped
    """Authenticates people who come back from the provider with a code."""

    get_settings = staticmethod(_setting)

    def __init__(self) -> None:
        # Not the parent's, which calls the provider: Django makes all backends for each password, too, even while it is unavailable.
        self.UserModel = get_user_model()
        self.OIDC_RP_CLIENT_ID = settings.OIDC_RP_CLIENT_ID
        self.OIDC_RP_CLIENT_SECRET = settings.OIDC_RP_CLIENT_SECRET
        self.OIDC_RP_SIGN_ALGO = settings.OIDC_RP_SIGN_ALGO
        self.OIDC_RP_IDP_SIGN_KEY = None

    @property
    def OIDC_OP_TOKEN_ENDPOINT(self) -> str:  # noqa: N802  # the parent's names
        """The URL where a code is exchanged for tokens."""
        return str(_setting("OIDC_OP_TOKEN_ENDPOINT"))

    @property
    def OIDC_OP_USER_ENDPOINT(self) -> str:  # noqa: N802
        """The URL of the user info endpoint."""
        return str(_setting("OIDC_OP_USER_ENDPOINT"))

    @property
    def OIDC_OP_JWKS_ENDPOINT(self) -> str:  # noqa: N802
        """The URL of the provider's keys."""
        return str(_setting("OIDC_OP_JWKS_ENDPOINT"))

    def authenticate(self, request: HttpRequest | None, **kwargs: Any) -> User | None:
        """Return who signed in, or None: for an invalid code, an unavailable provider, or a person without a role."""
        if request is None or "nonce" not in kwargs:
            return None
        try:
            _document(settings.BERTH.oidc_issuer)  # now, since it waits for a turn of its own
            with asking():
                return super().authenticate(request, **kwargs)  # type: ignore[no-any-return]
        except BusyError:
            raise  # the view says so: it is no fault of this person
        except _FAULTS as fault:
            # Anybody can come back with any code; the log limits such lines by their status.
            said = {"fault": str(fault), "status_code": HTTPStatus.UNAUTHORIZED.value}
            logger.warning("a sign-in at the provider failed", extra=said)
            return None

    def get_token(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Return the tokens for a code."""
        return _members(super().get_token(payload), self.OIDC_OP_TOKEN_ENDPOINT)

    def get_userinfo(self, access_token: str, id_token: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Return a person's claims."""
        return _members(super().get_userinfo(access_token, id_token, payload), self.OIDC_OP_USER_ENDPOINT)

    def retrieve_matching_jwk(self, token: str) -> jwt.PyJWK:
        """Return the provider's key for a token: the one that its header names; a provider with a single key needn't name it.

        The parent's method expects each key to have a name, and takes a key without an algorithm for RS256.

        Raises:
            ProviderError: there is none, or the token is signed with another algorithm than the setting says.
        """
        header = jwt.get_unverified_header(token)
        if header.get("alg") != self.OIDC_RP_SIGN_ALGO:
            message = f"the token is signed by {header.get('alg')!r}; BERTH_OIDC_SIGNING_ALGORITHM has {self.OIDC_RP_SIGN_ALGO}"
            raise ProviderError(message)
        answer = requests.get(self.OIDC_OP_JWKS_ENDPOINT, timeout=TIMEOUT_SECONDS)
        answer.raise_for_status()
        keys = _members(answer.json(), self.OIDC_OP_JWKS_ENDPOINT).get("keys")
        named = header.get("kid")
        fitting = [key for key in keys if self._may_sign(key, named)] if isinstance(keys, list) else []
        if not fitting or (named is None and len(fitting) > 1):
            message = f"{self.OIDC_OP_JWKS_ENDPOINT} has no key {named!r} for {self.OIDC_RP_SIGN_ALGO}, or several without a name"
            raise ProviderError(message)
        return jwt.PyJWK(fitting[-1], algorithm=self.OIDC_RP_SIGN_ALGO)

    def _may_sign(self, key: Any, named: str | None) -> bool:
        algorithm = self.OIDC_RP_SIGN_ALGO
        return (
            isinstance(key, dict)
            and key.get("kty") == ("RSA" if algorithm.startswith("RS") else "EC")
            and key.get("use", "sig") == "sig"
            and key.get("alg", algorithm) == algorithm
            and (named is None or key.get("kid") == named)
        )

    def _verify_jws(self, payload: str, key: Any) -> dict[str, Any]:
        """Return the payload of a signed token. It may be issued slightly in the future, by a provider whose clock is ahead."""
        algorithms = [self.OIDC_RP_SIGN_ALGO]
        return jwt.decode(
            payload, key, algorithms=algorithms, leeway=_CLOCKS_APART_SECONDS, options={"verify_aud": False}
        )

    def verify_token(self, token: str, **kwargs: Any) -> dict[str, Any]:
        """Return the payload of a token.

        Raises:
            ProviderError: it has another issuer or audience (OpenID Connect Core 1.0, section 3.1.3.7), or no expiry.
        """
        said: dict[str, Any] = super().verify_token(token, **kwargs)
        # Signed user info has no nonce; it is requested without one.
        if "nonce" in kwargs and "exp" not in said:
            message = "a token that never ends isn't taken"
            raise ProviderError(message)
        audience = said.get("aud", [])
        audiences = audience if isinstance(audience, list) else [audience]
        if said.get("iss") != settings.BERTH.oidc_issuer or self.OIDC_RP_CLIENT_ID not in audiences:
            message = f"a token of {said.get('iss')!r} for {audience!r} isn't for this Berth"
            raise ProviderError(message)
        if said.get("azp", self.OIDC_RP_CLIENT_ID) != self.OIDC_RP_CLIENT_ID:
            message = f"a token that {said['azp']!r} asked for isn't for this Berth"
            raise ProviderError(message)
        return said

    def get_or_create_user(self, access_token: str, id_token: str, payload: dict[str, Any]) -> User:
        """Return the person's account with the roles that they have now.

        Raises:
            ProviderError: the claims belong to somebody else, or name none of Berth's roles.
        """
        claims = self.get_userinfo(access_token, id_token, payload)
        if not _SUBJECT.fullmatch(str(payload.get("sub", ""))) or claims.get("sub") != payload["sub"]:
            message = f"the token is of {payload.get('sub')!r}, the claims are of {claims.get('sub')!r}"
            raise ProviderError(message)
        roles = roles_of({**claims, **payload}, settings.BERTH.oidc_role_claim, settings.BERTH.oidc_roles)
        return account(settings.BERTH.oidc_issuer, claims, roles)

    def get_user(self, user_id: Any) -> Any:
        """Return the account of a session, unless it may no longer sign in."""
        return ModelBackend.get_user(self, user_id)

    def user_can_authenticate(self, user: Any) -> bool:
        """Return whether this account may sign in."""
        return bool(super().user_can_authenticate(user)) and user.is_staff


def account(issuer: str, claims: Mapping[str, Any], roles: set[str]) -> User:
    """Return the account of the person with these claims, created at the first sign-in, with exactly these roles.

    Raises:
        ProviderError: they have no role, so no account is created; an existing one loses its roles.
    """
    provider = msgspec.structs.replace(current_origin(), via=f"the provider {issuer}"[:150])
    with transaction.atomic(), coming_from(provider):
        identity = _known(issuer, claims["sub"])
        if identity is None and roles:
            # First sign-ins wait for each other here: they may be of people with one name, or of one person, in two tabs.
            Group.objects.select_for_update(no_key=True).order_by("pk").first()
            identity = _known(issuer, claims["sub"]) or _new(issuer, claims)
        if identity is not None:
            _bring_up_to_date(identity.user, claims, roles)
    if identity is None or not roles:
        message = f"subject {claims['sub']!r} has none of Berth's roles: BERTH_OIDC_ROLES maps what the claim may hold"
        raise ProviderError(message)
    return identity.user


def _known(issuer: str, subject: str) -> Identity | None:
    return Identity.objects.select_related("user").filter(issuer=issuer, subject=subject).first()


def _new(issuer: str, claims: Mapping[str, Any]) -> Identity:
    user = User.objects.create_user(_free_name(claims))
    return Identity.objects.create(user=user, issuer=issuer, subject=claims["sub"])


def _bring_up_to_date(user: User, claims: Mapping[str, Any], roles: set[str]) -> None:
    user.email = _seen(claims.get("email"))[:254]
    user.first_name, user.last_name = (_seen(claims.get(name))[:150] for name in ("given_name", "family_name"))
    user.is_staff, user.is_superuser = bool(roles), _ADMINISTRATOR in roles
    # Not the rest: an administrator may deactivate the account at this moment.
    user.save(update_fields=["email", "first_name", "last_name", "is_staff", "is_superuser"])
    user.groups.set(Group.objects.filter(name__in=roles))


def _free_name(claims: Mapping[str, Any]) -> str:
    """Return a name that no account has: nobody can take over another account by its name, or imitate it.

    People may choose their name at a provider. Letters that aren't Latin are removed, since some look like Latin ones.
    """
    said = [_seen(claims.get(name)) for name in ("preferred_username", "email", "sub")]
    wanted = next(filter(_NAME.fullmatch, said), re.sub(r"[^A-Za-z0-9@.+_-]", "-", said[-1]))[:140]
    names = [wanted, *(f"{wanted}-{number}" for number in range(2, 100))]
    # Compared here: databases differ in which letters they take for one (SQLite folds only ASCII, PostgreSQL by its locale).
    taken = {_folded(name) for name in User.objects.values_list("username", flat=True).iterator()}
    for name in names:
        if _folded(name) not in taken:
            return name
    message = f"a hundred accounts are called {wanted!r}"
    raise ProviderError(message)


def _folded(name: str) -> str:
    """Return a name as every name that differs from it only by case: of the Turkish dotless and dotted i, too, which are an i in capitals."""
    return unicodedata.normalize("NFKC", name).upper().casefold().replace("i\u0307", "i")


def _seen(said: Any) -> str:
    """Return the visible characters of a claim, normalised as Django does for names."""
    text = unicodedata.normalize("NFKC", said) if isinstance(said, str) else ""
    return "".join(filter(str.isprintable, text)).strip()


def _not_asked(request: HttpRequest, fault: Exception) -> HttpResponse:
    """Go back to the sign-in page, which says why the provider wasn't asked."""
    is_busy = isinstance(fault, BusyError)
    # Anybody can cause a refusal, as often as they like: by its status the log limits such lines.
    more = {"status_code": HTTPStatus.TOO_MANY_REQUESTS.value} if is_busy else {}
    logger.warning("the provider can't be reached", extra={"fault": str(fault), **more})
    text = _BUSY if is_busy else _AWAY
    messages.error(request, text.format(settings.BERTH.oidc_name.capitalize(), type(fault).__name__))
    return HttpResponseRedirect(reverse("admin:login"))


@method_decorator(login_not_required, name="dispatch")
class SignIn(views.OIDCAuthenticationRequestView):  # type: ignore[misc]
    """Sends people to the provider."""

    get_settings = staticmethod(_setting)

    def __init__(self, **_: Any) -> None:
        self.OIDC_RP_CLIENT_ID = settings.OIDC_RP_CLIENT_ID

    def get(self, request: HttpRequest) -> HttpResponse:
        """Redirect to the provider, or back with a message if it can't be reached."""
        try:
            endpoint = str(_setting("OIDC_OP_AUTHORIZATION_ENDPOINT"))
        except _FAULTS as fault:
            return _not_asked(request, fault)
        self.OIDC_OP_AUTH_ENDPOINT, _, self._query = endpoint.partition("?")
        if not request.user.is_authenticated:
            # A session that was somebody's would end some minutes after it began.
            request.session.pop(BEGAN, None)
            request.session.set_expiry(_SIGN_IN_SECONDS)
            SessionStore.clear_expired()
        return super().get(request)  # type: ignore[no-any-return]

    def get_extra_params(self, request: HttpRequest) -> dict[str, str]:
        """Return the query of the provider's own URL (RFC 6749, section 3.1), to which the parent view adds only behind a `?` of its own."""
        return {**super().get_extra_params(request), **dict(parse_qsl(self._query, keep_blank_values=True))}


@method_decorator(login_not_required, name="dispatch")
class Return(views.OIDCAuthenticationCallbackView):  # type: ignore[misc]
    """Takes people who come back from the provider."""

    get_settings = staticmethod(_setting)

    def get(self, request: HttpRequest) -> HttpResponse:
        """Read the provider's answer. Without a sign-in that this session began, or after its time, it is refused.

        So are errors that this session didn't ask for: the parent view would sign the person out, so anybody could, by a link.
        """
        begun = request.session.get("oidc_states")
        if begun is None or ("error" in request.GET and request.GET.get("state") not in begun):
            messages.error(request, _LATE.format(settings.BERTH.oidc_name.capitalize(), _SIGN_IN_SECONDS // 60))
            return HttpResponseRedirect(reverse("admin:login"))
        if request.GET.get("error"):
            _log_refusal(request)
        try:
            return super().get(request)  # type: ignore[no-any-return]
        except BusyError as fault:
            return _not_asked(request, fault)

    def login_success(self) -> HttpResponse:
        """Sign the person in. Where they were signed in already, the parent view would neither record it nor begin the session anew."""
        self.request.user = AnonymousUser()
        return super().login_success()  # type: ignore[no-any-return]

    def login_failure(self) -> HttpResponse:
        """Go back to the sign-in page, which names the possible causes."""
        messages.error(self.request, _FAILED.format(settings.BERTH.oidc_name.capitalize()))
        return HttpResponseRedirect(reverse("admin:login"))


def _log_refusal(request: HttpRequest) -> None:
    """Log the error that the provider sent somebody back with (RFC 6749, section 4.1.2.1): nothing else says it, such as a wrong scope."""
    fault = ": ".join(filter(None, (request.GET["error"], request.GET.get("error_description"))))[:_MAX_FAULT]
    # Whoever began a sign-in can come back with any text; by its status the log limits such lines.
    said = {"fault": fault, "status_code": HTTPStatus.UNAUTHORIZED.value}
    logger.warning("the provider refused a sign-in", extra=said)


def signed_out_url(request: HttpRequest) -> str:
    """Return the URL to go to after signing out: the provider's own sign-out page, if it has one."""
    login = request.build_absolute_uri(reverse("admin:login"))
    try:
        there = _document(settings.BERTH.oidc_issuer).get("end_session_endpoint")
    except _FAULTS:
        there = None
    known = {"client_id": settings.OIDC_RP_CLIENT_ID, "post_logout_redirect_uri": login}
    token = request.session.get("oidc_id_token", "")
    if token and len(token) <= _MAX_HINT:
        known["id_token_hint"] = token
    # Its URL may have a query (OpenID Connect RP-Initiated Logout 1.0, section 2.1).
    return f"{there}{'&' if '?' in there else '?'}{urlencode(known)}" if there else login


class SignOut(views.OIDCLogoutView):  # type: ignore[misc]
    """Signs people out, here and at the provider."""

    def post(self, request: HttpRequest) -> HttpResponse:
        """Redirect to the provider's sign-out page.

        The Content-Security-Policy lets forms lead to the issuer's own address alone, by redirects too: if that page has another one,
        a page of Berth's leads there.
        """
        answer: HttpResponse = super().post(request)
        there = answer["Location"]
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(there))
        here = f"{request.scheme}://{request.get_host()}"
        if there.startswith("/") or origin in {here, *settings.PROVIDER_ORIGIN}:
            return answer
        context = {"title": "You are signed out of Berth", "there": there, "name": settings.BERTH.oidc_name}
        return TemplateResponse(request, "admin/signed_out_here.html", context, headers={"Refresh": f"0; url={there}"})


def button(_request: HttpRequest) -> dict[str, str]:
    """Return the context of the sign-in page: the provider's name, empty where there is none."""
    return {"provider_name": settings.BERTH.oidc_name if settings.BERTH.oidc_issuer else ""}
