"""/livez, /readyz and /metrics on a separate listener, for Celery processes, which have none."""

import json
import logging
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from django.conf import settings
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from scheduler.http_server.body import Body, Budget, WholeBody
from scheduler.http_server.connection import Listener
from scheduler.http_server.descriptors import connections_within
from scheduler.http_server.head import HeadLimits
from scheduler.http_server.hosts import NOT_OURS, may_probe
from scheduler.http_server.listeners import base_environ
from scheduler.http_server.server import Server

logger = logging.getLogger("berth.process")

_HEAD = HeadLimits(line=2048, fields=32, field=4096)
_THREADS, _MOST_CONNECTIONS, _BACKLOG = 2, 128, 4096


class Probes:
    """Answers probes until it is stopped.

    Args:
        address: `HOST:PORT`.
        unready: returns the names of missing parts.
        is_alive: returns whether the process makes progress.
        metrics: returns the body of /metrics.

    Raises:
        OSError: the address can't be listened on.
    """

    def __init__(
        self,
        address: str,
        *,
        unready: Callable[[], list[str]],
        is_alive: Callable[[], bool] = lambda: True,
        metrics: Callable[[], bytes] = generate_latest,
    ) -> None:
        host, _, port = address.rpartition(":")
        self._unready, self._is_alive, self._metrics = unready, is_alive, metrics
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # [::] is every address, as in gunicorn: a dual-stack cluster may probe by either family.
        both = host == "[::]" and socket.has_dualstack_ipv6()
        listening = socket.create_server(
            (host.strip("[]"), int(port)), family=family, backlog=_BACKLOG, dualstack_ipv6=both
        )
        listener = Listener(listening, self._body, _HEAD, base_environ(listening), may_be_known=False)
        most = connections_within(_MOST_CONNECTIONS)
        self._server = Server([listener], self._answer, threads=_THREADS, most_connections=most)
        self._thread = threading.Thread(target=self._server.serve, name="berth-probes", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._server.stop()
        self._thread.join(timeout=5)

    def _body(self, environ: dict[str, Any], length: int | None) -> Body:
        del environ
        return WholeBody(Budget(0), length, most=0)

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        if not may_probe(environ.get("HTTP_HOST"), settings.BERTH.allowed_hosts):
            status, kind, body = HTTPStatus.FORBIDDEN, "text/plain", NOT_OURS
        elif environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            status, kind, body = HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"GET alone is served here\n"
        else:
            status, kind, body = self._probed(environ["PATH_INFO"])
        start_response(f"{status.value} {status.phrase}", [("Content-Type", kind)])
        return [body]

    def _probed(self, path: str) -> tuple[HTTPStatus, str, bytes]:
        status, kind, body = HTTPStatus.OK, "text/plain", b"ok\n"
        match path:
            case "/livez":
                if not self._is_alive():
                    status, body = HTTPStatus.SERVICE_UNAVAILABLE, b"stuck\n"
            case "/readyz":
                missing = self._unready()
                status = HTTPStatus.SERVICE_UNAVAILABLE if missing else HTTPStatus.OK
                kind, body = "application/json", json.dumps({"ok": not missing, "missing": missing}).encode()
            case "/metrics":
                kind, body = CONTENT_TYPE_LATEST, self._metrics()
            case _:
                status, body = HTTPStatus.NOT_FOUND, b"/livez, /readyz and /metrics are served here\n"
        return status, kind, body


def listen(address: str, **probes: Any) -> Probes | None:
    """Answer probes at the address, see Probes; None without an address, or if it can't be bound: a port must not block work."""
    try:
        made = Probes(address, **probes) if address else None
    except OSError as error:
        logger.error("probes and metrics aren't served: can't listen on %s: %s", address, error)  # noqa: TRY400 - the setting's fault
        return None
    if made is not None:
        made.start()
    return made
