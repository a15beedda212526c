"""A server that answers as it is told, and the command run against it."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from berth.main import main

Answer = tuple[int, Any, dict[str, str]]


@dataclass
class Stub:
    """Answers by method and path, without the query; keeps what it was asked."""

    answers: dict[tuple[str, str], Answer] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def answer(self, method: str, path: str, body: Any, status: int = 200, **headers: str) -> None:
        self.answers[method, f"/api/v1{path}"] = (
            status,
            body,
            {name.replace("_", "-"): value for name, value in headers.items()},
        )


class _Handler(BaseHTTPRequestHandler):
    stub: Stub

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, query = self.path.partition("?")
        asked = {"method": self.command, "path": path, "query": query, "headers": dict(self.headers)}
        self.stub.asked.append({**asked, "body": json.loads(body) if body else None})
        missing = (404, {"title": "Not Found", "status": 404, "detail": f"No path {path}.", "faults": []}, {})
        status, found, headers = self.stub.answers.get((self.command, path), missing)
        sent = found.encode() if isinstance(found, str) else json.dumps(found).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(sent)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(sent)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815 - the base class asks for these names

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="session")
def _listening() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def stub(_listening: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stub:
    made = Stub(url=f"http://127.0.0.1:{_listening.server_address[1]}")
    monkeypatch.setattr(_Handler, "stub", made, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("BERTH_SERVER", made.url)
    monkeypatch.setenv("BERTH_TOKEN", "a-token")
    monkeypatch.setattr("sys.argv", ["berth"])
    return made


@dataclass
class Ran:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Berth = Callable[..., Ran]


@pytest.fixture
def berth(stub: Stub, capsys: pytest.CaptureFixture[str]) -> Berth:
    def run(*arguments: str) -> Ran:
        try:
            code = main(list(arguments))
        except SystemExit as ended:
            code = int(ended.code or 0)
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return run
