"""The shipper, step by step, with a stand-in for Redis: what it ships, what it goes back for, and what it may delete."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.decisions import shipping
from scheduler.decisions.frames import Kind, frame
from scheduler.decisions.segments import Position, Segments, take_over_the_dead
from scheduler.decisions.shipping import MOST_IN_REDIS, Corrupt, Shipper, Stored
from scheduler.decisions.spool import Spool
from scheduler.decisions.stream import MOST_IN_ENTRY, Shipment, StreamError, Wanted
from scheduler.metrics import DECISIONS_WAITING
from tests.recording import PLENTY, MemoryStream


class World:
    """A spool, a stream and a database that knows how far it has stored. Segments are short."""

    def __init__(self, root: Path, writer: str = "mine") -> None:
        self.root = root
        self.stream = MemoryStream()
        self.stored: dict[str, Stored] | None = {}
        self.spool = Spool(root, writer, max_bytes=PLENTY, segment_bytes=200, sync_seconds=0.0)
        self.spool.open()
        self.shipper = Shipper(self.spool, self.stream, checkpoints=self.checkpoints)  # type: ignore[arg-type]

    def checkpoints(self, writers: Sequence[str]) -> Mapping[str, Stored] | None:
        return self.stored

    def write(self, *payloads: bytes) -> None:
        for payload in payloads:
            self.spool.append([(Kind.OUTCOME, [payload])])

    def ship(self, steps: int = 6) -> None:
        """Let the shipper go round, with all that is due now and then."""
        for _ in range(steps):
            self.shipper._asked_at = self.shipper._house_kept_at = self.shipper._taken_over_at = -1e9
            self.shipper.step()

    def shipped(self, writer: str = "mine") -> list[Shipment]:
        found = self.stream.entries.values()
        return [each for each in found if isinstance(each, Shipment) and each.writer == writer]

    def payloads(self, writer: str = "mine") -> list[bytes]:
        return [each.data for each in self.shipped(writer)]

    def store(self, number: int | None = None, writer: str = "mine") -> None:
        """Let the database have the first entries of a writer, and Redis let go of them."""
        done = self.shipped(writer)[:number]
        for entry_id, each in list(self.stream.entries.items()):
            if any(each is other for other in done):
                del self.stream.entries[entry_id]
        if done and self.stored is not None:
            last = done[-1]
            self.stored[writer] = Stored(Position(last.segment, last.offset), last.sequence + 1)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.spool.close()
    for source in made.shipper._sources:
        if source.dead is not None:
            source.dead.give_back()


def leave(root: Path, writer: str, *payloads: bytes) -> Segments:
    """Leave what a dead process had written."""
    spool = Spool(root, writer, max_bytes=PLENTY, segment_bytes=200, sync_seconds=0.0)
    spool.open()
    for payload in payloads:
        spool.append([(Kind.OUTCOME, [payload])])
    spool.close()
    return spool.segments


def numbered(count: int) -> list[bytes]:
    return [b"payload %d" % number for number in range(count)]


class TestShipping:
    def test_records_are_shipped_in_order_across_segments_each_once(self, world: World) -> None:
        world.write(*numbered(30))
        assert len(world.spool.segments.numbers()) > 2
        world.ship(20)
        assert world.payloads() == numbered(30)
        assert [each.sequence for each in world.shipped()] == list(range(1, 31))

    def test_what_was_shipped_is_known_by_its_place_on_disk(self, world: World) -> None:
        world.write(*numbered(3))
        world.ship()
        first = world.shipped()[0]
        [read] = world.spool.segments.read(Position(), most_bytes=1).frames
        assert (first.segment, first.offset) == (1, read.end)

    def test_without_redis_nothing_moves_and_the_fault_is_said_once(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.write(*numbered(3))
        world.stream.away = True
        world.ship()
        assert not world.shipper.redis_reachable
        assert caplog.text.count("Redis unreachable, records wait on disk") == 1
        world.stream.away = False
        world.ship()
        assert world.shipper.redis_reachable
        assert caplog.text.count("Redis reachable again") == 1
        assert world.payloads() == numbered(3)

    def test_each_fault_of_redis_is_said_once(
        self, world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever is thrown out first is refused later, by a password that has changed."""
        said = iter(["Connection closed by server.", *["invalid username-password pair"] * 5])

        def refuse(*_arguments: object) -> None:
            raise StreamError(next(said))

        world.write(*numbered(3))
        monkeypatch.setattr(world.stream, "take_wanted", refuse)
        world.ship()
        assert caplog.messages == [
            "Redis unreachable, records wait on disk: Connection closed by server.",
            "Redis unreachable, records wait on disk: invalid username-password pair",
        ]

    def test_what_waits_is_counted_while_redis_is_away_too(self, world: World) -> None:
        world.stream.away = True
        world.write(*numbered(3))
        world.ship()
        assert DECISIONS_WAITING._value.get() == 3
        assert world.shipper.depth() == (3, world.spool.size_bytes)
        world.stream.away = False
        world.ship()
        assert DECISIONS_WAITING._value.get() == 0

    def test_no_more_waits_in_redis_than_should(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        world.write(*numbered(30))
        monkeypatch.setattr(shipping, "MOST_IN_REDIS", 5)
        world.ship(20)
        waiting = len(world.shipped())
        assert 5 <= waiting < 30
        world.store()
        world.ship(20)
        assert waiting < world.shipped()[-1].sequence <= 30
        assert 19_000 < MOST_IN_REDIS * MOST_IN_ENTRY <= 20_000

    @pytest.mark.parametrize(("policy", "times"), [("allkeys-lru", 1), ("noeviction", 0), ("", 0)])
    def test_a_policy_that_throws_records_away_is_warned_of_once(
        self, world: World, policy: str, times: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.stream.policy = policy
        world.ship()
        assert caplog.text.count("must be noeviction") == times


class TestGoingBack:
    def test_to_where_the_ingest_says(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        world.write(*numbered(5))
        world.ship()
        world.store(2)
        position, _ = world.stored["mine"]  # type: ignore[index]
        world.stream.entries.clear()
        world.stream.wanted["mine"] = Wanted(position.segment, position.offset, 3)
        world.ship()
        assert world.payloads() == numbered(5)[2:]
        assert "sent again, from number 3" in caplog.text
        assert world.stream.wanted == {}

    def test_to_the_first_on_disk_where_the_database_cant_be_asked(self, world: World) -> None:
        world.write(*numbered(5))
        world.ship()
        world.stored = None
        world.stream.wipe()
        world.ship()
        assert world.payloads() == numbered(5)

    def test_for_the_last_record_once_redis_is_empty_and_the_database_hasnt_got_it(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.write(*numbered(3))
        world.ship()
        world.store(2)
        world.ship()
        assert len(world.shipped()) == 1  # it waits in Redis: nobody sends it again
        world.stream.entries.clear()
        world.ship()
        assert world.payloads() == numbered(3)[2:]
        assert caplog.text.count("has lost the last records of mine") == 1

    def test_not_while_the_database_is_away(self, world: World) -> None:
        world.write(*numbered(3))
        world.ship()
        world.stream.entries.clear()
        world.stored = None
        world.ship()
        assert world.shipped() == []
        world.stored = {}
        world.ship()
        assert world.payloads() == numbered(3)

    def test_not_for_what_another_writer_has_in_redis(self, world: World) -> None:
        """Whether what is left there is one's own can't be told; the next look can."""
        world.write(*numbered(1))
        world.ship()
        world.stream.entries.clear()
        other = Shipment(writer="other", segment=1, offset=9, sequence=1, kind=1, data=b"")
        world.stream.entries[b"9-9"] = other
        world.ship()
        assert world.shipped() == []
        world.stream.entries.clear()
        world.ship()
        assert world.payloads() == numbered(1)

    def test_a_process_that_has_written_nothing_sends_nothing(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.ship(20)
        assert world.shipped() == []
        assert "sent again" not in caplog.text


class TestDamage:
    def flip(self, path: Path, at: int) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 0xFF
        path.write_bytes(data)

    def test_what_is_corrupt_goes_as_it_stands_and_the_next_segment_goes_on(self, world: World) -> None:
        world.write(*numbered(30))
        self.flip(world.spool.segments.path(1), 0)
        world.ship(30)
        first, second = world.shipped()[:2]
        corrupt = msgspec.msgpack.decode(first.data, type=Corrupt)
        assert (first.kind, corrupt.segment, corrupt.offset) == (Kind.CORRUPT, 1, 0)
        assert corrupt.data == world.spool.segments.path(1).read_bytes()
        assert corrupt.next_sequence == second.sequence
        assert world.payloads()[-1] == numbered(30)[-1]

    def test_in_the_segment_that_is_written_it_ends_that(self, world: World) -> None:
        world.write(b"first")
        self.flip(world.spool.segments.path(1), 0)
        world.ship()
        world.write(b"second")
        world.ship()
        assert [each.kind for each in world.shipped()] == [Kind.CORRUPT, Kind.OUTCOME]
        assert world.payloads()[-1] == b"second"
        assert world.spool.written.segment == 2

    def test_a_segment_that_is_missing_is_said_without_any_bytes(self, world: World) -> None:
        world.write(*numbered(30))
        gone, following = world.spool.segments.numbers()[1:3]
        next_one = world.spool.segments.first_sequence(following)
        expected = world.spool.segments.first_sequence(gone)
        world.spool.segments.delete(gone)
        world.ship(30)
        [missing] = [each for each in world.shipped() if each.kind == Kind.CORRUPT]
        corrupt = msgspec.msgpack.decode(missing.data, type=Corrupt)
        assert (missing.sequence, corrupt.next_sequence, corrupt.data) == (expected, next_one, b"")


class TestTheDead:
    def test_what_one_left_is_shipped_beside_ones_own_and_deleted_once_it_is_stored(self, world: World) -> None:
        folder = leave(world.root, "dead", *numbered(8)).folder
        world.write(b"own")
        world.ship(20)
        assert (world.payloads("dead"), world.payloads()) == (numbered(8), [b"own"])
        assert world.spool.others_bytes > 0
        assert folder.exists()
        world.store(writer="dead")
        world.ship()
        assert not folder.exists()
        assert world.spool.others_bytes == 0
        assert "dead" not in world.stream.shipped

    def test_it_is_kept_while_one_record_of_it_isnt_stored(self, world: World) -> None:
        folder = leave(world.root, "dead", *numbered(8)).folder
        world.ship(20)
        world.store(7, writer="dead")
        world.ship(20)
        assert folder.exists()

    def test_the_segments_of_it_that_are_stored_go_while_the_others_wait(self, world: World) -> None:
        segments = leave(world.root, "dead", *numbered(30))
        world.ship(30)
        numbers = segments.numbers()
        world.store(15, writer="dead")
        position, _ = world.stored["dead"]  # type: ignore[index]
        world.ship()
        assert numbers[0] < position.segment
        assert segments.numbers() == [number for number in numbers if number >= position.segment]

    def test_it_begins_where_the_database_is(self, world: World) -> None:
        segments = leave(world.root, "dead", *numbered(3))
        end = segments.read(Position()).frames[1].end
        assert world.stored is not None
        world.stored["dead"] = Stored(Position(1, end), 3)
        world.ship()
        assert world.payloads("dead") == numbered(3)[2:]

    def test_one_that_lives_is_left_alone(self, world: World) -> None:
        other = Spool(world.root, "alive", max_bytes=PLENTY)
        other.open()
        other.append([(Kind.OUTCOME, [b"theirs"])])
        world.ship()
        assert world.shipped("alive") == []
        other.close()

    def test_two_processes_dont_take_over_the_same(self, tmp_path: Path) -> None:
        leave(tmp_path, "dead", b"x")
        first, second = take_over_the_dead(tmp_path, but=set()), take_over_the_dead(tmp_path, but=set())
        assert ([dead.segments.writer for dead in first], second) == (["dead"], [])
        first[0].give_back()
        [again] = take_over_the_dead(tmp_path, but=set())
        again.delete()
        assert not (tmp_path / "dead").exists()


class TestDeleting:
    def test_own_segments_go_when_the_database_has_passed_them_and_the_last_stays(self, world: World) -> None:
        world.write(*numbered(30))
        world.ship(30)
        numbers = world.spool.segments.numbers()
        world.store(15)
        position, _ = world.stored["mine"]  # type: ignore[index]
        world.ship()
        assert world.spool.segments.numbers() == [number for number in numbers if number >= position.segment]
        world.store()
        world.ship()
        assert world.spool.segments.numbers() == numbers[-1:]
        assert world.spool.size_bytes == world.spool.segments.total_bytes()

    def test_none_goes_while_the_database_is_away(self, world: World) -> None:
        world.write(*numbered(30))
        world.ship(30)
        numbers = world.spool.segments.numbers()
        world.store()
        world.stored = None
        world.ship()
        assert world.spool.segments.numbers() == numbers


@settings(max_examples=150)
@given(
    st.lists(st.binary(max_size=60), min_size=1, max_size=8),
    st.data(),
)
def test_of_a_damaged_segment_whole_records_are_read_in_order_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes], data: st.DataObject
) -> None:
    segments = Segments(tmp_path_factory.mktemp("segments"))
    whole = [b"".join(frame(Kind.OUTCOME, number, [payload])) for number, payload in enumerate(payloads, 1)]
    written = bytearray(b"".join(whole))
    at = data.draw(st.integers(0, len(written) - 1))
    if data.draw(st.booleans()):
        del written[at:]
    else:
        written[at] ^= data.draw(st.integers(1, 255))
    segments.path(1).write_bytes(written)
    intact, end = 0, 0
    while intact < len(whole) and end + len(whole[intact]) <= at:
        end += len(whole[intact])
        intact += 1

    found = segments.read(Position())

    assert [each.payload for each in found.frames] == payloads[:intact]
    assert [each.sequence for each in found.frames] == list(range(1, intact + 1))
    assert found.end == Position(1, end)
    assert segments.read(found.end).broken == (end < len(written))
