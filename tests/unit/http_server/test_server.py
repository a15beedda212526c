"""The server's loop, turn by turn: who is closed for whom, who is answered before it ends, and what a fault costs."""

import errno
import http.client
import logging
import selectors
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.http_server import server as module
from scheduler.http_server.body import Body, Budget, WholeBody
from scheduler.http_server.connection import Listener
from scheduler.http_server.head import HeadLimits
from scheduler.http_server.listeners import base_environ
from scheduler.http_server.server import GRACE_SECONDS, Application, Server

ROOM = 10_000
CALL = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"
LOOK = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
BEGUN = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nh"


def echo(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer with the request's body, and with the status that the path names."""
    start_response(environ["PATH_INFO"][1:] or "200 OK", [("Content-Type", "text/plain")])
    return [environ["wsgi.input"].read()]


def listening(room: Budget) -> Listener:
    def body(environ: dict[str, Any], length: int | None) -> Body:
        if environ["PATH_INFO"] == "/fault":
            raise RuntimeError("a fault")
        return WholeBody(room, length, most=1000)

    sock = socket.create_server(("127.0.0.1", 0))
    return Listener(sock, body, HeadLimits(200, 10, 100), base_environ(sock))


class Client:
    """One connection to the server; what it gets is waited for, by its own turns where the server has no thread."""

    def __init__(self, address: Any, turn: Callable[[], None], source: str) -> None:
        self.sock = socket.create_connection(address, 30, source_address=(source, 0))
        self.sock.settimeout(10)
        self._turn = turn

    def send(self, data: bytes) -> "Client":
        self.sock.sendall(data)
        return self

    def answer(self) -> tuple[int, bytes, bool]:
        """Return the next answer: status, body, and whether the connection goes on."""
        self._turn()
        with http.client.HTTPResponse(self.sock) as response:
            response.begin()
            return response.status, response.read(), not response.will_close

    def call(self) -> int:
        return self.send(CALL).answer()[0]

    @property
    def is_closed(self) -> bool:
        self._turn()
        self.sock.setblocking(False)
        try:
            return not self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True
        finally:
            self.sock.settimeout(10)


class ByHand(ExitStack):
    """A server whose loop and whose threads are the test's own thread."""

    def __init__(self, *, most: int = 4) -> None:
        super().__init__()
        self.room = Budget(ROOM)
        self.listener = listening(self.room)
        self.server = Server([self.listener], echo, threads=0, most_connections=most)
        self.listener.socket.settimeout(0)
        for sock, data in ((self.listener.socket, self.listener), (self.server._alarm, None)):
            sock.settimeout(0)
            self.server._selector.register(sock, selectors.EVENT_READ, data)
        self.callback(self.listener.socket.close)
        self.callback(self.server._end)
        self.callback(self.turn)

    def client(self, source: str = "127.0.0.1") -> Client:
        made = Client(self.listener.socket.getsockname(), self.turn, source)
        self.callback(made.sock.close)
        return made

    def look(self) -> None:
        """Let the loop go round once; what is to be answered waits."""
        self.server._turn_round(0)

    def turn(self) -> None:
        """Let the loop go round, and answer what it has handed over."""
        for _ in range(3):
            self.look()
            while not self.server._ready.empty():
                connection = self.server._ready.get()[2]
                assert connection is not None
                self.server._returned.append((connection, self.server._answer_in_a_row(connection)))


@pytest.fixture(autouse=True)
def _no_staying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STAY_SECONDS", 0)


@pytest.fixture
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this machine's addresses count as those of others."""
    monkeypatch.setattr(module, "is_this_machine", lambda _: False)


class TestWhatIsReadWhenItIsTaken:
    """Behind a flood a connection has stood in the kernel's queue: what it has to say is there."""

    def test_a_request_that_is_there_already_is_handed_over_at_the_same_look(self) -> None:
        with ByHand() as hand:
            client = hand.client().send(LOOK)
            hand.look()
            assert hand.server._ready.qsize() == 1
            assert client.answer()[0] == 200

    def test_who_has_gone_again_takes_no_place_from_who_comes_next(self) -> None:
        with ByHand(most=2) as hand:
            first = hand.client()
            hand.look()
            for _ in range(3):
                hand.client().sock.close()
            second = hand.client()
            hand.look()
            assert [first.is_closed, second.is_closed] == [False, False]

    def test_no_more_is_read_than_strangers_have_time_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "STRANGERS_SECONDS", 0.0)
        with ByHand() as hand:
            client = hand.client().send(LOOK)
            hand.look()
            assert (hand.server._ready.qsize(), hand.server._open) == (0, 1)
            assert client.answer()[0] == 200


