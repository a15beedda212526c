"""Whatever is damaged in a living writer's segments: each record is shipped, or told as one that can't be read, once."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from scheduler.decisions.frames import HEADER_BYTES, Kind, frame
from scheduler.decisions.shipping import Corrupt
from scheduler.metrics import SPOOL_CORRUPT
from tests.unit.decisions.test_shipping import World, numbered

HALF = b"".join(map(bytes, frame(Kind.OUTCOME, 9, [b"a record that was never whole"])))[: HEADER_BYTES + 4]


@contextmanager
def living() -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="berth-damage-") as root:
        world = World(Path(root))
        yield world
        world.spool.close()


def told(world: World) -> Corrupt:
    [corrupt] = [each for each in world.shipped() if each.kind == Kind.CORRUPT]
    return msgspec.msgpack.decode(corrupt.data, type=Corrupt)


def next_to_come(world: World) -> int:
    """Return the number that comes next when what was shipped is read in order, which leaves out none."""
    expected = 1
    for each in world.shipped():
        assert each.sequence == expected
        is_corrupt = each.kind == Kind.CORRUPT
        expected = msgspec.msgpack.decode(each.data, type=Corrupt).next_sequence if is_corrupt else expected + 1
    return expected


def begin_segment(world: World) -> None:
    """Begin a segment that nothing is written to, as when the disk is full right then."""
    with world.spool._lock:
        world.spool._begin_segment()


def test_half_a_record_before_an_empty_segment_takes_no_others_number() -> None:
    with living() as world:
        world.write(b"first")
        os.write(world.spool._descriptor, HALF)  # and it can't be taken back
        begin_segment(world)
        world.ship()
        world.write(b"second")
        world.ship()
        assert world.payloads()[0::2] == [b"first", b"second"]
        assert (told(world).data, told(world).next_sequence) == (HALF, 2)


def test_records_that_are_damaged_before_an_empty_segment_are_told_together() -> None:
    with living() as world:
        world.write(*numbered(3))
        path = world.spool.segments.path(1)
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 3] + bytes(len(data) - len(data) // 3))
        begin_segment(world)
        world.ship()
        world.write(b"last")
        world.ship()
        assert [each.sequence for each in world.shipped()] == [1, 2, 4]
        assert told(world).next_sequence == 4


def test_what_was_cut_off_the_segment_that_is_written_is_told_once() -> None:
    with living() as world:
        world.write(*numbered(3))
        before = SPOOL_CORRUPT._value.get()
        path = world.spool.segments.path(1)
        os.truncate(path, path.stat().st_size // 3)
        world.ship()
        assert (told(world).data, told(world).next_sequence) == (b"", 4)
        world.write(b"last")
        world.ship()
        assert SPOOL_CORRUPT._value.get() == before + 1
        assert world.payloads()[-1] == b"last"
        assert next_to_come(world) == 5
