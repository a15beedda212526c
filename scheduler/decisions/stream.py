"""The stream of records in Redis: shippers append, the ingest reads. The only module that talks to Redis itself.

Redis is only transport, never the store: each record in the stream is on some process's disk until the database has it. So
entries may be lost, duplicated or discarded; readers notice by the records' sequences.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from scheduler.decisions.frames import Number, SmallNumber, Writer

STREAM = "berth:records"
# A hash: writer -> the sequence behind the last one in the stream. It is lost together with the stream, which reveals the loss.
SHIPPED = "berth:shipped"
# A hash: writer -> the place from which the ingest wants records again: segment, offset, sequence.
WANTED = "berth:wanted"
_NEVER_THERE = "berth:never-there"
# The member of an entry: a list of Shipments of limited length. redis-py spends more time on an entry than on its contents.
_SHIPMENTS = b"r"
MOST_IN_ENTRY = 64
# The number of entries per read.
_READ_AT_ONCE = 32
# The members of an older version's entry, one record each: its extenders may run beside this version's worker.
_WRITER, _SEGMENT, _OFFSET, _SEQUENCE, _KIND, _DATA = b"w", b"g", b"o", b"s", b"k", b"d"
_TIMEOUT_SECONDS = 5.0
# A quarter of Redis' memory is left for Celery's messages: one that is full takes no tick, and without ticks nothing is stored.
_MOST_FILLED = 0.75


class StreamError(Exception):
    """Redis can't be used at the moment."""


class Shipment(msgspec.Struct, array_like=True, kw_only=True):
    """A record in transit. `segment` and `offset` are its end in the writer's spool."""

    writer: Writer
    segment: SmallNumber
    offset: Number
    sequence: Number
    kind: SmallNumber
    data: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Shipment]).decode


class Arrived(msgspec.Struct):
    """A record from the stream, with the id of its entry; if it can't be read, None and the entry's `raw` members."""

    id: bytes
    shipment: Shipment | None
    raw: dict[bytes, bytes]


class Wanted(msgspec.Struct, array_like=True):
    """The place from which records are wanted again."""

    segment: int
    offset: int
    sequence: int


class Answer(msgspec.Struct):
    """The state of Redis before an append.

    `shipped` is the sequence that Redis expects next; None if it doesn't know the writer. `length`: the number of entries.
    """

    shipped: int | None
    length: int


