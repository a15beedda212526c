"""gunicorn's threaded worker, hardened for the extender: TLS by listener, slow clients bounded, stops that fail no call.

What differs from `gunicorn.workers.gthread` (27.0):

- A thread stays with a connection that it has answered for a moment, and a head that was sent before isn't parsed again.
- A new connection waits for its first byte without a thread; gunicorn gives it one for five seconds.
- A handshake, a head, a body and an answer each have a time to be done in. When most threads are busy, those that have
  waited longest for their clients are cut off.
- A body is read to its end before a call is one of the few that are answered at once: a slow client takes no such place.
- When told to stop, the worker first accepts what waits in the listeners and closes them, and then says
  `Connection: close`: a client that connects again finds the next process, never a listener that nobody serves. Idle
  connections are closed last: a request that is on its way when one is closed is lost.
- A worker of a new master (SIGUSR2) accepts when it is ready, and then ends the old master.
- No line of the log and no answer repeats anything that a client sent.
"""

import contextlib
import errno
import math
import os
import select
import selectors
import signal
import socket
import ssl
import threading
import time
import traceback
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings
from gunicorn import sock as gunicorn_sock
from gunicorn import util
from gunicorn.http import errors, wsgi
from gunicorn.http.body import LengthReader
from gunicorn.http.unreader import SocketUnreader
from gunicorn.workers.gthread import _DEFER, STOP_KEEPALIVE_LINGER, TConn, ThreadWorker

from scheduler.extender.identity import ONLY_PROBES, caller_of
from scheduler.extender.request.body_limit import BODY, BodyBudget, CrowdedError
from scheduler.extender.request.wire import encode_error, reading
from scheduler.extender.server.head_parser import HeadParser, PlainResponse
from scheduler.extender.server.listeners import is_shared, refuse_beginnings
from scheduler.extender.server.sending import send_pieces
from scheduler.metrics import CONNECTIONS_REFUSED

# For a handshake, and for a request's head.
HEAD_SECONDS = 5.0
# For a request's body, and for an answer. kube-scheduler itself gives up after its httpTimeout, 5 s at most by default.
BODY_SECONDS = 20.0
# How long a client may keep a thread waiting while others want one.
PATIENCE_SECONDS = 0.5
# More than there are cores: a call that binds waits for the API server most of the time.
CALLS_AT_ONCE = 32
# How long a thread stays with a connection that it has answered: kube-scheduler's next call comes within a few ms.
STAY_SECONDS = 0.02
# With more connections in threads, none stays.
STAYING_AT_ONCE = 32
# That one thread answers. Where processors are short, the kernel makes a thread wait that has worked much.
CALLS_IN_A_ROW = 16
# So many bodies of the largest size fit into memory together.
BODIES_AT_ONCE = 4
SPARE_CONNECTIONS = 16
# How long TCP handshakes that have begun get to be finished, when the listeners are to be closed.
HANDSHAKE_SECONDS = 0.1
# For calls in hand when the worker is told to stop.
GRACE_SECONDS = 8
# How long a new master's worker waits to be ready before it takes over all the same.
READY_SECONDS = 60.0

_OF_THE_MOMENT = {errno.EAGAIN, errno.EWOULDBLOCK, errno.ECONNABORTED}
_NO_DESCRIPTOR = {errno.EMFILE, errno.ENFILE}
_GONE = {errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.EBADF}
_STATUS = {
    errors.LimitRequestLine: (414, "URI Too Long"),
    errors.LimitRequestHeaders: (431, "Request Header Fields Too Large"),
    errors.UnsupportedTransferCoding: (501, "Not Implemented"),
    errors.ExpectationFailed: (417, "Expectation Failed"),
}


