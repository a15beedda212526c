"""Many POSTs at once by one thread, and what is said of those that were not answered."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scheduler.cluster import dispatcher
from scheduler.cluster.client import Client
from scheduler.cluster.dispatcher import UNANSWERED, APIRequest, Dispatcher
from tests.stack import eventually
from tests.unit.cluster.scripted_server import Answer, Request, ScriptedServer, serving, write_kubeconfig

Told = list[tuple[str, int, bytes]]


@contextmanager
def sending(
    folder: Path, script: Callable[[Request], Answer], *, timeout: float = 5.0, connections: int = 4
) -> Iterator[tuple[Dispatcher, ScriptedServer]]:
    with serving(script) as server:
        user = {"token": "secret"}
        made = Dispatcher(
            Client.connect(write_kubeconfig(folder, server.url, user)), timeout_seconds=timeout, connections=connections
        )
        made.start()
        yield made, server
        made.stop()


def request(name: str, told: Told, ready: Callable[[], bool] = lambda: True) -> APIRequest:
    return APIRequest(f"/{name}", b'{"name":1}', lambda status, body: told.append((name, status, body)), ready)


def test_each_request_is_told_its_own_answer(tmp_path: Path) -> None:
    told: Told = []
    with sending(tmp_path, lambda asked: Answer(201, asked.path.encode())) as (made, server):
        for number in range(200):
            made.send(request(str(number), told))
        eventually(lambda: len(told) == 200)

    assert sorted(told) == sorted((str(number), 201, f"/{number}".encode()) for number in range(200))
    assert server.connections <= 4
    assert {request.headers["Authorization"] for request in server.requests} == {"Bearer secret"}
    assert {request.body for request in server.requests} == {b'{"name":1}'}


def test_answers_in_chunks_and_refusals_are_read(tmp_path: Path) -> None:
    told: Told = []

    def script(asked: Request) -> Answer:
        return Answer(409, b"no") if asked.path == "/refused" else Answer(200, stream=[b"a" * 70_000, b"b"])

    with sending(tmp_path, script) as (made, _):
        made.send(request("refused", told))
        made.send(request("long", told))
        eventually(lambda: len(told) == 2)

    assert sorted((name, status) for name, status, _ in told) == [("long", 200), ("refused", 409)]


def test_an_answer_that_does_not_come_in_time_is_none_and_the_next_request_is_sent(tmp_path: Path) -> None:
    told: Told = []

    def script(asked: Request) -> Answer:
        return Answer(200, stream=[2.0, b"late"]) if asked.path == "/slow" else Answer(200, b"soon")

    with sending(tmp_path, script, timeout=0.3, connections=1) as (made, _):
        made.send(request("slow", told))
        made.send(request("next", told))
        eventually(lambda: len(told) == 2)

    assert told == [("slow", UNANSWERED, b""), ("next", 200, b"soon")]


def test_a_connection_that_breaks_leaves_its_request_unanswered(tmp_path: Path) -> None:
    told: Told = []

    def script(asked: Request) -> Answer:
        return Answer(200, stream=[None]) if asked.path == "/broken" else Answer(200, headers={"Connection": "close"})

    with sending(tmp_path, script, connections=1) as (made, _):
        for name in ("broken", "closed", "after"):
            made.send(request(name, told))
        eventually(lambda: len(told) == 3)

    assert [(name, status) for name, status, _ in told] == [("broken", UNANSWERED), ("closed", 200), ("after", 200)]


def test_a_connection_whose_certificate_may_have_run_out_is_not_used_again(tmp_path: Path) -> None:
    """The API server looks at a client certificate's end with each request, and a connection keeps the one it began with."""
    told: Told = []
    statuses = iter([201, 401, 201, 201])
    with sending(tmp_path, lambda _: Answer(next(statuses)), connections=1) as (made, server):
        for number, connections in enumerate([1, 1, 2, 2]):
            made.send(request(str(number), told))
            eventually(lambda count=number + 1: len(told) == count)
            assert server.connections == connections

    assert [status for _, status, _ in told] == [201, 401, 201, 201]


