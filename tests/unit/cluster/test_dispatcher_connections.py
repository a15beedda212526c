"""Connections that are slow, cut or silent: each request is answered once, and what isn't answered is said to be so."""

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scheduler.cluster import dispatcher as module
from scheduler.cluster.client import Client
from scheduler.cluster.dispatcher import UNANSWERED, APIRequest, Dispatcher
from tests.stack import eventually
from tests.unit.cluster.scripted_server import Answer, Request, serving, write_kubeconfig

CREATED = Answer(201, b'{"kind":"Status"}')


class Answers:
    """What requests were answered, by path."""

    def __init__(self) -> None:
        self.got: dict[str, list[tuple[int, bytes]]] = {}

    def request(self, path: str, **more: Any) -> APIRequest:
        def done(status: int, body: bytes) -> None:
            self.got.setdefault(path, []).append((status, body))

        return APIRequest(path, b"{}", done, **more)

    def of(self, path: str) -> list[tuple[int, bytes]]:
        return eventually(lambda: self.got.get(path, []), seconds=20, every=0.005, what=f"{path} is answered")


@pytest.fixture
def answers() -> Answers:
    return Answers()


@contextmanager
def dispatcher_to(
    url: str, folder: Path, *, timeout_seconds: float = 5.0, connections: int = 4
) -> Iterator[Dispatcher]:
    client = Client.connect(write_kubeconfig(folder, url, {"token": "secret"}))
    made = Dispatcher(client, timeout_seconds=timeout_seconds, connections=connections)
    made.start()
    yield made
    made.stop()


