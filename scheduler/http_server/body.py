"""Reads a request's body: where its bytes go, how many are allowed, and how a chunked body is decoded."""

import io
import threading
from contextlib import AbstractContextManager
from typing import Any, Protocol

import h11

from scheduler.http_server.head import END, RefusedError

# The limit of a chunk's size line, and of the trailer section.
_MOST_CHUNK_LINE = 1024
_WINDOW = 1 << 16
# Large bodies leave one eighth of the budget to small ones. A small body takes at most 1/512 of that: a server has as many
# connections.
_SMALL_SHARE, _SMALL_BODIES = 8, 512
# Chunks that a body may have of any size, and the least bytes of each further chunk: it takes 5 µs to find a chunk.
_MOST_SMALL_CHUNKS, _LEAST_CHUNK = 256, 32
_CHUNKED_HEAD = b"POST / HTTP/1.1\r\nHost: any\r\nTransfer-Encoding: chunked\r\n\r\n"


class Sink(Protocol):
    """Receives bytes."""

    def space(self) -> AbstractContextManager[memoryview]:
        """Return memory for the next bytes. It is released before `filled` is called."""

    def filled(self, size: int) -> None:
        """Process this many bytes that were put into the space.

        Raises:
            RefusedError: there are too many bytes.
        """


class Body(Sink, Protocol):
    """Receives the bytes of one body."""

    def end(self, environ: dict[str, Any]) -> None:
        """Put the body into the environ."""

    def close(self) -> None:
        """Drop the body: the request was answered, or its connection has ended."""


class Budget:
    """The bytes that all bodies together may take while they are in memory."""

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._for_small = most_bytes // _SMALL_SHARE
        self._lock = threading.Lock()

    def take(self, size: int, *, leave: int = 0) -> None:
        """Reserve bytes, but none of the last `leave` bytes, which are for others.

        Raises:
            RefusedError: fewer bytes are left.
        """
        with self._lock:
            if size > self._left - leave:
                raise RefusedError(503, "Service Unavailable")
            self._left -= size

    def for_small(self, size: int) -> int:
        """Return the bytes that a body of this size leaves to small bodies; 0 if it is small itself."""
        return self._for_small if size > self._for_small // _SMALL_BODIES else 0

    def give(self, size: int) -> None:
        """Release bytes."""
        with self._lock:
            self._left += size


class WholeBody:
    """Keeps a body in memory, up to a limit.

    Raises:
        RefusedError: the declared length is over the limit.
    """

    def __init__(self, budget: Budget, length: int | None, *, most: int) -> None:
        if (length or 0) > most:
            raise RefusedError(413, "Content Too Large")
        self._budget, self._most = budget, most
        self._body = bytearray()
        self._window = bytearray(_WINDOW if length is None else min(length, _WINDOW))

    def space(self) -> memoryview:
        """Return memory for the next bytes."""
        return memoryview(self._window)

    def filled(self, size: int) -> None:
        """Process this many bytes."""
        if len(self._body) + size > self._most:
            raise RefusedError(413, "Content Too Large")
        self._budget.take(size, leave=self._budget.for_small(len(self._body) + size))
        self._body += memoryview(self._window)[:size]

    def end(self, environ: dict[str, Any]) -> None:
        """Put the body into the environ as `wsgi.input`."""
        environ["CONTENT_LENGTH"] = str(len(self._body))
        environ["wsgi.input"] = io.BytesIO(self._body)

    def close(self) -> None:
        """Drop the body."""
        self._budget.give(len(self._body))
        self._body = bytearray()


class Chunks:
    """Decodes a chunked body with h11. `rest` is the data after it."""

    def __init__(self) -> None:
        self._reader = h11.Connection(h11.SERVER, max_incomplete_event_size=_MOST_CHUNK_LINE)
        self._reader.receive_data(_CHUNKED_HEAD)
        self._reader.next_event()
        self._left = _MOST_SMALL_CHUNKS * _LEAST_CHUNK
        self._last = b""
        self.rest = b""

    def take(self, came: bytes, body: Body) -> bool:
        """Decode received bytes into the body; returns whether it is complete.

        Raises:
            RefusedError: the body isn't chunked correctly, is too large, or has chunks that are too small.
        """
        try:
            self._reader.receive_data(came)
            while isinstance(event := self._reader.next_event(), h11.Data):
                self._left += len(event.data) - _LEAST_CHUNK * event.chunk_start
                if self._left < 0:
                    raise RefusedError(400, "Bad Request")
                put(event.data, body)
        except h11.RemoteProtocolError as error:
            raise RefusedError(400, "Bad Request") from error
        if not isinstance(event, h11.EndOfMessage):
            self._last = (self._last + came)[-len(END) :]
            return False
        self.rest = self._reader.trailing_data[0]
        # To h11 a bare LF also ends the fields behind the last chunk. To another reader they go on, with what is the next request here.
        if not (self._last + came[: len(came) - len(self.rest)]).endswith(END):
            raise RefusedError(400, "Bad Request")
        return True


def put(came: bytes | bytearray, sink: Sink) -> None:
    """Put bytes into a sink.

    Raises:
        RefusedError: there are too many bytes.
    """
    rest = memoryview(came)
    while rest:
        with sink.space() as space:
            size = min(len(space), len(rest))
            space[:size] = rest[:size]
        sink.filled(size)
        rest = rest[size:]
