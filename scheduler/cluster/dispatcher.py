"""Many small POSTs at once, by one thread over kept connections: what a scheduler tells the API server of each Pod.

Threads that each wait for an answer hinder the one that decides: each answer makes it give up the interpreter. Here one thread
writes requests as they come and reads answers as they arrive, several at a time. Nothing is tried again; what became of a request
whose answer didn't come is for the caller to find out.

Requests have one form and are written here. Answers have any form that HTTP/1.1 allows and are read by h11.
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
from typing import Any

import h11
import msgspec

from scheduler.cluster.client import Client
from scheduler.cluster.errors import LONGEST_ASKED_SECONDS, APIConfigurationError, APIError, seconds_of

logger = logging.getLogger("berth.cluster")

CONNECTIONS = 16
# Requests that can wait are sent while no other is under way: they cost the API server as much as a binding does, so that of 2,000
# Pods at once a seventh fewer were bound in a second when both went out side by side. Or when the first has waited for so long.
LATEST_SECONDS = 10.0

# Requests that can wait, beyond which they are refused.
MOST_WAITING = 8192

# For so long answers gather while requests that can't wait are under way, before they are read together: each time that this
# thread wakes, the one that decides has to hand over the interpreter and to wait for it (docs/performance.md).
REST_SECONDS = 0.01

# In place of a status: no answer came, or nothing was sent. Whether it was done isn't known.
UNANSWERED = 0

_READ_BYTES = 1 << 16
# Of a body. h11 has a limit of its own for heads.
_LONGEST_ANSWER = 1 << 20
_AWAY_SECONDS = 0.2
_CHECK_SECONDS = 0.25
_WOULD_BLOCK = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError)

# h11 reads an answer only when it knows of a request. It is told of this one each time: having it write the real one,
# credentials and all, takes as long again as reading the answer.
_REQUEST = h11.Request(method="POST", target="/", headers=[("Host", "any"), ("Content-Length", "0")])
_REQUEST_END = h11.EndOfMessage()


def _always() -> bool:
    return True


class APIRequest(msgspec.Struct):
    """A POST on its way.

    Attributes:
        path: from the root.
        body: JSON.
        done: called once by the dispatcher's thread with the HTTP status and the answer's body; UNANSWERED without an answer.
        ready: called just before it is sent; False keeps it back, and `done` isn't called then.
        retry_after_seconds: how long the server asked to be left alone, 0 where it didn't; set before `done` is called.
        late_at: of one that can wait, the moment from which on it waits no longer for others, by the monotonic clock; set by
            `Dispatcher.send_later`.
    """

    path: str
    body: bytes
    done: Callable[[int, bytes], None]
    ready: Callable[[], bool] = _always
    retry_after_seconds: float = 0.0
    late_at: float = 0.0


class _Connection:
    """One kept connection: a request at a time."""

    def __init__(self, sock: socket.socket, begin: bytes, head: bytes) -> None:
        self.socket = sock
        # What stands before the path and behind it.
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
        """Write a whole request; it is small, so that it hardly ever has to be waited for.

        Raises:
            OSError: the connection is broken, or took nothing until the request's time was up.
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
        """Read what is there; whether `status` and `body` are the whole answer now.

        Raises:
            OSError: the connection is broken, or of no use any more.
            h11.RemoteProtocolError: what came is no answer, or the connection ended before the answer did.
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
        """Make ready for the next request; False when the server closes the connection, or said more than an answer."""
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
        client: knows the API server and the credentials.
        timeout_seconds: how long an answer is waited for.
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
        # The others are left to what can't wait.
        self._most_later = max(1, connections // 2)
        self._away_until = float("-inf")
        self._selector = selectors.DefaultSelector()
        # Written to by who sends, read by the thread that waits: made when it starts.
        self._ears: tuple[socket.socket, socket.socket] | None = None
        self._is_awake = False
        self._said = False
        self._stopping = False
        self._checked_at = 0.0
        self._thread = threading.Thread(target=self._run, name="berth-dispatcher", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        ear, mouth = socket.socketpair()
        for end in (ear, mouth):
            end.settimeout(0)
        self._selector.register(ear, selectors.EVENT_READ)
        self._ears = (ear, mouth)
        self._thread.start()

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """Send what waits, wait for the answers, and end."""
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
        """Send a request once nothing more urgent is under way, or is late itself; False when too many wait already."""
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
                return  # It has plenty to wake up by.

    def _run(self) -> None:
        while not (self._stopping and not self._waiting and not self._later and not self._busy):
            try:
                self._turn()
            except Exception:
                # The last guard of a thread that must not end.
                logger.exception("the dispatcher broke off")
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
                # In this order, and before requests are looked for: one that comes meanwhile is found, or wakes again.
                self._listen()
                self._is_awake = False
            else:
                self._read(key.data)
        now = time.monotonic()
        if now - self._checked_at > _CHECK_SECONDS:
            self._checked_at = now
            # A list first: dropping one changes the set.
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
        """Return a free connection, or make one; None while all are busy. What can't be sent at all is given back unanswered."""
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
        """Log once that nothing can ever be sent as things are set; that the API server is away the watches log."""
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
            if connection.is_free_again():
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
        """Close a connection; what was sent on it stays unanswered."""
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
            logger.exception("what follows from an answer broke off")
