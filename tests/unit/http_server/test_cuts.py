"""Bytes of any kind in any cuts: the same requests, the same refusal, and no room kept that nobody uses."""

import re
import select
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.http_server.body import Body, Budget, Chunks, WholeBody
from scheduler.http_server.connection import Connection, Listener, Wants
from scheduler.http_server.head import HeadLimits, RefusedError
from scheduler.http_server.listeners import base_environ

LIMITS = HeadLimits(line=60, fields=4, field=40)
MOST, ROOM = 100, 1000

# Requests, heads at their limits and over them, and what is none; one behind the other they make a stream.
END = b"\r\nHost: x\r\n\r\n"
LONG = b"GET /%s HTTP/1.1" % (b"a" * 46) + b"\r\nA: %s" % (b"a" * 37) * 3
PIECES = {
    "a call": b"POST /call HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
    "a call in chunks": b"POST /chunks HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    "no body": b"GET /none HTTP/1.1" + END,
    "the longest line": b"GET /%s HTTP/1.1" % (b"a" * 46) + END,
    "a line too long": b"GET /%s HTTP/1.1" % (b"a" * 47) + END,
    "the longest field": b"GET /field HTTP/1.1\r\nA: %s" % (b"a" * 37) + END,
    "a field too long": b"GET /field HTTP/1.1\r\nA: %s" % (b"a" * 38) + END,
    "the largest head": LONG + b"\r\nHost: %s\r\n\r\n" % (b"x" * 26),
    "a head too large": LONG + b"\r\nHost: %s\r\n\r\n" % (b"x" * 27),
    "a field too many": b"GET /fields HTTP/1.1" + b"\r\nA: a" * 4 + END,
    "the last call": b"POST /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "a body too long": b"POST /long HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n",
    "chunks too long": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n%s\r\n0\r\n\r\n" % (b"x" * 101),
    "a broken chunk": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
    "an empty line": b"\r\n",
    "a word": b"hello",
}  # fmt: skip


@contextmanager
def connected(room: Budget) -> Iterator[tuple[Connection, socket.socket]]:
    def body(environ: dict[str, Any], length: int | None) -> Body:
        return WholeBody(room, length, most=MOST)

    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as client,
    ):
        served, address = listening.accept()
        connection = Connection(served, address, Listener(listening, body, LIMITS, base_environ(listening)))
        client.settimeout(10)
        yield connection, client
        connection.close()


def what_is_read(sent: bytes, cuts: Sequence[int]) -> tuple[list[tuple[str, bytes]], list[bytes]]:
    """Return the requests that are read of a stream, and the statuses of all answers."""
    room, found = Budget(ROOM), []
    with connected(room) as (connection, client):
        for start, end in pairwise([0, *cuts, len(sent)]):
            client.sendall(sent[start:end])
            select.select([connection.fd], [], [], 10)
            while (wants := connection.go_on()) is Wants.ANSWER:
                found.append((connection.environ["PATH_INFO"], connection.environ["wsgi.input"].read()))
                connection.answer("200 OK", [], [], is_last=False)
            if wants is Wants.END:
                break
        client.shutdown(socket.SHUT_WR)
        select.select([connection.fd], [], [], 10)
        connection.go_on()
        connection.close()
        statuses = re.findall(rb"HTTP/1\.1 (\d+)", client.makefile("rb").read())
    room.take(ROOM)
    return found, statuses


@given(st.lists(st.sampled_from(list(PIECES)), min_size=1, max_size=4), st.data())
def test_the_same_is_read_and_refused_of_any_stream_in_any_cuts(names: list[str], data: st.DataObject) -> None:
    sent = b"".join(PIECES[name] for name in names)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(sent) - 1), max_size=8)))
    assert what_is_read(sent, cuts) == what_is_read(sent, [])


@pytest.mark.parametrize("name", PIECES)
def test_the_same_is_read_and_refused_byte_by_byte(name: str) -> None:
    sent = PIECES[name]
    assert what_is_read(sent, range(1, len(sent))) == what_is_read(sent, [])


@pytest.mark.parametrize(
    ("name", "status"),
    [("the longest line", b"200"), ("a line too long", b"414"), ("the longest field", b"200"), ("a field too long", b"431"),
     ("the largest head", b"200"), ("a head too large", b"431"), ("a field too many", b"431")],
)  # fmt: skip
def test_a_limit_holds_to_the_byte(name: str, status: bytes) -> None:
    assert what_is_read(PIECES[name], [])[1] == [status]


def test_nothing_behind_a_refusal_is_read() -> None:
    requests, statuses = what_is_read(PIECES["a call"] + PIECES["a broken chunk"] + PIECES["a call"], [])
    assert requests == [("/call", b"hello")]
    assert statuses == [b"200", b"400"]


