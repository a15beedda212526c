"""Heads that were read before on a connection: what comes of them is what gunicorn's own parser makes of them."""

import socket
from typing import Any

import pytest
from gunicorn.config import Config
from gunicorn.http import errors, wsgi
from gunicorn.http.parser import RequestParser
from hypothesis import given
from hypothesis import strategies as st

from scheduler.extender.server.head_parser import HeadParser, KnownRequest, PlainResponse

USUAL = {
    "Host": "127.0.0.1:8010",
    "User-Agent": "kube-scheduler/v1.36.3 (linux/amd64)",
    "Content-Type": "application/json",
    "Accept-Encoding": "gzip",
}


def a_call(path: str = "/filter", body: bytes = b"{}", **fields: str) -> bytes:
    """Return a request. A field's name is written with `_` for `-`; Content-Length comes where it isn't given."""
    given_fields = {name.replace("_", "-"): text for name, text in fields.items()}
    found = {**USUAL, "Content-Length": str(len(body)), **given_fields}
    head = "".join(f"{name}: {text}\r\n" for name, text in found.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def read_all(parser_type: type[RequestParser], sent: bytes, *, at_once: bool = True) -> list[Any]:
    """Return what an application would see of each request, and how it ended: by what, or with the end of what was sent."""
    config = Config()
    config.set("limit_request_line", 2048)
    ours, theirs = socket.socketpair()
    found: list[Any] = []
    with ours, theirs:
        ours.sendall(sent)
        ours.shutdown(socket.SHUT_WR)
        parser: Any = parser_type(config, theirs, ("127.0.0.1", 1))
        parser.unreader.mxchunk = 8192 if at_once else 1
        try:
            for request in parser:
                environ = getattr(parser, "environ", None)
                if environ is None:
                    _, environ = wsgi.create(request, theirs, ("127.0.0.1", 1), ("127.0.0.1", 80), config)
                    if isinstance(parser, HeadParser):
                        parser.remember(environ)
                else:
                    environ = {**environ, "CONTENT_LENGTH": str(request.body.reader.length)}
                fields = {name: text for name, text in environ.items() if isinstance(text, str)}
                found.append((fields, request.body.read(), request.should_close()))
        except (errors.ParseException, errors.NoMoreData) as error:
            found.append(type(error).__name__)
    return found


def is_known_the_second_time(call: bytes) -> bool:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        parser = HeadParser(Config(), theirs, ("127.0.0.1", 1))
        for _ in range(2):
            ours.sendall(call)
            request = next(parser)
            request.body.read()
            if parser.environ is None:
                parser.remember({"made": "before"})
        return parser.environ == {"made": "before"}


@pytest.mark.parametrize("path", ["/filter", "/prioritize"])
def test_a_head_of_kube_scheduler_is_parsed_once_for_a_connection(path: str) -> None:
    assert is_known_the_second_time(a_call(path))


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(a_call(Expect="100-continue"), id="waits for a word before its body"),
        pytest.param(
            b"POST /filter HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            id="a body in chunks",
        ),
        pytest.param(b"GET /livez HTTP/1.1\r\nHost: here\r\n\r\n", id="no body"),
    ],
)
def test_any_other_head_is_parsed_each_time(call: bytes) -> None:
    assert not is_known_the_second_time(call)


@pytest.mark.parametrize(
    ("second", "ends_with"),
    [
        pytest.param(
            a_call().replace(b"gzip\r\n", b"gzip\r\nContent-Length: 2\r\n"), "InvalidHeader", id="two lengths"
        ),
        pytest.param(a_call(Content_Length="+2"), "InvalidHeader", id="a length with a sign"),
        pytest.param(a_call(Content_Length=""), "InvalidHeader", id="an empty length"),
        pytest.param(a_call(Transfer_Encoding="chunked"), "InvalidHeader", id="a length and chunks"),
        pytest.param(a_call(path="/filter" + "x" * 3000), "LimitRequestLine", id="a long path"),
        pytest.param(a_call(Connection="close") + a_call(), None, id="the last call of a connection"),
    ],
)
def test_a_head_that_resembles_a_known_one_is_judged_for_itself(second: bytes, ends_with: str | None) -> None:
    sent = a_call() + second
    found = read_all(HeadParser, sent)
    assert found == read_all(RequestParser, sent)
    assert (found[-1] == ends_with) if ends_with else (len(found) == 2)


CALLS = st.builds(
    a_call,
    path=st.sampled_from(["/filter", "/prioritize", "/filter/", "/filter?a=b", "/%66ilter"]),
    body=st.binary(max_size=40),
)
ODD = st.sampled_from(
    [
        a_call(Connection="close"),
        a_call(Content_Length="00"),
        a_call(Content_Length="4", body=b"ab"),
        a_call(Content_Length="1234567890123"),
        a_call(X_Other="1"),
        b"POST /filter HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /filter HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}",
        b"GET /livez HTTP/1.1\r\nHost: here\r\n\r\n",
        b"\r\n\r\n",
        b"rubbish",
    ]
)


@given(st.lists(CALLS | ODD, max_size=12), st.booleans())
def test_all_that_a_connection_sends_is_read_as_gunicorn_reads_it(sent: list[bytes], at_once: bool) -> None:
    together = b"".join(sent)
    assert read_all(HeadParser, together, at_once=at_once) == read_all(RequestParser, together, at_once=at_once)


def test_an_answer_that_says_no_length_leaves_it_to_the_worker() -> None:
    response = PlainResponse(KnownRequest(None, 0))
    response.start_response("200 OK", [("Content-Length", "2")])
    assert not response.chunked
    response.start_response("500 Internal Server Error", [("Content-Type", "text/html")])
    assert response.chunked


def test_the_last_answer_of_a_connection_says_so() -> None:
    response = PlainResponse(KnownRequest(None, 0))
    response.start_response("200 OK", [])
    assert "Connection: keep-alive\r\n" in "".join(response.default_headers())
    response.force_close()
    assert "Connection: close\r\n" in "".join(response.default_headers())
    assert response.should_close()
