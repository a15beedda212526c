"""Who calls, whether they may, and how often: by client certificate with TLS, else by being on this machine."""

import ssl
import threading
import time
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from django.conf import settings
from rest_framework import exceptions, status
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from scheduler.certificates import names_in, peer_expires_at

# Key of the WSGI environ: true on the listener that serves probes only.
ONLY_PROBES = "berth.only_probes"

_SOCKET = "gunicorn.socket"
_LOOPBACK = ("127.", "::1", "::ffff:127.")
_ON_THIS_MACHINE = "this machine"


class _Peer(msgspec.Struct, frozen=True):
    names: frozenset[str]
    expires_at: float


# A certificate is the connection's: it is decoded once, at the first call.
_peers: WeakKeyDictionary[ssl.SSLSocket, _Peer] = WeakKeyDictionary()


def caller_of(environ: Mapping[str, Any]) -> str | None:
    """Name who may call, by what the WSGI environ says of the connection; None for whoever may not.

    With TLS, the first name of the certificate, in alphabetical order, that BERTH_EXTENDER_CLIENTS holds, as long as
    the certificate holds: connections outlive it. Without TLS, anybody on this machine.
    """
    if not settings.BERTH.extender_tls_cert_file:
        return _ON_THIS_MACHINE if str(environ.get("REMOTE_ADDR", "")).startswith(_LOOPBACK) else None
    connection = environ.get(_SOCKET)
    if not isinstance(connection, ssl.SSLSocket):
        return None
    peer = _peers.get(connection) or _read_peer(connection)
    if peer is None or peer.expires_at <= time.time():
        return None
    return min(peer.names.intersection(settings.BERTH.extender_clients), default=None)


def _read_peer(connection: ssl.SSLSocket) -> _Peer | None:
    certificate = connection.getpeercert()
    if not certificate:
        return None
    peer = _peers[connection] = _Peer(names_in(certificate), peer_expires_at(certificate))
    return peer


class AllowedCaller(BasePermission):
    """Lets through whom `caller_of` names. The text of the refusal is constant and names nobody."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return whether the caller may call.

        Raises:
            NotFound: on the listener of the probes there are no verbs, for nobody.
        """
        if request.META.get(ONLY_PROBES):
            message = "only probes are served here"
            raise exceptions.NotFound(message)
        self.message = (
            "the client certificate is not one that may call"
            if settings.BERTH.extender_tls_cert_file
            else "only callers on this machine are allowed without a client certificate"
        )
        return caller_of(request.META) is not None


class TooManyCalls(exceptions.APIException):
    """The caller is over its rate."""

    status_code = status.HTTP_429_TOO_MANY_REQUESTS
    default_detail = "too many calls; BERTH_EXTENDER_CALLS_PER_SECOND sets the limit"


class Buckets:
    """A token bucket for each name: full, it holds one second's calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._levels: dict[str, tuple[float, float]] = {}

    def take(self, name: str, *, per_second: float, now: float) -> bool:
        """Take a call out of a bucket; False when it is empty. `now` is in seconds of a clock that never goes back."""
        full = max(per_second, 1.0)
        with self._lock:
            level, at = self._levels.get(name, (full, now))
            level = min(full, level + (now - at) * per_second)
            taken = level >= 1
            self._levels[name] = (level - 1 if taken else level, now)
        return taken


# As many as there are names in BERTH_EXTENDER_CLIENTS, at most.
_buckets = Buckets()


class CallRate(BaseThrottle):
    """Holds each caller to BERTH_EXTENDER_CALLS_PER_SECOND. Comes after AllowedCaller."""

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Let a call through.

        Raises:
            TooManyCalls: the caller is over its rate.
        """
        name = caller_of(request.META) or ""
        if not _buckets.take(name, per_second=settings.BERTH.extender_calls_per_second, now=time.monotonic()):
            raise TooManyCalls
        return True