def test_nothing_behind_the_last_request_is_read() -> None:
    requests, statuses = what_is_read(PIECES["the last call"] + PIECES["a call"], [])
    assert requests == [("/last", b"")]
    assert statuses == [b"200"]


class TestChunks:
    @given(st.lists(st.integers(1, 60), max_size=6), st.data())
    def test_a_body_is_taken_up_to_the_limit_to_the_byte_however_it_is_divided(
        self, sizes: list[int], data: st.DataObject
    ) -> None:
        pieces = [bytes([number]) * size for number, size in enumerate(sizes)]
        sent = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        cuts = sorted(data.draw(st.sets(st.integers(1, len(sent) - 1), max_size=6)))
        room, environ = Budget(ROOM), dict[str, Any]()
        body, chunks = WholeBody(room, None, most=MOST), Chunks()
        taken = (chunks.take(sent[start:end], body) for start, end in pairwise([0, *cuts, len(sent)]))
        if sum(sizes) > MOST:
            with pytest.raises(RefusedError, match="Content Too Large"):
                list(taken)
        else:
            assert list(taken) == [False] * len(cuts) + [True]
            body.end(environ)
            assert environ["wsgi.input"].read() == b"".join(pieces)
        body.close()
        room.take(ROOM)

    @pytest.mark.parametrize("end", [b"0\r\n\n", b"0\r\nA: b\n\r\n", b"0\r\nA: b\n\n", b"0\r\nA: b\r\n\n"])
    @pytest.mark.parametrize("cut", range(1, 9))
    def test_a_bare_line_feed_ends_no_body_that_goes_on_for_other_readers(self, end: bytes, cut: int) -> None:
        body, chunks = WholeBody(Budget(ROOM), None, most=MOST), Chunks()
        sent = b"1\r\nx\r\n" + end + b"GET /other HTTP/1.1\r\n"
        with pytest.raises(RefusedError, match="Bad Request"):
            [chunks.take(part, body) for part in (sent[:-cut], sent[-cut:])]
        again = Chunks()
        with pytest.raises(RefusedError, match="Bad Request"):
            [again.take(sent[place : place + 1], body) for place in range(len(sent))]

    def test_fields_behind_the_last_chunk_are_passed_over(self) -> None:
        body, chunks = WholeBody(Budget(ROOM), None, most=MOST), Chunks()
        assert chunks.take(b"1\r\nx\r\n0\r\nA: b\r\n\r\nGET", body)
        assert chunks.rest == b"GET"

    def test_chunks_of_a_byte_are_as_many_as_a_short_body_needs(self) -> None:
        body = WholeBody(Budget(1 << 20), None, most=1 << 20)
        assert not Chunks().take(b"1\r\nx\r\n" * 256, body)
        with pytest.raises(RefusedError, match="Bad Request"):
            Chunks().take(b"1\r\nx\r\n" * 300, body)
        assert not Chunks().take((b"20\r\n%s\r\n" % (b"x" * 32)) * 10_000, body)

    @pytest.mark.parametrize("size", [b"ffffffffffffffff", b"FFFFFFFFFFFFFFFFFFFF"])
    def test_a_size_that_is_only_said_takes_up_no_room(self, size: bytes) -> None:
        room = Budget(ROOM)
        body = WholeBody(room, None, most=MOST)
        assert not Chunks().take(size + b"\r\nonly this", body)
        room.take(ROOM - len(b"only this"))

    @pytest.mark.parametrize(
        "chunk", [b"fffffffffffffffffffff\r\n", b"-1\r\n", b"+1\r\na", b"0x1\r\na", b"1 1\r\na", b"\r\n"]
    )
    def test_a_size_has_one_form(self, chunk: bytes) -> None:
        with pytest.raises(RefusedError, match="Bad Request"):
            Chunks().take(chunk + b"\r\n", WholeBody(Budget(ROOM), None, most=MOST))

    def test_what_stands_behind_the_last_chunk_is_left_for_the_next_request(self) -> None:
        chunks, body = Chunks(), WholeBody(Budget(ROOM), None, most=MOST)
        assert not chunks.take(b"1\r\na\r\n0\r\n", body)
        assert chunks.take(b"A: b\r\n\r\nGET /next", body)
        assert chunks.rest == b"GET /next"

    def test_room_that_others_have_taken_ends_a_body_in_the_middle_and_what_it_took_comes_back(self) -> None:
        room = Budget(10)
        others, body = WholeBody(room, 5, most=MOST), WholeBody(room, None, most=MOST)
        others.filled(5)
        chunks = Chunks()
        chunks.take(b"4\r\nabcd\r\n", body)
        with pytest.raises(RefusedError, match="Service Unavailable"):
            chunks.take(b"2\r\nef\r\n", body)
        body.close()
        room.take(5)
        with pytest.raises(RefusedError):
            room.take(1)
