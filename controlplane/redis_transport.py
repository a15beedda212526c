"""Celery's connection to Redis, which outlives what Redis says to it.

When a master has become a replica, kombu v5.7.0 requests a lock right after connecting, is refused, and leaves the connection open
(transport/redis.py, on_poll_init). Celery reconnects at once: ten times a second, until the process runs out of file descriptors.
It does so, too, where Redis takes a connection and breaks it or refuses its first command, as to an account without the right for it.

When Redis ends while channels wait for messages, closing them fails. Celery then drops the connection's parameters and closes the channels once
more: returning unacknowledged messages to their queues raises an AttributeError (transport/redis.py, _connparams), which would end the worker.
So does acknowledging a message when its task ends after that: its channel is closed.

Everybody with Redis' password can put invalid messages into a queue. kombu raises what JSON or base64 says of one
(transport/redis.py, _brpop_read), which would end the worker or the binder.
"""

import logging
import time
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis

logger = logging.getLogger("berth.broker")

_PAUSE_SECONDS = 1.0
# In a queue: what beat sends within a quarter of an hour, when all but the newest have expired. Without a worker there are 40 MB more each hour.
_MOST_MESSAGES = 10_000


class QoS(redis.QoS):
    """Returns unacknowledged messages to their queues if Redis can be reached; otherwise they return after the visibility timeout.

    A message whose connection has ended can be neither acknowledged nor rejected, and returns likewise: its task is done again.
    """

    @property
    def _has_ended(self) -> bool:
        connection = self.channel.connection
        return connection is None or connection.client is None

    def restore_unacked(self, client: Any = None) -> None:
        """Return unacknowledged messages to their queues."""
        if self._has_ended:
            self._delivered.clear()
            return
        super().restore_unacked(client)  # type: ignore[no-untyped-call] # kombu has few types

    def ack(self, delivery_tag: str) -> None:
        """Note that the task of a message is done."""
        if not self._has_ended:
            super().ack(delivery_tag)  # type: ignore[no-untyped-call] # kombu has few types

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:  # noqa: FBT001, FBT002 - as kombu calls it
        """Discard a message, or return it to its queue."""
        if not self._has_ended:
            super().reject(delivery_tag, requeue)  # type: ignore[no-untyped-call] # kombu has few types


class Channel(redis.Channel):
    """Discards entries of Redis that aren't Celery messages, and ticks that nobody took before they expired."""

    QoS = QoS

    def _put(self, queue: str, message: Any, **options: Any) -> None:
        super()._put(queue, message, **options)  # type: ignore[no-untyped-call] # kombu has few types
        with self.conn_or_acquire() as client:
            client.ltrim(queue, 0, _MOST_MESSAGES - 1)

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)  # type: ignore[no-untyped-call] # kombu has few types
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            # Its text may quote the message.
            logger.error("a malformed message was taken from Redis and discarded: %s", type(error).__name__)  # noqa: TRY400
            return True


class Transport(redis.Transport):
    """Closes a connection to a server that refuses writes. Connections that don't last are a second apart."""

    Channel = Channel
    # By the monotonic clock. Each connection has a transport of its own.
    _next_at = 0.0

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Register with the worker's event loop, to wait for messages."""
        time.sleep(max(0.0, Transport._next_at - time.monotonic()))
        Transport._next_at = time.monotonic() + _PAUSE_SECONDS
        try:
            super().register_with_event_loop(connection, loop)  # type: ignore[no-untyped-call] # kombu has few types
        except self.channel_errors:
            self.close_connection(connection)  # type: ignore[no-untyped-call]
            raise


def use() -> None:
    """Make Celery use this transport for Redis URLs."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:{Transport.__name__}"
