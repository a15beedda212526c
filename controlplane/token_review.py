"""Tokens of Kubernetes' ServiceAccounts, as the API server judges them: who sends one, and which roles that gives here.

The API server is asked about each request anew (TokenReview, authentication.k8s.io/v1): what was revoked with its Pod or its
ServiceAccount ends here at once. Nothing of the token is kept.
"""

import logging
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import IntegrityError, transaction

from controlplane.models import Holder, Identity
from controlplane.tokens import Caller, RefusedError
from policies.origin import coming_from, current_origin
from policies.publishing import OnBehalf
from policies.scopes import SCOPES
from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIError

logger = logging.getLogger("berth.tokens")

PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
# What a ServiceAccount's name begins with, as the API server says it: system:serviceaccount:NAMESPACE:NAME.
ACCOUNT: Final = "system:serviceaccount:"
_ISSUER: Final = "kubernetes"
_TIMEOUT_SECONDS = 5.0
_MAX_VIA = 150


class AwayError(Exception):
    """The API server can't be asked, or may not be; nobody knows whose token it is."""


class _User(msgspec.Struct):
    username: str = ""


class _Status(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)
    audiences: list[str] = []
    error: str = ""


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


@lru_cache(maxsize=4)
def _client(kubeconfig: str) -> Client:
    return Client.connect(Path(kubeconfig) if kubeconfig else None)


def service_account_of(token: str, audience: str, client: Client) -> str:
    """Return the ServiceAccount that a token is of, as NAMESPACE/NAME.

    Raises:
        RefusedError: it isn't valid, isn't for this audience, or is nobody's that has a namespace.
        AwayError: nobody can say.
    """
    asked = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": [audience]},
    }
    try:
        answer = client.post(path=PATH, body=msgspec.json.encode(asked), timeout_seconds=_TIMEOUT_SECONDS)
        status = msgspec.json.decode(answer, type=_Review).status
    except (APIError, msgspec.DecodeError) as error:
        logger.warning("a token couldn't be reviewed", extra={"fault": str(error)})
        message = "The API server can't be asked about this token now; the log says why."
        raise AwayError(message) from error
    # A server that doesn't know audiences names none, and has checked none.
    if not status.authenticated or audience not in status.audiences:
        message = f"Kubernetes knows no such token for the audience {audience}."
        raise RefusedError(message)
    namespace, _, name = status.user.username.removeprefix(ACCOUNT).partition(":")
    if not status.user.username.startswith(ACCOUNT) or not name:
        message = "Only ServiceAccounts come in by tokens of Kubernetes."
        raise RefusedError(message)
    return f"{namespace}/{name}"


def roles_of(account: str, roles: Mapping[str, str]) -> set[str]:
    """Return the roles of a ServiceAccount NAMESPACE/NAME: each pattern is of both, and its `*` stays within one of them."""
    namespace, _, name = account.partition("/")
    return {
        role
        for pattern, role in roles.items()
        if fnmatchcase(namespace, pattern.partition("/")[0]) and fnmatchcase(name, pattern.partition("/")[2])
    }


def caller_of_review(token: str) -> Caller:
    """Return who a token of a ServiceAccount lets in: an account of its own, with the roles that the settings give it now.

    Raises:
        RefusedError: nobody.
        AwayError: nobody can say.
    """
    berth = settings.BERTH
    name = service_account_of(token, berth.token_review_audience, _client(berth.kubeconfig))
    owner = _account(name, roles_of(name, berth.token_review_roles))
    holder, scopes = Holder.objects.get(pk=owner.pk), frozenset(SCOPES)
    holder.scopes = scopes
    return Caller(holder, OnBehalf(owner, f"ServiceAccount {name}"[:_MAX_VIA], scopes))


def _account(name: str, roles: set[str]) -> User:
    review = msgspec.structs.replace(current_origin(), via="TokenReview")
    username = ACCOUNT + name.replace("/", ":")
    with coming_from(review):
        identity = Identity.objects.select_related("user").filter(issuer=_ISSUER, subject=username).first()
        if identity is None and roles:
            identity = _new(username)
        if identity is not None and set(identity.user.groups.values_list("name", flat=True)) != roles:
            with transaction.atomic():
                identity.user.groups.set(Group.objects.filter(name__in=roles))
    if identity is None or not roles:
        message = f"The ServiceAccount {name} has no role here (BERTH_TOKEN_REVIEW_ROLES)."
        raise RefusedError(message)
    if not identity.user.is_active:
        message = f"The account {username} is inactive."
        raise RefusedError(message)
    return identity.user


def _new(username: str) -> Identity:
    """Make the account, which nobody signs in to: it has no password, and no page is for it."""
    try:
        with transaction.atomic():
            user = User.objects.create_user(username)
            return Identity.objects.create(user=user, issuer=_ISSUER, subject=username)
    except IntegrityError:
        # Two requests of a new ServiceAccount at once; or somebody's account is called so, and is theirs.
        found = Identity.objects.select_related("user").filter(issuer=_ISSUER, subject=username).first()
        if found is None:
            message = f"Another account is called {username}: rename it."
            raise RefusedError(message) from None
        return found
