"""Heads of requests: what is taken is what h11 takes for the same, and what two readers could read as two things is refused."""

from typing import Any

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.http_server import head as head_module
from scheduler.http_server.head import Head, HeadLimits, RefusedError, parse, refuse_unfinished
from tests.fuzz.bounds import no_hang

LIMITS = HeadLimits(line=200, fields=10, field=100)
KUBE_SCHEDULER = (
    b"POST /filter HTTP/1.1\r\nHost: berth:8010\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: 1234\r\n"
    b"Content-Type: application/json\r\nAccept-Encoding: gzip"
)


def said_by_h11(head: bytes) -> h11.Request | None:
    reader = h11.Connection(h11.SERVER)
    try:
        reader.receive_data(head + b"\r\n\r\n")
        event = reader.next_event()
    except h11.RemoteProtocolError:
        return None
    return event if isinstance(event, h11.Request) else None


def read(head: bytes) -> Head | None:
    try:
        return parse(head, LIMITS)
    except RefusedError:
        return None


def test_what_kube_scheduler_sends_is_read() -> None:
    assert parse(KUBE_SCHEDULER, LIMITS) == Head(
        {
            "REQUEST_METHOD": "POST",
            "SCRIPT_NAME": "",
            "PATH_INFO": "/filter",
            "QUERY_STRING": "",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "HTTP_HOST": "berth:8010",
            "HTTP_USER_AGENT": "Go-http-client/1.1",
            "CONTENT_LENGTH": "1234",
            "CONTENT_TYPE": "application/json",
            "HTTP_ACCEPT_ENCODING": "gzip",
        },
        length=1234,
        keeps_open=True,
        waits=False,
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (b"", (0, True, False)),
        (b"\r\nConnection: close", (0, False, False)),
        (b"\r\nConnection: keep-alive, Close", (0, False, False)),
        (b"\r\nTransfer-Encoding: Chunked", (None, True, False)),
        (b"\r\nContent-Length: 5\r\nExpect: 100-Continue", (5, True, True)),
    ],
)
def test_a_head_says_where_its_body_ends_and_whether_more_comes(fields: bytes, expected: tuple[Any, ...]) -> None:
    assert parse(b"POST /filter HTTP/1.1\r\nHost: x" + fields, LIMITS)[1:] == expected


def test_fields_of_one_name_are_joined_and_those_with_an_underscore_dropped() -> None:
    head = b"GET http://Berth/a%20b?c=d HTTP/1.0\r\nHost: berth\r\nA: 1\r\na:  2 \r\nCookie: a=1\r\nCookie: b=2\r\nX_Forwarded: y"
    environ, _, keeps_open, _ = parse(head, LIMITS)
    assert (environ["PATH_INFO"], environ["QUERY_STRING"], keeps_open) == ("/a b", "c=d", False)
    assert (environ["HTTP_A"], environ["HTTP_COOKIE"]) == ("1,2", "a=1; b=2")
    assert not any("FORWARDED" in name for name in environ)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        pytest.param(b"POST / HTTP/1.1\r\nHost: a\r\nHost: a", 400, id="two hosts"),
        pytest.param(b"POST / HTTP/1.1", 400, id="no host"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3", 400, id="two lengths"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3", 400, id="two lengths in one"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3", 400, id="a sign"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x3", 400, id="a hex length"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ", 400, id="an empty length"),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked",
            400,
            id="length and chunks",
        ),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400, id="twice"
        ),
        pytest.param(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked", 501, id="gzip"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked", 501, id="another coding"),
        pytest.param(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked", 400, id="chunks in HTTP/1.0"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked", 400, id="a space before the colon"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: a\r\n Transfer-Encoding: chunked", 400, id="a folded line"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: a\nTransfer-Encoding: chunked", 400, id="a bare LF"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: a\rTransfer-Encoding: chunked", 400, id="a bare CR"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: a\r\nA: b\x00", 400, id="a NUL"),
        pytest.param(b"POST http://b/ HTTP/1.1\r\nHost: a", 400, id="a target of another host"),
        pytest.param(b"POST http://a:80/ HTTP/1.1\r\nHost: a", 400, id="a target of another port"),
        pytest.param(b"POST http://a@b/ HTTP/1.1\r\nHost: b", 400, id="a target with a name before its host"),
        pytest.param(b"GET http://a/ HTTP/1.0", 400, id="a target's host alone"),
        pytest.param(b"\r\nPOST / HTTP/1.1\r\nHost: a", 400, id="an empty line first"),
        pytest.param(b"POST  / HTTP/1.1\r\nHost: a", 400, id="two spaces"),
        pytest.param(b"post / HTTP/1.1\r\nHost: a", 400, id="a small method"),
        pytest.param(b"POST / HTTP/1.1 \r\nHost: a", 400, id="a space at the end"),
        pytest.param(b"POST / HTTP/2.0\r\nHost: a", 400, id="HTTP/2"),
        pytest.param(b"POST a HTTP/1.1\r\nHost: a", 400, id="no path"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok", 417, id="another expectation"),
        pytest.param(b"POST /" + b"x" * 200 + b" HTTP/1.1\r\nHost: a", 414, id="a long line"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: a" + b"\r\nA: b" * 10, 431, id="many fields"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: " + b"a" * 100, 431, id="a long field"),
    ],
)
def test_what_could_be_read_in_two_ways_or_is_too_large_is_refused(head: bytes, status: int) -> None:
    with pytest.raises(RefusedError) as caught:
        parse(head, LIMITS)
    assert caught.value.status == status


