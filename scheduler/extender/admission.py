"""How much the extender takes in at once: bytes of bodies that are being read, and calls that are being answered."""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

_CHUNK = 1 << 20
_DRAIN_FACTOR = 4
"""So many times the limit is read of a body that is too large: a client that still writes doesn't see the answer."""


class Source(Protocol):
    """What a body is read from."""

    def read(self, size: int) -> bytes:
        """Give up to `size` bytes; none at the end."""


class CrowdedError(Exception):
    """There is no room for more bodies."""


class Room:
    """Bytes that all bodies may take up together while they are in memory."""

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._lock = threading.Lock()

    @contextmanager
    def body(self, source: Source, *, limit_bytes: int, keep: bool) -> Iterator[io.BytesIO]:
        """Read a body to its end and hold it; the room is given back at the end.

        A body over the limit is read as well, within reason, and its first `limit_bytes` + 1 bytes are given. With
        `keep` false nothing is held: the body of a call that is refused whatever is in it.

        Raises:
            CrowdedError: other bodies take up the room.
        """
        taken = 0
        parts: list[bytes] = []
        try:
            while keep and taken <= limit_bytes and (part := source.read(min(_CHUNK, limit_bytes + 1 - taken))):
                self._take(len(part))
                taken += len(part)
                parts.append(part)
            if not keep or taken > limit_bytes:
                _throw_away(source, _DRAIN_FACTOR * limit_bytes)
            yield io.BytesIO(parts[0] if len(parts) == 1 else b"".join(parts))
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
    while most > 0 and (part := source.read(min(_CHUNK, most))):
        most -= len(part)