class TestWhoIsClosedForWhom:
    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.sampled_from(["caller", "silent", "begun", "looks", "turn", "call"]), max_size=15))
    def test_a_caller_that_was_answered_well_is_never_closed_for_a_stranger(self, acts: list[str]) -> None:
        with ByHand(most=4) as hand:
            callers = [hand.client()]
            assert callers[0].call() == 200
            for act in acts:
                if act == "call":
                    assert [caller.call() for caller in callers] == [200] * len(callers)
                elif act == "turn":
                    hand.turn()
                elif act == "caller":
                    # One place is left to strangers: without any, callers can only make room for each other.
                    made = hand.client()
                    if len(callers) < 2:
                        assert made.call() == 200
                        callers.append(made)
                else:
                    stranger = hand.client()
                    stranger.send({"silent": b"", "begun": BEGUN, "looks": LOOK}[act])
                    hand.look()
                assert hand.server._open <= 4
            assert [caller.is_closed for caller in callers] == [False] * len(callers)

    def test_strangers_whose_requests_are_in_hand_cost_no_caller_its_connection(self) -> None:
        with ByHand(most=4) as hand:
            caller = hand.client()
            assert caller.call() == 200
            asking = [hand.client().send(LOOK) for _ in range(3)]
            hand.look()
            hand.look()
            late = hand.client()
            hand.look()

            assert caller.call() == 200
            assert [each.answer()[0] for each in asking] == [200] * 3
            assert late.call() == 200

    def test_when_callers_have_all_places_the_one_that_was_silent_longest_makes_room(self) -> None:
        with ByHand(most=3) as hand:
            callers = [hand.client() for _ in range(3)]
            assert [caller.call() for caller in (*callers, callers[0])] == [200] * 4
            new = hand.client()
            assert new.call() == 200
            assert [caller.is_closed for caller in callers] == [False, True, False]

    def test_strangers_that_all_have_sent_requests_meanwhile_cost_no_caller_its_connection(self) -> None:
        with ByHand(most=8) as hand:
            caller, *strangers = (hand.client() for _ in range(8))
            assert [caller.call(), caller.call()] == [200, 200]
            for stranger in strangers:
                stranger.send(LOOK)
            new = hand.client()
            hand.server._accept_some(hand.listener)
            assert not caller.is_closed
            assert [stranger.answer()[0] for stranger in strangers] == [200] * 7
            assert new.call() == 200
            assert caller.call() == 200

    def test_who_has_said_nothing_goes_before_who_has_begun_and_was_there_before(self) -> None:
        with ByHand(most=2) as hand:
            begun = hand.client().send(BEGUN)
            hand.turn()
            silent = hand.client()
            hand.turn()
            new = hand.client()
            assert new.call() == 200
            assert silent.is_closed
            assert begun.send(b"i").answer() == (200, b"hi", True)

    def test_who_is_chosen_to_go_and_has_sent_a_request_meanwhile_is_answered(self) -> None:
        with ByHand(most=2) as hand:
            first, second = hand.client(), hand.client()
            hand.turn()
            first.send(CALL)
            third = hand.client()
            hand.server._accept_some(hand.listener)

            assert first.answer() == (200, b"hi", True)
            assert second.is_closed
            assert third.call() == 200

    @pytest.mark.parametrize("request_line", [b"GET /", b"POST /404%20Not%20Found", b"POST /500%20No"])
    def test_who_only_looks_or_is_refused_is_no_caller(self, request_line: bytes) -> None:
        with ByHand(most=2) as hand:
            stranger, caller = hand.client(), hand.client()
            assert caller.call() == 200
            stranger.send(request_line + b" HTTP/1.1\r\nHost: x\r\n\r\n").answer()
            assert hand.client().call() == 200
            assert (stranger.is_closed, caller.is_closed) == (True, False)

    def test_a_caller_that_is_refused_afterwards_is_one_no_more(self) -> None:
        with ByHand(most=2) as hand:
            fallen, caller = hand.client(), hand.client()
            assert [fallen.call(), caller.call()] == [200, 200]
            assert fallen.send(CALL.replace(b" / ", b" /403%20Forbidden ")).answer()[0] == 403
            assert hand.client().call() == 200
            assert (fallen.is_closed, caller.is_closed) == (True, False)

    @pytest.mark.usefixtures("_elsewhere")
    def test_the_address_with_most_strangers_makes_room(self) -> None:
        with ByHand(most=4) as hand:
            alone = hand.client("127.0.0.2")
            hand.turn()
            many = [hand.client("127.0.0.3") for _ in range(3)]
            hand.turn()
            assert hand.client("127.0.0.4").call() == 200
            assert [each.is_closed for each in (alone, *many)] == [False, True, False, False]

    @pytest.mark.usefixtures("_elsewhere")
    def test_an_address_has_its_number_of_strangers_though_there_is_room_and_callers_dont_count(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "MOST_STRANGERS", 2)
        with ByHand(most=100) as hand:
            callers = []
            for _ in range(5):
                callers.append(hand.client())
                assert callers[-1].call() == 200
            strangers = [hand.client() for _ in range(3)]
            assert [each.is_closed for each in (*strangers, *callers)] == [True, *[False] * 7]

    @pytest.mark.usefixtures("_elsewhere")
    def test_a_callers_next_connection_stays_before_those_of_strangers_of_its_network(self) -> None:
        with ByHand(most=3) as hand:
            caller = hand.client("127.0.0.2")
            assert caller.call() == 200
            caller.sock.close()
            again = hand.client("127.0.0.2")
            hand.turn()
            strangers = [hand.client("127.0.0.3") for _ in range(5)]
            hand.turn()
            assert again.call() == 200
            assert [each.is_closed for each in strangers].count(False) == 2


