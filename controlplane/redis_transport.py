"""Celery's connection to Redis, which pauses between attempts while the server is a replica and refuses writes.

Where a master became a replica, kombu v5.7.0 asks it for a lock as soon as it is connected, is refused, and leaves the connection open
(transport/redis.py, on_poll_init). Celery connects anew at once: ten times a second, until no file can be opened any more.
"""

import time
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis

_PAUSE_SECONDS = 1.0


class Transport(redis.Transport):
    """Closes a connection to a server that refuses, and pauses before Celery makes another."""

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Let the worker's loop wait for messages."""
        try:
            super().register_with_event_loop(connection, loop)  # type: ignore[no-untyped-call] # kombu has few types
        except self.channel_errors:
            self.close_connection(connection)  # type: ignore[no-untyped-call]
            time.sleep(_PAUSE_SECONDS)
            raise


def use() -> None:
    """Let Celery use it for Redis' URLs."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:{Transport.__name__}"
