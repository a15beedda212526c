"""/livez, /readyz and /metrics on a listener of its own, for a process of Celery's: it has none."""

import json
import logging
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

logger = logging.getLogger("berth.process")


class Probes:
    """Answers probes until it is stopped.

    Args:
        address: `HOST:PORT`.
        unready: names what isn't there yet.
        is_alive: returns whether the process does its work.
        metrics: returns what /metrics answers.

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

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                match self.path:
                    case "/livez":
                        alive = is_alive()
                        self._answer(alive, b"ok\n" if alive else b"stuck\n", "text/plain")
                    case "/readyz":
                        missing = unready()
                        body = json.dumps({"ok": not missing, "missing": missing}).encode()
                        self._answer(not missing, body, "application/json")
                    case "/metrics":
                        self._answer(good=True, body=metrics(), kind=CONTENT_TYPE_LATEST)
                    case _:
                        self.send_error(HTTPStatus.NOT_FOUND)

            def _answer(self, good: bool, body: bytes, kind: str) -> None:  # noqa: FBT001 - private, three calls
                self.send_response(HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing: probes come every few seconds."""

        self._server = ThreadingHTTPServer((host.strip("[]"), int(port)), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="berth-probes", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


def listen(address: str, **probes: Any) -> Probes | None:
    """Answer probes there, see Probes; None without an address, and where it can't be had: no work waits for a port."""
    try:
        made = Probes(address, **probes) if address else None
    except OSError as error:
        logger.error("no probes and metrics: %s can't be listened on: %s", address, error)  # noqa: TRY400 - the setting's fault
        return None
    if made is not None:
        made.start()
    return made
