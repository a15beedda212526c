"""Threads that stay with a connection for a moment."""

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from gunicorn.http.unreader import SocketUnreader

from scheduler.extender.lingering import more_comes
from scheduler.extender.worker import ExtenderWorker


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


class TestHandle:
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
        monkeypatch.setattr(ExtenderWorker, "_handle_one", lambda worker, conn: left.pop(0))
        worker = ExtenderWorker.__new__(ExtenderWorker)
        worker.alive = alive
        assert worker.handle(connection) is outcomes[asked - 1]
        assert len(outcomes) - len(left) == asked
