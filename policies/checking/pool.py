"""The few processes that check documents for this one: started on first use, and kept warm."""

import atexit
import contextlib
import io
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from policies.checking.limits import (
    BATCH_BYTES,
    BATCH_DOCUMENTS,
    BUSY,
    CROWDED,
    LONG_AT_ONCE,
    LONG_SECONDS,
    PROCESSES,
    REQUEST_SECONDS,
    TOO_DEEP,
    TOO_LONG,
    TOO_MUCH,
    WAIT_SECONDS,
    WALL_SECONDS,
)
from policies.checking.wire import read_faults, write_faults
from policies.engine.errors import Fault, RuleSetError

# "done", "refused" or "failed", as in `worker`, and the result, the faults, or a traceback.
Answer = tuple[str, Any]

logger = logging.getLogger("berth.checking")

_ROOT = Path(__file__).resolve().parents[2]
# Nothing of the parent's environment, which has secrets. One thread: numpy would reserve memory for one per core.
_ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1"}
# How a process ends that took no more than it may: it was idle for long, or somebody killed it, mostly the kernel for want of memory.
_ENDS_OF_OTHERS = {0, -signal.SIGKILL, -signal.SIGTERM}
# How long a process whose socket has ended may take to end itself.
_ENDING_SECONDS = 2.0


class CheckingError(RuntimeError):
    """The checking process met a fault of Berth's own; with its traceback."""


class _Request:
    """The time for the checks of one request, and its place among the long ones, once it is one."""

    _places = threading.BoundedSemaphore(LONG_AT_ONCE)

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._has_place = False

    def why_not(self) -> str:
        """Return why no further check may begin; empty if one may."""
        taken = time.monotonic() - self._began
        if taken >= REQUEST_SECONDS:
            return TOO_LONG
        if taken >= LONG_SECONDS and not self._has_place:
            self._has_place = self._places.acquire(blocking=False)
            return "" if self._has_place else CROWDED
        return ""

    def end(self) -> None:
        """Leave the place to others."""
        if self._has_place:
            self._places.release()


# None for commands and tasks, whose checks take the time that they need.
_request: ContextVar[_Request | None] = ContextVar("request", default=None)


class _Unpickler(pickle.Unpickler):
    """Reads the answers of a process that has read untrusted documents: only plain values, no objects of classes."""

    def find_class(self, module: str, name: str) -> Any:
        message = f"{module}.{name} is no part of an answer"
        raise pickle.UnpicklingError(message)


class _Worker:
    """One process, and the socket to it."""

    def __init__(self) -> None:
        ours, its = socket.socketpair()
        with its:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "policies.checking.worker", str(its.fileno())],
                cwd=_ROOT,
                env=_ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                # Ctrl-C in a terminal is for the parent; the process ends when its socket does. It stays in the parent's
                # session, so that a gate's processes have a lower priority together.
                process_group=0,
            )
        self._connection = Connection(ours.detach())

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, name: str, asked: Sequence[bytes]) -> tuple[list[Answer], bool | None]:
        """Return the answers received, in order, and whether the process goes on; None if it died or timed out on the next."""
        answers: list[Answer] = []
        with contextlib.suppress(EOFError, ConnectionError):
            self._connection.send((name, asked))
            while self._connection.poll(WALL_SECONDS):
                kind, found = _Unpickler(io.BytesIO(self._connection.recv_bytes())).load()
                if kind == "end":
                    return answers, found
                answers.append((kind, found))
        return answers, None

    def was_ended(self) -> bool:
        """Return whether a process that gave no answer has ended for a reason that isn't the document's."""
        try:
            return self._process.wait(_ENDING_SECONDS) in _ENDS_OF_OTHERS
        except subprocess.TimeoutExpired:
            return False  # it hangs

    def end(self) -> int:
        self._connection.close()
        self._process.kill()
        return self._process.wait()