def test_without_a_server_requests_come_back_unanswered_and_later_ones_are_sent_when_it_is_there(
    tmp_path: Path,
) -> None:
    told: Told = []
    made = Dispatcher(Client.connect(write_kubeconfig(tmp_path, "http://127.0.0.1:1")), timeout_seconds=1.0)
    made.start()
    for number in range(3):
        made.send(request(str(number), told))
    eventually(lambda: len(told) == 3)
    made.stop()

    assert {status for _, status, _ in told} == {UNANSWERED}


def test_a_request_that_is_not_ready_when_its_turn_comes_is_not_sent(tmp_path: Path) -> None:
    told: Told = []
    with sending(tmp_path, lambda _: Answer(200)) as (made, server):
        made.send(request("kept", told, ready=lambda: False))
        made.send(request("sent", told))
        eventually(lambda: told)

    assert [request.path for request in server.requests] == ["/sent"]


def test_requests_that_can_wait_leave_connections_to_the_others(tmp_path: Path) -> None:
    told: Told = []
    free = threading.Event()

    def script(asked: Request) -> Answer:
        if asked.path.startswith("/later"):
            free.wait(5)
        return Answer(200)

    with sending(tmp_path, script, connections=6) as (made, _):
        for number in range(10):
            assert made.send_later(request(f"later{number}", told))
        time.sleep(0.1)
        made.send(request("urgent", told))
        eventually(lambda: told)
        assert told[0][0] == "urgent"
        free.set()
        eventually(lambda: len(told) == 11)


@contextmanager
def under_way(folder: Path, told: Told) -> Iterator[tuple[Dispatcher, ScriptedServer, threading.Event]]:
    """Send a request whose answer doesn't come before the event is set."""
    free = threading.Event()

    def script(asked: Request) -> Answer:
        if asked.path == "/urgent":
            free.wait(20)
        return Answer(200)

    with sending(folder, script, timeout=30) as (made, server):
        made.send(request("urgent", told))
        eventually(lambda: server.requests)
        yield made, server, free
        free.set()


def test_requests_that_can_wait_are_not_sent_while_another_is_under_way(tmp_path: Path) -> None:
    told: Told = []
    with under_way(tmp_path, told) as (made, server, free):
        made.send_later(request("later", told))
        time.sleep(0.2)
        assert [asked.path for asked in server.requests] == ["/urgent"]
        free.set()
        eventually(lambda: len(told) == 2)


def test_a_request_that_can_wait_is_sent_beside_others_once_it_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "LATEST_SECONDS", 0.05)
    told: Told = []
    with under_way(tmp_path, told) as (made, _, _):
        made.send_later(request("later", told))
        eventually(lambda: told)
        assert told[0][0] == "later"


def test_answers_that_come_together_are_read_in_one_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "REST_SECONDS", 1.0)
    told: Told = []
    after_turns: list[int] = []

    class Watched(Dispatcher):
        def _turn(self) -> None:
            super()._turn()
            after_turns.append(len(told))

    with serving(lambda _: Answer(200)) as server:
        made = Watched(Client.connect(write_kubeconfig(tmp_path, server.url)), timeout_seconds=5.0, connections=4)
        for number in range(4):
            made.send(request(str(number), told))
        made.start()
        eventually(lambda: len(told) == 4)
        made.stop()

    assert set(after_turns) == {4}


def test_too_many_requests_that_can_wait_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "MOST_WAITING", 2)
    made = Dispatcher(Client.connect(write_kubeconfig(tmp_path, "http://127.0.0.1:1")), timeout_seconds=1.0)

    assert [made.send_later(request("x", [])) for _ in range(3)] == [True, True, False]


def test_what_a_caller_does_wrong_with_an_answer_stops_nobody(tmp_path: Path) -> None:
    told: Told = []

    def fail(status: int, body: bytes) -> None:
        raise RuntimeError

    with sending(tmp_path, lambda _: Answer(200)) as (made, _):
        made.send(APIRequest("/x", b"{}", fail))
        made.send(request("y", told))
        eventually(lambda: told)
