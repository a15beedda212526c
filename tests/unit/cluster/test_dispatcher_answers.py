"""Answers as servers and proxies write them, whole, cut and wrong: each request is told its own, or that there is none."""

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.cluster import dispatcher as module
from scheduler.cluster.client import Client
from scheduler.cluster.dispatcher import UNANSWERED, APIRequest, Dispatcher
from scheduler.cluster.errors import LONGEST_ASKED_SECONDS
from tests.stack import eventually
from tests.unit.cluster.scripted_server import write_kubeconfig

Told = list[tuple[int, bytes]]
Script = Callable[[socket.socket, bytes], None]

WITH_LENGTH = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
IN_CHUNKS = (
    b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1;note=x\r\n}\r\n0\r\nTrailer: y\r\n\r\n"
)
NOTHING = (UNANSWERED, b"")


def head_of(received: bytes) -> bytes:
    return received.partition(b"\r\n")[0]


class OddServer:
    """Reads requests to their ends, one connection each by a thread, and has a script write what comes back."""

    def __init__(self, script: Script) -> None:
        self.connections = 0
        self._script = script
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while received := connection.recv(65_536):
                    while not received.endswith(b"\r\n\r\n{}"):
                        received += connection.recv(65_536)
                    self._script(connection, received)
            except OSError:
                return


@contextmanager
def asking(folder: Path, script: Script, *, timeout: float = 5.0) -> Iterator[tuple[Callable[..., Told], OddServer]]:
    """Serve by a script; yields what sends requests over one connection and returns their answers in order."""
    server = OddServer(script)
    client = Client.connect(write_kubeconfig(folder, server.url, {"token": "secret"}))
    dispatcher = Dispatcher(client, timeout_seconds=timeout, connections=1)
    dispatcher.start()

    def ask(*paths: str) -> Told:
        answers: Told = []
        for path in paths:
            told: Told = []
            dispatcher.send(APIRequest(path, b"{}", lambda status, body, told=told: told.append((status, body))))  # type: ignore[misc] # the default binds the list
            answers += eventually(lambda told=told: told, seconds=20, every=0.002, what=f"{path} is answered")
            assert len(told) == 1
        return answers

    yield ask, server
    dispatcher.stop()
    server.close()


def always(*parts: bytes) -> Script:
    """Write these parts after each request, with a moment between them."""

    def script(connection: socket.socket, _: bytes) -> None:
        for number, part in enumerate(parts):
            if number:
                time.sleep(0.005)
            connection.sendall(part)

    return script


def then_close(*parts: bytes) -> Script:
    """Write these parts and end the connection."""
    write = always(*parts)

    def script(connection: socket.socket, request: bytes) -> None:
        write(connection, request)
        connection.shutdown(socket.SHUT_RDWR)

    return script


@pytest.mark.parametrize("answer", [WITH_LENGTH, IN_CHUNKS], ids=["with a length", "in chunks"])
def test_an_answer_that_is_split_at_any_byte_is_told_once_and_whole(tmp_path: Path, answer: bytes) -> None:
    cuts = iter(range(1, len(answer)))

    def script(connection: socket.socket, _: bytes) -> None:
        cut = next(cuts)
        connection.sendall(answer[:cut])
        time.sleep(0.001)
        connection.sendall(answer[cut:])

    with asking(tmp_path, script) as (ask, server):
        told = ask(*(f"/{number}" for number in range(len(answer) - 1)))

    assert set(told) == {(201, b"{}")}
    assert server.connections == 1


def test_a_request_is_told_for_how_long_the_server_asks_to_be_left_alone(tmp_path: Path) -> None:
    asked = iter(["7", "Fri, 01 Jan 2027 00:00:00 GMT", "9" * 400, None])

    def script(connection: socket.socket, _: bytes) -> None:
        header = b"" if (value := next(asked)) is None else b"Retry-After: %s\r\n" % value.encode()
        connection.sendall(b"HTTP/1.1 429 Too Many Requests\r\n%sContent-Length: 2\r\n\r\n{}" % header)

    said: list[float] = []
    server = OddServer(script)
    dispatcher = Dispatcher(Client.connect(write_kubeconfig(tmp_path, server.url)), timeout_seconds=5.0, connections=1)
    dispatcher.start()
    requests: list[APIRequest] = []
    for number in range(4):
        requests.append(APIRequest("/one", b"{}", lambda *_: said.append(requests[-1].retry_after_seconds)))
        dispatcher.send(requests[-1])
        eventually(lambda wanted=number + 1: len(said) == wanted, seconds=20, every=0.002, what="it is answered")  # type: ignore[misc] # the default binds the number
    dispatcher.stop()
    server.close()

    assert said == [7.0, 0.0, LONGEST_ASKED_SECONDS, 0.0]


