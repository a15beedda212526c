"""The stream of Decisions in Redis: recorders append, the drain reads. The only module that talks to Redis itself."""

from collections.abc import Sequence

import redis

STREAM = "berth:decisions"
GROUP = "drain"
CONSUMER = "drain"
_FIELD = b"d"
_TIMEOUT_SECONDS = 5.0


class StreamError(Exception):
    """Redis can't be used right now."""


class DecisionStream:
    """Appends to and reads from the stream. Entries are bytes; what is in them is the caller's."""

    def __init__(self, url: str) -> None:
        self._redis = redis.Redis.from_url(
            url, socket_timeout=_TIMEOUT_SECONDS, socket_connect_timeout=_TIMEOUT_SECONDS, health_check_interval=10
        )

    def append(self, entries: Sequence[bytes]) -> None:
        """Append entries in order, in one round trip, all or none.

        Raises:
            StreamError: Redis is away; it isn't known whether they were appended.
        """
        pipeline = self._redis.pipeline(transaction=True)
        for entry in entries:
            pipeline.xadd(STREAM, {_FIELD: entry})
        try:
            pipeline.execute()
        except redis.RedisError as error:
            raise StreamError(str(error)) from error

    def read(self, count: int) -> list[tuple[bytes, bytes]]:
        """Give up to `count` entries as (id, bytes): first those that a former drain read and didn't finish.

        Raises:
            StreamError: Redis is away.
        """
        try:
            return self._read("0", count) or self._read(">", count)
        except redis.ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise StreamError(str(error)) from error
        except redis.RedisError as error:
            raise StreamError(str(error)) from error
        self._make_group()
        return self.read(count)

    def _read(self, start: str, count: int) -> list[tuple[bytes, bytes]]:
        reply = self._redis.xreadgroup(GROUP, CONSUMER, {STREAM: start}, count=count)
        streams = reply.values() if isinstance(reply, dict) else [found[1] for found in reply or []]
        return [(entry_id, fields[_FIELD]) for entries in streams for entry_id, fields in _flat(entries)]

    def _make_group(self) -> None:
        try:
            self._redis.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        except redis.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise StreamError(str(error)) from error
        except redis.RedisError as error:
            raise StreamError(str(error)) from error

    def finish(self, ids: Sequence[bytes]) -> None:
        """Take entries out of the stream: they are in the database.

        Raises:
            StreamError: Redis is away; the entries will be read again.
        """
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.xack(STREAM, GROUP, *ids)
        pipeline.xdel(STREAM, *ids)
        try:
            pipeline.execute()
        except redis.RedisError as error:
            raise StreamError(str(error)) from error

    def length(self) -> int:
        """Give the number of entries that wait.

        Raises:
            StreamError: Redis is away.
        """
        try:
            return int(self._redis.xlen(STREAM))
        except redis.RedisError as error:
            raise StreamError(str(error)) from error


def _flat(entries: list) -> list:  # type: ignore[type-arg] # redis-py has one list more around them under RESP3
    return entries[0] if entries and isinstance(entries[0], list) else entries
