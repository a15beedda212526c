"""How often anybody may ask, in each process."""

import hashlib
from typing import Any

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle, UserRateThrottle

from policies.publishing import OnBehalf

_READING = ("GET", "HEAD", "OPTIONS")


class WriteThrottle(SimpleRateThrottle):
    """So many writes a minute for each account, and for each of its tokens, in each process."""

    scope = "write"

    def get_rate(self) -> str:
        """Return what is set."""
        return f"{settings.BERTH.rest_writes_per_minute}/min"

    def get_cache_key(self, request: Request, view: Any) -> str | None:
        """Return whose writes are counted; None for reading."""
        del view
        if request.method in _READING:
            return None
        # A token's name is anybody's text: not all of it may stand in a cache's key.
        via = request.auth.via.encode() if isinstance(request.auth, OnBehalf) else b""
        ident = f"{request.user.pk if request.user else ''}-{hashlib.sha256(via).hexdigest()}"
        return self.cache_format % {"scope": self.scope, "ident": ident}


class CheckThrottle(UserRateThrottle):
    """So many checks a minute for each account, in each process."""

    scope = "check"
