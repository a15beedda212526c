"""Sends many small POSTs concurrently, in one thread over persistent connections: a scheduler's API calls for each Pod.

Threads that each wait for an answer slow down the deciding thread: each answer makes it give up the interpreter lock. Here one
thread writes requests as they come and reads answers as they arrive, several at a time. Nothing is retried; if no answer comes,
the caller has to find out whether the request was carried out.

Requests have one form and are written here. Answers may have any form that HTTP/1.1 allows and are parsed by h11.
"""

import logging
import select
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import h11
import msgspec

from scheduler.cluster.client import Client
from scheduler.cluster.errors import LONGEST_ASKED_SECONDS, APIConfigurationError, APIError, seconds_of

logger = logging.getLogger("berth.cluster")

CONNECTIONS = 16
# Deferrable requests are sent while no urgent one is in flight: they cost the API server as much as a binding does. With both sent
# side by side, a seventh fewer of 2,000 Pods were bound per second. A deferrable request is also sent once it has waited this long.
LATEST_SECONDS = 10.0

# The most queued deferrable requests; further ones are refused.
MOST_WAITING = 8192

# While urgent requests are in flight, answers are collected for this long before they are read together: each time this thread
# wakes, the deciding thread has to give up the interpreter lock and wait for it (docs/performance.md).
REST_SECONDS = 0.01

# Stands for a status: no answer came, or nothing was sent. It isn't known whether the request was carried out.
UNANSWERED = 0

_READ_BYTES = 1 << 16
# The limit of an answer's body. h11 has its own limit for heads.
_LONGEST_ANSWER = 1 << 20
_AWAY_SECONDS = 0.2
_CHECK_SECONDS = 0.25
_WOULD_BLOCK = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError)

# h11 parses an answer only after a request. It gets this one each time: letting it write the real request, with credentials
# and all, would take as long again as parsing the answer.
_REQUEST = h11.Request(method="POST", target="/", headers=[("Host", "any"), ("Content-Length", "0")])
_REQUEST_END = h11.EndOfMessage()


class APIRequest(msgspec.Struct):
    """A POST request.

    Attributes:
        path: from the root.
        body: JSON.
        done: called once by the dispatcher's thread with the HTTP status and the answer's body; UNANSWERED without an answer.
        ready: called just before the request is sent; if it returns False, the request isn't sent and `done` isn't called.
        retry_after_seconds: the server's Retry-After, 0 without one; set before `done` is called.
        late_at: for a deferrable request, the time by the monotonic clock from which it no longer waits for others; set by
            `Dispatcher.send_later`.
    """

    path: str
    body: bytes
    done: Callable[[int, bytes], None]
    ready: Callable[[], bool] = lambda: True
    retry_after_seconds: float = 0.0
    late_at: float = 0.0


class _Connection:
    """One persistent connection, for one request at a time."""

    def __init__(self, sock: socket.socket, begin: bytes, head: bytes) -> None:
        self.socket = sock
        # The parts of a request before and after its path.
        self.begin = begin
        self.head = head
        self.request: APIRequest | None = None
        self.is_later = False
        self.until = float("inf")
        self.status = UNANSWERED
        self.retry_after_seconds = 0.0
        self.body = bytearray()
        self._protocol = h11.Connection(h11.CLIENT)

    def send(self, data: bytes) -> None:
        """Write a whole request; it is small, so that writing hardly ever blocks.

        Raises:
            OSError: the connection is broken, or accepted no data before the request's timeout.
        """
        self.status, self.retry_after_seconds, self.body = UNANSWERED, 0.0, bytearray()
        self._protocol.send(_REQUEST)
        self._protocol.send(_REQUEST_END)
        while data:
            try:
                data = data[self.socket.send(data) :]
            except _WOULD_BLOCK:
                left = self.until - time.monotonic()
                if left <= 0:
                    message = "the server doesn't take the request"
                    raise TimeoutError(message) from None
                select.select([], [self.socket], [], min(1.0, left))

    def receive(self) -> bool:
        """Read available data; returns whether `status` and `body` are complete now.

        Raises:
            OSError: the connection is broken, or can't be used any more.
            h11.RemoteProtocolError: the data is no answer, or the connection ended before the answer did.
        """
        while True:
            try:
                data = self.socket.recv(_READ_BYTES)
            except _WOULD_BLOCK:
                return False
            if self.request is None:
                message = "closed, or an answer that nobody asked for"
                raise ConnectionError(message)
            self._protocol.receive_data(data)  # b"" says that the server closed the connection
            if self._is_answered():
                return True

    def _is_answered(self) -> bool:
        while (event := self._protocol.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.Response):
                self.status = event.status_code
                self.retry_after_seconds = _retry_after(event)
            elif isinstance(event, h11.Data):
                self.body += event.data
                if len(self.body) > _LONGEST_ANSWER:
                    message = "an answer that is too long"
                    raise ConnectionError(message)
            elif isinstance(event, h11.EndOfMessage):
                return True
        return False

    def is_free_again(self) -> bool:
        """Prepare for the next request; False when the server closes the connection, or sent more than one answer."""
        if self._protocol.their_state is not h11.DONE or self._protocol.trailing_data != (b"", False):
            return False
        self._protocol.start_next_cycle()
        return True


