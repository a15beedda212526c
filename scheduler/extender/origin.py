"""Refuses calls that a web page may have sent. A browser on the extender's machine also calls from loopback, for any page.

A page can't send `application/json` to another origin without a preflight (Fetch 3.2.2, CORS-preflight), and browsers
send the page's origin in each POST. A page whose own name was made to resolve to loopback needs no preflight; its calls have
that name in Host. kube-scheduler's client sends neither Origin nor Sec-Fetch-Site, and the host of urlPrefix in Host.
"""

import socket
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from django.conf import settings
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from scheduler.http_server.hosts import is_this_machine, name_of


@lru_cache(maxsize=64)
def is_known_host(host: str, known: tuple[str, ...], *, with_tls: bool) -> bool:
    """Return whether a Host header names this extender.

    Loopback's names and addresses, this machine's own name (in a Pod, the Pod's) and the names in `known` always do.
    With TLS and an empty `known`, any host does: the client has compared it with the server's certificate.
    """
    name = name_of(host)
    if not name:
        return False
    if with_tls and not known:
        return True
    ours = {"localhost", socket.gethostname().lower(), *(each.strip("[]").lower() for each in known)}
    return name in ours or is_this_machine(name)


def refusal_of(environ: Mapping[str, Any]) -> str:
    """Return why a request's headers refuse it; "" when they don't. The text repeats nothing from the request."""
    if "HTTP_ORIGIN" in environ or "HTTP_SEC_FETCH_SITE" in environ:
        return "web pages can't call the extender: a header Origin or Sec-Fetch-Site came along"
    ours = settings.BERTH
    if not is_known_host(environ.get("HTTP_HOST", ""), ours.extender_hosts, with_tls=bool(ours.extender_tls_cert_file)):
        return "the Host header names another server than this; BERTH_EXTENDER_HOSTS adds names"
    return ""


class FromNoPage(BasePermission):
    """Permits requests that no web page can have sent."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return whether the request can't be a web page's."""
        del view
        self.message = refusal_of(request.META)
        return not self.message