def test_the_body_of_an_answer_in_chunks_is_what_the_chunks_hold(tmp_path: Path) -> None:
    """Without their sizes: what asks for a refusal's reason reads JSON."""
    refusal = (
        b"HTTP/1.1 409 Conflict\r\nTransfer-Encoding: chunked\r\n\r\n"
        b'f\r\n{"reason":"Alre\r\nb\r\nadyExists"}\r\n0\r\n\r\n'
    )
    with asking(tmp_path, always(refusal)) as (ask, _):
        assert ask("/one", "/two") == [(409, b'{"reason":"AlreadyExists"}')] * 2


def test_a_chunk_that_ends_as_the_last_one_does_is_not_taken_for_it(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with asking(tmp_path, always(head + b"8\r\nab0\r\n\r\n", b"c\r\n0\r\n\r\n")) as (ask, _):
        assert ask("/one", "/two") == [(200, b"ab0\r\n\r\nc")] * 2


@pytest.mark.parametrize("status", [100, 102, 103])
def test_what_is_said_before_the_answer_is_passed_over(tmp_path: Path, status: int) -> None:
    before = b"HTTP/1.1 %d Early\r\nLink: x\r\n\r\n" % status
    with asking(tmp_path, always(before, before + WITH_LENGTH)) as (ask, server):
        assert ask("/one", "/two") == [(201, b"{}")] * 2
    assert server.connections == 1


def test_an_answer_without_a_length_ends_where_the_server_closes(tmp_path: Path) -> None:
    with asking(tmp_path, then_close(b"HTTP/1.1 403 Forbidden\r\n\r\nwho", b" are you?")) as (ask, server):
        assert ask("/one", "/two") == [(403, b"who are you?")] * 2
    assert server.connections == 2


@pytest.mark.parametrize("status", [204, 304])
def test_a_status_that_has_no_body_is_an_answer_by_its_head(tmp_path: Path, status: int) -> None:
    with asking(tmp_path, always(b"HTTP/1.1 %d Short\r\n\r\n" % status)) as (ask, server):
        assert ask("/one", "/two") == [(status, b"")] * 2
    assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        WITH_LENGTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        WITH_LENGTH.replace(b"\r\n\r\n", b"\r\nconnection: Keep-Alive, CLOSE\r\n\r\n"),
        WITH_LENGTH.replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
    ids=["close", "close in a list", "an older HTTP"],
)
def test_a_connection_that_the_server_will_close_is_not_used_again(tmp_path: Path, answer: bytes) -> None:
    """Whether or not it is closed by the time that the next request comes."""
    with asking(tmp_path, always(answer)) as (ask, server):
        assert ask("/one", "/two", "/three") == [(201, b"{}")] * 3
    assert server.connections == 3


