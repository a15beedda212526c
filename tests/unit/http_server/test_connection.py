"""A connection: what it reads is the same however the bytes are cut, and what it sends arrives whole and in order."""

import contextlib
import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.http_server.body import Body, Budget, WholeBody
from scheduler.http_server.connection import BODY_SECONDS, HEAD_SECONDS, Connection, Listener, Wants, network_of
from scheduler.http_server.head import HeadLimits
from scheduler.http_server.listeners import base_environ

MOST = 1000


@contextmanager
def connected(
    budget: Budget | None = None, made_by: type[WholeBody] = WholeBody
) -> Iterator[tuple[Connection, socket.socket]]:
    room = budget or Budget(100_000)

    def body(environ: dict[str, Any], length: int | None) -> Body:
        return made_by(room, length, most=MOST)

    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as client,
    ):
        served, address = listening.accept()
        listener = Listener(listening, body, HeadLimits(200, 10, 100), base_environ(listening))
        connection = Connection(served, address, listener)
        client.settimeout(10)
        yield connection, client
        connection.close()


def read_all(connection: Connection, client: socket.socket, sent: bytes, cuts: list[int]) -> list[tuple[str, bytes]]:
    """Send in pieces; returns path and body of each request, which is answered at once."""
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        client.sendall(sent[start:end])
        select.select([connection.fd], [], [], 10)
        while (wants := connection.go_on()) is Wants.ANSWER:
            environ = connection.environ
            found.append((environ["PATH_INFO"], environ["wsgi.input"].read()))
            assert environ["CONTENT_LENGTH"] == str(len(found[-1][1]))
            connection.answer("200 OK", [], [b"ok"], is_last=False)
        if wants is Wants.END:
            break
    return found


class Counted(bytes):
    """Bytes that count how many of them are looked through."""

    looked_through = 0

    def __radd__(self, before: bytes) -> "Counted":
        return Counted(bytes(before) + bytes(self))

    def __add__(self, behind: bytes) -> "Counted":
        return Counted(bytes(self) + bytes(behind))

    def find(self, *arguments: Any) -> int:
        Counted.looked_through += len(self) - (arguments[1] if len(arguments) > 1 else 0)
        return super().find(*arguments)


class Dripping:
    """A socket on which a byte comes at a time."""

    def __init__(self, sent: bytes) -> None:
        self._sent = iter(sent)

    def recv(self, _: int) -> bytes:
        return Counted(islice(self._sent, 1))


