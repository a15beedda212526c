"""Tokens of Kubernetes ServiceAccounts, reviewed by the API server: who sends one, and which roles it gives in Berth.

Each request needs a new TokenReview by the API server (authentication.k8s.io/v1): a token that is revoked with its Pod or its
ServiceAccount is refused at once. Only a digest of accepted tokens is kept, in memory; of others nothing.
"""

import hashlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import lru_cache
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
# The prefix of a ServiceAccount's user name in the API server: system:serviceaccount:NAMESPACE:NAME.
_ACCOUNT: Final = "system:serviceaccount:"
_ISSUER: Final = "kubernetes"
_TIMEOUT_SECONDS = 5.0
_MAX_VIA = 150
# The longest name of an account; a ServiceAccount's can be twice as long.
_MAX_NAME = 150
# Limits on reviews of tokens that weren't accepted before: in a minute from one address, in a minute from all, and at once. Each is a
# request to the API server, and occupies one of the admin's eight threads.
OF_ADDRESS, IN_ALL, AT_ONCE = 30, 120, 4
_MOST_KNOWN = 1_000


class AwayError(Exception):
    """The API server can't be reached, or refuses the review; the owner of the token isn't known."""


class TooOftenError(Exception):
    """The API server isn't called: it has rejected too many tokens."""


class Strangers:
    """Limits the reviews of tokens, which anybody may send. Tokens that were accepted the last time aren't counted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self._known: dict[bytes, None] = {}
        self._minute, self._asking, self._of = 0, 0, Counter[str]()

    @contextmanager
    def asking(self, token: str, address: str, minute: int) -> Iterator[None]:
        """Enclose a review by the API server, and remember whether the token was accepted.

        Raises:
            TooOftenError: there are too many reviews for this address, or for all.
        """
        digest = hashlib.sha256(token.encode()).digest()
        with self._lock:
            is_known = digest in self._known
            if not is_known:
                self._count(address, minute)
        try:
            yield
        except AwayError:
            self._done(digest, is_known=is_known, keep=is_known)
            raise
        except BaseException:
            self._done(digest, is_known=is_known, keep=False)
            raise
        self._done(digest, is_known=is_known, keep=True)

    def _count(self, address: str, minute: int) -> None:
        if minute != self._minute:
            self._minute = minute
            self._of.clear()
        if self._asking >= AT_ONCE or self._of[address] >= OF_ADDRESS or self._of.total() >= IN_ALL:
            message = "Too many tokens that Kubernetes hasn't taken before came lately. Ask again."
            raise TooOftenError(message)
        self._of[address] += 1
        self._asking += 1

    def _done(self, digest: bytes, *, is_known: bool, keep: bool) -> None:
        with self._lock:
            self._asking -= not is_known
            self._known.pop(digest, None)
            if keep:
                self._known[digest] = None
                if len(self._known) > _MOST_KNOWN:
                    del self._known[next(iter(self._known))]


STRANGERS = Strangers()


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
    return Client.connect(kubeconfig)


def service_account_of(token: str, audience: str, client: Client) -> str:
    """Return the ServiceAccount of a token, as NAMESPACE/NAME.

    Raises:
        RefusedError: it isn't valid, isn't for this audience, or doesn't belong to a ServiceAccount.
        AwayError: the API server can't review it.
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
        message = "The API server can't review this token now; the log says why."
        raise AwayError(message) from error
    # A server that doesn't support audiences returns none, and has checked none.
    if not status.authenticated or audience not in status.audiences:
        message = f"Kubernetes knows no such token for the audience {audience}."
        raise RefusedError(message)
    namespace, _, name = status.user.username.removeprefix(_ACCOUNT).partition(":")
    if not status.user.username.startswith(_ACCOUNT) or not name:
        message = "Only ServiceAccounts come in by tokens of Kubernetes."
        raise RefusedError(message)
    return f"{namespace}/{name}"


def roles_of(account: str, roles: Iterable[tuple[str, str]]) -> set[str]:
    """Return the roles of a ServiceAccount NAMESPACE/NAME: each pattern has both parts, and a `*` matches within one part."""
    namespace, _, name = account.partition("/")
    return {
        role
        for pattern, role in roles
        if fnmatchcase(namespace, pattern.partition("/")[0]) and fnmatchcase(name, pattern.partition("/")[2])
    }


def caller_of_review(token: str, address: str) -> Caller:
    """Return the caller of a ServiceAccount token: an account of its own, with the roles that the settings now give it.

    Args:
        token: the token that was sent.
        address: the address by which callers with unknown tokens are counted.

    Raises:
        RefusedError: the token isn't accepted.
        AwayError: the API server can't review it.
        TooOftenError: the API server isn't called.
    """
    berth = settings.BERTH
    with STRANGERS.asking(token, address, int(time.monotonic() // 60)):
        name = service_account_of(token, berth.token_review_audience, _client(berth.kubeconfig))
        owner = _account(name, roles_of(name, berth.token_review_roles))
    holder, scopes = Holder.objects.get(pk=owner.pk), frozenset(SCOPES)
    holder.scopes = scopes
    return Caller(holder, OnBehalf(owner, f"ServiceAccount {name}"[:_MAX_VIA], scopes))


def _account(name: str, roles: set[str]) -> User:
    review = msgspec.structs.replace(current_origin(), via="TokenReview")
    subject = _ACCOUNT + name.replace("/", ":")
    with coming_from(review):
        identity = Identity.objects.select_related("user").filter(issuer=_ISSUER, subject=subject).first()
        if identity is None and roles:
            identity = _new(subject)
        if identity is not None and set(identity.user.groups.values_list("name", flat=True)) != roles:
            with transaction.atomic():
                identity.user.groups.set(Group.objects.filter(name__in=roles))
    if identity is None or not roles:
        message = f"The ServiceAccount {name} has no role here (BERTH_TOKEN_REVIEW_ROLES)."
        raise RefusedError(message)
    if not identity.user.is_active:
        message = f"The account {identity.user.username} is inactive."
        raise RefusedError(message)
    return identity.user


def _new(subject: str) -> Identity:
    """Create the account. Nobody can sign in to it: it has no password."""
    username = _short(subject)
    try:
        with transaction.atomic():
            user = User.objects.create_user(username)
            return Identity.objects.create(user=user, issuer=_ISSUER, subject=subject)
    except IntegrityError:
        # Two concurrent requests of a new ServiceAccount; or a person's account has this name, and stays theirs.
        found = Identity.objects.select_related("user").filter(issuer=_ISSUER, subject=subject).first()
        if found is None:
            message = f"Another account is called {username}: rename it."
            raise RefusedError(message) from None
        return found


def _short(subject: str) -> str:
    """Return an account's name for a ServiceAccount: a long name is truncated, with a digest that makes it unique."""
    if len(subject) <= _MAX_NAME:
        return subject
    digest = hashlib.sha256(subject.encode()).hexdigest()[:16]
    return f"{subject[: _MAX_NAME - len(digest) - 1]}-{digest}"
