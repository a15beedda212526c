"""A WSGI server that resists overload by strangers: one loop waits for all connections, a few threads answer.

A client is *known* after a call of it was answered successfully; before that, it is a *stranger*. At the admin, calls are requests of
accounts.

- The loop accepts, does handshakes, and reads heads and bodies, a step at a time. Threads get only complete requests.
- A thread that has answered stays with the connection for a moment: kube-scheduler's next call comes within milliseconds.
- Known clients have priority over strangers: for their requests, and for their connection when there are too many. A thread reads
  their requests.
- Connections are limited in number, in total and for strangers from one address. The one that was silent longest is closed, but
  not before the data it has sent is read.
"""

import contextlib
import errno
import itertools
import logging
import operator
import queue
import select
import selectors
import socket
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import Any

from scheduler.http_server.connection import Connection, Listener, Wants
from scheduler.http_server.hosts import is_this_machine
from scheduler.http_server.listeners import refuse_beginnings, take_beginnings
from scheduler.metrics import CONNECTIONS_REFUSED

logger = logging.getLogger("berth.server")

MOST_CONNECTIONS = 512
# The most connections of strangers from one address; for IPv6 from one /64, which is what one machine has.
MOST_STRANGERS = 128
# Connections accepted in one go, and how long strangers are served, before it is the known clients' turn again.
ACCEPT_AT_ONCE = 64
STRANGERS_SECONDS = 0.005
# How long a thread stays with a connection that it has answered, and how many threads may do so: half of all at most, because a
# client that sends a byte now and then keeps one busy.
STAY_SECONDS = 0.02
STAYING_AT_ONCE = 16
# Calls that one thread answers in a row. When CPU is scarce, the kernel makes a thread wait that has run for long.
CALLS_IN_A_ROW = 16
# Between two lines of the log about what any client can cause.
LINE_SECONDS = 1.0
# Turns to wait behind known clients: for a connection's first request, and for one after an unsuccessful request.
NEW_WAIT, OTHERS_WAIT = 64, 256
# How long an address is trusted after a caller from it was answered, and how many addresses are remembered.
TRUST_SECONDS = 600.0
MOST_TRUSTED = 256
# The part of a streamed answer that is held in memory; the rest is made as the client reads it.
HELD_BYTES = 1 << 20
# The time for idle connections when the server is told to stop, and for calls in progress if nothing else is said.
GRACE_SECONDS = 8.0
# The time for unfinished TCP handshakes before the listeners are closed.
HANDSHAKE_SECONDS = 0.1

