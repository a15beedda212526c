"""Frames: the format of records in the spool's files. Pure: bytes in, bytes out.

A frame is a header (length of the payload, CRC-32, sequence, kind; little endian) and the payload. The CRC covers
everything else, so that neither zeroes after a power failure nor a misplaced frame are taken for a frame. There is no
index: positions are found by reading a file from the start.
"""

import struct
import zlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import IntEnum
from typing import Annotated, NamedTuple

import msgspec

_HEADER = struct.Struct("<IIQB")
_CHECKED = struct.Struct("<IQB")
HEADER_BYTES = _HEADER.size
# The longest payload. The spool writes no longer one.
MOST_BYTES = 1 << 30

Buffer = bytes | bytearray | memoryview

# Numbers in records: a database column can hold them and their successor. A record with any other number is unreadable.
Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 2)]
SmallNumber = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 2)]
# A time without a zone can't be compared with others.
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
# PostgreSQL rejects NUL: a writer's name with NUL would block all other writers for ever.
Writer = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]{1,1000}\Z")]


class Kind(IntEnum):
    """A frame's content. CORRUPT is in no file: it reports unreadable bytes to the database."""

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
    """A decoded frame. `end` is the offset after it."""

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
    """Return the length, header included, of the frame that begins here; None when the header is truncated."""
    if len(data) < HEADER_BYTES:
        return None
    length: int = _HEADER.unpack_from(data)[0]
    return HEADER_BYTES + length


def read_frame(data: Buffer, start: int) -> Frame | None:
    """Read the frame that begins at `start`; None when it is truncated or damaged."""
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
