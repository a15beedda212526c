"""Tunes the memory use of processes. docs/performance.md has the figures."""

import ctypes
import gc
import resource
import sys
import threading

# malloc.h of glibc
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
# Bytes. The largest value that glibc accepts for this.
_LARGEST_KEPT = 32 << 20

# Bytes of freed memory that stay with the process.
_MOST_KEPT = 256 << 20

# The default stack of a thread on most machines. Only the used part takes memory.
_STACK_BYTES = 8 << 20


def widen_stacks() -> None:
    """Enlarge the stack of threads that are started later, so that deeply nested JSON can be decoded.

    Python 3.13 decodes ten thousand levels of lists, which take 4 MB of stack. With `ulimit -s unlimited`, glibc gives a thread
    2 MB, and such a text from a client would crash the process.
    """
    given, _ = resource.getrlimit(resource.RLIMIT_STACK)
    if given == resource.RLIM_INFINITY or given < _STACK_BYTES:
        threading.stack_size(_STACK_BYTES)


def keep_freed_memory() -> None:
    """Reuse freed memory, if the C library is glibc; call this before threads are started.

    A body with full nodes takes megabytes. By default glibc gets memory of this size from the kernel for each call,
    which maps it page by page and zeroes it: that took longer than deciding.
    """
    library = ctypes.CDLL(None)
    if sys.platform != "linux" or not hasattr(library, "gnu_get_libc_version"):
        return
    library.mallopt(_M_ARENA_MAX, 1)
    library.mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT)
    library.mallopt(_M_TRIM_THRESHOLD, _MOST_KEPT)


def shorten_pauses() -> None:
    """Exclude permanent objects from garbage collection; call this when everything is imported.

    Otherwise the collector's pauses cause the slowest calls.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
