"""Accounts: who may sign in with a password, client addresses, and the page for people who are locked out.

Sign-ins are logged and recorded as AuditEvents. An account that has done something can't be deleted.
"""

import logging
import re
import time
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any

from axes.signals import user_locked_out
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import Permission, User
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.db.models import Model, ProtectedError, Q
from django.db.models.signals import post_save, pre_delete
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone

from controlplane.account_events import actor, record_event
from controlplane.errors import REFUSED
from controlplane.origins import claimed_address
from controlplane.tally import EACH_OF_FIRST, UNKNOWN
from policies.models.audit import Kind as AuditKind

logger = logging.getLogger("berth.signin")

# A typed name may be a password in the wrong field: only as much of it is kept as distinguishes accounts.
_MAX_NAME = 150
_WITH_PORT = re.compile(r"(?:\[(?P<six>[^\]]+)\]|(?P<four>[0-9.]+))(?::[0-9]{1,5})?")


class LocalAccounts(ModelBackend):
    """Accounts with a password in Berth. Where a provider is set, they are for administrators only, in case it is unavailable."""

    def user_can_authenticate(self, user: Any) -> bool:
        """Return whether this account may sign in with its password. If not, its sessions are over, for REST too."""
        may = super().user_can_authenticate(user) and user.is_staff
        return may and (not settings.BERTH.oidc_issuer or user.is_superuser)

    def has_perm(self, user_obj: Any, perm: str, obj: Any = None) -> bool:
        """Return whether somebody has a permission. The last refused permission is kept, for the page that names who has it."""
        may = super().has_perm(user_obj, perm, obj)
        # Whoever may change may see, so Django's pages ask for that after the right to see: the smaller one is what is lacking.
        if not may and getattr(user_obj, REFUSED, "") != perm.replace(".change_", ".view_"):
            setattr(user_obj, REFUSED, perm)
        return may

    def get_all_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        """Return somebody's permissions by one query: Django queries a person's own permissions and those of the roles separately."""
        if not user_obj.is_active or user_obj.is_anonymous or obj is not None:
            return set()
        if not hasattr(user_obj, "_perm_cache"):
            held = Permission.objects.order_by()
            if not user_obj.is_superuser:
                held = held.filter(Q(user=user_obj.pk) | Q(group__user=user_obj.pk))
            found = held.values_list("content_type__app_label", "codename")
            user_obj._perm_cache = {f"{app}.{codename}" for app, codename in found}  # noqa: SLF001 - where Django keeps it
        kept: set[str] = user_obj._perm_cache  # noqa: SLF001 - as above
        return kept


def address(request: HttpRequest) -> str:
    """Return the client's address: the connection's, or the last one in the header of our own proxy."""
    peer = str(request.META.get("REMOTE_ADDR", ""))
    if not settings.BERTH.behind_tls_proxy:
        return peer
    said = request.META.get("HTTP_X_FORWARDED_FOR", "").rpartition(",")[2].strip()
    # Some proxies add the connection's port, with which each connection would count as a different address.
    found = _WITH_PORT.fullmatch(said)
    try:
        return str(ip_address((found["six"] or found["four"]) if found else said))
    except ValueError:
        return peer


def lock_out_address(request: HttpRequest) -> str:
    """Return the address by which clients are locked out: for IPv6 the first of its /64, which is one machine's."""
    return counted_address(request).partition("/")[0]


def is_from_provider(request: HttpRequest | None, credentials: dict[str, Any] | None) -> bool:
    """Return whether somebody came back from the provider.

    No password is guessed there, and no account is known before it answers. axes would count failures by address alone: five people
    without a role would lock out everybody at their address.
    """
    del request
    return "nonce" in (credentials or {})


def locked_out(request: HttpRequest, response: HttpResponse | None = None, credentials: Any = None) -> HttpResponse:
    """Return the page for people who are locked out: for how long, and who can unlock them earlier."""
    del response, credentials
    context = {
        **admin.site.each_context(request),
        "title": "Locked out",
        "failures": settings.BERTH.sign_in_failures,
        "minutes": settings.BERTH.lock_out_minutes,
    }
    return TemplateResponse(request, "admin/locked_out.html", context, status=429).render()


