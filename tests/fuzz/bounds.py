"""What reading a body may take: time and memory in proportion to its size."""

import signal
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Of the processor, so that a busy machine changes nothing. No body of the fuzzers' size takes a thousandth of this.
HANG_SECONDS = 20
BASE_BYTES = 2_000_000
# The dearest JSON for Python is `{"":0}` in a list: a dict of some 200 bytes for seven.
BYTES_FOR_EACH = 150


class HangError(Exception):
    """Reading didn't end."""


@contextmanager
def no_hang() -> Iterator[None]:
    """Raise HangError in code that computes for too long. Main thread only."""

    def stop(number: int, frame: object) -> None:
        raise HangError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, HANG_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def peak_bytes(run: Callable[[], object]) -> int:
    """Return the most memory that Python's allocators held for it at once."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
