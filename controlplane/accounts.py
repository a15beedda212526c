"""Accounts: who signed in, tried to and signed out is logged with the address; an account that has a history is kept."""

import logging
from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.db.models import Model, ProtectedError
from django.db.models.signals import pre_delete
from django.http import HttpRequest

logger = logging.getLogger("berth.signin")

# A name that was typed may be a password in the wrong field: no more of it is kept than tells accounts apart.
_MAX_NAME = 150


def watch() -> None:
    """Log from now on what the signals of django.contrib.auth tell, and keep accounts."""
    user_logged_in.connect(_signed_in)
    user_login_failed.connect(_failed)
    user_logged_out.connect(_signed_out)
    pre_delete.connect(_keep_history, sender=get_user_model())


def _signed_in(request: HttpRequest | None = None, user: Any = None, **_: Any) -> None:
    logger.info("signed in", extra={"account": str(user), "address": _address(request)})


def _failed(credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    name = str(credentials.get("username", ""))[:_MAX_NAME]
    logger.warning("a sign-in failed", extra={"account": name, "address": _address(request)})


def _signed_out(request: HttpRequest | None = None, user: Any = None, **_: Any) -> None:
    if user is not None:
        logger.info("signed out", extra={"account": str(user), "address": _address(request)})


def _keep_history(instance: Any, **_: Any) -> None:
    """Refuse: Django deletes an account's log lines with it.

    Raises:
        ProtectedError: the account has done something.
    """
    entries: set[Model] = set(LogEntry.objects.filter(user=instance)[:1])
    if entries:
        message = f"{instance} is named in the log of what was done: make the account inactive in place of deleting it"
        raise ProtectedError(message, entries)


def _address(request: HttpRequest | None) -> str:
    """Return the connection's address and, where a proxy says for whom it asks, what it says: it may be anybody's word."""
    if request is None:
        return ""
    said = request.META.get("HTTP_X_FORWARDED_FOR", "")[:_MAX_NAME]
    return f"{request.META.get('REMOTE_ADDR', '')}{f' for {said}' if said else ''}"