def test_requests_of_many_threads_are_each_answered_once(tmp_path: Path, answers: Answers) -> None:
    with serving(lambda _: CREATED) as server, dispatcher_to(server.url, tmp_path) as dispatcher:

        def send(thread: int) -> None:
            for number in range(50):
                post = dispatcher.send if number % 2 else dispatcher.send_later
                post(answers.request(f"/{thread}/{number}"))

        threads = [threading.Thread(target=send, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        eventually(lambda: len(answers.got) == 300, seconds=20, what="all are answered")

    assert {tuple(got) for got in answers.got.values()} == {((201, CREATED.body),)}
    assert Counter(request.path for request in server.requests) == Counter(answers.got.keys())
    assert {request.headers["Authorization"] for request in server.requests} == {"Bearer secret"}
    assert server.connections <= 4


def test_a_request_that_comes_just_when_the_dispatcher_wakes_up_does_not_wait(
    tmp_path: Path, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between hearing that there is something and looking what it is."""
    monkeypatch.setattr(module, "_CHECK_SECONDS", 3600.0)
    with serving(lambda _: CREATED) as server, dispatcher_to(server.url, tmp_path) as dispatcher:
        heard, mouth = eventually(lambda: dispatcher._ears, what="it listens")
        more = iter(["/second", "/third"])

        class Ear:
            """Has a request come at this very moment."""

            fileno = staticmethod(heard.fileno)
            close = staticmethod(heard.close)

            @staticmethod
            def recv(size: int) -> bytes:
                for path in more:
                    dispatcher.send(answers.request(path))
                    break
                return heard.recv(size)

        dispatcher._ears = (Ear(), mouth)
        for path in ("/first", "/last"):
            dispatcher.send(answers.request(path))
            assert answers.of(path)

        assert [len(answers.of(path)) for path in ("/second", "/third")] == [1, 1]


@pytest.mark.parametrize("status", [401, 404, 409, 422, 429, 500])
def test_a_refusal_is_handed_on_with_what_it_says(tmp_path: Path, answers: Answers, status: int) -> None:
    with (
        serving(lambda _: Answer(status, b'{"reason":"Because"}')) as server,
        dispatcher_to(server.url, tmp_path) as dispatcher,
    ):
        dispatcher.send(answers.request("/one"))

        assert answers.of("/one") == [(status, b'{"reason":"Because"}')]


@contextmanager
def listening(answer: Callable[[socket.socket, int], None]) -> Iterator[str]:
    """A server that does with each connection's request what it is told; returns its URL."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        opened: list[socket.socket] = []

        def serve(connection: socket.socket, number: int) -> None:
            try:
                while connection.recv(65_536):
                    answer(connection, number)
            except OSError:
                return

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                opened.append(connection)
                threading.Thread(target=serve, args=(connection, len(opened)), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        for connection in opened:
            connection.close()
        server.shutdown(socket.SHUT_RDWR)


WHOLE = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"


@pytest.mark.parametrize("answer", [WHOLE, CHUNKED], ids=["with a length", "in chunks"])
def test_an_answer_that_arrives_byte_by_byte_is_one_answer(tmp_path: Path, answers: Answers, answer: bytes) -> None:
    def drip(connection: socket.socket, _: int) -> None:
        for byte in answer:
            connection.sendall(bytes([byte]))
            time.sleep(0.001)

    with listening(drip) as url, dispatcher_to(url, tmp_path) as dispatcher:
        for path in ("/one", "/two"):
            dispatcher.send(answers.request(path))
            [(status, body)] = answers.of(path)
            assert (status, b"{}" in body) == (201, True)


def cut(connection: socket.socket, _: int) -> None:
    connection.shutdown(socket.SHUT_RDWR)


def cut_in_the_middle(connection: socket.socket, _: int) -> None:
    connection.sendall(WHOLE[:-1])
    connection.shutdown(socket.SHUT_RDWR)


def be_silent(_connection: socket.socket, _: int) -> None:
    """Never answer."""


@pytest.mark.parametrize("fault", [cut, cut_in_the_middle, be_silent], ids=lambda fault: fault.__name__)
def test_what_gets_no_whole_answer_is_unanswered_and_the_next_one_is_answered(
    tmp_path: Path, answers: Answers, fault: Callable[[socket.socket, int], None]
) -> None:
    def answer(connection: socket.socket, number: int) -> None:
        if number == 1:
            fault(connection, number)
        else:
            connection.sendall(WHOLE)

    with listening(answer) as url, dispatcher_to(url, tmp_path, timeout_seconds=0.3) as dispatcher:
        dispatcher.send(answers.request("/one"))
        assert answers.of("/one") == [(UNANSWERED, b"")]

        dispatcher.send(answers.request("/two"))
        assert answers.of("/two") == [(201, b"{}")]


def test_a_connection_that_the_server_closed_meanwhile_costs_no_answer_twice(tmp_path: Path, answers: Answers) -> None:
    """A server that ends connections after each answer, as one that is shut down."""

    def answer(connection: socket.socket, _: int) -> None:
        connection.sendall(WHOLE)
        connection.shutdown(socket.SHUT_RDWR)

    with listening(answer) as url, dispatcher_to(url, tmp_path) as dispatcher:
        for number in range(20):
            dispatcher.send(answers.request(f"/{number}"))
            [(status, _)] = answers.of(f"/{number}")
            assert status in {201, UNANSWERED}
    assert [len(got) for got in answers.got.values()] == [1] * 20


def test_what_is_urgent_overtakes_what_can_wait(tmp_path: Path, answers: Answers) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def script(request: Request) -> Answer:
        if request.path == "/first":
            entered.set()
            go_on.wait(20)
        return CREATED

    with (
        serving(script) as server,
        dispatcher_to(server.url, tmp_path, timeout_seconds=30, connections=1) as dispatcher,
    ):
        dispatcher.send(answers.request("/first"))
        entered.wait(20)
        dispatcher.send_later(answers.request("/later"))
        dispatcher.send(answers.request("/urgent"))
        go_on.set()
        answers.of("/later")

    assert [request.path for request in server.requests] == ["/first", "/urgent", "/later"]


def test_what_waits_when_it_is_stopped_is_still_sent(tmp_path: Path, answers: Answers) -> None:
    with serving(lambda _: CREATED) as server:
        with dispatcher_to(server.url, tmp_path) as dispatcher:
            for number in range(30):
                dispatcher.send(answers.request(f"/{number}"))
        assert len(answers.got) == 30


def test_what_the_server_takes_nothing_of_is_given_up_when_its_time_is_up() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0)
        connection = module._Connection(ours, b"", b"")
        connection.until = time.monotonic()
        sending = threading.Thread(target=_refused, args=(connection,), daemon=True)
        sending.start()
        sending.join(5)
        assert not sending.is_alive()


def _refused(connection: module._Connection) -> None:
    with pytest.raises(TimeoutError):
        connection.send(bytes(1 << 22))