def test_a_head_that_comes_a_byte_at_a_time_is_looked_through_once() -> None:
    Counted.looked_through = 0
    with connected() as (connection, _client):
        served, connection.sock = connection.sock, Dripping(b"POST / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 90)  # type: ignore[assignment]
        assert connection.go_on() is Wants.END
        connection.sock = served
    assert 0 < Counted.looked_through < 120 * 5


requests = st.tuples(st.sampled_from(["/a", "/b"]), st.binary(max_size=100), st.lists(st.integers(1, 40), max_size=4))


def encode(path: str, body: bytes, sizes: list[int]) -> bytes:
    """A request, in chunks of these sizes where there are any."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\n".encode()
    if not sizes:
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    sent, at = head + b"Transfer-Encoding: chunked\r\n\r\n", 0
    for size in sizes:
        if piece := body[at : at + size]:
            sent += b"%x;extension\r\n%s\r\n" % (len(piece), piece)
            at += size
    rest = body[at:]
    return sent + (b"%X\r\n%s\r\n" % (len(rest), rest) if rest else b"") + b"0\r\nTrailer: x\r\n\r\n"


@given(st.lists(requests, min_size=1, max_size=4), st.data())
def test_requests_are_the_same_however_they_are_cut(
    sent: list[tuple[str, bytes, list[int]]], data: st.DataObject
) -> None:
    encoded = b"".join(encode(*request) for request in sent)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(encoded) - 1), max_size=6)))
    with connected() as (connection, client):
        assert read_all(connection, client, encoded, cuts) == [(path, body) for path, body, _ in sent]


class InSmallPieces(WholeBody):
    """A body that takes ten bytes at a time."""

    def space(self) -> memoryview:
        return super().space()[:10]


@pytest.mark.parametrize("pieces", range(1, 20))
def test_a_body_is_whole_after_whichever_step_its_last_byte_comes(pieces: int) -> None:
    with connected(made_by=InSmallPieces) as (connection, client):
        client.sendall(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (10 * pieces))
        assert select.select([connection.fd], [], [], 10)[0]
        assert connection.go_on() is Wants.READ
        client.sendall(b"x" * 10 * pieces)
        assert select.select([connection.fd], [], [], 10)[0]
        while (wants := connection.go_on()) is Wants.READ:
            assert select.select([connection.fd], [], [], 0)[0], "it waits for what has come already"
        assert wants is Wants.ANSWER


@given(st.binary(max_size=200))
def test_whatever_stands_where_chunks_should_is_read_or_refused(chunks: bytes) -> None:
    with connected() as (connection, client):
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
        client.shutdown(socket.SHUT_WR)
        select.select([connection.fd], [], [], 10)
        assert connection.go_on() in (Wants.END, Wants.ANSWER, Wants.READ)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(b"Content-Length: 1001\r\n\r\n", 413, id="a length over the limit"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\n3e9\r\n" + b"x" * 1001, 413, id="chunks over the limit"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400, id="no chunk"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", 400, id="a chunk longer than it says"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 3000, 400, id="a chunk's line without end"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\n0\r\nA: " + b"x" * 20_000, 400, id="fields at the end"),
    ],
)
def test_a_body_that_is_too_large_or_no_body_is_refused_and_is_the_last(sent: bytes, status: int) -> None:
    with connected() as (connection, client):
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\n" + sent)
        select.select([connection.fd], [], [], 10)
        while connection.go_on() is Wants.READ and not connection.refused:
            time.sleep(0.001)
        answer = client.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert b"\r\nConnection: close\r\n" in answer


def test_bodies_share_their_room_and_give_it_back() -> None:
    room = Budget(15)
    post = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789"
    with connected(room) as (first, first_client), connected(room) as (second, second_client):
        first_client.sendall(post)
        select.select([first.fd], [], [], 10)
        assert first.go_on() is Wants.ANSWER
        second_client.sendall(post)
        select.select([second.fd], [], [], 10)
        second.go_on()
        assert second.refused == "crowded"
    with connected(room) as (third, third_client):
        third_client.sendall(post)
        select.select([third.fd], [], [], 10)
        assert third.go_on() is Wants.ANSWER


@pytest.mark.parametrize("sizes", [[0], [1], [3, 0, 5], [1] * 2500, [10, 1_000_000, 7, 2_000_000, 1]])
def test_pieces_arrive_whole_and_in_order(sizes: list[int]) -> None:
    pieces = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    with connected() as (connection, client):
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        select.select([connection.fd], [], [], 10)
        assert connection.go_on() is Wants.ANSWER
        connection.answer("200 OK", [], pieces, is_last=True)
        client.settimeout(0.001)
        came = b""
        while connection.go_on() is Wants.WRITE or not came.endswith(pieces[-1]) or len(came) < sum(sizes):
            try:
                came += client.recv(1 << 20)
            except TimeoutError:
                continue
        assert came.partition(b"\r\n\r\n")[2] == b"".join(pieces)


def test_the_end_of_an_answer_is_told_once_when_all_is_sent_and_not_before() -> None:
    told: list[str] = []
    with connected() as (connection, client):
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        select.select([connection.fd], [], [], 10)
        assert connection.go_on() is Wants.ANSWER
        connection.answer("200 OK", [], [b"x" * (16 << 20)], is_last=True, on_end=lambda: told.append("end"))
        assert connection.go_on() is Wants.WRITE
        assert told == []
        client.settimeout(0.001)
        while connection.go_on() is Wants.WRITE:
            with contextlib.suppress(TimeoutError):
                client.recv(1 << 20)
        assert told == ["end"]
    assert told == ["end"]


def test_the_end_of_an_answer_is_told_where_the_caller_hangs_up() -> None:
    told: list[str] = []
    with connected() as (connection, client):
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        select.select([connection.fd], [], [], 10)
        assert connection.go_on() is Wants.ANSWER
        connection.answer("200 OK", [], [b"x" * (16 << 20)], is_last=True, on_end=lambda: told.append("end"))
        assert connection.go_on() is Wants.WRITE
        connection.close()
        assert told == ["end"]


def test_each_piece_of_an_answer_that_is_made_as_it_is_sent_has_a_time_of_its_own() -> None:
    told: list[str] = []
    with connected() as (connection, client):
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        select.select([connection.fd], [], [], 10)
        assert connection.go_on() is Wants.ANSWER
        fields = [("Content-Length", "5")]
        rest = iter([b"b", b"", b"cd"])
        connection.answer("200 OK", fields, [b"a", b"a"], is_last=False, on_end=lambda: told.append("end"), more=rest)
        for _ in range(4):
            assert connection.go_on() is Wants.ANSWER
            connection.deadline = time.monotonic()
            assert (connection.has_expired, told) == (True, [])
            connection.answer_more()
            assert BODY_SECONDS - 5 < connection.deadline - time.monotonic() <= BODY_SECONDS
        connection.go_on()
        assert told == ["end"]
        assert client.recv(1000).partition(b"\r\n\r\n")[2] == b"aabcd"


def test_the_answer_to_a_head_has_no_body() -> None:
    with connected() as (connection, client):
        client.sendall(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
        select.select([connection.fd], [], [], 10)
        assert connection.go_on() is Wants.ANSWER
        connection.answer("200 OK", [], [b"body"], is_last=True)
        connection.go_on()
        answer = client.makefile("rb").read()
        assert b"Content-Length: 4" in answer
        assert answer.endswith(b"\r\n\r\n")


def test_a_client_that_waits_is_told_to_go_on() -> None:
    with connected() as (connection, client):
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        select.select([connection.fd], [], [], 10)
        assert connection.go_on() is Wants.READ
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"


def test_each_step_has_a_time_of_its_own_from_its_first_byte_on() -> None:
    with connected() as (connection, client):
        assert connection.deadline > time.monotonic() + 100
        client.sendall(b"POST / HTTP/1.1\r\n")
        select.select([connection.fd], [], [], 10)
        connection.go_on()
        assert HEAD_SECONDS - 1 < connection.deadline - time.monotonic() <= HEAD_SECONDS
        client.sendall(b"Host: x\r\nContent-Length: 5\r\n\r\n")
        select.select([connection.fd], [], [], 10)
        connection.go_on()
        assert HEAD_SECONDS < connection.deadline - time.monotonic() <= BODY_SECONDS


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::FFFF:c000:0201", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:ffff:ffff:ffff", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
    ],
)
def test_an_address_of_ipv4_counts_alone_by_whatever_listener_and_of_ipv6_a_64(host: str, network: str) -> None:
    assert network_of(host) == network
