"""Ships the records in the spool to the Redis stream, in order, and deletes those that the database has stored.

A shipper serves its own process's writer, and those of dead processes on the same disk. All its state is in
the files, in Redis or in the database's checkpoints, so it may be killed at any point. If Redis has lost records, or the ingest
misses some, it goes back to the database's checkpoint; the ingest drops duplicates.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from django.db import DatabaseError, connection

from scheduler.decisions.frames import Frame, Kind, Number, SmallNumber
from scheduler.decisions.record import compressed, make_compressor
from scheduler.decisions.segments import Dead, Position, Segments, take_over_the_dead
from scheduler.decisions.spool import Spool
from scheduler.decisions.stream import MOST_IN_ENTRY, Answer, DecisionStream, Shipment, StreamError
from scheduler.metrics import DECISIONS_WAITING, SPOOL_BYTES, SPOOL_CORRUPT
from scheduler.models import Checkpoint
from scheduler.trouble import Trouble

logger = logging.getLogger("berth.decisions")

# Entries that may wait in Redis, some 20,000 records; the rest waits on disk, which has more room.
MOST_IN_REDIS = 20_000 // MOST_IN_ENTRY

_BATCH_BYTES = 1 << 20
# Between batches, unless many records wait: shipping each record at once would slow down the calls that make them.
_PAUSE_SECONDS = 0.1
_MUCH_BYTES = 256 << 10
_ASK_SECONDS = 0.25
_KEEP_HOUSE_SECONDS = 1.0
_TAKE_OVER_SECONDS = 5.0
_RETRY_SECONDS = 0.5


class Stored(NamedTuple):
    """The progress of a writer in the database: the position behind its last stored record, and the sequence of the next one."""

    position: Position
    sequence: int


# Of a writer without stored records.
NOTHING = Stored(Position(), 1)

# Returns writers' progress; writers without stored records are missing. None: the database is unavailable.
ReadCheckpoints = Callable[[Sequence[str]], Mapping[str, Stored] | None]


class Corrupt(msgspec.Struct, array_like=True, kw_only=True):
    """An unreadable part of a segment: its bytes, their position, and the sequence of the next readable record."""

    segment: SmallNumber
    offset: Number
    next_sequence: Number
    data: bytes


def read_checkpoints(writers: Sequence[str]) -> Mapping[str, Stored] | None:
    """Return the checkpoints in the database."""
    try:
        rows = Checkpoint.objects.filter(writer__in=writers).values_list("writer", "segment", "offset", "next_sequence")
        return {writer: Stored(Position(segment, offset), sequence) for writer, segment, offset, sequence in rows}
    except DatabaseError:
        connection.close()
        return None


class Source:
    """One writer's records, and the progress of shipping them."""

    def __init__(self, segments: Segments, *, spool: Spool | None = None, dead: Dead | None = None) -> None:
        self.segments = segments
        self.writer = segments.writer
        self.spool = spool
        self.dead = dead
        self.at = Position()
        # Of the record behind `at`; None if it isn't known before that record is read.
        self.next_sequence: int | None = 1 if spool else None
        self.is_known_to_redis = False
        # Whether Redis held none of this writer's records any more when it was last asked, after the last record was shipped.
        self.has_left_redis = False
        self._compressor = make_compressor()

    def go_to(self, stored: Stored | None) -> None:
        """Go to the database's checkpoint; if that isn't known, because the database is unavailable, to the first record on disk."""
        numbers = self.segments.numbers()
        if stored is None:
            self.at, self.next_sequence = Position(min(numbers, default=1)), None
        else:
            self.at, self.next_sequence = stored.position, stored.sequence
        later = [number for number in numbers if number >= self.at.segment]
        if later and later[0] > self.at.segment:
            self.at = Position(later[0])

    def peek(self) -> tuple[list[Shipment], Position, int | None]:
        """Return the next records, and the place behind them, without moving there."""
        at = self._begin()
        if at is None:
            return [], self.at, self.next_sequence
        batch = self.segments.read(at, end=self.spool.written if self.spool else None, most_bytes=_BATCH_BYTES)
        if batch.broken:
            # Without the record's number the ingest would take it for a duplicate.
            return ([], self.at, None) if self.next_sequence is None else self._peek_corrupt(at, self.next_sequence)
        frames = batch.frames
        if not frames:
            return [], at, self.next_sequence
        expected = frames[0].sequence if self.next_sequence is None else self.next_sequence
        shipments = [self._shipment(frame, at.segment) for frame in frames if frame.sequence >= expected]
        if shipments and shipments[0].sequence > expected:
            missing = Corrupt(segment=at.segment, offset=at.offset, next_sequence=shipments[0].sequence, data=b"")
            shipments.insert(0, self._corrupt_shipment(missing, at, expected))
        return shipments, batch.end, frames[-1].sequence + 1

    @property
    def is_finished(self) -> bool:
        """Whether a dead writer's last record is shipped."""
        return self.dead is not None and self._begin() is None

    def _begin(self) -> Position | None:
        """Return the position of the next readable record, in this segment or the next one; None if there is none."""
        written = self.spool.written if self.spool else None
        if written is not None and self.at >= written:
            return None
        size = self.segments.size(self.at.segment)
        if written and written.segment == self.at.segment and self.segments.path(self.at.segment).exists():
            size = written.offset
        if self.at.offset < size:
            return self.at
        later = [
            number for number in self.segments.numbers() if number > self.at.segment and self.segments.size(number)
        ]
        return Position(later[0]) if later else None

    def _peek_corrupt(self, at: Position, sequence: int) -> tuple[list[Shipment], Position, int]:
        """Ship the rest of a segment as one corrupt record: frames behind a broken record can't be told apart from it."""
        # Before looking at later segments: records that are written meanwhile are in them.
        upcoming = self.spool.rotate() if self.spool else sequence + 1
        data = self.segments.path(at.segment).read_bytes()[at.offset :]
        end = Position(at.segment, at.offset + len(data))
        if self.spool and self.spool.written.segment == at.segment:
            end = max(end, self.spool.written)  # skips the bytes that were cut off the file, too
        later = [number for number in self.segments.numbers() if number > at.segment]
        found = (self.segments.first_sequence(number) for number in later)
        following = next((first for first in found if first is not None), upcoming)
        corrupt = Corrupt(segment=at.segment, offset=at.offset, next_sequence=max(following, sequence), data=data)
        return [self._corrupt_shipment(corrupt, end, sequence)], end, corrupt.next_sequence

    def _corrupt_shipment(self, corrupt: Corrupt, end: Position, sequence: int) -> Shipment:
        return Shipment(
            writer=self.writer,
            segment=end.segment,
            offset=end.offset,
            sequence=sequence,
            kind=Kind.CORRUPT,
            data=msgspec.msgpack.encode(corrupt),
        )

    def _shipment(self, frame: Frame, segment: int) -> Shipment:
        data = frame.payload
        if frame.kind == Kind.DECISION:
            data = compressed(data, self._compressor)
        elif frame.kind in {Kind.NAMES, Kind.DELTA}:  # a BASE is compressed already
            start = 1 + data[0]
            data = data[:start] + self._compressor.compress(data[start:])
        return Shipment(
            writer=self.writer,
            segment=segment,
            offset=frame.end,
            sequence=frame.sequence,
            kind=frame.kind,
            data=data,
        )


