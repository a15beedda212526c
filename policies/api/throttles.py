"""Throttles of REST, which each process counts for itself."""

from typing import Any

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle, UserRateThrottle

from policies.publishing import OnBehalf

_READING = ("GET", "HEAD", "OPTIONS")


class WriteThrottle(SimpleRateThrottle):
    """Limits writes a minute, in each process: separately for an account's sessions and for all its tokens."""

    scope = "write"

    def get_rate(self) -> str:
        """Return the configured rate."""
        return f"{settings.BERTH.rest_writes_per_minute}/min"

    def get_cache_key(self, request: Request, view: Any) -> str | None:
        """Return whose writes are counted; None for reading."""
        if request.method in _READING:
            return None
        by = "tokens" if isinstance(request.auth, OnBehalf) else "sessions"
        return self.cache_format % {"scope": self.scope, "ident": f"{request.user.pk if request.user else ''}-{by}"}


class CheckThrottle(UserRateThrottle):
    """Limits checks a minute for each account, in each process."""

    scope = "check"
