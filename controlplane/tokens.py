"""Tokens: made, shown once, found by their secret at each request, and revoked; all of this is recorded."""

import logging
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final

import msgspec
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q
from rest_framework_api_key.crypto import KeyGenerator

from controlplane.models import Holder, Token
from policies import publishing
from policies.origin import current_origin
from policies.publishing import AuditKind, By, OnBehalf
from policies.publishing.audit import digest_of
from policies.scopes import SCOPES, pattern_faults

logger = logging.getLogger("berth.tokens")

# The prefix of each secret, by which secret scanners recognise it.
MARK: Final = "berth_"
DEFAULT_DAYS: Final = 90
_MAX_NAME = 50
# The last use of a token is written at most this often, so that not every use causes a write.
_NOTED_EVERY = timedelta(minutes=1)
# The most active tokens of an account: more than its pipelines can need, and few enough to be looked through.
MOST_ACTIVE = 200
_keys = KeyGenerator()


class TokenError(Exception):
    """A token can't be made or revoked; the messages say why."""

    def __init__(self, messages: Sequence[str]) -> None:
        self.messages = list(messages)
        super().__init__(" ".join(messages))


class RefusedError(Exception):
    """A secret isn't accepted; the text says why, and contains no part of it."""


class Caller(msgspec.Struct, frozen=True):
    """The caller of a secret: the account with the token's permissions, and the actor for `policies.publishing`."""

    holder: Holder
    acts: OnBehalf


def comma_separated(text: str) -> list[str]:
    """Return the names or patterns in a text that commas separate."""
    return [each.strip() for each in text.split(",") if each.strip()]


def make_token(
    *,
    name: str,
    owner: User,
    scopes: Collection[str],
    days: int,
    by: By,
    now: datetime,
    rule_sets: Sequence[str] = (),
    namespaces: Sequence[str] = (),
) -> tuple[Token, str]:
    """Make a token, and return its secret, which isn't stored.

    Raises:
        TokenError: with every fault.
    """
    name = name.strip()
    if faults := _faults(name, owner, scopes, days, (*rule_sets, *namespaces)):
        raise TokenError(faults)
    key, prefix, hashed = _keys.generate()
    with transaction.atomic():
        # Concurrent requests for the same name wait for each other here.
        User.objects.select_for_update().get(pk=owner.pk)
        Token.objects.filter(owner=owner, name=name, revoked_at=None, expires_at__lte=now).update(
            revoked_at=now, revoked_by=publishing.name_of(by)
        )
        if Token.objects.filter(owner=owner, name=name, revoked_at=None).exists():
            raise TokenError([f"{owner} has a token {name} already: revoke it first, or take another name."])
        if Token.objects.filter(owner=owner, revoked_at=None, expires_at__gt=now).count() >= MOST_ACTIVE:
            raise TokenError(
                [f"{owner} has {MOST_ACTIVE} active tokens, the most of an account: revoke those that nothing uses."]
            )
        token = Token.objects.create(
            name=name,
            prefix=prefix,
            hashed_key=hashed,
            owner=owner,
            scopes=[scope for scope in SCOPES if scope in scopes],
            rule_sets=list(rule_sets),
            namespaces=list(namespaces),
            made_by=publishing.name_of(by),
            made_at=now,
            expires_at=now + timedelta(days=days),
        )
        _record(AuditKind.TOKEN_MAKE, token, by=by)
    return token, f"{MARK}{key}"


def _faults(name: str, owner: User, scopes: Collection[str], days: int, patterns: Sequence[str]) -> list[str]:
    faults = []
    if not name or len(name) > _MAX_NAME or not name.isprintable():
        faults.append(f"Say what it is for: a name of 1 to {_MAX_NAME} characters.")
    if not owner.is_active:
        faults.append(f"The account {owner} is inactive.")
    if not scopes or not set(scopes) <= set(SCOPES):
        faults.append(f"A token needs one scope or more, of {', '.join(SCOPES)}.")
    if not 1 <= days <= settings.BERTH.token_max_days:
        faults.append(
            f"A token lives from 1 to {settings.BERTH.token_max_days} days (BERTH_TOKEN_MAX_DAYS), not {days}."
        )
    return faults + pattern_faults(patterns)