class DecisionStream:
    """Appends to the stream and reads from it. The contents of entries are the caller's business."""

    def __init__(self, url: str) -> None:
        self._redis = redis.Redis.from_url(
            url,
            socket_timeout=_TIMEOUT_SECONDS,
            socket_connect_timeout=_TIMEOUT_SECONDS,
            health_check_interval=10,
            # After a failover this connection may lead to a replica, and a new one to the primary.
            retry=Retry(NoBackoff(), 1, (redis.ReadOnlyError,)),
        )

    def append(self, writer: str, shipments: Sequence[Shipment], following: int) -> Answer:
        """Append records in order, in one round trip, all or none; return the state before.

        Args:
            writer: the records' writer.
            shipments: the records; if empty, nothing changes.
            following: the sequence of the next record after these.

        Raises:
            StreamError: Redis is unavailable; it isn't known whether the records were appended.
        """
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hget(SHIPPED, writer)
        pipeline.xlen(STREAM)
        for first in range(0, len(shipments), MOST_IN_ENTRY):
            pipeline.xadd(STREAM, {_SHIPMENTS: _encode(shipments[first : first + MOST_IN_ENTRY])})
        if shipments:
            pipeline.hset(SHIPPED, writer, str(following))
        with _stream_errors():
            shipped, length, *_ = pipeline.execute()
        return Answer(None if shipped is None else int(shipped), length)

    def take_wanted(self, writer: str) -> Wanted | None:
        """Return what the ingest wants again, and remove the request.

        Raises:
            StreamError: Redis is unavailable.
        """
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hget(WANTED, writer)
        pipeline.hdel(WANTED, writer)
        try:
            found, _ = pipeline.execute()
            return None if found is None else msgspec.msgpack.decode(found, type=Wanted)
        except (redis.RedisError, msgspec.DecodeError) as error:
            raise StreamError(_said(error)) from error

    def set_shipped(self, writer: str, sequence: int) -> None:
        """Set the sequence of a writer's next record.

        Raises:
            StreamError: Redis is unavailable.
        """
        with _stream_errors():
            self._redis.hset(SHIPPED, writer, str(sequence))

    def forget(self, writer: str) -> None:
        """Forget a writer that has no records left.

        Raises:
            StreamError: Redis is unavailable.
        """
        with _stream_errors():
            self._redis.hdel(SHIPPED, writer)

    def read(self, count: int) -> list[Arrived]:
        """Return the first `count` records, and the rest of their entries. They stay in the stream: a second read returns the same.

        Raises:
            StreamError: Redis is unavailable.
        """
        arrived: list[Arrived] = []
        start = b"-"
        with _stream_errors():
            while len(arrived) < count:
                entries: Any = self._redis.xrange(STREAM, min=start, count=_READ_AT_ONCE)
                for entry_id, members in entries:
                    arrived += _arrived(entry_id, members)
                if len(entries) < _READ_AT_ONCE:
                    break
                start = b"(" + entries[-1][0]
        return arrived

    def finish(self, ids: Sequence[bytes], wanted: dict[str, Wanted] | None = None) -> None:
        """Remove entries from the stream, and ask writers for missing records.

        In two steps, since a Redis without memory refuses both in one, and only the first gives it room. What isn't asked for then
        is missed again by the next record, or by its writer once the stream is empty.

        Raises:
            StreamError: Redis is unavailable; the entries may be read again.
        """
        asked: dict[Any, Any] = {
            writer: msgspec.msgpack.encode(from_here) for writer, from_here in (wanted or {}).items()
        }
        with _stream_errors():
            if ids:
                self._redis.xdel(STREAM, *dict.fromkeys(ids))
            if asked:
                self._redis.hset(WANTED, mapping=asked)

    def length(self) -> int:
        """Return the number of waiting entries.

        Raises:
            StreamError: Redis is unavailable.
        """
        with _stream_errors():
            return int(self._redis.xlen(STREAM))

    def is_nearly_full(self) -> bool:
        """Return whether Redis has hardly any memory left; False if it has no limit, or doesn't reveal it.

        Raises:
            StreamError: Redis is unavailable.
        """
        found: dict[str, Any] = {}
        with _stream_errors(), suppress(redis.ResponseError):
            found = self._redis.info("memory")
        # Redis counts in this way before it refuses a write (redis 7 evict.c, getMaxmemoryState).
        used = int(found.get("used_memory", 0)) - int(found.get("mem_not_counted_for_evict", 0))
        return used > _MOST_FILLED * int(found.get("maxmemory", 0)) > 0

    def eviction_policy(self) -> str:
        """Return Redis' maxmemory-policy; empty if Redis doesn't reveal it (managed servers forbid CONFIG).

        Raises:
            StreamError: Redis is unavailable.
        """
        found: dict[str | None, str | None] = {}
        with _stream_errors(), suppress(redis.ResponseError):
            found = self._redis.config_get("maxmemory-policy")
        return str(found.get("maxmemory-policy", ""))

    def refusal(self) -> str:
        """Return why Redis refuses writes, for instance without memory; empty if it accepts them. Nothing is written.

        Raises:
            StreamError: Redis is unavailable.
        """
        try:
            # An empty value for a key that doesn't exist: Redis treats it as a write, but makes no key.
            self._redis.setrange(_NEVER_THERE, 0, b"")
        except redis.exceptions.NoPermissionError:
            return ""  # for this command, which nothing else needs
        except redis.ResponseError as error:
            return str(error).strip()
        except redis.RedisError as error:
            raise StreamError(_said(error)) from error
        return ""


@contextmanager
def _stream_errors() -> Iterator[None]:
    try:
        yield
    except redis.RedisError as error:
        raise StreamError(_said(error)) from error


def _said(error: Exception) -> str:
    """Return what Redis says, without the command of a pipeline, which redis-py quotes with the bytes of records."""
    return str(error).rpartition(" of pipeline caused error: ")[2]


def _arrived(entry_id: bytes, members: dict[bytes, bytes]) -> list[Arrived]:
    try:
        shipments = _decode(members[_SHIPMENTS]) if _SHIPMENTS in members else [_of_former_version(members)]
    except (msgspec.DecodeError, KeyError, ValueError, RecursionError):
        return [Arrived(entry_id, None, members)]
    return [Arrived(entry_id, shipment, {}) for shipment in shipments]


def _of_former_version(members: dict[bytes, bytes]) -> Shipment:
    fields = [
        members[_WRITER].decode(),
        *(int(members[name]) for name in (_SEGMENT, _OFFSET, _SEQUENCE, _KIND)),
        members[_DATA],
    ]
    return msgspec.convert(fields, Shipment)
