"""Reads a call's body: compares it with earlier bodies as it arrives, within the memory budget of all bodies."""

from typing import Any

from scheduler.extender.request.node_bytes import Reading
from scheduler.extender.request.wire import reading
from scheduler.http_server.body import Budget
from scheduler.http_server.head import RefusedError

# Key of the WSGI environ: the body as the worker has read it; None for a body that is over the limit or wasn't kept.
BODY = "berth.body"

# A buffer for bytes that are discarded.
_WASTE = bytearray(1 << 16)
# The memory reserved for an unknown client's body before any of it has arrived.
_STRANGERS_WINDOW = 1 << 16
# Up to this many times the limit is read of a body that is too large: a client that is still writing doesn't see the answer.
_INGEST_FACTOR = 4


class IncomingBody:
    """A body that is discarded if it is over the limit, or if the call is refused whatever its content.

    Args:
        budget: the bytes that all bodies share.
        length: in bytes, as the client declares it; None where it doesn't.
        limit_bytes: for a body that is kept.
        keep: whether to keep the body.
        leave: the bytes of the budget to leave to others, besides a part for small bodies. 0 for a client that was answered before.

    Raises:
        RefusedError: the budget is used up.
    """

    def __init__(self, budget: Budget, length: int | None, *, limit_bytes: int, keep: bool, leave: int = 0) -> None:
        self._budget, self._limit, self._leave = budget, limit_bytes, leave
        self._size = self._taken = 0
        self._reading: Reading | None = None
        if keep and (length or 0) <= limit_bytes:
            self._reading = reading(min(length or 0, _STRANGERS_WINDOW) if leave else length or 0)

    def space(self) -> memoryview:
        """Return memory for the next bytes."""
        return memoryview(_WASTE) if self._reading is None else self._reading.space()

    def filled(self, size: int) -> None:
        """Count this many bytes as received.

        Raises:
            RefusedError: the budget is used up, or the body doesn't end.
        """
        self._size += size
        if self._size > _INGEST_FACTOR * self._limit:
            raise RefusedError(413, "Content Too Large")
        if self._size > self._limit:
            self.close()
        elif self._reading is not None:
            leave = self._leave + self._budget.for_small(self._taken + size) if self._leave else 0
            self._budget.take(size, leave=leave)
            self._taken += size
            self._reading.filled(size)

    def end(self, environ: dict[str, Any]) -> None:
        """Put the body into the environ."""
        environ[BODY] = self._reading.end() if self._reading is not None else None
        environ["CONTENT_LENGTH"] = str(self._size)

    def close(self) -> None:
        """Drop the body, and release its share of the budget."""
        self._budget.give(self._taken)
        self._taken, self._reading = 0, None
