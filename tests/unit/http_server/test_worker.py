"""gunicorn's worker of the admin, and what its server refuses by itself."""

import http.client
import json
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from gunicorn.config import Config

from controlplane.doors import STATEMENT_SECONDS
from scheduler.http_server.connection import CONNECTION, OF_AN_ACCOUNT, Connection
from scheduler.http_server.server import Application, Server
from scheduler.http_server.worker import BODY_BYTES, Worker

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def serving(application: Application) -> Iterator[http.client.HTTPConnection]:
    """A client of the admin's server."""
    worker = Worker(0, os.getpid(), [], None, 30, Config(), None)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Server([worker.listener(listening)], application, threads=1, most_connections=4)
        loop = threading.Thread(target=server.serve)
        loop.start()
        client = http.client.HTTPConnection(*listening.getsockname(), timeout=30)
        yield client
        client.close()
        server.stop()
        loop.join(30)
    worker.tmp.close()


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
    with serving(lambda *_: []) as client:
        client.request("POST", path, headers={"Content-Length": str(length)})
        answer = client.getresponse()
        body = json.loads(answer.read())
    assert (answer.status, answer.headers["Content-Type"]) == (status, "application/problem+json")
    assert (body["status"], body["detail"], body["faults"]) == (status, says, [])


def test_a_page_that_takes_as_long_as_it_may_is_answered_before_the_admin_is_killed() -> None:
    deployment = next(yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "base" / "admin.yaml").read_text()))
    spec = deployment["spec"]["template"]["spec"]
    before_the_signal = spec["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    # Read, not imported: the module makes this process the admin's.
    configured = (ROOT / "controlplane" / "gunicorn_conf.py").read_text()
    (graceful_timeout,) = map(int, re.findall(r"^graceful_timeout = (\d+)$", configured, re.MULTILINE))
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["admin"]["stop_grace_period"]

    assert STATEMENT_SECONDS < Worker.grace_seconds < graceful_timeout < int(compose.removesuffix("s"))
    assert before_the_signal + graceful_timeout < spec["terminationGracePeriodSeconds"]


@pytest.mark.parametrize(
    ("method", "is_an_accounts", "is_known"),
    [
        pytest.param("POST", False, False, id="the sign-in form of anybody"),
        pytest.param("GET", True, True, id="a page for an account"),
        pytest.param("GET", False, False, id="a page for anybody"),
    ],
)
def test_only_who_is_signed_in_has_priority_at_the_admin(method: str, is_an_accounts: bool, is_known: bool) -> None:
    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        connections.append(environ[CONNECTION])
        if is_an_accounts:
            environ[OF_AN_ACCOUNT] = True
        start_response("200 OK", [])
        return [b"ok"]

    connections: list[Connection] = []
    with serving(application) as client:
        client.request(method, "/")
        assert client.getresponse().read() == b"ok"
    assert [each.is_known for each in connections] == [is_known]
