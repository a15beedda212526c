"""One client's connection: the data received, and the answer still to be sent. Nothing in this module blocks.

`go_on` does what is possible without blocking and returns what to wait for. So the server's loop, which waits for all
connections, and a thread that stays with the one it has just answered, both use it.
"""

import contextlib
import errno
import ipaddress
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from email.utils import formatdate
from enum import IntEnum
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

from scheduler.http_server.body import Body, Chunks, put
from scheduler.http_server.head import END, HeadLimits, RefusedError, parse, refuse_unfinished

# The time limit of a handshake, and of a request's head from its first byte on.
HEAD_SECONDS = 5.0
# The time limit of a request's body, and of an answer, or of each piece of a streamed answer. kube-scheduler itself gives up after
# its httpTimeout, 5 s at most by default.
BODY_SECONDS = 20.0
# The time for the client to close after the last answer.
LINGER_SECONDS = 2.0
# Key of the WSGI environ: the Connection that a request came on.
CONNECTION = "berth.connection"
# Key of the WSGI environ that an application sets when it answers an account's request.
OF_AN_ACCOUNT = "berth.of_an_account"

_AT_ONCE = 1 << 14
# Steps of reading a body before another connection's turn.
_STEPS = 8
# Pieces for one sendmsg; Linux accepts 1024.
_MOST_PIECES = 1000
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)
_ENDED = {errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH}


class Wants(IntEnum):
    """What a connection waits for; the first two are the selector's own values."""

    END = 0
    READ = 1
    WRITE = 2
    ANSWER = 4


def _error_of(status: int, reason: str) -> tuple[str, bytes]:
    """Return the content type and the body of a refusal, in kube-scheduler's form."""
    del status
    return "application/json", b'{"Error":"%s"}' % reason.encode()


class Listener(NamedTuple):
    """A listening socket, and what is served on it.

    Attributes:
        tls: returns the context for the next handshake; None for a plain listener.
        body: makes a request's Body from its environ and its length; raises RefusedError if the body isn't accepted.
        environ: is merged into the environ of each request.
        may_be_known: whether callers that were answered have priority over others.
        is_call: returns whether the answer to a request, by its environ, makes its client known.
        keepalive_seconds: how long a connection may be silent between requests.
        refusal: returns the content type and the body of the server's own refusal, from its status and its reason.
    """

    socket: socket.socket
    body: Callable[[dict[str, Any], int | None], Body]
    limits: HeadLimits
    environ: dict[str, Any]
    tls: Callable[[], ssl.SSLContext] | None = None
    may_be_known: bool = True
    is_call: Callable[[dict[str, Any]], bool] = lambda environ: environ["REQUEST_METHOD"] == "POST"
    keepalive_seconds: float = 120.0
    refusal: Callable[[int, str], tuple[str, bytes]] = _error_of