class _Pool:
    """At most PROCESSES processes. Thread-safe."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(PROCESSES)
        self._idle: list[_Worker] = []

    def run(self, name: str, asked: Iterable[tuple[Any, ...]]) -> list[Answer]:
        """Return an answer for each request, in order."""
        packed = [_packed(arguments) for arguments in asked]
        answers: list[Answer] = [_refused(TOO_DEEP)] * len(packed)
        waiting = deque((at, each) for at, each in enumerate(packed) if each is not None)
        request = _request.get()
        while waiting:
            refusal = request.why_not() if request else ""
            if not refusal and not self._free.acquire(timeout=WAIT_SECONDS):
                refusal = BUSY
            if refusal:
                for at, _ in waiting:
                    answers[at] = _refused(refusal)
                break
            try:
                found = self._asked(name, _batch(waiting))
            finally:
                self._free.release()
            for answer in found:
                answers[waiting.popleft()[0]] = answer
        return answers

    def _asked(self, name: str, asked: Sequence[bytes]) -> list[Answer]:
        """Return answers for the first requests: at least one."""
        # Once more, and no oftener: on a machine without memory, the document may be why the process is killed.
        return self._answered(name, asked) or self._answered(name, asked) or [_refused(TOO_MUCH)]

    def _answered(self, name: str, asked: Sequence[bytes]) -> list[Answer]:
        """Return one process's answers for the first requests; none if somebody else ended it before."""
        worker = self._take()
        try:
            answers, stays = worker.ask(name, asked)
        except BaseException:
            worker.end()
            raise
        if stays:
            self._idle.append(worker)
            return answers
        is_refused = stays is None and not worker.was_ended()
        code = worker.end()
        if stays is None:
            logger.warning("a check's process ended early: %s, exit %s", name, code)
        return [*answers, _refused(TOO_MUCH)] if is_refused else answers

    def end(self) -> None:
        """End the idle processes."""
        while self._idle:
            self._idle.pop().end()

    def _take(self) -> _Worker:
        """Take an idle process that is alive, or start one."""
        while self._idle:
            worker = self._idle.pop()
            if worker.is_alive():
                return worker
            worker.end()
        return _Worker()


_pool = _Pool()


def _start_anew() -> None:
    """After a fork, leave the processes to the parent: the child starts its own."""
    global _pool  # noqa: PLW0603 - one a process
    _pool = _Pool()


def end() -> None:
    """End the processes; the next check starts another."""
    _pool.end()


os.register_at_fork(after_in_child=_start_anew)
atexit.register(end)


@contextlib.contextmanager
def for_one_request() -> Iterator[None]:
    """Enclose the answering of a request: when it has taken REQUEST_SECONDS, documents that aren't checked yet are refused.

    So are they after LONG_SECONDS, while LONG_AT_ONCE others take longer than that.
    """
    request = _Request()
    token = _request.set(request)
    try:
        yield
    finally:
        _request.reset(token)
        request.end()


def run(name: str, *arguments: Any) -> Any:
    """Run a job of `jobs` in a process with limits.

    Raises:
        RuleSetError: with the faults of the document, or because it exceeds a limit.
        CheckingError: a fault of Berth's own.
    """
    (found,) = run_each(name, [arguments])
    if isinstance(found, RuleSetError):
        raise found
    return found


def run_each(name: str, asked: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Run a job for each of many documents, with limits for each. Return each result or RuleSetError, in order.

    Raises:
        CheckingError: a fault of Berth's own.
    """
    return [_made(*answer) for answer in _pool.run(name, asked)]


def _made(kind: str, found: Any) -> Any:
    if kind == "failed":
        raise CheckingError(found)
    return found if kind == "done" else RuleSetError(read_faults(found))


def _refused(message: str) -> Answer:
    return "refused", write_faults([Fault("", message)])


def _packed(arguments: tuple[Any, ...]) -> bytes | None:
    """Return a request as bytes, which the process reads one by one; None where the document is nested too deeply."""
    try:
        return pickle.dumps(arguments)
    except RecursionError:
        return None


def _batch(waiting: Iterable[tuple[int, bytes]]) -> list[bytes]:
    """Return the first waiting requests, as many as fit into one message: at least one."""
    batch: list[bytes] = []
    room = BATCH_BYTES
    for _, each in islice(waiting, BATCH_DOCUMENTS):
        room -= len(each)
        if batch and room < 0:
            break
        batch.append(each)
    return batch