def revoke_token(*, token: Token, by: By, now: datetime) -> bool:
    """Revoke a token: the next request with it is refused, in every process. False if it was revoked already."""
    with transaction.atomic():
        done = Token.objects.filter(pk=token.pk, revoked_at=None).update(
            revoked_at=now, revoked_by=publishing.name_of(by)
        )
        if done:
            _record(AuditKind.TOKEN_REVOKE, token, by=by)
    return bool(done)


def caller_of(secret: str, *, now: datetime) -> Caller:
    """Return the caller of a secret. It is looked up each time, so a revoked token is refused from the next request on.

    Raises:
        RefusedError: the secret isn't accepted.
    """
    key = secret.removeprefix(MARK)
    token = Token.objects.select_related("owner").filter(prefix=key.partition(".")[0]).first()
    if token is None or not _keys.verify(key, token.hashed_key):
        logger.warning("an unknown token was refused", extra=_refusal())
        message = "There is no such token: it is mistyped, or was deleted with its owner's account."
        raise RefusedError(message)
    if why := _why_not(token, now):
        _note_refusal(token, why, now)
        message = f"The token {token} {why}."
        raise RefusedError(message)
    _note_use(token, now)
    holder, scopes = Holder.objects.get(pk=token.owner_id), frozenset(token.scopes)
    holder.scopes = scopes
    return Caller(holder, OnBehalf(token.owner, f"token {token}", scopes, token.reach))


def _why_not(token: Token, now: datetime) -> str:
    if token.revoked_at is not None:
        return f"was revoked at {token.revoked_at:%Y-%m-%d %H:%M:%S} UTC"
    if token.expires_at <= now:
        return f"has expired at {token.expires_at:%Y-%m-%d %H:%M:%S} UTC"
    return "" if token.owner.is_active else f"is of {token.owner}, whose account is inactive"


def _note_use(token: Token, now: datetime) -> None:
    stale = Q(last_used_at=None) | Q(last_used_at__lte=now - _NOTED_EVERY)
    if token.last_used_at is None or token.last_used_at <= now - _NOTED_EVERY:
        Token.objects.filter(stale, pk=token.pk).update(last_used_at=now, last_used_from=current_origin().address)


def _note_refusal(token: Token, why: str, now: datetime) -> None:
    """Record, at most once a minute, the use of a revoked or expired token, so that its owner learns of it."""
    logger.warning("a token was refused", extra={"token": str(token), "why": why, **_refusal()})
    stale = Q(refused_at=None) | Q(refused_at__lte=now - _NOTED_EVERY)
    with transaction.atomic():
        if Token.objects.filter(stale, pk=token.pk).update(refused_at=now):
            _record(AuditKind.TOKEN_REFUSE, token, by=token.owner.get_username(), why=why)


def _refusal() -> dict[str, str | int]:
    """Return the fields of a line about a refused request: by its status the log limits such lines."""
    return {"address": current_origin().address, "status_code": HTTPStatus.UNAUTHORIZED.value}


def _record(kind: AuditKind, token: Token, *, by: By, **more: str) -> None:
    said = {
        "owner": token.owner.get_username(),
        "scopes": token.scopes,
        "rule_sets": token.rule_sets,
        "namespaces": token.namespaces,
        "expires": f"{token.expires_at:%Y-%m-%dT%H:%M:%SZ}",
    }
    digest = digest_of(said)
    digests = {AuditKind.TOKEN_MAKE: ("", digest), AuditKind.TOKEN_REVOKE: (digest, "")}.get(kind, (digest, digest))
    publishing.record_event(kind, by=by, thing=("Token", str(token)), digests=digests, more={**said, **more})