class TestFaults:
    @pytest.mark.parametrize("number", [errno.ENOMEM, errno.ENETDOWN, errno.EHOSTUNREACH, errno.ENFILE, errno.EPROTO])
    def test_a_connection_that_the_kernel_cant_hand_over_ends_nobody_elses(
        self, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        faults = [OSError(number, "once")]
        accept = socket.socket.accept

        def accept_later(listening: socket.socket) -> Any:
            if faults:
                raise faults.pop()
            return accept(listening)

        with ByHand() as hand:
            caller = hand.client()
            assert caller.call() == 200
            monkeypatch.setattr(socket.socket, "accept", accept_later)
            new = hand.client()
            assert new.call() == 200
            assert not faults
            assert caller.call() == 200

    def test_a_fault_of_the_application_is_answered_in_constant_words_and_ends_that_connection(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with ByHand() as hand:
            caller, other = hand.client(), hand.client()
            with caplog.at_level(logging.ERROR, logger="berth.server"):
                # echo can't make a status of it
                status, body, goes_on = caller.send(CALL.replace(b" / ", b" /secret ")).answer()
            assert (status, body, goes_on) == (500, b'{"Error":"Internal Server Error"}', False)
            assert "secret" not in caplog.text
            assert "a request failed: ValueError" in caplog.text
            assert other.call() == 200
            caller.sock.close()
            hand.turn()
            hand.room.take(ROOM)

    def test_a_fault_while_reading_ends_that_connection_alone(self) -> None:
        with ByHand() as hand:
            broken, other = hand.client(), hand.client()
            broken.send(CALL.replace(b" / ", b" /fault "))
            assert broken.is_closed
            assert other.call() == 200
            assert hand.server._open == 1

    def test_a_client_that_goes_away_in_its_body_gives_room_and_place_back(self) -> None:
        with ByHand(most=1) as hand:
            hand.client().send(BEGUN).sock.close()
            hand.turn()
            assert hand.server._open == 0
            hand.room.take(ROOM)

    def test_an_answer_is_closed_when_its_client_has_gone(self) -> None:
        closed: list[bool] = []

        class Answer(list[bytes]):
            def close(self) -> None:
                closed.append(True)

        def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            start_response("200 OK", [])
            return Answer([b"x" * 10_000_000])

        with ByHand() as hand:
            hand.server._application = answer
            client = hand.client().send(CALL)
            hand.look()
            hand.look()
            client.sock.close()
            hand.turn()
            assert closed == [True]
            assert hand.server._open == 0


@contextmanager
def serving(
    application: Application, *, threads: int = 1, grace_seconds: float = GRACE_SECONDS
) -> Iterator[tuple[Server, Callable[[], Client]]]:
    """A server with threads of its own, which must have ended with the clients."""
    listener = listening(Budget(ROOM))
    address = listener.socket.getsockname()
    server = Server([listener], application, threads=threads, grace_seconds=grace_seconds)
    loop = threading.Thread(target=server.serve, daemon=True)
    loop.start()
    with ExitStack() as stack:

        def client() -> Client:
            made = Client(address, lambda: None, "127.0.0.1")
            stack.callback(made.sock.close)
            return made

        yield server, client
    server.stop()
    loop.join(60)
    assert not loop.is_alive()
    assert server._open == 0


class TestLargeAnswers:
    SIZE, PIECES = 1 << 20, 64

    @pytest.fixture
    def made(self) -> list[int]:
        """The pieces that were made so far."""
        return []

    def archive(self, made: list[int], fault_at: int = -1) -> Application:
        def pieces() -> Iterator[bytes]:
            for number in range(self.PIECES):
                if number == fault_at:
                    raise RuntimeError("a fault")
                made.append(number)
                yield bytes([number]) * self.SIZE

        def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            start_response("200 OK", [("Content-Length", str(self.SIZE * self.PIECES))])
            return pieces()

        return answer

    def test_what_says_its_length_is_made_as_the_client_takes_it_and_is_the_last(self, made: list[int]) -> None:
        with serving(self.archive(made)) as (_, client):
            taking = client().send(LOOK)
            assert taking.sock.recv(1, socket.MSG_PEEK) == b"H"
            # The kernel holds some of them for the client.
            assert len(made) < self.PIECES // 2
            status, body, goes_on = taking.answer()
            assert (status, goes_on) == (200, False)
            assert body == b"".join(bytes([number]) * self.SIZE for number in range(self.PIECES))

    def test_who_takes_it_slowly_keeps_no_thread_from_others(self, made: list[int]) -> None:
        with serving(self.archive(made), threads=1) as (server, client):
            slow = client().send(LOOK)
            assert slow.sock.recv(1, socket.MSG_PEEK) == b"H"
            server._application = echo
            assert client().call() == 200
            assert len(slow.answer()[1]) == self.SIZE * self.PIECES

    def test_a_fault_on_the_way_ends_it_and_puts_nothing_behind_what_was_sent(
        self, made: list[int], caplog: pytest.LogCaptureFixture
    ) -> None:
        with serving(self.archive(made, fault_at=3)) as (_, client):
            taking = client().send(LOOK)
            with pytest.raises(http.client.IncompleteRead) as cut:
                taking.answer()
            assert len(cut.value.partial) == 3 * self.SIZE
        assert "a request failed: RuntimeError" in caplog.text

    def test_a_client_that_hangs_up_ends_the_making(self, made: list[int]) -> None:
        with serving(self.archive(made)) as (_, client):
            leaving = client().send(LOOK)
            assert leaving.sock.recv(1, socket.MSG_PEEK) == b"H"
            leaving.sock.close()
            assert client().send(LOOK.replace(b"GET", b"HEAD")).sock.recv(100).startswith(b"HTTP/1.1 200 OK")
        assert len(made) < self.PIECES


class TestTheEnd:
    def test_what_is_in_hand_what_waits_behind_it_and_what_is_half_there_is_answered_and_is_the_last(self) -> None:
        entered, go_on = threading.Event(), threading.Event()

        def slow(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            entered.set()
            assert go_on.wait(60)
            return echo(environ, start_response)

        with serving(slow) as (server, client):
            in_hand = client().send(CALL)
            assert entered.wait(60)
            half = client().send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
            assert half.sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
            behind = client().send(CALL)
            not_yet_taken = client()
            server.stop()
            half.send(b"hi")
            not_yet_taken.send(CALL)
            go_on.set()

            for each in (in_hand, half, behind, not_yet_taken):
                assert each.answer() == (200, b"hi", False)

    def test_a_call_in_hand_may_take_longer_than_silent_connections_are_kept(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        entered, go_on = threading.Event(), threading.Event()

        def slow(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            entered.set()
            assert go_on.wait(60)
            return echo(environ, start_response)

        monkeypatch.setattr(module, "GRACE_SECONDS", 0.1)
        with serving(slow, grace_seconds=60.0) as (server, client):
            silent, in_hand = client(), client().send(CALL)
            assert entered.wait(60)
            server.stop()
            assert silent.sock.recv(1) == b""
            go_on.set()
            assert in_hand.answer() == (200, b"hi", False)

    def test_requests_behind_the_one_in_hand_on_its_connection_are_for_the_next_process(self) -> None:
        def stop(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            calls.append(environ["PATH_INFO"])
            server.stop()
            return echo(environ, start_response)

        calls: list[str] = []
        with serving(stop) as (server, client):
            first = client().send(CALL * 3)
            assert first.answer() == (200, b"hi", False)
            assert first.sock.recv(1) == b""
        assert calls == ["/"]

    def test_the_next_process_takes_connections_on_the_listener_of_one_that_was_ended_alone(self) -> None:
        kept = socket.create_server(("127.0.0.1", 0))
        with kept:
            for _ in range(2):
                listener = listening(Budget(ROOM))
                listener.socket.close()
                server = Server([listener._replace(socket=kept.dup())], echo, threads=1)
                loop = threading.Thread(target=server.serve, daemon=True)
                loop.start()
                client = Client(kept.getsockname(), lambda: None, "127.0.0.1")
                with client.sock:
                    assert client.call() == 200
                server.stop()
                loop.join(60)
                assert not loop.is_alive()
