"""A proxy in front of an API server that fails as networks do: it breaks watches, delays them, and drops answers.

Clients use plain HTTP on loopback, so that it can read requests; it uses TLS to the API server and passes on
the clients' credentials.
"""

import base64
import http.client
import json
import queue
import ssl
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, cast
from urllib.parse import urlsplit

import yaml

_DROPPED = {"connection", "transfer-encoding", "content-length", "keep-alive"}
# How long a client gets no answer if it is dropped: longer than the client waits.
_SILENCE_SECONDS = 6.0

_GONE = {
    "type": "ERROR",
    "object": {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "too old resource version",
        "reason": "Expired",
        "code": 410,
    },
}


class Proxy:
    """A proxy in front of a kubeconfig's API server; `kubeconfig` is the one for its clients.

    `watch_delay_seconds`: the delay of all events of watches.
    `binds_to_eat`: how many more bindings are made but their answers dropped.
    `binds`: how often a binding was requested, by its path.
    """

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        entry = document["clusters"][0]["cluster"]
        found = urlsplit(entry["server"])
        self.upstream = (str(found.hostname), int(found.port or 443))
        self.tls = ssl.create_default_context(cadata=_authority(entry))
        self.watch_delay_seconds = 0.0
        self.binds_to_eat = 0
        self.binds_eaten = 0
        self.binds: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._watches: set[Watch] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        cast("Any", self._server).proxy = self
        entry.clear()
        entry["server"] = f"http://127.0.0.1:{self._server.server_port}"
        self.kubeconfig = folder / "kubeconfig-of-proxy"
        self.kubeconfig.write_text(yaml.safe_dump(document))

    def __enter__(self) -> "Proxy":
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end_watches()
        self._server.shutdown()
        self._server.server_close()

    def end_watches(self, *, expired: bool = False) -> int:
        """Break the open watches in the middle of an answer, or send them 410; returns how many."""
        with self._lock:
            watches = list(self._watches)
        for watch in watches:
            watch.end(expired=expired)
        return len(watches)

    def add(self, watch: "Watch") -> None:
        with self._lock:
            self._watches.add(watch)

    def remove(self, watch: "Watch") -> None:
        with self._lock:
            self._watches.discard(watch)

    def eats(self, method: str, path: str) -> bool:
        """Return whether to drop the answer to a request; counts bindings."""
        if method != "POST" or not path.endswith("/binding"):
            return False
        with self._lock:
            self.binds[path] += 1
            if not self.binds_to_eat:
                return False
            self.binds_to_eat -= 1
            self.binds_eaten += 1
            return True


def _authority(entry: dict[str, Any]) -> str:
    if "certificate-authority-data" in entry:
        return base64.b64decode(entry["certificate-authority-data"]).decode()
    return Path(entry["certificate-authority"]).read_text()


class Watch:
    """The lines of one watch, each held until it is due."""

    def __init__(self, answer: http.client.HTTPResponse, proxy: Proxy) -> None:
        self._answer = answer
        self._proxy = proxy
        self._lines: queue.SimpleQueue[tuple[float, bytes | None]] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._expired = False

    def end(self, *, expired: bool) -> None:
        self._expired = expired
        self._ended.set()
        self._lines.put((0.0, None))

    def read(self) -> None:
        """Read the API server's answer to its end; runs in a thread of its own."""
        try:
            for line in iter(self._answer.readline, b""):
                self._lines.put((time.monotonic() + self._proxy.watch_delay_seconds, line))
        except (OSError, http.client.HTTPException, ValueError, AttributeError):
            self._ended.set()  # the API server went away, or the answer was closed here
        self._lines.put((0.0, None))

    def hand_on(self, write: Any) -> bool:
        """Write the lines when they are due; returns False if the answer has to break off, True at its end."""
        while True:
            at, line = self._lines.get()
            self._ended.wait(max(at - time.monotonic(), 0))
            if self._ended.is_set():
                if self._expired:
                    write(json.dumps(_GONE).encode() + b"\n")
                return self._expired
            if line is None:
                return True
            write(line)


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client, with its own connection to the API server."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.proxy: Proxy = cast("Any", self.server).proxy
        self.upstream = http.client.HTTPSConnection(*self.proxy.upstream, context=self.proxy.tls, timeout=3600)

    def finish(self) -> None:
        self.upstream.close()
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """Stay silent."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name: text for name, text in self.headers.items() if name.lower() not in {*_DROPPED, "host"}}
        try:
            self.upstream.request(self.command, self.path, body or None, headers)
            answer = self.upstream.getresponse()
            if "watch=true" in self.path and answer.status == http.HTTPStatus.OK:
                self._hand_on_watch(answer)
                return
            content = answer.read()
        except (OSError, http.client.HTTPException):
            self.close_connection = True  # as if the API server had gone away itself
            return
        if self.proxy.eats(self.command, urlsplit(self.path).path):
            time.sleep(_SILENCE_SECONDS)
            self.close_connection = True
            return
        self._start(answer)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - their names there

    def _start(self, answer: http.client.HTTPResponse) -> None:
        self.send_response(answer.status, answer.reason)
        for name, text in answer.getheaders():
            if name.lower() not in {*_DROPPED, "date"}:
                self.send_header(name, text)

    def _hand_on_watch(self, answer: http.client.HTTPResponse) -> None:
        self._start(answer)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        watch = Watch(answer, self.proxy)
        self.proxy.add(watch)
        threading.Thread(target=watch.read, daemon=True).start()
        try:
            if watch.hand_on(lambda line: self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))):
                self.wfile.write(b"0\r\n\r\n")
        except OSError:
            return  # the client went away
        finally:
            self.proxy.remove(watch)
            self.close_connection = True
            if self.upstream.sock is not None:
                self.upstream.sock.shutdown(2)  # ends the thread that reads
            self.upstream.close()
