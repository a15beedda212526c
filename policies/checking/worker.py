"""The process that checks documents: `python -m policies.checking.worker FD`, called over the socket of that number.

A request has one or many documents. The process answers for each as soon as it is checked, and resets the limits before each. Then
it sends an end mark: the caller sends documents without an answer again.

It has no Django, no settings and none of its parent's environment. A check that takes too much time ends it by SIGXCPU, one that
takes too much memory by MemoryError or an abort in CEL: the caller sees the end of the socket, and starts another process.
"""

import contextlib
import math
import pickle
import resource
import sys
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from policies.checking.jobs import JOBS
from policies.checking.limits import CPU_SECONDS, IDLE_SECONDS, MEMORY_BYTES, TURN_SECONDS
from policies.checking.wire import write_faults
from policies.engine.errors import RuleSetError

# The prefix of an answer.
DONE: Final = "done"
REFUSED: Final = "refused"
FAILED: Final = "failed"
# The end mark of the answers, with whether the process goes on.
END: Final = "end"
# The memory that earlier checks may leave behind, before the process ends and another one replaces it.
_MOST_LEFT_BEHIND = MEMORY_BYTES // 4


def serve(connection: Connection) -> None:
    """Answer until the other end is closed, or the process was idle for long."""
    _bound_memory()
    fresh = _most_memory()
    with contextlib.suppress(EOFError, ConnectionError):
        while connection.poll(IDLE_SECONDS):
            name, asked = connection.recv()
            until, stays = time.monotonic() + TURN_SECONDS, True
            for each in asked:
                _bound_time()
                connection.send(_answer(name, each))
                stays = _most_memory() <= fresh + _MOST_LEFT_BEHIND
                if not stays or time.monotonic() > until:
                    break
            connection.send((END, stays))
            if not stays:
                return


def _answer(name: str, arguments: bytes) -> tuple[str, Any]:
    try:
        return DONE, JOBS[name](*pickle.loads(arguments))  # noqa: S301 - of the process that started this one
    except RuleSetError as error:
        return REFUSED, write_faults(error.faults)
    except MemoryError:
        raise SystemExit(1) from None
    except Exception:  # noqa: BLE001 - told to whoever asked, who raises it
        return FAILED, traceback.format_exc()


def _bound_memory() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY_BYTES, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # If the machine itself runs out of memory, this process is killed first.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("900", encoding="ascii")


def _bound_time() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used.ru_utime + used.ru_stime) + CPU_SECONDS, hard))


def _most_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
