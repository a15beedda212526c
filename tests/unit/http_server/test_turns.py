"""Whose turn it is, with the loop in a thread of its own. Each test holds a thread or the loop, and then looks at the choice."""

import select
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from scheduler.http_server import connection as connection_module
from scheduler.http_server import server as server_module
from scheduler.http_server.body import Budget, WholeBody
from scheduler.http_server.connection import CONNECTION, Connection, Listener
from scheduler.http_server.head import HeadLimits
from scheduler.http_server.listeners import base_environ
from scheduler.http_server.server import Server
from tests.stack import eventually

MOST = 8


class Serving:
    """A server with one thread, or more, which a call of /hold keeps until `go_on`. `asked` has the paths in their order."""

    def __init__(self, threads: int = 1) -> None:
        self.asked: list[str] = []
        self.go_on = threading.Event()
        # The connections that called, each with whether it was known then.
        self.callers: list[tuple[Connection, bool]] = []
        self._stack = ExitStack()
        self._clients = ExitStack()
        listening = self._stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        room = Budget(100_000)
        listener = Listener(
            listening,
            lambda _environ, length: WholeBody(room, length, most=1000),
            HeadLimits(200, 10, 100),
            base_environ(listening),
        )
        self._address = listening.getsockname()
        self.server = Server([listener], self._answer, threads=threads, most_connections=MOST)
        self._loop = threading.Thread(target=self.server.serve)

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        self.asked.append(environ["PATH_INFO"])
        self.callers.append((environ[CONNECTION], environ[CONNECTION].is_known))
        if environ["PATH_INFO"] == "/hold":
            assert self.go_on.wait(60)
        start_response("404 Not Found" if environ["PATH_INFO"] == "/refused" else "200 OK", [])
        return [b"ok"]

    def connect(self, path: str = "", source: str = "127.0.0.1") -> socket.socket:
        """Connect, and post to a path if one is given."""
        made = self._clients.enter_context(
            socket.create_connection(self._address, timeout=60, source_address=(source, 0))
        )
        if path:
            post(made, path)
        return made

    def hold(self) -> None:
        self.connect("/hold")
        eventually(lambda: "/hold" in self.asked, what="the thread is held")

    @contextmanager
    def looking_away(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Hold the loop: what comes meanwhile it sees at one look."""
        held, released = threading.Event(), threading.Event()

        def tick() -> None:
            held.set()
            assert released.wait(60)

        monkeypatch.setattr(self.server, "_tick", tick)
        assert held.wait(60)
        yield
        released.set()

    def known(self) -> socket.socket:
        made = self.connect("/first")
        assert is_answered(made)
        return made

    def waits(self, number: int) -> None:
        """Wait until so many requests wait for the thread."""
        eventually(lambda: self.server._ready.qsize() == number, what="requests wait for the thread")

    def __enter__(self) -> "Serving":
        self._loop.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.go_on.set()
        self.server.stop()
        self._clients.close()  # the server waits for those that are there
        self._loop.join()
        self._stack.close()


@pytest.fixture
def serving() -> Iterator[Serving]:
    with Serving() as made:
        yield made


def post(client: socket.socket, path: str) -> None:
    client.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())


def is_answered(client: socket.socket) -> bool:
    return client.recv(1000).endswith(b"\r\n\r\nok")


def test_who_is_known_is_answered_before_strangers_that_came_first(serving: Serving) -> None:
    known = serving.known()
    serving.hold()
    strangers = [serving.connect(f"/{number}") for number in range(4)]
    serving.waits(4)
    post(known, "/known")
    serving.waits(5)
    serving.go_on.set()
    assert all(map(is_answered, [known, *strangers]))
    assert serving.asked == ["/first", "/hold", "/known", "/0", "/1", "/2", "/3"]


def test_who_is_known_stays_so_after_getting_a_file_and_not_after_a_refusal(serving: Serving) -> None:
    known = serving.known()
    for request in (b"GET /file HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /refused HTTP/1.1\r\nHost: x\r\n\r\n"):
        known.sendall(request)
        known.recv(1000)
    assert [was_known for _, was_known in serving.callers] == [False, True, True]
    assert not serving.callers[0][0].is_known


def test_a_stranger_is_answered_though_who_is_known_goes_on_calling(serving: Serving) -> None:
    """Its turn comes after `NEW_WAIT` turns of others at the latest, each of `CALLS_IN_A_ROW` calls at the most."""
    known = serving.known()
    serving.hold()
    stranger = serving.connect("/stranger")
    serving.waits(1)
    serving.go_on.set()
    calls = 0
    while "/stranger" not in serving.asked:
        calls += 1
        assert calls <= server_module.NEW_WAIT * server_module.CALLS_IN_A_ROW
        post(known, "/known")
        assert is_answered(known)
    assert is_answered(stranger)


def test_a_stranger_is_read_even_when_each_round_has_taken_its_time_already(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine whose processors are with others whenever the strangers' turn comes."""
    monkeypatch.setattr(server_module, "STRANGERS_SECONDS", -1.0)
    assert all(map(is_answered, [serving.connect(f"/{number}") for number in range(MOST // 2)]))


def test_the_loop_goes_on_with_who_is_known_before_strangers_that_spoke_first(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = serving.known()
    strangers = [serving.connect() for _ in range(MOST - 2)]
    eventually(lambda: len(serving.server._held) == MOST - 1, what="the loop has them all")
    served: list[bool] = []
    serve = Server._serve

    def noted(self: Server, connection: Connection) -> None:
        served.append(connection.is_known)
        serve(self, connection)

    with serving.looking_away(monkeypatch):
        monkeypatch.setattr(Server, "_serve", noted)
        for number, stranger in enumerate(strangers):
            post(stranger, f"/{number}")
        post(known, "/known")
    assert all(map(is_answered, [known, *strangers]))
    assert served[0]
    assert not any(served[1 : MOST - 1])


def test_a_stranger_that_has_taken_more_of_the_loop_waits_behind_those_that_have_not(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    strangers = [serving.connect() for _ in range(MOST - 2)]
    eventually(lambda: len(serving.server._held) == MOST - 2, what="the loop has them all")
    with serving.looking_away(monkeypatch):
        dear = list(serving.server._held)[: MOST // 2]
        for connection in dear:
            connection.spent_seconds = 1.0
        served: list[Connection] = []
        serve = Server._serve
        monkeypatch.setattr(Server, "_serve", lambda self, each: (served.append(each), serve(self, each)))
        for number, stranger in enumerate(strangers):
            post(stranger, f"/{number}")
    assert all(map(is_answered, strangers))
    assert set(served[: MOST - 2 - len(dear)]).isdisjoint(dear)


def is_heard_while(slow: socket.socket, listen: Callable[[], socket.socket]) -> bool:
    """Send a head, a byte after the other, for a second; returns whether another socket has got something by then."""
    slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    slow.sendall(b"POST /slow HTTP/1.1\r\nHost: x\r\n")
    heard = listen()
    for _ in range(500):
        slow.sendall(b"X")
        if select.select([heard], [], [], 0.002)[0]:
            return True
    return False


def test_who_is_known_and_sends_a_byte_at_a_time_keeps_no_thread_from_others(serving: Serving) -> None:
    """Whoever posts a sign-in that fails is answered well, and so known."""
    assert is_heard_while(serving.known(), lambda: serving.connect("/other"))


def test_who_is_known_and_sends_a_byte_at_a_time_is_told_that_it_takes_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "HEAD_SECONDS", 0.1)
    with Serving(threads=2) as serving:
        slow = serving.known()
        assert is_heard_while(slow, lambda: slow)
        assert slow.recv(100).startswith(b"HTTP/1.1 408 ")


def test_who_has_too_many_connections_takes_none_of_another_address(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even when each of them has sent a whole request, so that none of them can go."""
    monkeypatch.setattr(server_module, "MOST_STRANGERS", 2)
    monkeypatch.setattr(server_module, "is_this_machine", lambda _address: False)
    serving.hold()
    other = serving.connect(source="127.0.0.3")
    eventually(lambda: serving.server._held, what="the loop has it")
    with serving.looking_away(monkeypatch):
        many = [serving.connect(f"/{number}", "127.0.0.2") for number in range(3)]
    serving.waits(3)
    serving.go_on.set()
    post(other, "/other")
    assert all(map(is_answered, [other, *many]))
