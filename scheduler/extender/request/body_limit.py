"""How much the extender takes in at once: bytes of bodies that are being read, and calls that are being answered."""

import threading
from typing import Protocol

from scheduler.extender.request.node_bytes import Reading
from scheduler.extender.request.wire import Sent

# Key of the WSGI environ: the body as the worker has read it; None for one that is over the limit, or wasn't kept.
BODY = "berth.body"

_CHUNK = 1 << 20
# So many times the limit is read of a body that is too large: a client that still writes doesn't see the answer.
_INGEST_FACTOR = 4


class Source(Protocol):
    """What a body is read from."""

    def readinto(self, space: memoryview, /) -> int:
        """Put bytes into the space; returns how many, 0 at the end."""


class CrowdedError(Exception):
    """There is no room for more bodies."""


class BodyBudget:
    """Bytes that all bodies may take up together while they are in memory."""

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._lock = threading.Lock()

    def body(self, source: Source, reading: Reading, *, limit_bytes: int, keep: bool) -> "Held":
        """Read a body to its end and hold it, in a `with`; the room is given back at the end.

        A body over the limit is read as well, within reason, and None is given. With `keep` false nothing is held
        either: the body of a call that is refused whatever is in it. CrowdedError is raised where other bodies take
        up the room.
        """
        return Held(self, source, reading, limit_bytes=limit_bytes, keep=keep)

    def take(self, size: int) -> None:
        """Take up room.

        Raises:
            CrowdedError: there isn't as much.
        """
        with self._lock:
            if size > self._left:
                raise CrowdedError
            self._left -= size

    def give(self, size: int) -> None:
        """Release room."""
        with self._lock:
            self._left += size


class Held:
    """A body that is read and held, see `BodyBudget.body`."""

    def __init__(self, room: BodyBudget, source: Source, reading: Reading, *, limit_bytes: int, keep: bool) -> None:
        self._room = room
        self._source = source
        self._reading = reading
        self._limit_bytes = limit_bytes
        self._keep = keep
        self._taken = 0

    def __enter__(self) -> Sent | None:
        try:
            return self._read()
        except BaseException:
            self._room.give(self._taken)
            raise

    def __exit__(self, *_: object) -> None:
        self._room.give(self._taken)

    def _read(self) -> Sent | None:
        source, reading, limit = self._source, self._reading, self._limit_bytes
        while self._keep and self._taken <= limit:
            with reading.space() as space, space[: limit + 1 - self._taken] as allowed:
                size = source.readinto(allowed)
            if not size:
                break
            self._room.take(size)
            self._taken += size
            reading.filled(size)
        if self._keep and self._taken <= limit:
            return reading.end()
        _throw_away(source, _INGEST_FACTOR * limit)
        return None


def _throw_away(source: Source, most: int) -> None:
    space = memoryview(bytearray(_CHUNK))
    while most > 0 and (size := source.readinto(space[:most])):
        most -= size
