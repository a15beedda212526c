"""What dead processes leave, whole, torn or strange: all that can be read is shipped, the rest is kept as it stands."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from scheduler.decisions.frames import HEADER_BYTES, Kind, frame
from scheduler.decisions.segments import Position, Segments
from scheduler.decisions.shipping import Corrupt, Stored
from tests.unit.decisions.test_shipping import World, leave, numbered


@contextmanager
def living(root: Path) -> Iterator[World]:
    """A process that ships its own records, and those of the dead."""
    world = World(root)
    yield world
    world.spool.close()
    for source in world.shipper._sources:
        if source.dead is not None:
            source.dead.give_back()


def damage(segments: Segments, change: Callable[[bytes], bytes]) -> bytes:
    """Change the last segment; returns what stands in it then."""
    path = segments.path(segments.numbers()[-1])
    path.write_bytes(change(path.read_bytes()))
    return path.read_bytes()


LAST = HEADER_BYTES + len(numbered(3)[-1])


@pytest.mark.parametrize("left", [1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 1, LAST - 1])
def test_a_torn_last_record_is_a_dead_letter_and_those_before_it_are_shipped(tmp_path: Path, left: int) -> None:
    segments = leave(tmp_path, "dead", *numbered(3))
    torn = damage(segments, lambda data: data[: len(data) - LAST + left])[-left:]
    with living(tmp_path) as world:
        world.ship()

        *whole, last = world.shipped("dead")
        assert [each.data for each in whole] == numbered(2)
        corrupt = msgspec.msgpack.decode(last.data, type=Corrupt)
        assert (last.kind, last.sequence, corrupt.data) == (Kind.CORRUPT, 3, torn)
        assert segments.folder.exists()
        world.store(writer="dead")
        assert world.stored is not None
        world.ship()
        assert not segments.folder.exists()


def test_a_torn_record_that_stands_alone_takes_the_number_that_the_database_waits_for(tmp_path: Path) -> None:
    segments = leave(tmp_path, "dead", *numbered(1))
    damage(segments, lambda data: data[:-1])
    with living(tmp_path) as world:
        assert world.stored is not None
        world.stored["dead"] = Stored(Position(1, 0), 7)
        world.ship()
        [torn] = world.shipped("dead")
    assert (torn.kind, torn.sequence) == (Kind.CORRUPT, 7)


def test_a_record_of_a_kind_that_a_later_version_writes_is_shipped_as_it_is_and_holds_up_no_other(
    tmp_path: Path,
) -> None:
    segments = leave(tmp_path, "dead", b"first")
    later: list[bytes] = [bytes(part) for part in frame(99, 2, [b"\xff later"])]  # type: ignore[arg-type]
    damage(segments, lambda data: data + b"".join([*later, *map(bytes, frame(Kind.OUTCOME, 3, [b"third"]))]))
    with living(tmp_path) as world:
        world.ship()
        found = [(each.sequence, each.kind, each.data) for each in world.shipped("dead")]
    assert found == [(1, Kind.OUTCOME, b"first"), (2, 99, b"\xff later"), (3, Kind.OUTCOME, b"third")]


def test_zeroes_after_a_loss_of_power_are_no_records(tmp_path: Path) -> None:
    segments = leave(tmp_path, "dead", b"first")
    damage(segments, lambda data: data + bytes(4096))
    with living(tmp_path) as world:
        world.ship()
        first, zeroes = world.shipped("dead")
    assert first.data == b"first"
    assert msgspec.msgpack.decode(zeroes.data, type=Corrupt).data == bytes(4096)


@pytest.mark.parametrize("name", [None, "0000000001.seg", "notes.seg", "0000000001.seg.part"])
def test_a_folder_without_any_record_is_swept_away_and_holds_up_nobody(tmp_path: Path, name: str | None) -> None:
    folder = tmp_path / "dead"
    folder.mkdir(parents=True)
    if name is not None:
        (folder / name).touch()
    leave(tmp_path, "other", b"other's")
    with living(tmp_path) as world:
        world.write(b"own")
        world.ship()
        assert world.shipped("dead") == []
        assert (world.payloads("other"), world.payloads()) == ([b"other's"], [b"own"])
        assert not folder.exists()


def test_a_missing_segment_of_a_dead_writer_is_said_and_the_next_one_is_shipped(tmp_path: Path) -> None:
    segments = leave(tmp_path, "dead", *numbered(30))
    first, gone, following = segments.numbers()[:3]
    next_one = segments.first_sequence(following)
    assert next_one is not None
    segments.delete(gone)
    with living(tmp_path) as world:
        world.ship(20)
        [missing] = [each for each in world.shipped("dead") if each.kind == Kind.CORRUPT]
        assert msgspec.msgpack.decode(missing.data, type=Corrupt).next_sequence == next_one
        assert world.payloads("dead")[-1] == numbered(30)[-1]
        assert first == 1


def test_what_cant_be_read_waits_for_the_database_to_say_its_number(tmp_path: Path) -> None:
    segments = leave(tmp_path, "dead", *numbered(12))
    *stored, last = segments.numbers()
    for number in stored:
        segments.delete(number)
    first = segments.first_sequence(last)
    assert first is not None
    damage(segments, lambda data: b"\xff" + data[1:])
    with living(tmp_path) as world:
        world.stored = None
        world.ship()
        assert (world.shipped("dead"), segments.folder.exists()) == ([], True)
        world.stored = {"dead": Stored(Position(stored[-1], 500), first)}
        world.ship()
        assert [each.sequence for each in world.shipped("dead")] == [first]
        world.store(writer="dead")
        world.ship()
        assert not segments.folder.exists()
