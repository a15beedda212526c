"""Celery's connection to Redis, which pauses between attempts while the server is a replica and refuses writes.

When a master has become a replica, kombu v5.7.0 requests a lock right after connecting, is refused, and leaves the connection open
(transport/redis.py, on_poll_init). Celery reconnects at once: ten times a second, until the process runs out of file descriptors.
"""

import time
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis

_PAUSE_SECONDS = 1.0


class Transport(redis.Transport):
    """Closes a connection to a server that refuses writes, and pauses before Celery opens another."""

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Register with the worker's event loop, to wait for messages."""
        try:
            super().register_with_event_loop(connection, loop)  # type: ignore[no-untyped-call] # kombu has few types
        except self.channel_errors:
            self.close_connection(connection)  # type: ignore[no-untyped-call]
            time.sleep(_PAUSE_SECONDS)
            raise


def use() -> None:
    """Make Celery use this transport for Redis URLs."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:{Transport.__name__}"
