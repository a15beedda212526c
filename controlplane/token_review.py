"""Tokens of Kubernetes' ServiceAccounts, as the API server judges them: who sends one, and which roles that gives here.

The API server is asked about each request anew (TokenReview, authentication.k8s.io/v1): what was revoked with its Pod or its
ServiceAccount ends here at once. Of a token that was taken a digest is kept, in memory alone; of others nothing.
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
# What a ServiceAccount's name begins with, as the API server says it: system:serviceaccount:NAMESPACE:NAME.
ACCOUNT: Final = "system:serviceaccount:"
_ISSUER: Final = "kubernetes"
_TIMEOUT_SECONDS = 5.0
_MAX_VIA = 150
# As long as the name of an account may be; a ServiceAccount's can be twice that.
_MAX_NAME = 150
# Reviews within a minute of tokens that weren't taken before: of one address, of all, and at once. Each is a request to the API
# server, and holds one of the admin's eight threads.
OF_ADDRESS, IN_ALL, AT_ONCE = 30, 120, 4
MOST_KNOWN = 1_000


class AwayError(Exception):
    """The API server can't be asked, or may not be; nobody knows whose token it is."""


class TooOftenError(Exception):
    """The API server isn't asked: so many others sent tokens that it hasn't taken."""


class Strangers:
    """Bounds how often the API server is asked for what anybody may send. Tokens that let somebody in last time aren't counted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self._known: dict[bytes, None] = {}
        self._minute, self._asking, self._of = 0, 0, Counter[str]()

    @contextmanager
    def asking(self, token: str, address: str, minute: int) -> Iterator[None]:
        """Let the API server be asked within, and remember whether the token lets somebody in.

        Raises:
            TooOftenError: of this address, or of all, too many ask.
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
                if len(self._known) > MOST_KNOWN:
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


def roles_of(account: str, roles: Iterable[tuple[str, str]]) -> set[str]:
    """Return the roles of a ServiceAccount NAMESPACE/NAME: each pattern is of both, and its `*` stays within one of them."""
    namespace, _, name = account.partition("/")
    return {
        role
        for pattern, role in roles
        if fnmatchcase(namespace, pattern.partition("/")[0]) and fnmatchcase(name, pattern.partition("/")[2])
    }


def caller_of_review(token: str, address: str) -> Caller:
    """Return who a token of a ServiceAccount lets in: an account of its own, with the roles that the settings give it now.

    Args:
        token: what was sent.
        address: by which callers are counted whose token wasn't taken before.

    Raises:
        RefusedError: nobody.
        AwayError: nobody can say.
        TooOftenError: the API server isn't asked.
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
    subject = ACCOUNT + name.replace("/", ":")
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
    """Make the account, which nobody signs in to: it has no password, and no page is for it."""
    username = _short(subject)
    try:
        with transaction.atomic():
            user = User.objects.create_user(username)
            return Identity.objects.create(user=user, issuer=_ISSUER, subject=subject)
    except IntegrityError:
        # Two requests of a new ServiceAccount at once; or somebody's account is called so, and is theirs.
        found = Identity.objects.select_related("user").filter(issuer=_ISSUER, subject=subject).first()
        if found is None:
            message = f"Another account is called {username}: rename it."
            raise RefusedError(message) from None
        return found


def _short(subject: str) -> str:
    """Return an account's name for a ServiceAccount: a long one's beginning, with a digest by which it is this one's alone."""
    if len(subject) <= _MAX_NAME:
        return subject
    digest = hashlib.sha256(subject.encode()).hexdigest()[:16]
    return f"{subject[: _MAX_NAME - len(digest) - 1]}-{digest}"