class Connection:
    """A connection. One thread at a time works with it.

    Attributes:
        deadline: when its next step has to be done, by `time.monotonic`.
        origin: its client's address or network, with the listener.
        is_known: whether its last request was a call that was answered successfully.
        is_new: whether none of its requests was answered yet.
        is_regular: whether its last two requests were calls that were answered successfully.
        spent_seconds: the loop's time spent on it while its client was a stranger.
        kept: data that the application keeps for the connection's lifetime.
        more: makes the rest of the answer that is being sent; None if there is no more.
        refused: why the client was refused or disconnected, for the metrics; "" if it wasn't.
    """

    def __init__(self, sock: socket.socket, address: Any, listener: Listener) -> None:
        sock.settimeout(0)
        self.sock = sock
        self.fd = sock.fileno()
        self.address = address
        self.origin = _origin(address, listener)
        self.listener = listener
        self.is_known, self.is_new, self.is_regular = False, True, False
        self.spent_seconds = 0.0
        self.environ: dict[str, Any] = {}
        self.kept: dict[str, Any] = {}
        self.more: Iterator[bytes] | None = None
        self.refused = ""
        self._buffer = b""
        # The bytes already searched for the end of a head: to search 64 KiB again for each received byte costs 0.1 ms.
        self._looked_through = 0
        self._body: Body | None = None
        self._chunks: Chunks | None = None
        self._left = 0
        self._pieces: Sequence[bytes] = ()
        self._on_end: Callable[[], object] | None = None
        self._sent = 0
        self._rest = memoryview(b"")
        self._keeps_open = True
        self._poll: select.poll | None = None
        self._state: Callable[[], Wants | None] = self._begin_tls if listener.tls else self._read_head
        self.deadline = time.monotonic() + (HEAD_SECONDS if listener.tls else listener.keepalive_seconds)

    @property
    def is_idle(self) -> bool:
        """Whether the client has sent nothing since its last answer."""
        return self._state == self._read_head and not self._buffer

    @property
    def has_begun(self) -> bool:
        """Whether part of a handshake or of a request has arrived."""
        return not self.is_idle and self._state != self._begin_tls

    def go_on(self) -> Wants:
        """Read and write without blocking. Return what to wait for."""
        try:
            while (wants := self._state()) is None:
                pass
        except BlockingIOError:
            return Wants.WRITE if self._state == self._send else Wants.READ
        except ssl.SSLWantReadError:
            return Wants.READ
        except ssl.SSLWantWriteError:
            return Wants.WRITE
        except RefusedError as refusal:
            self.refuse(refusal.status, refusal.reason)
            return self.go_on()
        except ssl.SSLError as error:
            if self._state != self._shake_hands or isinstance(error, ssl.SSLEOFError):
                return Wants.END  # a client that only checked whether the port is open
            self.refused = f"tls: {_tls_reason(error)}"
            self._begin_to_linger()
            return self.go_on()
        except OSError as error:
            if error.errno not in _ENDED:
                raise
            return Wants.END
        return wants

    def is_there_within(self, seconds: float, wants: Wants) -> bool:
        """Wait until the socket is ready, at most this long; returns whether it is, or the connection ended."""
        if self._poll is None:
            self._poll = select.poll()
        self._poll.register(self.fd, select.POLLIN if wants is Wants.READ else select.POLLOUT)
        return bool(self._poll.poll(seconds * 1000))

    # TLS

    def _begin_tls(self) -> Wants | None:
        # Not before the client has sent something: a silent client costs nothing.
        assert self.listener.tls is not None  # noqa: S101 - what brought us here
        if not self.sock.recv(1, socket.MSG_PEEK):
            return Wants.END
        self.sock = self.listener.tls().wrap_socket(self.sock, server_side=True, do_handshake_on_connect=False)
        self.deadline = time.monotonic() + HEAD_SECONDS
        self._state = self._shake_hands
        return None

    def _shake_hands(self) -> None:
        assert isinstance(self.sock, ssl.SSLSocket)  # noqa: S101 - what brought us here
        self.sock.do_handshake()
        # A client may complete the handshake long before its first request.
        self.deadline = time.monotonic() + self.listener.keepalive_seconds
        self._state = self._read_head

    # Requests

    def _read_head(self) -> Wants | None:
        while (end := self._buffer.find(END, self._looked_through)) < 0:
            refuse_unfinished(self._buffer, self.listener.limits)
            self._looked_through = max(0, len(self._buffer) - len(END) + 1)
            came = self.sock.recv(_AT_ONCE)
            if not came:
                return Wants.END
            if not self._buffer:
                self.deadline = time.monotonic() + HEAD_SECONDS
            self._buffer += came
        head = parse(self._buffer[:end], self.listener.limits)
        self._buffer, self._looked_through = self._buffer[end + len(END) :], 0
        self._keeps_open = head.keeps_open
        self.environ = {
            **head.environ,
            **self.listener.environ,
            "REMOTE_ADDR": self.address[0],
            "REMOTE_PORT": str(self.address[1]),
            CONNECTION: self,
        }
        self._body = self.listener.body(self.environ, head.length)
        self._chunks = Chunks() if head.length is None else None
        self._left = head.length or 0
        self.deadline = time.monotonic() + BODY_SECONDS
        self._state = self._read_body if self._chunks is None else self._read_chunks
        if head.waits and not self._buffer:
            with contextlib.suppress(BlockingIOError, ssl.SSLWantWriteError):
                self.sock.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        return None

    def _read_body(self) -> Wants | None:
        assert self._body is not None  # noqa: S101 - what brought us here
        if self._buffer and self._left:
            came, self._buffer = self._buffer[: self._left], self._buffer[self._left :]
            self._left -= len(came)
            put(came, self._body)
        for _ in range(_STEPS):
            if not self._left:
                return self._end_body(self._body)
            with self._body.space() as space, space[: self._left] as allowed:
                size = self.sock.recv_into(allowed)
            if not size:
                return Wants.END
            self._left -= size
            self._body.filled(size)
        if not self._left:  # the last step read the rest: no further data would wake the loop
            return self._end_body(self._body)
        # A selector doesn't see data that TLS has decrypted already.
        return None if isinstance(self.sock, ssl.SSLSocket) and self.sock.pending() else Wants.READ

    def _read_chunks(self) -> Wants | None:
        assert self._body is not None  # noqa: S101 - what brought us here
        assert self._chunks is not None  # noqa: S101 - what brought us here
        came, self._buffer = self._buffer or self.sock.recv(_AT_ONCE), b""
        if not came:
            return Wants.END
        if self._chunks.take(came, self._body):
            self._buffer = self._chunks.rest
            return self._end_body(self._body)
        return None if isinstance(self.sock, ssl.SSLSocket) and self.sock.pending() else Wants.READ

    def _end_body(self, body: Body) -> Wants:
        body.end(self.environ)
        self._state = self._wait_for_answer
        return Wants.ANSWER

    def _wait_for_answer(self) -> Wants:
        return Wants.ANSWER

    # Answers

    def note(self, *, is_good: bool) -> None:
        """Note whether the application answered successfully. Only calls make a client known."""
        self.is_new = False
        was_known = self.is_known
        is_call = self.listener.may_be_known and self.listener.is_call(self.environ)
        # A page's own files are nobody's call; a client stays known while it gets them.
        self.is_known = is_good and (is_call or (was_known and self.environ["REQUEST_METHOD"] == "GET"))
        self.is_regular = was_known and self.is_known

    def answer(
        self,
        status: str,
        fields: Sequence[tuple[str, str]],
        pieces: Sequence[bytes],
        *,
        is_last: bool,
        on_end: Callable[[], object] | None = None,
        more: Iterator[bytes] | None = None,
    ) -> None:
        """Prepare an answer to be sent; the connection stays open after it, unless it is the last.

        Args:
            status: its status code and reason phrase.
            fields: its header fields. They include its length if there is `more`.
            pieces: its body.
            is_last: whether this is the connection's last answer.
            on_end: called once, when everything is sent or the connection is closed, in the thread that does it.
            more: makes further pieces, each when the one before is sent. Such an answer is the last.
        """
        self._forget_body()
        self._keeps_open = self._keeps_open and not is_last and more is None
        has_length = any(name == "Content-Length" for name, _ in fields)
        head = "".join(
            [
                f"HTTP/1.1 {status}\r\nConnection: {'keep-alive' if self._keeps_open else 'close'}\r\n",
                f"Date: {_date(int(time.time()))}\r\n",
                *(f"{name}: {text}\r\n" for name, text in fields),
                "\r\n" if has_length else f"Content-Length: {sum(map(len, pieces))}\r\n\r\n",
            ]
        )
        is_head = self.environ.get("REQUEST_METHOD") == "HEAD"
        # The head is sent together with the body: on its own, it would wake the client for half an answer.
        self._pieces = [head.encode("latin-1"), *(() if is_head else pieces)]
        self._sent, self._rest = 0, memoryview(b"")
        self.environ = {}
        self.deadline = time.monotonic() + BODY_SECONDS
        self._state = self._send
        self._on_end = on_end
        self.more = None if is_head else more

    def answer_more(self) -> None:
        """Prepare the next piece of a streamed answer. An exception raised here has to end the connection."""
        assert self.more is not None  # noqa: S101 - what brought us here
        self._pieces = [piece] if (piece := next(self.more, None)) is not None else ()
        if not self._pieces:
            self.more = None
        self._sent = 0
        self.deadline = time.monotonic() + BODY_SECONDS
        self._state = self._send

    def refuse(self, status: int, reason: str) -> None:
        """Prepare a refusal as the last answer. Its text is constant: it repeats nothing from the request."""
        self.refused = {408: "slow", 503: "crowded", 500: "failed"}.get(status, "malformed")
        self.is_known = False
        content_type, body = self.listener.refusal(status, reason)
        self.answer(f"{status} {reason}", [("Content-Type", content_type)], [body], is_last=True)

    def _send(self) -> Wants | None:
        while self._rest or self._sent < len(self._pieces):
            self._send_some()
        self._pieces = ()
        if self.more is not None:
            self._state = self._wait_for_answer
            return None
        self._end_answer()
        if self._keeps_open:
            self.deadline = time.monotonic() + (HEAD_SECONDS if self._buffer else self.listener.keepalive_seconds)
            self._state = self._read_head
        else:
            self._begin_to_linger()
        return None

    def _send_some(self) -> None:
        group = self._pieces[self._sent : self._sent + _MOST_PIECES]
        if isinstance(self.sock, ssl.SSLSocket):
            # TLS has no vectored write: each piece would become a record of its own.
            if not self._rest:
                self._rest = memoryview(b"".join(group))
                self._sent += len(group)
            self._rest = self._rest[self.sock.send(self._rest) :]
            return
        sent = self.sock.sendmsg([self._rest, *group] if self._rest else group)
        if sent < len(self._rest):
            self._rest = self._rest[sent:]
            return
        sent -= len(self._rest)
        self._rest = memoryview(b"")
        for end in accumulate(map(len, group)):
            if end > sent:
                piece = self._pieces[self._sent]
                self._rest = memoryview(piece)[len(piece) - (end - sent) :]
                self._sent += 1
                return
            self._sent += 1

    def _begin_to_linger(self) -> None:
        self.deadline = time.monotonic() + LINGER_SECONDS
        self._state = self._linger
        with contextlib.suppress(OSError):
            if isinstance(self.sock, ssl.SSLSocket):
                self.sock.unwrap()
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.sock, socket.SHUT_WR)

    def _linger(self) -> Wants:
        """Read and discard incoming data: a client that is writing when its connection is closed may not see the last answer."""
        for _ in range(_STEPS):
            if not socket.socket.recv(self.sock, _AT_ONCE):
                return Wants.END
        return Wants.READ

    # The end

    def expire(self) -> None:
        """Prepare an answer that the time is up, if the client waits for one; otherwise send nothing."""
        begun = self._state in {self._read_body, self._read_chunks} or (self._state == self._read_head and self._buffer)
        if begun:
            self.refuse(408, "Request Timeout")
        elif not self.is_idle and self._state != self._linger:
            self.refused = "slow"

    @property
    def has_expired(self) -> bool:
        """Whether to close the connection now: its time is up, and the client expects no answer."""
        return self.deadline <= time.monotonic()

    def close(self, *, at_once: bool = False) -> None:
        """Close the connection; `at_once` resets it, so that it leaves no TIME_WAIT in the kernel for a minute."""
        self._forget_body()
        with contextlib.suppress(OSError):
            if at_once:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            self.sock.close()
        self._end_answer()

    def _end_answer(self) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()

    def _forget_body(self) -> None:
        if self._body is not None:
            self._body.close()
            self._body = self._chunks = None


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    """Return a second as an HTTP date; all answers of one second share it."""
    return formatdate(second, usegmt=True)


def network_of(host: str) -> str:
    """Return the network that counts as one address: the /64 for IPv6, because one machine can use all of its addresses.

    A dual-stack listener shows all IPv4 addresses in one /64 (::ffff:192.0.2.1): each counts as its IPv4 address.
    """
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))


def _origin(address: Any, listener: Listener) -> str:
    """Return the network that counts as one address, with the listener."""
    return f"{network_of(str(address[0]))} {listener.environ['SERVER_PORT']}"


def _tls_reason(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason, which is a constant: it repeats nothing from a certificate."""
    return getattr(error, "verify_message", "") or (error.reason or "unknown reason").lower().replace("_", " ")
