"""A small HTTP server that answers as a test says: for what a real API server can't be made to do."""

import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from urllib.parse import parse_qs, urlsplit

import msgspec


class Request(msgspec.Struct, frozen=True):
    """What was asked."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def is_watch(self) -> bool:
        """Whether it opens a watch."""
        return self.query.get("watch") == "true"


class Answer(msgspec.Struct):
    """What the server says. `stream` comes in chunks; a float in it is a pause, None a broken connection."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = {}
    stream: Iterable[bytes | float | None] | None = None


class ScriptedServer:
    """The server, and what it was asked so far."""

    def __init__(self, script: Callable[[Request], Answer], pair: Path | None = None) -> None:
        self.requests: list[Request] = []
        self.asked_at: list[float] = []
        self.connections = 0
        self._script = script
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                server.connections += 1

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
                """Stay silent."""

            def answer(self) -> None:
                server.answer(self)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = answer  # noqa: N815 - the names are the library's

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._scheme = "http"
        if pair is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pair)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
            self._scheme = "https"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{self._scheme}://127.0.0.1:{self._http.server_address[1]}"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        url = urlsplit(handler.path)
        request = Request(
            handler.command,
            url.path,
            {name: values[0] for name, values in parse_qs(url.query).items()},
            dict(handler.headers),
            handler.rfile.read(int(handler.headers.get("Content-Length", 0))),
        )
        self.requests.append(request)
        self.asked_at.append(time.monotonic())
        answer = self._script(request)
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        try:
            self._write(handler, answer)
        except OSError:
            handler.close_connection = True

    def _write(self, handler: BaseHTTPRequestHandler, answer: Answer) -> None:
        if answer.stream is None:
            handler.send_header("Content-Length", str(len(answer.body)))
            handler.end_headers()
            handler.wfile.write(answer.body)
            return
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for part in answer.stream:
            if part is None:
                handler.close_connection = True
                return
            if isinstance(part, float):
                time.sleep(part)
            else:
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        handler.wfile.write(b"0\r\n\r\n")

    def close(self) -> None:
        """Stop listening."""
        self._http.shutdown()
        self._http.server_close()


@contextmanager
def serving(script: Callable[[Request], Answer], pair: Path | None = None) -> Iterator[ScriptedServer]:
    """Run a server for the length of a test, with TLS where `pair` holds a certificate and its key."""
    server = ScriptedServer(script, pair)
    try:
        yield server
    finally:
        server.close()


def write_kubeconfig(
    folder: Path, url: str, user: dict[str, object] | None = None, cluster: Mapping[str, object] = MappingProxyType({})
) -> Path:
    """Write a kubeconfig for this server, with what else it says of user and cluster."""
    path = folder / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url, **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_bytes(msgspec.json.encode(document))
    return path