_SWEEP_SECONDS = 0.25
_TICK_SECONDS = 1.0
_LATER_SECONDS = 0.001
# Connections that are compared to find the one to close.
_LOOK_AT = 32
_OF_THE_MOMENT = {errno.EAGAIN, errno.EWOULDBLOCK, errno.ECONNABORTED, errno.EPERM}
# A new connection's own faults, which accept(2) says to treat the same.
_OF_THE_MOMENT |= {
    errno.EPROTO,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.EOPNOTSUPP,
}
_NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}
_SPENT = operator.attrgetter("spent_seconds")

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Server:
    """Serves listeners until it is told to stop. `serve` is the loop; `stop` may be called by any thread and signal handler.

    Args:
        listeners: the sockets to serve.
        application: the WSGI application.
        threads: how many requests are answered at once.
        most_connections: the limit of connections.
        tick: called each second.
        shares_listeners: returns whether another process continues to use the listeners.
        grace_seconds: the time for calls in progress when the server is told to stop.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        application: Application,
        *,
        threads: int,
        most_connections: int = MOST_CONNECTIONS,
        tick: Callable[[], None] = lambda: None,
        shares_listeners: Callable[[], bool] = lambda: False,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self._listeners = list(listeners)
        self._application = application
        self._most_connections = most_connections
        self._tick, self._shares_listeners = tick, shares_listeners
        self._grace_seconds = grace_seconds
        self._selector = selectors.DefaultSelector()
        self._open = 0
        # Connections that the loop handles, the longest-held first.
        self._held: dict[Connection, None] = {}
        self._strangers: dict[str, dict[Connection, None]] = {}
        self._trusted: dict[str, float] = {}
        # Requests for the threads, by turn.
        self._ready: queue.PriorityQueue[tuple[int, int, Connection | None]] = queue.PriorityQueue()
        self._turn = itertools.count()
        self._staying: set[int] = set()
        self._most_staying = min(STAYING_AT_ONCE, threads // 2)
        self._returned: deque[tuple[Connection, Wants]] = deque()
        self._alarm, self._wake = socket.socketpair()
        self._is_stopping = False
        self._next_tick_at = self._next_sweep_at = self._next_line_at = 0.0
        self._threads = [
            threading.Thread(target=self._work, name=f"berth-call-{number}", daemon=True) for number in range(threads)
        ]

    # The loop

    def serve(self) -> None:
        """Serve until `stop` is called and requests in progress are answered, within `grace_seconds`."""
        for thread in self._threads:
            thread.start()
        for listener in self._listeners:
            listener.socket.settimeout(0)
            take_beginnings(listener.socket)
            self._selector.register(listener.socket, selectors.EVENT_READ, listener)
        self._alarm.settimeout(0)
        self._wake.settimeout(0)
        self._selector.register(self._alarm, selectors.EVENT_READ)
        while not self._is_stopping:
            self._turn_round()
        self._stop_listening()
        until = time.monotonic() + self._grace_seconds
        while self._open and time.monotonic() < until:
            self._turn_round(most_seconds=until - time.monotonic())
        self._end()

    def stop(self) -> None:
        """Begin to stop."""
        self._is_stopping = True
        self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # the pipe is full, or closed already
            self._wake.send(b".")

    def _turn_round(self, most_seconds: float = _SWEEP_SECONDS) -> None:
        """Wait, and serve connections with data: known clients first, then strangers, then new connections."""
        known: list[Connection] = []
        strangers: list[Connection] = []
        new: list[Listener] = []
        for key, _ in self._selector.select(min(max(most_seconds, 0), _SWEEP_SECONDS)):
            if isinstance(key.data, Connection):
                (strangers if self._is_stranger(key.data) else known).append(key.data)
            elif key.data is not None:
                new.append(key.data)
        self._take_back()
        for connection in known:
            self._serve(connection)
        now = time.monotonic()
        until = now + STRANGERS_SECONDS
        # The connection that took least of the loop's time comes first: data that is expensive to read has to wait.
        for connection in sorted(strangers, key=_SPENT):
            self._serve(connection)
            began, now = now, time.monotonic()
            connection.spent_seconds += now - began
            # After one at least: threads may have kept the loop waiting that long. The selector reports the others again.
            if now >= until:
                break
        for listener in new:
            self._accept_some(listener, until)
        now = time.monotonic()
        if now >= self._next_sweep_at:
            self._next_sweep_at = now + _SWEEP_SECONDS
            self._sweep()
        if now >= self._next_tick_at:
            self._next_tick_at = now + _TICK_SECONDS
            self._tick()

    def _take_back(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._alarm.recv(4096)
        while self._returned:
            connection, wants = self._returned.popleft()
            if connection.is_known:
                self._trust(connection)
            self._route(connection, wants)

    def _serve(self, connection: Connection) -> None:
        """Continue a connection with data: in a thread if the client is known, else by one step here."""
        self._let_go(connection)
        if connection.is_known and not connection.has_expired and len(self._staying) < self._most_staying:
            self._hand_over(connection)
        else:
            self._route(connection, self._step(connection))

    def _step(self, connection: Connection) -> Wants:
        try:
            return connection.go_on()
        except Exception as error:  # noqa: BLE001 - the guard of the loop, which one connection must not end
            self._log_fault(error)
            return Wants.END

    def _route(self, connection: Connection, wants: Wants) -> None:
        if wants is Wants.END:
            self._close(connection)
        elif wants is Wants.ANSWER:
            self._hand_over(connection)
        else:
            self._hold(connection, wants)

    def _hold(self, connection: Connection, wants: Wants) -> None:
        self._selector.register(connection.fd, int(wants), connection)
        self._held[connection] = None
        if not connection.is_known:
            self._strangers.setdefault(connection.origin, {})[connection] = None

    def _let_go(self, connection: Connection) -> None:
        self._selector.unregister(connection.fd)
        del self._held[connection]
        if not connection.is_known:
            network = connection.origin
            del self._strangers[network][connection]
            if not self._strangers[network]:
                del self._strangers[network]

    def _hand_over(self, connection: Connection) -> None:
        turn = next(self._turn) + (0 if connection.is_known else NEW_WAIT if connection.is_new else OTHERS_WAIT)
        self._ready.put((turn, next(self._turn), connection))

    def _close(self, connection: Connection, *, at_once: bool = False) -> None:
        self._open -= 1
        try:
            connection.close(at_once=at_once)
        except Exception as error:  # noqa: BLE001 - the guard of the loop: an application may raise where its answer ends
            self._log_fault(error)
        if connection.refused:
            reason, _, detail = connection.refused.partition(": ")
            CONNECTIONS_REFUSED.labels(reason).inc()
            if reason in {"tls", "malformed"}:
                self._say(connection, reason, detail)

    def _say(self, connection: Connection, reason: str, detail: str) -> None:
        """Log an event that any client can cause: at most one line a second, with constant texts."""
        now = time.monotonic()
        if now < self._next_line_at:
            return
        self._next_line_at = now + LINE_SECONDS
        if reason == "tls":
            logger.warning("a TLS handshake from %s failed: %s", connection.address[0], detail)
        else:
            logger.warning("a request from %s isn't valid HTTP", connection.address[0])

    def _sweep(self) -> None:
        """Close connections whose time is up, but none on which data has just arrived."""
        latest = time.monotonic() + GRACE_SECONDS
        for connection in list(self._held):
            if self._is_stopping:
                connection.deadline = min(connection.deadline, latest)
            if not connection.has_expired:
                continue
            self._let_go(connection)
            wants = self._step(connection)
            if wants in (Wants.READ, Wants.WRITE) and connection.has_expired:
                connection.expire()
                wants = Wants.END if connection.has_expired else self._step(connection)
            self._route(connection, wants)

    # New connections

    def _accept_some(self, listener: Listener, until: float = 0.0) -> None:
        """Accept new connections, and read their data until the given time."""
        for _ in range(ACCEPT_AT_ONCE):
            if self._open >= self._most_connections:
                if not _is_readable(listener.socket):
                    return  # no connection is closed if no new one waits
                if not self._make_room():
                    time.sleep(_LATER_SECONDS)  # all connections have requests to be answered
                    return
            try:
                sock, address = listener.socket.accept()
            except OSError as error:
                if error.errno in _NO_ROOM:
                    if not self._make_room():
                        time.sleep(_LATER_SECONDS)
                elif error.errno not in _OF_THE_MOMENT:
                    raise
                return
            self._open += 1
            connection = Connection(sock, address, listener)
            # If many connect, this one was in the kernel's queue: its data is there, or it is closed again.
            self._route(connection, self._step(connection) if time.monotonic() < until else Wants.READ)
            of_the_same = self._strangers.get(connection.origin, {})
            if len(of_the_same) > MOST_STRANGERS and not is_this_machine(address[0]):
                self._make_room(of_the_same)

    def _make_room(self, among: dict[Connection, None] | None = None) -> bool:
        """Close one of these, or of the address with most strangers: silent connections first, then the one that waits longest.

        A connection that has sent a complete request meanwhile is served instead. Without strangers, known clients make room for
        each other, but only if they hold most of the connections; otherwise strangers' requests are in progress, and will end.
        """
        while found := self._crowd() if among is None else among:
            connection = self._least(found)
            self._let_go(connection)
            if self._step(connection) is not Wants.ANSWER:
                connection.refused = connection.refused or "crowded"
                self._close(connection, at_once=True)
                return True
            self._hand_over(connection)
        return False

    def _crowd(self) -> dict[Connection, None]:
        """Return the connections of which to close one. Computed each time: those with a request are handed over to threads."""
        callers = self._held if len(self._held) * 2 > self._most_connections else {}
        return max(self._strangers.values(), key=len, default=callers)

    def _least(self, found: dict[Connection, None]) -> Connection:
        """Return the least valuable of the oldest connections; the first one without any value ends the search."""
        worths: list[tuple[tuple[bool, bool, bool], int, Connection]] = []
        for connection in itertools.islice(found, _LOOK_AT):
            worths.append((self._worth(connection), len(worths), connection))
            if not any(worths[-1][0]):
                return connection
        return min(worths)[2]

    def _worth(self, connection: Connection) -> tuple[bool, bool, bool]:
        # A burst of one-time callers is over soon; closing a regular caller would hurt.
        return not self._is_stranger(connection), connection.is_regular, connection.has_begun

    def _is_stranger(self, connection: Connection) -> bool:
        """Return whether neither this connection nor another one from its address was answered lately."""
        return not connection.is_known and self._trusted.get(connection.address[0], 0.0) < time.monotonic()

    def _trust(self, connection: Connection) -> None:
        """Remember the connection's address as trusted."""
        address = connection.address[0]
        if not is_this_machine(address):
            self._trusted.pop(address, None)
            self._trusted[address] = time.monotonic() + TRUST_SECONDS
            if len(self._trusted) > MOST_TRUSTED:
                del self._trusted[next(iter(self._trusted))]

    # The end

    def _stop_listening(self) -> None:
        """Accept pending connections, and close the listeners: later clients reach the next process."""
        for listener in self._listeners:
            self._selector.unregister(listener.socket)
        if not self._shares_listeners():
            for listener in self._listeners:
                refuse_beginnings(listener.socket)
            time.sleep(HANDSHAKE_SECONDS)
            for listener in self._listeners:
                for _ in range(self._most_connections // ACCEPT_AT_ONCE + 1):
                    self._accept_some(listener)
        for listener in self._listeners:
            listener.socket.close()

    def _end(self) -> None:
        for _ in self._threads:
            self._ready.put((0, next(self._turn), None))
        for connection in list(self._held):
            self._let_go(connection)
            self._close(connection)
        self._selector.close()
        self._alarm.close()
        self._wake.close()

    # In the threads

    def _work(self) -> None:
        while connection := self._ready.get()[2]:
            wants = Wants.END
            try:
                wants = self._answer_in_a_row(connection)
            except Exception as error:  # noqa: BLE001 - the guard of a thread, which one connection must not end
                self._log_fault(error)
            finally:
                self._returned.append((connection, wants))
                self._ring()

    def _answer_in_a_row(self, connection: Connection) -> Wants:
        for _ in range(CALLS_IN_A_ROW):
            wants = self._stay(connection)
            if wants is not Wants.ANSWER:
                return wants
            if connection.more is None:
                self._answer(connection)
            else:
                connection.answer_more()
            if not connection.is_known:
                break
        return connection.go_on()

    def _stay(self, connection: Connection) -> Wants:
        """Wait a moment for the connection's next request; returns what to wait for next."""
        wants = connection.go_on()
        if wants in (Wants.END, Wants.ANSWER):
            return wants
        thread = threading.get_ident()
        if len(self._staying) >= self._most_staying or self._is_stopping or not connection.is_known:
            return wants
        self._staying.add(thread)
        try:
            while wants in (Wants.READ, Wants.WRITE) and connection.is_there_within(STAY_SECONDS, wants):
                wants = connection.go_on()
                if connection.has_expired:
                    break  # the loop tells the client that its time is up
        finally:
            self._staying.discard(thread)
        return wants

    def _answer(self, connection: Connection) -> None:
        status, fields = "500 Internal Server Error", [("", "")]

        def start_response(said: str, with_fields: list[tuple[str, str]], _: Any = None) -> None:
            nonlocal status, fields
            status, fields = said, with_fields

        answer: Iterable[bytes] = ()
        try:
            answer = self._application(connection.environ, start_response)
            pieces, more = (answer, None) if isinstance(answer, list) else _begun(answer, fields)
            # Checked only now: the stop may have come meanwhile.
            connection.note(is_good=int(status[:3]) < HTTPStatus.BAD_REQUEST)
            on_end = getattr(answer, "close", None)
            connection.answer(status, fields, pieces, is_last=self._is_stopping, on_end=on_end, more=more)
        except Exception as error:  # noqa: BLE001 - the guard of a call, which is answered and logged
            self._log_fault(error)
            connection.refuse(500, "Internal Server Error")
            if hasattr(answer, "close"):
                answer.close()
        connection.go_on()

    def _log_fault(self, error: Exception) -> None:
        # The error's text may quote the request; the traceback is enough.
        where = "".join(traceback.format_tb(error.__traceback__))
        logger.error("a request failed: %s\n%s", type(error).__name__, where)


def _begun(answer: Iterable[bytes], fields: Sequence[tuple[str, str]]) -> tuple[list[bytes], Iterator[bytes] | None]:
    """Return an answer's first pieces and an iterator over the rest; all pieces if it is small or has no Content-Length."""
    rest = iter(answer)
    if not any(name == "Content-Length" for name, _ in fields):
        return list(rest), None
    begun, size = [], 0
    for piece in rest:
        begun.append(piece)
        size += len(piece)
        if size >= HELD_BYTES:
            return begun, rest
    return begun, None


def _is_readable(sock: socket.socket) -> bool:
    """Return whether a listener has a connection to be taken."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