def watch() -> None:
    """Log the signals of django.contrib.auth from now on, and prevent deletion of accounts with a history."""
    user_logged_in.connect(_signed_in)
    user_login_failed.connect(_failed)
    user_logged_out.connect(_signed_out)
    user_locked_out.connect(_locked_out)
    post_save.connect(_end_sessions, sender=get_user_model())
    pre_delete.connect(_keep_history, sender=get_user_model())


def _signed_in(request: HttpRequest | None = None, user: Any = None, **_: Any) -> None:
    logger.info("signed in", extra={"account": str(user), "address": _address(request)})
    if request is not None:
        # Imported here: every process connects these signals, and few let anybody in.
        from controlplane.sessions import begin

        begin(request)
    how = getattr(user, "backend", "").rpartition(".")[2]
    record_event(AuditKind.LOG_IN, by=user, thing=("Account", str(user)), more={"how": how})


def _failed(credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    name = str(credentials.get("username", ""))[:_MAX_NAME]
    # Nothing limits how often anybody comes back from the provider: by its status the log limits such lines.
    more = {"status_code": HTTPStatus.UNAUTHORIZED.value} if is_from_provider(request, credentials) else {}
    logger.warning("a sign-in failed", extra={"account": name, "address": _address(request), **more})
    _record_unknown(AuditKind.LOG_IN_FAILED, name, request)


def _signed_out(request: HttpRequest | None = None, user: Any = None, **_: Any) -> None:
    if user is not None:
        logger.info("signed out", extra={"account": str(user), "address": _address(request)})
        record_event(AuditKind.LOG_OUT, by=user, thing=("Account", str(user)))


def _locked_out(request: HttpRequest | None = None, username: str = "", **_: Any) -> None:
    name = str(username)[:_MAX_NAME]
    logger.warning("an account is locked out", extra={"account": name, "address": _address(request)})
    _record_unknown(AuditKind.LOCK_OUT, name, request)


def _record_unknown(kind: AuditKind, name: str, request: HttpRequest | None) -> None:
    """Record an event of an account, unless there are too many.

    An unknown name may be a password, and AuditEvents are kept for ever, so they don't contain it.
    """
    where = counted_address(request)
    number, is_written = UNKNOWN.count(f"{kind} {where}", int(time.monotonic() // 60))
    if not is_written:
        return
    known = get_user_model().objects.filter(username=name).exists()
    more = {"known": known} if number <= EACH_OF_FIRST else {"known": known, "times": number}
    record_event(kind, by="", thing=("Account", name if known else ""), more=more)


def counted_address(request: HttpRequest | None) -> str:
    """Return the unit in which client addresses are counted: for IPv6 a /64."""
    # Imported here: every process connects these signals, and few let anybody in.
    from scheduler.http_server.connection import network_of

    said = address(request) if request is not None else ""
    try:
        return network_of(said)
    except ValueError:  # not an address: the header isn't our own proxy's
        return said


def _end_sessions(*, instance: User, created: bool, **_: Any) -> None:
    """Delete the sessions of an account that may no longer sign in: if it may again, they would let in whoever has them."""
    if created or (instance.is_active and instance.is_staff):
        return
    ended, _ = instance.sessions.filter(expire_date__gt=timezone.now()).delete()
    if ended:
        account = ("Account", instance.get_username())
        record_event(AuditKind.SESSION_END, by=actor(), thing=account, more={"sessions": ended})


def _keep_history(instance: Any, **_: Any) -> None:
    """Refuse the deletion: Django would delete the account's log entries with it.

    Raises:
        ProtectedError: the account has done something.
    """
    entries: set[Model] = set(LogEntry.objects.filter(user=instance)[:1])
    if entries:
        message = f"{instance} is named in the audit trail: deactivate the account instead of deleting it"
        raise ProtectedError(message, entries)


def _address(request: HttpRequest | None) -> str:
    return "" if request is None else claimed_address(request)
