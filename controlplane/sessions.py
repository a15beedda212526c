"""A person's sessions: origin and start of each, and ending them, which is recorded."""

import hashlib
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from django.contrib.auth import HASH_SESSION_KEY
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone

from controlplane.models import Session
from controlplane.origins import claimed_address
from controlplane.session_store import BEGAN, SessionStore
from policies import publishing
from policies.publishing import AuditKind

_LONGEST_AGENT = 300


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """A valid session.

    Attributes:
        name: its name on pages, since its key is a credential.
        since: when it began.
        until: when it ends by itself.
        address: the client's address, if known.
        agent: the browser, by its User-Agent.
        is_this: whether it is the session of the request.
    """

    name: str
    since: datetime | None
    until: datetime
    address: str
    agent: str
    is_this: bool


def begin(request: HttpRequest) -> None:
    """Store in a new session its start and origin, and delete expired sessions."""
    agent = request.META.get("HTTP_USER_AGENT", "")[:_LONGEST_AGENT]
    where = claimed_address(request)
    request.session[BEGAN] = {"at": timezone.now().isoformat(), "address": where, "agent": agent}
    request.session.set_expiry(None)  # signing in at a provider set a short one
    SessionStore.clear_expired()


def sessions_of(user: User, this: str | None) -> list[Open]:
    """Return an account's valid sessions, the newest first; those from before a change of password are invalid.

    Args:
        user: the account.
        this: the key of the present session.
    """
    found = [_open(row, data, this) for row, data in _rows(user)]
    return sorted(found, key=lambda each: (not each.is_this, -(each.since.timestamp() if each.since else 0)))


def end_sessions(user: User, *, this: str | None, name: str = "") -> int:
    """End one of an account's sessions, or all except the present one; return how many.

    Args:
        user: the account.
        this: the key of the present session, which is kept.
        name: the session's name, as in `Open`; empty for all others.
    """
    with transaction.atomic():
        keys = [row.pk for row, _ in _rows(user) if row.pk != this and name in {"", _name(row.pk)}]
        ended, _ = Session.objects.filter(pk__in=keys).delete()
        if ended:
            publishing.record_event(
                AuditKind.SESSION_END, by=user, thing=("Account", user.get_username()), more={"sessions": ended}
            )
    return ended


def _rows(user: User) -> Iterable[tuple[Session, dict[str, Any]]]:
    verified = user.get_session_auth_hash()
    for row in Session.objects.filter(user=user, expire_date__gt=timezone.now()):
        data = SessionStore().decode(row.session_data)
        if data.get(HASH_SESSION_KEY) == verified:
            yield row, data


def _open(row: Session, data: dict[str, Any], this: str | None) -> Open:
    began = data.get(BEGAN) or {}
    return Open(
        name=_name(row.pk),
        since=datetime.fromisoformat(began["at"]) if began else None,
        until=row.expire_date,
        address=began.get("address", ""),
        agent=began.get("agent", ""),
        is_this=row.pk == this,
    )


def _name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]