def test_a_head_without_end_is_refused_as_soon_as_it_is_too_large() -> None:
    refuse_unfinished(b"x" * LIMITS.line + b"\r", LIMITS)
    refuse_unfinished(b"x" * LIMITS.line + b"\r\nHost", LIMITS)
    with pytest.raises(RefusedError, match="URI Too Long"):
        refuse_unfinished(b"x" * (LIMITS.line + 2), LIMITS)
    begun = b"GET / HTTP/1.1\r\n"
    refuse_unfinished(begun + b"x" * (LIMITS.whole - len(begun)) + b"\r\n\r", LIMITS)
    with pytest.raises(RefusedError, match="Header Fields"):
        refuse_unfinished(begun + b"x" * (LIMITS.whole + 4 - len(begun)), LIMITS)


def test_a_field_is_read_in_time_in_proportion_whatever_stands_in_it() -> None:
    blanks = b"POST / HTTP/1.1\r\nHost: a\r\nA:" + b" \t" * 32_000 + b"\x01"
    with no_hang(), pytest.raises(RefusedError):
        parse(blanks, HeadLimits(line=200, fields=10, field=65_000))


parts = st.sampled_from(
    [
        b"POST / HTTP/1.1",
        b"GET /a?b HTTP/1.1",
        b"GET /a HTTP/1.0",
        b"\r\n",
        b"\n",
        b"\r",
        b"Host: a",
        b"Content-Length: 3",
        b"Content-Length: 4",
        b"content-length:",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding:",
        b"chunked",
        b"A: b",
        b"A:b \t",
        b" ",
        b"\t",
        b",",
        b"\x0b",
        b"\x00",
        b"\xff",
        b"Connection: close",
    ]
)


@given(st.lists(parts | st.binary(max_size=3), max_size=14), st.booleans())
def test_what_is_taken_is_taken_by_h11_for_the_same(pieces: list[bytes], in_lines: bool) -> None:
    head = (b"\r\n" if in_lines else b"").join([b"POST / HTTP/1.1", b"Host: a", *pieces])
    ours = read(head)
    if ours is None or b"\r\n\r\n" in head:
        return
    theirs = said_by_h11(head)
    assert theirs is not None
    assert ours.environ["REQUEST_METHOD"].encode() == theirs.method
    framing = {name: value for name, value in theirs.headers if name in {b"content-length", b"transfer-encoding"}}
    expected = {b"transfer-encoding": b"chunked"} if ours.length is None else {b"content-length": b"%d" % ours.length}
    assert framing in (expected, {}) if ours.length == 0 else framing == expected
    for name, value in theirs.headers:
        key = name.decode().upper().replace("-", "_")
        if b"_" not in name and key != "CONTENT_LENGTH":
            # latin-1 is what WSGI makes of bytes
            assert value.decode("latin-1") in ours.environ[key if key == "CONTENT_TYPE" else f"HTTP_{key}"]


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(head: bytes) -> None:
    read(head)


FIELDS = st.sampled_from(
    [b"Host: x", b"Content-Length: 7", b"Content-Length: 12", b"content-length: 7", b"Content-Length: 7 ", b"Content-Length: x",
     b"Transfer-Encoding: chunked", b"Connection: close", b"Expect: 100-continue", b"A: 1", b" folded", b"", b"B: " + b"b" * 96,
     b"B: " + b"b" * 97]
)  # fmt: skip


@given(
    lines=st.lists(FIELDS, max_size=12),
    limits=st.sampled_from([LIMITS, LIMITS._replace(field=18), LIMITS._replace(fields=3)]),
)
def test_a_head_that_was_read_before_is_read_as_one_that_was_not(lines: list[bytes], limits: HeadLimits) -> None:
    head = b"\r\n".join([b"POST /filter HTTP/1.1", *lines])
    said: list[Any] = []
    for reading in (head_module._parse, parse, parse):  # the last finds what the one before has left
        try:
            said.append(reading(head, limits))
        except RefusedError as refused:
            said.append((refused.status, refused.reason))
    assert said[0] == said[1] == said[2]


def test_requests_whose_length_alone_differs_share_nothing_that_they_can_change() -> None:
    one, other = (parse(KUBE_SCHEDULER.replace(b"1234", length), LIMITS) for length in (b"5", b"6"))
    one.environ["HTTP_HOST"] = "mine"
    assert (one.length, other.length, other.environ["CONTENT_LENGTH"], other.environ["HTTP_HOST"]) == (
        5,
        6,
        "6",
        "berth:8010",
    )
