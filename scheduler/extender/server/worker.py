"""The extender's process: TLS by listener, bodies compared while they arrive, and a takeover from a former master.

No log line and no answer repeats anything that a client sent.
"""

import contextlib
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

from django.conf import settings

from scheduler.extender.identity import ONLY_PROBES, caller_of
from scheduler.extender.request.body_limit import IncomingBody
from scheduler.extender.server.gunicorn_conf import credentials
from scheduler.http_server.body import Body, Budget
from scheduler.http_server.connection import CONNECTION, Listener
from scheduler.http_server.listeners import base_environ
from scheduler.http_server.server import GRACE_SECONDS
from scheduler.http_server.worker import Worker

# The memory budget, in bodies of the largest size.
BODIES_AT_ONCE = 4
# How long a new master's worker waits to become ready before it takes over anyway.
READY_SECONDS = 60.0


class ExtenderWorker(Worker):
    """One process of the extender."""

    # Calls end sooner than pages, and Decisions have to be shipped afterwards.
    grace_seconds = GRACE_SECONDS

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._most_bytes = settings.BERTH.extender_max_body_bytes
        self._budget = Budget(BODIES_AT_ONCE * self._most_bytes)

    def listener(self, listening: socket.socket) -> Listener:
        """Return the listener for a socket: it serves the verbs, with TLS if set, or only probes."""
        only_probes = str(listening.getsockname()[1]) == settings.BERTH.extender_health_bind.rpartition(":")[2]
        secured = None if only_probes else credentials
        return Listener(
            listening,
            self._incoming,
            self.head_limits,
            base_environ(listening, "https" if secured else "http") | {ONLY_PROBES: only_probes},
            tls=secured.context if secured else None,
            may_be_known=not only_probes,
            keepalive_seconds=float(self.cfg.keepalive),
        )

    def _incoming(self, environ: dict[str, Any], length: int | None) -> Body:
        may_call = not environ[ONLY_PROBES] and caller_of(environ) is not None
        # A client that was never answered leaves half of the budget to others.
        leave = 0 if environ[CONNECTION].is_known else BODIES_AT_ONCE * self._most_bytes // 2
        return IncomingBody(self._budget, length, limit_bytes=self._most_bytes, keep=may_call, leave=leave)

    def run(self) -> None:
        """Serve until told to stop; a new master's worker (SIGUSR2) starts once it is ready, and ends the former master."""
        if predecessor := _predecessor(self.ppid):
            self._wait_until_ready()
            if self.alive:
                self.log.info("ready; the former master is asked to end: %s", predecessor)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(predecessor, signal.SIGTERM)
        super().run()

    def _wait_until_ready(self) -> None:
        from scheduler.extender.urls import runtime  # can't be imported before Django is set up

        deadline = time.monotonic() + READY_SECONDS
        while self.alive and runtime.unready() and time.monotonic() < deadline:
            self.notify()
            time.sleep(0.05)


def _predecessor(master: int) -> int:
    """Return the old master's pid if it started `master` (SIGUSR2), else 0. gunicorn passes it as GUNICORN_PID."""
    former = os.environ.get("GUNICORN_PID", "")
    try:
        stat = Path(f"/proc/{master}/stat").read_text(encoding="utf-8")
    except OSError:
        return 0
    parent = stat.rpartition(")")[2].split()[1]
    return int(parent) if parent == former else 0
