"""How much the extender takes in at once: bytes of bodies that are being read, and calls that are being answered."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from scheduler.recognition import Reading
from scheduler.wire import Sent

BODY = "berth.body"
"""Key of the WSGI environ: the body as the worker has read it; None for one that is over the limit, or wasn't kept."""

_CHUNK = 1 << 20
_DRAIN_FACTOR = 4
"""So many times the limit is read of a body that is too large: a client that still writes doesn't see the answer."""


class Source(Protocol):
    """What a body is read from."""

    def readinto(self, space: memoryview, /) -> int:
        """Put bytes into the space; gives how many, 0 at the end."""


class CrowdedError(Exception):
    """There is no room for more bodies."""


class Room:
    """Bytes that all bodies may take up together while they are in memory."""

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._lock = threading.Lock()

    @contextmanager
    def body(self, source: Source, reading: Reading, *, limit_bytes: int, keep: bool) -> Iterator[Sent | None]:
        """Read a body to its end and hold it; the room is given back at the end.

        A body over the limit is read as well, within reason, and None is given. With `keep` false nothing is held
        either: the body of a call that is refused whatever is in it.

        Raises:
            CrowdedError: other bodies take up the room.
        """
        taken = 0
        try:
            while keep and taken <= limit_bytes:
                with reading.space() as space, space[: limit_bytes + 1 - taken] as allowed:
                    size = source.readinto(allowed)
                if not size:
                    break
                self._take(size)
                taken += size
                reading.filled(size)
            is_held = keep and taken <= limit_bytes
            if not is_held:
                _throw_away(source, _DRAIN_FACTOR * limit_bytes)
            yield reading.end() if is_held else None
        finally:
            self._give(taken)

    def _take(self, size: int) -> None:
        with self._lock:
            if size > self._left:
                raise CrowdedError
            self._left -= size

    def _give(self, size: int) -> None:
        with self._lock:
            self._left += size


def _throw_away(source: Source, most: int) -> None:
    space = memoryview(bytearray(_CHUNK))
    while most > 0 and (size := source.readinto(space[:most])):
        most -= size
