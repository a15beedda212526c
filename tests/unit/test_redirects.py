"""Requests that don't follow redirects, sent to a server that answers with them."""

import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.error import HTTPError

import pytest

from scheduler.redirects import NoRedirects
from tests.http_answers import answering


class _Answers(BaseHTTPRequestHandler):
    """Answers each request with the code that its path names, and with a place to go to; notes what was asked."""

    def do_GET(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")  # type: ignore[attr-defined]
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.send_response(int(self.path[1:]))
        self.send_header("Location", "/200")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    with answering(_Answers) as made:
        made.asked = []  # type: ignore[attr-defined]
        yield made


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("body", [None, b"a checkpoint"])
def test_a_redirect_is_raised_and_no_request_follows_it(server: HTTPServer, body: bytes | None, code: int) -> None:
    opener = urllib.request.build_opener(NoRedirects)
    with pytest.raises(HTTPError) as raised:
        opener.open(f"http://127.0.0.1:{server.server_port}/{code}", data=body)
    raised.value.close()
    assert raised.value.code == code
    assert server.asked == [f"{'POST' if body else 'GET'} /{code}"]  # type: ignore[attr-defined]


def test_an_answer_that_is_no_redirect_is_returned(server: HTTPServer) -> None:
    opener = urllib.request.build_opener(NoRedirects)
    with opener.open(f"http://127.0.0.1:{server.server_port}/200") as answer:
        assert answer.status == 200