@pytest.mark.parametrize("garbage", [b"x", b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", WITH_LENGTH, b"\r\n\r\n"])
def test_what_comes_behind_an_answer_answers_no_other_request(tmp_path: Path, garbage: bytes) -> None:
    with asking(tmp_path, always(WITH_LENGTH + garbage)) as (ask, server):
        assert ask("/one", "/two", "/three") == [(201, b"{}")] * 3
    assert server.connections == 3


def test_what_comes_while_nothing_is_asked_ends_the_connection(tmp_path: Path) -> None:
    with asking(tmp_path, always(WITH_LENGTH, b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")) as (ask, server):
        first = ask("/one")
        time.sleep(0.1)
        assert first + ask("/two") == [(201, b"{}")] * 2
    assert server.connections == 2


FAULTS = {
    "no HTTP": b"220 mail.example.org ESMTP\r\n\r\n",
    "a status that is no number": b"HTTP/1.1 abc Created\r\nContent-Length: 2\r\n\r\n{}",
    "a length that is no number": b"HTTP/1.1 201 Created\r\nContent-Length: two\r\n\r\n{}",
    "two lengths": b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
    "a negative length": b"HTTP/1.1 201 Created\r\nContent-Length: -2\r\n\r\n{}",
    "a chunk's size that is no number": b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "a header without a colon": b"HTTP/1.1 201 Created\r\nContent-Length\r\n\r\n{}",
    "another protocol that nobody asked for": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
    "a head without an end": b"HTTP/1.1 201 Created\r\n" + b"X-Filler: some more of it\r\n" * 4_000,
    "a body that is too long": b"HTTP/1.1 201 Created\r\nContent-Length: 99999999\r\n\r\n" + b"x" * (3 << 20),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_what_is_no_answer_leaves_the_request_unanswered_at_once_and_the_next_one_alone(
    tmp_path: Path, fault: bytes
) -> None:
    def script(connection: socket.socket, request: bytes) -> None:
        connection.sendall(fault if b"/odd" in head_of(request) else WITH_LENGTH)

    started = time.monotonic()
    with asking(tmp_path, script, timeout=60) as (ask, server):
        assert ask("/one", "/odd", "/two") == [(201, b"{}"), NOTHING, (201, b"{}")]
    assert time.monotonic() - started < 30
    assert server.connections == 2


@pytest.mark.parametrize("answer", [WITH_LENGTH, IN_CHUNKS], ids=["with a length", "in chunks"])
def test_an_answer_that_ends_too_early_is_none_wherever_it_ends(tmp_path: Path, answer: bytes) -> None:
    ends = list(range(0, len(answer) - 1, 7))

    def script(connection: socket.socket, request: bytes) -> None:
        path = head_of(request).split()[1]
        then_close(answer[: int(path[1:])])(connection, request)

    with asking(tmp_path, script) as (ask, server):
        assert ask(*(f"/{end}" for end in ends)) == [NOTHING] * len(ends)
    assert server.connections == len(ends)


def test_the_longest_answer_that_is_read_is_told_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST_ANSWER", 100_000)

    def script(connection: socket.socket, request: bytes) -> None:
        size = int(head_of(request).split()[1][1:])
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)

    with asking(tmp_path, script) as (ask, _):
        assert ask("/100000", "/100001", "/0") == [(200, b"x" * 100_000), NOTHING, (200, b"")]


def test_an_answer_that_stops_in_the_middle_is_none_when_its_time_is_up(tmp_path: Path) -> None:
    with asking(tmp_path, always(WITH_LENGTH[:-1]), timeout=0.3) as (ask, server):
        assert ask("/one", "/two") == [NOTHING] * 2
    assert server.connections == 2


chunks = st.lists(st.binary(min_size=1, max_size=20), max_size=4)
cuts = st.lists(st.integers(1, 400), max_size=6)
answers = st.tuples(st.sampled_from([200, 201, 403, 409, 500]), chunks, st.booleans(), st.integers(0, 2), cuts)


def written(status: int, body: Sequence[bytes], *, in_chunks: bool, early: int) -> bytes:
    head = b"HTTP/1.1 100 Continue\r\n\r\n" * early + b"HTTP/1.1 %d Some\r\nDate: today\r\n" % status
    if in_chunks:
        parts = [b"%x\r\n%s\r\n" % (len(part), part) for part in body]
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(parts) + b"0\r\n\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % sum(map(len, body)) + b"".join(body)


@settings(
    max_examples=40, suppress_health_check=[*settings().suppress_health_check, HealthCheck.function_scoped_fixture]
)
@given(plan=st.lists(answers, min_size=1, max_size=5))
def test_whatever_the_form_each_request_is_told_the_status_and_the_body_that_were_meant(
    tmp_path: Path, plan: list[tuple[int, list[bytes], bool, int, list[int]]]
) -> None:
    def script(connection: socket.socket, request: bytes) -> None:
        status, body, in_chunks, early, where = plan[int(head_of(request).split()[1][1:])]
        answer = written(status, body, in_chunks=in_chunks, early=early)
        places = [0, *sorted(cut for cut in set(where) if cut < len(answer)), len(answer)]
        for start, end in pairwise(places):
            connection.sendall(answer[start:end])
            time.sleep(0.0005)

    with asking(tmp_path, script) as (ask, server):
        told = ask(*(f"/{number}" for number in range(len(plan))))

    assert told == [(status, b"".join(body)) for status, body, *_ in plan]
    assert server.connections == 1