class Connection(TConn):  # type: ignore[misc]  # gunicorn has no types
    """A client's connection, with the time until which its next step must be done."""

    sock: socket.socket

    def __init__(self, *arguments: Any, only_probes: bool) -> None:
        super().__init__(*arguments)
        self.only_probes = only_probes
        self.tls = self.cfg.is_ssl and not only_probes
        self.deadline = math.inf
        # Since when a thread has been waiting for the client; infinite while none is.
        self.waits_since = math.inf
        # Whether a part of an answer may be on its way.
        self.answering = False

    def init(self) -> None:
        """Make the handshake, and get ready to read requests."""
        self.initialized = True
        if self.tls:
            # From here on `sock` is the TLS connection: the plain one has given its descriptor away.
            tls: ssl.SSLSocket = gunicorn_sock.ssl_wrap_socket(self.sock, self.cfg)
            self.sock = tls
            tls.settimeout(self.seconds_left())
            tls.do_handshake()
        self.parser = HeadParser(self.cfg, self.sock, self.client)
        self.parser.unreader = _BoundedReader(self)
        self._poll = select.poll()
        self._poll.register(self.sock, select.POLLIN)

    def speaks_within(self, seconds: float) -> bool:
        """Wait for the client's next word, at most so long; tell whether it came, or the connection ended."""
        return bool(self._poll.poll(seconds * 1000))

    def give(self, seconds: float) -> None:
        """Set the time for the next step."""
        self.deadline = time.monotonic() + seconds

    def seconds_left(self) -> float:
        """Return the seconds until the deadline.

        Raises:
            TimeoutError: it has passed.
        """
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def cut_off(self) -> None:
        """End the connection from another thread: the one that waits for the client sees its end."""
        self.waits_since = math.inf
        # The thread may be closing it, or wrapping it into TLS, this moment. An SSLSocket's own shutdown would take
        # the TLS state away under the thread's feet.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)

    def linger(self) -> None:
        """End the connection so that the client can read the last answer. Takes until the client closes, 2 s at most.

        Done in the request's thread. gunicorn does it in the loop, which every such client would hold up.
        """
        self.waits_since = time.monotonic()
        util.close_graceful(self.sock)

    def close(self, graceful: bool = False) -> None:  # noqa: FBT001, FBT002 - gunicorn's
        """Close. It has lingered already, and may be closed: closing twice must not count twice."""
        del graceful
        util.close(self.sock)