class Depth(NamedTuple):
    """The contents of a spool: the number of this process's unsent records, and the bytes of all records not yet in the database."""

    records: int
    bytes: int


class Shipper:
    """Ships records in its own thread.

    Args:
        spool: this process's spool.
        stream: the target.
        checkpoints: returns writers' progress in the database.
        before: called from time to time, before files are read.
    """

    def __init__(
        self,
        spool: Spool,
        stream: DecisionStream,
        *,
        checkpoints: ReadCheckpoints = read_checkpoints,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        self._spool = spool
        self._stream = stream
        self._checkpoints = checkpoints
        self._before = before
        self._own = Source(spool.segments, spool=spool)
        self._sources = [self._own]
        self._in_redis = 0
        self._redis_away = Trouble()
        # Whether a fault other than Redis', such as that of a file, ended the last step that didn't wait for Redis.
        self._is_stuck = False
        self._policy_known = False
        self._asked_at = self._house_kept_at = self._taken_over_at = -1e9
        self._stopping = threading.Event()
        self._deadline = float("inf")
        self._thread = threading.Thread(target=self._run, name="berth-shipper", daemon=True)

    @property
    def redis_reachable(self) -> bool:
        """Whether the last step got its records into Redis."""
        return not (self._redis_away.is_ongoing or self._is_stuck)

    def start(self) -> None:
        """Start shipping."""
        self._thread.start()

    def stop(self, timeout_seconds: float) -> None:
        """Ship as much as the time allows, and stop."""
        self._deadline = time.monotonic() + timeout_seconds
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds + _RETRY_SECONDS)

    def _run(self) -> None:
        broken = Trouble()
        while time.monotonic() < self._deadline:
            # Read before the step: records that are written during the step are shipped by the next one.
            is_stopping = self._stopping.is_set()
            try:
                moved = self.step()
            except Exception as error:
                # A fault of one file must not end the thread, and with it all later shipping.
                if broken.is_news(repr(error)):
                    logger.exception(
                        "the records in %s can't be shipped; Berth tries again every second", self._spool.root
                    )
                moved, self._is_stuck = False, True
            if is_stopping and not moved:
                break
            if not (moved and self._is_behind()):
                self._stopping.wait(_PAUSE_SECONDS if self.redis_reachable else _RETRY_SECONDS)
        if waiting := self.depth().records:
            logger.warning("%d records wait on disk for the next process to ship them", waiting)
        for source in self._sources:
            if source.dead is not None:
                source.dead.give_back()
        connection.close()

    def _is_behind(self) -> bool:
        at, written = self._own.at, self._spool.written
        is_far = at.segment < written.segment or written.offset - at.offset > _MUCH_BYTES
        return is_far or len(self._sources) > 1

    def step(self) -> bool:
        """Clean up if it is time, and ship a batch of each writer; return whether anything was shipped."""
        now = time.monotonic()
        if now - self._house_kept_at >= _KEEP_HOUSE_SECONDS:
            self._house_kept_at = now
            self._keep_house(now)
        try:
            if now - self._asked_at >= _ASK_SECONDS:
                self._asked_at = now
                self._ask()
            moved = [self._ship(source) for source in self._sources] if self._in_redis < MOST_IN_REDIS else []
        except StreamError as error:
            if self._redis_away.is_news(str(error)):
                logger.warning("Redis unreachable, records wait on disk: %s", error)
            return False
        if self._redis_away.end():
            logger.info("Redis reachable again")
        self._is_stuck = False
        return any(moved)

    def _ship(self, source: Source) -> bool:
        shipments, at, following = source.peek()
        if not shipments or following is None:
            source.at, source.next_sequence = at, following
            return False
        # If others fill Redis, some are shipped all the same whenever those before are stored.
        if self._in_redis and self._stream.is_nearly_full():
            return False
        source.has_left_redis = False
        answer = self._stream.append(source.writer, shipments, following)
        expected = source.next_sequence
        source.at, source.next_sequence = at, following
        self._check(source, answer, expected)
        source.is_known_to_redis = True
        if shipments[0].kind == Kind.CORRUPT:
            SPOOL_CORRUPT.inc()
            logger.error(
                "unreadable records of %s become a dead letter; they end before segment %s, offset %s",
                source.writer,
                *at,
            )
        return True

    def _ask(self) -> None:
        """Check whether Redis still has the shipped records, and whether the ingest wants any again."""
        if not self._policy_known:
            self._check_policy()
        for source in self._sources:
            wanted = self._stream.take_wanted(source.writer)
            if wanted is not None:
                logger.info("records of %s are sent again, from number %d", source.writer, wanted.sequence)
                source.go_to(Stored(Position(wanted.segment, wanted.offset), wanted.sequence))
                self._stream.set_shipped(source.writer, wanted.sequence)
            answer = self._stream.append(source.writer, [], 0)
            source.has_left_redis = source.is_known_to_redis and not answer.length
            self._check(source, answer, source.next_sequence)

    def _check(self, source: Source, answer: Answer, expected: int | None) -> None:
        """Go back if Redis expects another record next than the shipper: it has lost some."""
        self._in_redis = answer.length
        has_lost = expected is not None and (answer.shipped is None or answer.shipped < expected)
        if has_lost and source.is_known_to_redis:
            logger.warning("Redis has lost records of %s; they are sent again", source.writer)
            self._go_back(source)
            self._stream.set_shipped(source.writer, source.next_sequence or 1)

    def _go_back(self, source: Source) -> None:
        checkpoints = self._checkpoints([source.writer])
        source.go_to(None if checkpoints is None else checkpoints.get(source.writer, NOTHING))

    def _check_policy(self) -> None:
        policy = self._stream.eviction_policy()
        self._policy_known = True
        if policy not in {"", "noeviction"}:
            logger.warning("Redis may evict records: maxmemory-policy is %s, and must be noeviction", policy)

    def _keep_house(self, now: float) -> None:
        self._before()
        if now - self._taken_over_at >= _TAKE_OVER_SECONDS and not self._stopping.is_set():
            self._taken_over_at = now
            self._take_over()
        checkpoints = self._checkpoints([source.writer for source in self._sources])
        if checkpoints is not None:
            for source in [*self._sources]:
                stored = checkpoints.get(source.writer, NOTHING)
                if source.next_sequence is None:
                    source.go_to(stored)
                if source.has_left_redis and not self._is_stored(source, stored):
                    self._send_again(source, stored)
                self._delete_stored(source, stored)
        self._spool.others_bytes = sum(
            source.segments.total_bytes() for source in self._sources if source.dead is not None
        )
        depth = self.depth()
        DECISIONS_WAITING.set(depth.records)
        SPOOL_BYTES.set(depth.bytes)

    def depth(self) -> Depth:
        """Return the records and bytes that wait on disk. Thread-safe."""
        waiting = self._spool.next_sequence - (self._own.next_sequence or 1)
        return Depth(waiting, self._spool.size_bytes + self._spool.others_bytes)

    @staticmethod
    def _send_again(source: Source, stored: Stored) -> None:
        """Go back to the database's checkpoint: Redis has none of the shipped records left, and not all of them were stored.

        The ingest notices missing records when a later one arrives; a writer's last record has no later one.
        """
        logger.warning("Redis has lost the last records of %s; they are sent again", source.writer)
        source.has_left_redis = False
        source.go_to(stored)

    def _take_over(self) -> None:
        for dead in take_over_the_dead(self._spool.root, but={source.writer for source in self._sources}):
            source = Source(dead.segments, dead=dead)
            self._go_back(source)
            self._sources.append(source)
            logger.info("shipping the records that %s left", source.writer)

    def _delete_stored(self, source: Source, stored: Stored) -> None:
        """Delete the segments whose records are all in the database; for a finished dead writer, delete everything."""
        if source.dead is not None and source.is_finished and self._is_stored(source, stored):
            source.dead.delete()
            self._sources.remove(source)
            self._forget(source.writer)
            return
        for number in source.segments.numbers():
            if number < stored.position.segment:
                if source.spool is not None:
                    source.spool.forget(number)
                else:
                    source.segments.delete(number)

    @staticmethod
    def _is_stored(source: Source, stored: Stored) -> bool:
        return source.next_sequence is not None and stored.sequence >= source.next_sequence

    def _forget(self, writer: str) -> None:
        try:
            self._stream.forget(writer)
        except StreamError as error:
            logger.debug("the name of %s can't be deleted from Redis: %s", writer, error)