def _retry_after(answer: h11.Response) -> float:
    asked = next((value for name, value in answer.headers if name == b"retry-after"), b"")
    seconds = seconds_of(asked.decode(errors="replace"))
    return min(seconds or 0.0, LONGEST_ASKED_SECONDS)


class Dispatcher:
    """Sends requests. `send` and `send_later` may be called by any thread, and never wait.

    Args:
        client: has the API server's address and the credentials.
        timeout_seconds: how long to wait for an answer.
    """

    def __init__(self, client: Client, *, timeout_seconds: float, connections: int = CONNECTIONS) -> None:
        self._client = client
        self._timeout_seconds = timeout_seconds
        self._most = connections
        self._waiting: deque[APIRequest] = deque()
        self._later: deque[APIRequest] = deque()
        self._free: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._later_busy = 0
        # The other connections are left to urgent requests.
        self._most_later = max(1, connections // 2)
        self._away_until = float("-inf")
        self._selector = selectors.DefaultSelector()
        # A socket pair that wakes the dispatcher's thread: senders write to it. Made when the thread starts.
        self._ears: tuple[socket.socket, socket.socket] | None = None
        self._is_awake = False
        self._said = False
        self._stopping = False
        self._checked_at = 0.0
        self._thread = threading.Thread(target=self._run, name="berth-dispatcher", daemon=True)

    def start(self) -> None:
        """Start the dispatcher's thread."""
        ear, mouth = socket.socketpair()
        for end in (ear, mouth):
            end.settimeout(0)
        self._selector.register(ear, selectors.EVENT_READ)
        self._ears = (ear, mouth)
        self._thread.start()

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """Send queued requests, wait for the answers, and stop."""
        self._stopping = True
        self._wake()
        self._thread.join(timeout_seconds)
        if self._ears is not None and not self._thread.is_alive():
            ears, self._ears = self._ears, None
            for end in ears:
                end.close()

    def send(self, request: APIRequest) -> None:
        """Send a request as soon as there is a connection."""
        self._waiting.append(request)
        self._wake()

    def send_later(self, request: APIRequest) -> bool:
        """Send a request once no urgent one is in flight, or its own time is up; False when too many are queued already."""
        if len(self._later) >= MOST_WAITING:
            return False
        request.late_at = time.monotonic() + LATEST_SECONDS
        self._later.append(request)
        self._wake()
        return True

    def _wake(self) -> None:
        if not self._is_awake and self._ears is not None:
            self._is_awake = True
            try:
                self._ears[1].send(b"\0")
            except BlockingIOError:
                return  # The buffer is full: the thread will wake up anyway.

    def _run(self) -> None:
        while not (self._stopping and not self._waiting and not self._later and not self._busy):
            try:
                self._turn()
            except Exception:
                # The last guard of a thread that must not end.
                logger.exception("the dispatcher failed")
                time.sleep(_AWAY_SECONDS)
        for connection in self._free:
            connection.socket.close()
        self._selector.close()

    def _turn(self) -> None:
        self._hand_out()
        if len(self._busy) > self._later_busy:
            time.sleep(REST_SECONDS)
        for key, _ in self._selector.select(_CHECK_SECONDS):
            if key.data is None:
                # In this order, before looking for requests: one that comes meanwhile is found, or wakes the thread again.
                self._listen()
                self._is_awake = False
            else:
                self._read(key.data)
        now = time.monotonic()
        if now - self._checked_at > _CHECK_SECONDS:
            self._checked_at = now
            # A list first: dropping a connection changes the set.
            for connection in [late for late in self._busy if now > late.until]:
                self._drop(connection)

    def _listen(self) -> None:
        if self._ears is not None:
            self._ears[0].recv(4096)

    def _hand_out(self) -> None:
        while self._waiting and (connection := self._connection(self._waiting)):
            self._begin(connection, self._waiting.popleft(), is_later=False)
        while self._later and self._may_send_later() and (connection := self._connection(self._later)):
            self._begin(connection, self._later.popleft(), is_later=True)

    def _may_send_later(self) -> bool:
        if self._later_busy >= self._most_later or self._waiting:
            return False
        is_alone = len(self._busy) == self._later_busy
        return is_alone or self._stopping or self._later[0].late_at <= time.monotonic()

    def _connection(self, waiting: deque[APIRequest]) -> _Connection | None:
        """Return a free connection, or make one; None while all are busy. Requests that can't be sent at all end as UNANSWERED."""
        if self._free:
            return self._free.pop()
        if len(self._busy) >= self._most:
            return None
        if time.monotonic() >= self._away_until:
            try:
                return self._open()
            except (APIError, OSError) as error:
                self._away_until = time.monotonic() + _AWAY_SECONDS
                self._note(error)
        while waiting:
            request = waiting.popleft()
            if request.ready():
                self._tell(request, UNANSWERED, b"")
        return None

    def _note(self, error: Exception) -> None:
        """Log once that nothing can be sent with this configuration. The watches log that the API server is unavailable."""
        if isinstance(error, APIConfigurationError) and not self._said:
            self._said = True
            logger.warning("nothing can be sent to the API server: %s", error)
        logger.debug("no connection: %s", error)

    def _open(self) -> _Connection:
        opened = self._client.open_socket()
        opened.socket.settimeout(0)
        head = f" HTTP/1.1\r\nHost: {opened.host}\r\nUser-Agent: berth\r\nAccept: application/json\r\n"
        connection = _Connection(
            opened.socket, f"POST {opened.prefix}".encode(), f"{head}Content-Type: application/json\r\n".encode()
        )
        self._selector.register(opened.socket, selectors.EVENT_READ, connection)
        return connection

    def _begin(self, connection: _Connection, request: APIRequest, *, is_later: bool) -> None:
        if not request.ready():
            self._free.append(connection)
            return
        connection.request, connection.is_later = request, is_later
        connection.until = time.monotonic() + self._timeout_seconds
        self._busy.add(connection)
        self._later_busy += is_later
        try:
            connection.send(self._request(connection, request))
        except (APIError, OSError) as error:
            logger.debug("a request could not be written: %s", error)
            self._drop(connection)

    def _request(self, connection: _Connection, request: APIRequest) -> bytes:
        authorization = self._client.authorization()
        credentials = f"Authorization: {authorization}\r\n".encode() if authorization else b""
        length = f"Content-Length: {len(request.body)}\r\n\r\n".encode()
        return b"".join((connection.begin, request.path.encode(), connection.head, credentials, length, request.body))

    def _read(self, connection: _Connection) -> None:
        try:
            is_answered = connection.receive()
        except (OSError, h11.RemoteProtocolError) as error:
            logger.debug("an answer could not be read: %s", error)
            self._drop(connection)
            return
        request = connection.request
        if is_answered and request is not None:
            self._release(connection)
            # With a client certificate that ran out, every further request on this connection would be refused too. A new one is
            # made with the certificate that the client has by then.
            if connection.is_free_again() and connection.status != HTTPStatus.UNAUTHORIZED:
                self._free.append(connection)
            else:
                self._close(connection)
            request.retry_after_seconds = connection.retry_after_seconds
            self._tell(request, connection.status, bytes(connection.body))

    def _release(self, connection: _Connection) -> None:
        self._busy.discard(connection)
        self._later_busy -= connection.is_later
        connection.request, connection.is_later, connection.until = None, False, float("inf")

    def _drop(self, connection: _Connection) -> None:
        """Close a connection; its request stays unanswered."""
        request = connection.request
        if connection in self._busy:
            self._release(connection)
        elif connection in self._free:
            self._free.remove(connection)
        self._close(connection)
        if request is not None:
            self._tell(request, UNANSWERED, b"")

    def _close(self, connection: _Connection) -> None:
        self._selector.unregister(connection.socket)
        connection.socket.close()

    def _tell(self, request: APIRequest, *answer: Any) -> None:
        try:
            request.done(*answer)
        except Exception:
            logger.exception("handling an answer of the API server failed")
