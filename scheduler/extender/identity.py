"""Authenticates, authorizes and rate-limits callers: by client certificate with TLS, otherwise callers on this machine only."""

import math
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec
from django.conf import settings
from rest_framework import exceptions, status
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from scheduler.certificates import is_for_clients, names_in, peer_expires_at
from scheduler.http_server.connection import CONNECTION, Connection
from scheduler.http_server.hosts import is_this_machine

# Key of the WSGI environ: true on the listener that serves probes only.
ONLY_PROBES = "berth.only_probes"

_ON_THIS_MACHINE = "this machine"


class _Peer(msgspec.Struct, frozen=True):
    names: frozenset[str]
    expires_at: float


def caller_of(environ: Mapping[str, Any]) -> str | None:
    """Return the name of a permitted caller, from the connection in the WSGI environ; None for a caller that isn't permitted.

    With TLS, this is the first name of the certificate, in alphabetical order, that is in BERTH_EXTENDER_CLIENTS, while the
    certificate is valid: connections can outlive it. Without TLS, any caller on this machine is permitted.
    """
    if not settings.BERTH.extender_tls_cert_file:
        return _ON_THIS_MACHINE if is_this_machine(str(environ.get("REMOTE_ADDR", ""))) else None
    connection = environ.get(CONNECTION)
    peer = _peer_of(connection) if isinstance(connection, Connection) else None
    if peer is None or peer.expires_at <= time.time():
        return None
    return min(peer.names.intersection(settings.BERTH.extender_clients), default=None)


def _peer_of(connection: Connection) -> _Peer | None:
    """Return the connection's peer. The certificate belongs to the connection: it is decoded once, at the first call."""
    if "peer" not in connection.kept and isinstance(connection.sock, ssl.SSLSocket):
        connection.kept["peer"] = _peer_by(connection.sock)
    peer: _Peer | None = connection.kept.get("peer")
    return peer


def _peer_by(sock: ssl.SSLSocket) -> _Peer | None:
    """Return the peer that a verified certificate names; None if it isn't for clients, or can't be read."""
    try:
        certificate, der = sock.getpeercert(), sock.getpeercert(binary_form=True)
        if not certificate or not der or not is_for_clients(der):
            return None
        return _Peer(names_in(certificate), peer_expires_at(certificate))
    except ValueError:  # OpenSSL verifies names whose bytes are no text, and Python can't decode them
        return None


class AllowedCaller(BasePermission):
    """Permits the callers that `caller_of` names. The refusal's text is constant and names nobody."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return whether the caller may call.

        Raises:
            NotFound: the probes' listener serves no verbs to anyone.
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
    """The caller exceeds its rate."""

    status_code = status.HTTP_429_TOO_MANY_REQUESTS
    default_detail = "too many calls; BERTH_EXTENDER_CALLS_PER_SECOND sets the limit"


class Bucket:
    """A token bucket: when full, it holds one second's calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._level, self._at = math.inf, 0.0

    def take(self, *, per_second: float, now: float) -> bool:
        """Take one token; False when the bucket is empty. `now` is in seconds of a monotonic clock."""
        with self._lock:
            level = min(max(per_second, 1.0), self._level + (now - self._at) * per_second)
            taken = level >= 1
            self._level, self._at = level - 1 if taken else level, now
        return taken


# By the caller's name; at most as many as BERTH_EXTENDER_CLIENTS has names. All callers on this machine share one name: its
# bucket is for the first calls of connections; a connection that was answered has a bucket of its own.
_buckets: defaultdict[str, Bucket] = defaultdict(Bucket)


class CallRate(BaseThrottle):
    """Limits each caller to BERTH_EXTENDER_CALLS_PER_SECOND. Runs after AllowedCaller."""

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Let a call through.

        Raises:
            TooManyCalls: the caller exceeds its rate.
        """
        name = caller_of(request.META) or ""
        bucket = _own_bucket(request.META) if name == _ON_THIS_MACHINE else None
        now, per_second = time.monotonic(), settings.BERTH.extender_calls_per_second
        if not (bucket or _buckets[name]).take(per_second=per_second, now=now):
            raise TooManyCalls
        return True


def _own_bucket(environ: Mapping[str, Any]) -> Bucket | None:
    connection = environ.get(CONNECTION)
    if not isinstance(connection, Connection) or connection.is_new:
        return None
    bucket: Bucket = connection.kept.setdefault("bucket", Bucket())
    return bucket
