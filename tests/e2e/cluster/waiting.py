"""Waiting for a cluster to get where a test wants it."""

import time
from collections.abc import Callable


def eventually(condition: Callable[[], bool], *, seconds: float = 30.0) -> bool:
    """Wait until a condition holds; False when the time is up."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
