"""Threads that stay with a connection for a moment."""

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gunicorn.http.unreader import SocketUnreader
from gunicorn.workers.gthread import ThreadWorker

from scheduler.extender.lingering import LingeringWorker, more_comes
from tests.stack import eventually, free_port

APPLICATION = """
def application(environ, start_response):
    body = environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, Any]]:
    """A client's socket, and gunicorn's connection at the other end."""
    client, server = socket.socketpair()
    with client, server:
        yield client, SimpleNamespace(sock=server, parser=SimpleNamespace(unreader=SocketUnreader(server)))


class TestMoreComes:
    def test_what_has_come_is_more(self, pair: tuple[socket.socket, Any]) -> None:
        client, connection = pair
        client.sendall(b"P")
        assert more_comes(connection)

    def test_what_was_read_ahead_is_more(self, pair: tuple[socket.socket, Any]) -> None:
        _, connection = pair
        connection.parser.unreader.unread(b"P")
        assert more_comes(connection)

    def test_what_tls_has_read_is_more(self, pair: tuple[socket.socket, Any]) -> None:
        _, connection = pair
        connection.sock = SimpleNamespace(pending=lambda: 1)
        assert more_comes(connection)

    def test_an_end_is_for_the_worker_to_see(self, pair: tuple[socket.socket, Any]) -> None:
        client, connection = pair
        client.close()
        assert more_comes(connection)

    def test_silence_is_nothing(self, pair: tuple[socket.socket, Any]) -> None:
        assert not more_comes(pair[1])


class TestLingeringWorker:
    @pytest.mark.parametrize(
        ("outcomes", "alive", "asked"),
        [
            pytest.param([True, True, False], True, 3, id="until the connection can't be used again"),
            pytest.param([True, False], False, 1, id="not when the worker ends"),
            pytest.param([object(), False], True, 1, id="not for a client that hasn't sent anything"),
        ],
    )
    def test_a_thread_stays_as_long_as_requests_follow(
        self,
        outcomes: list[Any],
        alive: bool,
        asked: int,
        pair: tuple[socket.socket, Any],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        client, connection = pair
        client.sendall(b"P")
        left = list(outcomes)
        monkeypatch.setattr(ThreadWorker, "handle", lambda worker, conn: left.pop(0))
        worker = LingeringWorker.__new__(LingeringWorker)
        worker.alive = alive
        assert worker.handle(connection) is outcomes[asked - 1]
        assert len(outcomes) - len(left) == asked

    def test_requests_of_a_kept_connection_are_answered_at_once_and_after_a_while(self, tmp_path: Path) -> None:
        (tmp_path / "echo.py").write_text(APPLICATION)
        port = free_port()
        command = [sys.executable, "-m", "gunicorn", "-b", f"127.0.0.1:{port}", "--threads", "4", "--no-control-socket"]
        command += ["-k", "scheduler.extender.lingering.LingeringWorker", "--pythonpath", str(tmp_path), "echo"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
            try:
                eventually(lambda: answers(port), what="the server answers")
                with closing(HTTPConnection("127.0.0.1", port)) as connection:
                    for number in range(20):
                        assert asked(connection, str(number)) == str(number)
                    time.sleep(0.1)
                    assert asked(connection, "again") == "again"
            finally:
                server.terminate()
        assert server.returncode == 0


def asked(connection: HTTPConnection, text: str) -> str:
    connection.request("POST", "/", body=text)
    return connection.getresponse().read().decode()


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
