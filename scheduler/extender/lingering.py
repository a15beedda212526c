"""Threads that stay with a connection for a moment after an answer.

kube-scheduler asks the next question within milliseconds. Without this its connection goes back to the loop's thread after
each answer, and from there to another thread: two changes of thread for a call, 90 µs of 200.
"""

import select
from typing import Any

STAY_SECONDS = 0.005


def more_comes(connection: Any) -> bool:
    """Wait a moment for the next request on a connection (gunicorn's TConn); tell whether it has begun to come."""
    if connection.parser.unreader.buf.getvalue():
        return True
    sock = connection.sock
    if getattr(sock, "pending", int)():  # TLS has read it already
        return True
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return bool(poller.poll(STAY_SECONDS * 1000))
