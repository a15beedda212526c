"""How processes use memory. docs/performance.md has the figures."""

import ctypes
import gc
import resource
import sys
import threading

# malloc.h of glibc
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
# Bytes. The most that glibc takes for this.
_LARGEST_KEPT = 32 << 20

# Bytes of freed memory that stay with the process.
_MOST_KEPT = 256 << 20

# What most machines give a thread. Only what is used of it takes memory.
_STACK_BYTES = 8 << 20


def widen_stacks() -> None:
    """Widen the stack of threads that are started later to what reading takes.

    Python 3.13 reads ten thousand levels of lists, which take 4 MB. Where `ulimit -s` says "unlimited", glibc gives a thread 2 MB, and
    whoever sent such a text ended the process.
    """
    given, _ = resource.getrlimit(resource.RLIMIT_STACK)
    if given == resource.RLIM_INFINITY or given < _STACK_BYTES:
        threading.stack_size(_STACK_BYTES)


def keep_freed_memory() -> None:
    """Use freed memory again, where the C library is glibc; call it before threads are started.

    A body with full nodes has megabytes. By default glibc gets memory of this size from the kernel anew for each call,
    which hands it out page by page and zeroes it: that took longer than deciding.
    """
    library = ctypes.CDLL(None)
    if sys.platform != "linux" or not hasattr(library, "gnu_get_libc_version"):
        return
    library.mallopt(_M_ARENA_MAX, 1)
    library.mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT)
    library.mallopt(_M_TRIM_THRESHOLD, _MOST_KEPT)


def shorten_pauses() -> None:
    """Put what lives for good out of the garbage collector's sight; call it when all is loaded.

    Its pauses are the slowest calls otherwise.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
