"""A gunicorn worker around the server: gunicorn starts, watches and ends it, through its documented worker class."""

import json
import os
import socket
from functools import partial
from typing import Any

from gunicorn.workers.base import Worker as GunicornWorker

from policies.api.details import MEDIA_TYPE, problem_of
from scheduler.http_server.body import Body, Budget, WholeBody
from scheduler.http_server.connection import OF_AN_ACCOUNT, Listener
from scheduler.http_server.descriptors import connections_within
from scheduler.http_server.head import HeadLimits
from scheduler.http_server.listeners import base_environ, is_shared
from scheduler.http_server.server import Server

# The limit of one body, and the limit of all bodies together while they are read and answered.
BODY_BYTES = 16 << 20
ALL_BODIES_BYTES = 64 << 20


# What to do about the refusals that a caller can do something about.
_REMEDIES = {
    413: "The body is too large: send it in several calls.",
    414: "The URL is too long: shorten it.",
    431: "The header fields are too large: send fewer or shorter ones.",
    503: "The server has too many requests at once: try again in a moment.",
}


def problem_of_refusal(status: int, reason: str) -> tuple[str, bytes]:
    """Return the content type and the body of the server's own refusal, as problem details like REST's other errors."""
    return MEDIA_TYPE, json.dumps(problem_of(status, _REMEDIES.get(status, f"{reason}."))).encode()


class Worker(GunicornWorker):  # type: ignore[misc]  # gunicorn has no types
    """One process that serves an application by `Server`.

    Attributes:
        grace_seconds: the time for requests in progress when it is told to stop; less than gunicorn's `graceful_timeout`.
    """

    # A statement for a page may take 20 s, and then the page says so.
    grace_seconds = 22.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._server: Server | None = None
        self._budget = Budget(ALL_BODIES_BYTES)

    @property
    def head_limits(self) -> HeadLimits:
        """How large a head may be."""
        return HeadLimits(
            line=self.cfg.limit_request_line,
            fields=self.cfg.limit_request_fields,
            field=self.cfg.limit_request_field_size,
        )

    def listener(self, listening: socket.socket) -> Listener:
        """Return the listener for a socket."""
        return Listener(
            listening,
            self._body,
            self.head_limits,
            base_environ(listening),
            keepalive_seconds=float(self.cfg.keepalive),
            # Anybody may post the sign-in form, which is answered 200, and whoever is signed in mostly reads.
            is_call=lambda environ: OF_AN_ACCOUNT in environ,
            refusal=problem_of_refusal,
        )

    def _body(self, environ: dict[str, Any], length: int | None) -> Body:
        del environ
        return WholeBody(self._budget, length, most=BODY_BYTES)

    def run(self) -> None:
        """Serve until told to stop."""
        self._server = Server(
            [self.listener(listening.sock) for listening in self.sockets],
            self.wsgi,
            threads=self.cfg.threads,
            most_connections=connections_within(self.cfg.worker_connections),
            tick=self._tick,
            shares_listeners=partial(is_shared, self.ppid),
            grace_seconds=self.grace_seconds,
        )
        if not self.alive:
            self._server.stop()
        self._server.serve()

    def _tick(self) -> None:
        self.notify()
        if self._server is not None and os.getppid() != self.ppid:
            self.log.info("the master has ended, and so does this worker")
            self._server.stop()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Begin to stop (SIGTERM)."""
        del sig, frame
        self.alive = False
        if self._server is not None:
            self._server.stop()
