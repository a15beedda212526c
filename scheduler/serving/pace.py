"""Lets the thread that loads a Revision yield the CPU to calls."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

# The longest rest, and the longest extension of it for calls in progress.
_LONGEST_SECONDS = 0.004
_LOOK_SECONDS = 0.0002

# A call gets the interpreter lock from another thread within this time. Python's default is 5 ms, and a call needs the lock
# several times: after each wait for a socket or the disk.
_SWITCH_SECONDS = 0.0005


class CallsInHand:
    """The threads that answer a call at this moment."""

    def __init__(self) -> None:
        self._threads: set[int] = set()

    def __enter__(self) -> None:
        self._threads.add(get_ident())

    def __exit__(self, *_: object) -> None:
        self._threads.discard(get_ident())

    def __bool__(self) -> bool:
        return bool(self._threads)


# The process's instance.
CALLS_IN_HAND = CallsInHand()


class Pace:
    """Rests between steps of work, so that a call waits for at most one step. For one thread."""

    def __init__(self, calls: CallsInHand = CALLS_IN_HAND) -> None:
        self._calls = calls
        self._worked_before = time.thread_time()

    def rest(self) -> None:
        """Rest as long as the thread worked since the last rest; then longer while calls are in progress, up to a limit."""
        worked = time.thread_time() - self._worked_before
        time.sleep(min(max(worked, 0.0), _LONGEST_SECONDS))
        until = time.monotonic() + _LONGEST_SECONDS
        while self._calls and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
        self._worked_before = time.thread_time()


def switch_often() -> None:
    """Shorten this process's thread switch interval permanently: shipping and watching take milliseconds at a time."""
    sys.setswitchinterval(_SWITCH_SECONDS)


@contextmanager
def switching_often() -> Iterator[None]:
    """Shorten the thread switch interval inside the `with` block."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(min(usual, _SWITCH_SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
