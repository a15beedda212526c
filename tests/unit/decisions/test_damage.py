"""Whatever is damaged in a living writer's segments: each record is shipped, or told as one that can't be read, once."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.decisions.frames import HEADER_BYTES, Kind, frame
from scheduler.decisions.shipping import Corrupt
from scheduler.metrics import SPOOL_CORRUPT
from tests.unit.decisions.test_shipping import World, leave, numbered

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


def test_a_deleted_segment_that_none_follows_yet_holds_up_no_other_writer() -> None:
    with living() as world:
        world.write(b"first")
        world.spool.rotate()
        world.spool.segments.delete(1)
        leave(world.root, "dead", b"theirs")
        world.ship()
        assert world.payloads("dead") == [b"theirs"]
        world.write(b"last")
        world.ship()
        assert (told(world).next_sequence, world.payloads()[-1]) == (2, b"last")
        world.shipper._sources[1].dead.give_back()  # type: ignore[union-attr]


# What happens to a segment from a place in it on; None: the file is deleted.
Change = Callable[[bytes, int], bytes | None]
CHANGES: dict[str, Change] = {
    "nothing": lambda data, _: data,
    "a flipped byte": lambda data, at: data[:at] + bytes([~byte & 0xFF for byte in data[at : at + 1]]) + data[at + 1 :],
    "zeroes": lambda data, at: data[:at] + bytes(len(data) - at),
    "cut off": lambda data, at: data[:at],
}
# To a segment that nothing is written to any more.
LATER: dict[str, Change] = {
    "half a record behind": lambda data, _: data + HALF,
    "zeroes behind": lambda data, _: data + bytes(64),
    "deleted": lambda _data, _at: None,
}


def change(path: Path, how: Change, at: int) -> int:
    """Change a segment, and return up to where it is as it was written."""
    before = path.read_bytes()
    after = how(before, min(at, len(before)))
    if after is None:
        path.unlink()
        return 0
    path.write_bytes(after)
    same = (byte == other for byte, other in zip(before, after, strict=False))
    return next((place for place, is_same in enumerate(same) if not is_same), min(len(before), len(after)))


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([*CHANGES, *LATER]), st.integers(0, 80), st.booleans()),
        min_size=1,
        max_size=4,
    )
)
def test_each_record_is_shipped_or_told_and_all_before_damage_are_shipped(
    segments: list[tuple[int, str, int, bool]],
) -> None:
    """Args: of each segment, how many records it has, what happens to it, from where on, and whether that is shipped at once."""
    whole = set()
    with living() as world:
        for records, what, at, is_shipped in segments:
            begin_segment(world)
            ends = {}
            for _ in range(records):
                payload = b"record %d" % world.spool.next_sequence
                world.write(payload)
                ends[payload] = world.spool.written.offset
            if what in LATER:
                world.spool.rotate()
            intact = change(world.spool.segments.path(world.spool.written.segment), (CHANGES | LATER)[what], at)
            whole |= {payload for payload, end in ends.items() if end <= intact}
            world.ship(2 if is_shipped else 0)
        world.spool.rotate()
        world.write(b"the last")
        world.ship(2 * len(segments) + 2)
        assert next_to_come(world) == world.spool.next_sequence
        assert {*whole, b"the last"} <= set(world.payloads())
