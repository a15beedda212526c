"""gunicorn's worker of the admin, and what its server refuses by itself."""

import http.client
import json
import os
import socket
import threading

import pytest
from gunicorn.config import Config

from scheduler.http_server.server import Server
from scheduler.http_server.worker import BODY_BYTES, Worker


@pytest.mark.parametrize(
    ("path", "length", "status", "says"),
    [
        ("/api/v1/lint", BODY_BYTES + 1, 413, "The body is too large: send it in several calls."),
        (f"/{'a' * 5_000}", 0, 414, "The URL is too long: shorten it."),
        ("/", "+1", 400, "Bad Request."),
    ],
)
def test_what_the_server_itself_refuses_is_problem_details_too(
    path: str, length: int | str, status: int, says: str
) -> None:
    worker = Worker(0, os.getpid(), [], None, 30, Config(), None)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Server([worker.listener(listening)], lambda *_: [], threads=1, most_connections=4)
        serving = threading.Thread(target=server.serve)
        serving.start()
        client = http.client.HTTPConnection(*listening.getsockname(), timeout=30)
        client.request("POST", path, headers={"Content-Length": str(length)})
        answer = client.getresponse()
        body = json.loads(answer.read())
        client.close()
        server.stop()
        serving.join(30)
    worker.tmp.close()
    assert (answer.status, answer.headers["Content-Type"]) == (status, "application/problem+json")
    assert (body["status"], body["detail"], body["faults"]) == (status, says, [])