class _BoundedReader(SocketUnreader):  # type: ignore[misc]  # gunicorn has no types
    """WatchedKinds as long as the connection has time."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection.sock)
        self._connection = connection

    def chunk(self, size_hint: int | None = None) -> bytes:
        """Read what there is."""
        self.sock.settimeout(self._connection.seconds_left())
        return bytes(super().chunk(size_hint))


class _Incoming:
    """A request's body, read from the socket straight into the memory where it belongs.

    gunicorn's own way copies it four times, which for megabytes takes longer than all else. A body in chunks goes it.
    """

    def __init__(self, connection: Connection, request: Any) -> None:
        self._connection = connection
        self._request = request
        self._reader = request.body.reader if isinstance(request.body.reader, LengthReader) else None
        # What was read together with the head.
        self._ahead = memoryview(b"")
        self.size: int = self._reader.length if self._reader else 0
        if self._reader:
            ahead = request.unreader.take_buffered()
            self._ahead = memoryview(ahead[: self.size])
            if len(ahead) > self.size:
                request.unreader.unread(ahead[self.size :])

    def readinto(self, space: memoryview, /) -> int:
        """Put bytes into the space; returns how many, 0 at the end."""
        if self._reader is None:
            found: bytes = self._request.body.read(len(space))
            space[: len(found)] = found
            return len(found)
        size: int = min(len(space), self._reader.length)
        if not size:
            return 0
        if self._ahead:
            size = min(size, len(self._ahead))
            space[:size] = self._ahead[:size]
            self._ahead = self._ahead[size:]
        else:
            self._connection.sock.settimeout(self._connection.seconds_left())
            size = self._connection.sock.recv_into(space, size)
        self._reader.length -= size
        return size


class ExtenderWorker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """One process of the extender."""

    sockets: list[Any]
    _accepting: bool

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._told_to_stop = False
        self._busy: dict[Connection, None] = {}
        self._calls = threading.BoundedSemaphore(CALLS_AT_ONCE)
        self._max_body_bytes = settings.BERTH.extender_max_body_bytes
        self._room = BodyBudget(BODIES_AT_ONCE * self._max_body_bytes)
        self._probes_port = settings.BERTH.extender_health_bind.rpartition(":")[2]
        self._next_line_at = 0.0

    # Starting and stopping

    def run(self) -> None:
        """Serve until told to stop."""
        if predecessor := _predecessor(self.ppid):
            self._wait_until_ready()
            if not self._told_to_stop:
                self.log.info("ready; the former master is asked to end: %s", predecessor)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(predecessor, signal.SIGTERM)
        # The master's own limit is longer: what is left of it is for shipping Decisions.
        self.cfg.set("graceful_timeout", GRACE_SECONDS)
        super().run()
        # The interpreter waits for threads before it lets the runtime ship what it holds.
        for connection in list(self._busy):
            connection.cut_off()

    def _wait_until_ready(self) -> None:
        from scheduler.extender.urls import runtime  # can't be loaded before Django

        deadline = time.monotonic() + READY_SECONDS
        while not self._told_to_stop and runtime.unready() and time.monotonic() < deadline:
            self.notify()
            time.sleep(0.05)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Begin to stop (SIGTERM)."""
        del sig, frame
        if not self._told_to_stop:
            self._told_to_stop = True
            self.method_queue.defer(self._stop_listening)

    def _stop_listening(self) -> None:
        if self._accepting:
            for listener in self.sockets:
                self.poller.unregister(listener)
        if not is_shared(self.ppid):
            for listener in self.sockets:
                refuse_beginnings(listener.sock)
            time.sleep(HANDSHAKE_SECONDS)
            for listener in self.sockets:
                while self._accept_one(listener):
                    pass
        for listener in self.sockets:
            listener.close()
        self.sockets = []
        self._accepting = False
        self.alive = False

    def murder_keepalived(self, force: bool = False) -> None:  # noqa: FBT001, FBT002 - gunicorn's
        """Close connections that were idle for long, but none on which a request has just come."""
        self._take_what_has_come()
        super().murder_keepalived(force)

    def murder_pending(self) -> None:
        """Close connections that have been silent for long, but none on which a request has just come."""
        self._take_what_has_come()
        super().murder_pending()

    def _take_what_has_come(self) -> None:
        now = time.monotonic()
        if any(idle and idle[0].timeout <= now for idle in (self.keepalived_conns, self.pending_conns)):
            self.wait_for_and_dispatch_events(0)

    def _cap_keepalive(self, deadline: float) -> None:
        # gunicorn closes them after 2 s. But a client may be sending a request on one right then, which is lost. So they
        # stay for as long as calls in hand may take: one in use is told to close by its next answer.
        deadline += GRACE_SECONDS - STOP_KEEPALIVE_LINGER
        super()._cap_keepalive(deadline)
        for connection in self.pending_conns:
            connection.timeout = min(connection.timeout, deadline)

    # Connections

    def accept(self, listener: Any) -> None:
        """Take a new connection."""
        self._accept_one(listener)

    def _accept_one(self, listener: Any) -> bool:
        try:
            client, address = listener.accept()
        except OSError as error:
            if error.errno in _NO_DESCRIPTOR:
                self._end_an_idle_one()
            elif error.errno not in _OF_THE_MOMENT:
                raise
            return False
        self.nr_conns += 1
        own_address = listener.getsockname()
        only_probes = str(own_address[1]) == self._probes_port
        self._park(Connection(self.cfg, client, address, own_address, only_probes=only_probes))
        if self.nr_conns > self.worker_connections - SPARE_CONNECTIONS:
            self._end_an_idle_one()
        return True

    def _park(self, connection: Connection) -> None:
        """Let a connection wait for its first byte, without a thread."""
        connection.sock.settimeout(0)
        connection.set_timeout()
        self.pending_conns.append(connection)
        on_readable = partial(self.on_pending_socket_readable, connection)
        self.poller.register(connection.sock, selectors.EVENT_READ, on_readable)

    def _end_an_idle_one(self) -> None:
        """Make room: close who has been connected longest without a word, else who has been silent longest."""
        for idle in (self.pending_conns, self.keepalived_conns):
            if idle:
                connection = idle.popleft()
                self.poller.unregister(connection.sock)
                self.nr_conns -= 1
                connection.close()
                CONNECTIONS_REFUSED.labels("crowded").inc()
                return

    def enqueue_req(self, conn: Connection) -> None:
        """Hand a connection that has something to say to a thread."""
        self._busy[conn] = None
        self._cut_off_who_keeps_threads()
        super().enqueue_req(conn)

    def finish_request(self, conn: Connection, fs: Future[Any]) -> None:
        """Take a connection back from its thread."""
        self._busy.pop(conn, None)
        super().finish_request(conn, fs)
        if not self.alive and self.keepalived_conns and self.keepalived_conns[-1] is conn:
            # A thread stayed with it when the stop came: it gets as long as the others, see `_cap_keepalive`.
            conn.timeout = time.monotonic() + GRACE_SECONDS

    def notify(self) -> None:
        """Called every second at least: say that the worker lives."""
        super().notify()
        self._cut_off_who_keeps_threads()

    def _cut_off_who_keeps_threads(self) -> None:
        if len(self._busy) < self.cfg.threads - CALLS_AT_ONCE:
            return
        since = time.monotonic() - PATIENCE_SECONDS
        for connection in [found for found in self._busy if found.waits_since < since]:
            connection.cut_off()
            CONNECTIONS_REFUSED.labels("slow").inc()

    # Requests, in a thread

    def handle(self, conn: Connection) -> Any:
        """Answer the requests that follow closely on one another; returns whether the connection can be used again."""
        for _ in range(CALLS_IN_A_ROW):
            usable = self._handle_one(conn)
            if usable is not True or not self._is_worth_waiting() or not conn.speaks_within(STAY_SECONDS):
                break
        return usable

    def _is_worth_waiting(self) -> bool:
        return self.alive and len(self._busy) <= STAYING_AT_ONCE

    def _handle_one(self, conn: Connection) -> Any:
        conn.give(HEAD_SECONDS)
        conn.waits_since = time.monotonic()
        conn.answering = False
        usable: Any = False
        try:
            conn.sock.settimeout(None)
            if not conn.initialized:
                conn.init()
                if conn.tls:
                    # A client may shake hands ahead of its first request: it waits without a thread.
                    usable = _DEFER
                    return usable
            request = next(conn.parser)
            usable = bool(request) and self._keepalive_after(conn, self.handle_request(request, conn))
        except (errors.NoMoreData, StopIteration):
            pass  # the client has closed
        except Exception as error:  # noqa: BLE001 - each is told apart, counted and logged there
            self._fail(conn, error)
        finally:
            if not usable:
                conn.linger()
            conn.waits_since = math.inf
        return usable

    def handle_request(self, req: Any, conn: Connection) -> bool:
        """Answer a request; returns whether the connection can be used again."""
        response, environ = self._begin(req, conn)
        conn.give(BODY_SECONDS)
        incoming = _Incoming(conn, req)
        may_call = not conn.only_probes and caller_of(environ) is not None and incoming.size <= self._max_body_bytes
        coming = reading(incoming.size if may_call else 0)
        with self._room.body(incoming, coming, limit_bytes=self._max_body_bytes, keep=may_call) as body:
            environ[BODY] = body
            conn.waits_since = math.inf
            with self._calls:
                answer = self.wsgi(environ, response.start_response)
        # Asked now and not before: the listeners may have been closed meanwhile.
        if not self.alive or len(self.keepalived_conns) >= self.max_keepalived:
            response.force_close()
        self._write(conn, response, answer)
        return not response.should_close()

    def _begin(self, req: Any, conn: Connection) -> tuple[Any, dict[str, Any]]:
        """Return the response to be written, and the WSGI environ: made anew, or as it was for the same head."""
        if conn.parser.environ is None:
            response, environ = wsgi.create(req, conn.sock, conn.client, conn.server, self.cfg)
            environ["wsgi.multithread"] = True
            environ[ONLY_PROBES] = conn.only_probes
            if not conn.only_probes:
                conn.parser.remember(environ)
            return response, environ
        environ = {**conn.parser.environ, "wsgi.input": req.body, "CONTENT_LENGTH": str(req.body.reader.length)}
        return PlainResponse(req), environ

    def _write(self, conn: Connection, response: Any, answer: Any) -> None:
        conn.answering = True
        conn.waits_since = time.monotonic()
        conn.sock.settimeout(BODY_SECONDS)
        try:
            pieces = list(answer)
            if response.chunked:
                response.chunked = False
                response.headers.append(("Content-Length", str(sum(map(len, pieces)))))
            # The head goes with the body: sent on its own, it costs the client a look at half an answer.
            head = "".join([*response.default_headers(), *(f"{name}: {text}\r\n" for name, text in response.headers)])
            send_pieces(
                conn.sock, [f"{head}\r\n".encode("latin-1"), *([] if response.req.method == "HEAD" else pieces)]
            )
        finally:
            if hasattr(answer, "close"):
                answer.close()

    # Failures

    def _fail(self, conn: Connection, error: Exception) -> None:
        """Count and log a connection that can't go on, and tell its client where that makes sense."""
        status: tuple[int, str] | None = None
        if isinstance(error, TimeoutError):
            reason, status = "slow", (408, "Request Timeout")
        elif isinstance(error, ssl.SSLEOFError):
            return  # somebody looked whether the port is open
        elif isinstance(error, ssl.SSLError):
            reason = "tls"
            self._say("a TLS handshake from %s failed: %s", conn, _tls_reason(error))
        elif isinstance(error, OSError) and error.errno in _GONE:
            return
        elif isinstance(error, CrowdedError):
            reason, status = "crowded", (503, "Service Unavailable")
        elif isinstance(error, errors.ParseException):
            reason, status = "malformed", _STATUS.get(type(error), (400, "Bad Request"))
            self._say("a request from %s is not HTTP as it should be: %s", conn, type(error).__name__)
        else:
            reason, status = "failed", (500, "Internal Server Error")
            # The error's text may quote the request; where it happened says enough.
            where = "".join(traceback.format_tb(error.__traceback__))
            self.log.error("a request failed: %s\n%s", type(error).__name__, where)
        CONNECTIONS_REFUSED.labels(reason).inc()
        if status and conn.parser is not None and not conn.answering:
            self._tell(conn, *status)

    def _say(self, text: str, conn: Connection, reason: str) -> None:
        """Log what any client can cause: a line a second at most."""
        now = time.monotonic()
        if now >= self._next_line_at:
            self._next_line_at = now + 1
            self.log.warning(text, conn.client[0], reason)

    def _tell(self, conn: Connection, status: int, reason: str) -> None:
        body = encode_error(reason)
        head = (
            f"HTTP/1.1 {status} {reason}\r\nConnection: close\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        with contextlib.suppress(OSError):
            conn.sock.settimeout(PATIENCE_SECONDS)
            conn.sock.sendall(head.encode() + body)


def _tls_reason(error: ssl.SSLError) -> str:
    """Return OpenSSL's words, which are constants: nothing of a certificate is in them."""
    return getattr(error, "verify_message", "") or (error.reason or "unknown reason").lower().replace("_", " ")


def _predecessor(master: int) -> int:
    """Return the old master's pid when `master` was started by it (SIGUSR2), else 0. gunicorn says so by GUNICORN_PID."""
    former = os.environ.get("GUNICORN_PID", "")
    try:
        stat = Path(f"/proc/{master}/stat").read_text(encoding="utf-8")
    except OSError:
        return 0
    parent = stat.rpartition(")")[2].split()[1]
    return int(parent) if parent == former else 0
