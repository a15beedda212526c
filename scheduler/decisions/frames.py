"""Frames: how records stand in a file of the spool. Pure: bytes in, bytes out.

A frame is a header (length of the payload, CRC-32, sequence, kind; little endian) and the payload. The CRC covers all
the rest, so that neither zeroes after a loss of power nor a frame in the wrong place are taken for one. Nothing else
says what a file holds: positions are found by reading it from the start.
"""

import struct
import zlib
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Annotated, NamedTuple

import msgspec

_HEADER = struct.Struct("<IIQB")
_CHECKED = struct.Struct("<IQB")
HEADER_BYTES = _HEADER.size
# The longest payload. A longer one stands in no file of ours.
MOST_BYTES = 1 << 30

Buffer = bytes | bytearray | memoryview

# Numbers that are read from records: a column of the database holds them, and the next one, too. A record with another is unreadable.
Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 2)]
SmallNumber = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 2)]
# PostgreSQL takes no NUL: one writer with it would hold up all others for ever.
Writer = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]{1,1000}\Z")]


class Kind(IntEnum):
    """What a frame holds. CORRUPT stands in no file: it says on the way to the database what could not be read."""

    DECISION = 1
    OUTCOME = 2
    GAP = 3
    END = 4
    NAMES = 5
    BASE = 6
    DELTA = 7
    CORRUPT = 8
    MARK = 9


class Frame(NamedTuple):
    """A frame that was read. `end` is the offset behind it."""

    kind: int
    sequence: int
    payload: bytes
    end: int


def frame(kind: Kind, sequence: int, parts: Sequence[Buffer]) -> list[Buffer]:
    """Put the header before the parts of a payload."""
    length = sum(map(len, parts))
    return [_HEADER.pack(length, _checksum(length, sequence, kind, parts), sequence, kind), *parts]


def _checksum(length: int, sequence: int, kind: int, parts: Iterable[Buffer]) -> int:
    checksum = zlib.crc32(_CHECKED.pack(length, sequence, kind))
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return checksum


def length_at(data: Buffer) -> int | None:
    """Return the length of the frame, header included, that begins here; None when the header is cut off."""
    if len(data) < HEADER_BYTES:
        return None
    length: int = _HEADER.unpack_from(data)[0]
    return HEADER_BYTES + length


def read_frame(data: Buffer, start: int) -> Frame | None:
    """Read the frame that begins at `start`; None when it is cut off or isn't what was written."""
    if start + HEADER_BYTES > len(data):
        return None
    length, checksum, sequence, kind = _HEADER.unpack_from(data, start)
    end = start + HEADER_BYTES + length
    if end > len(data):
        return None
    payload = bytes(memoryview(data)[start + HEADER_BYTES : end])
    if _checksum(length, sequence, kind, [payload]) != checksum:
        return None
    return Frame(kind, sequence, payload, end)
