"""The few processes that check documents for this one: started when first needed, and kept warm."""

import atexit
import contextlib
import io
import logging
import os
import pickle
import socket
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from policies.checking.limits import BUSY, PROCESSES, TOO_DEEP, TOO_MUCH, WAIT_SECONDS, WALL_SECONDS
from policies.checking.wire import read_faults, write_faults
from policies.engine.errors import Fault, RuleSetError

logger = logging.getLogger("berth.checking")

_ROOT = Path(__file__).resolve().parents[2]
# Nothing of the parent's environment, which has secrets. One thread: numpy would reserve memory for one a core.
_ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1"}


class CheckingError(RuntimeError):
    """The checking process met a fault of Berth's own; with its traceback."""


class _Unpickler(pickle.Unpickler):
    """Reads what the process answers, which has read strangers' documents: plain values, and objects of no class."""

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
                # Ctrl-C in a terminal is for the parent; the process ends when its socket does.
                start_new_session=True,
            )
        self._connection = Connection(ours.detach())

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, name: str, arguments: tuple[Any, ...]) -> tuple[str, Any] | None:
        """Return the answer; None where the process ended over it, or took too long."""
        with contextlib.suppress(EOFError, ConnectionError):
            self._connection.send((name, arguments))
            if self._connection.poll(WALL_SECONDS):
                answer: tuple[str, Any] = _Unpickler(io.BytesIO(self._connection.recv_bytes())).load()
                return answer
        return None

    def end(self) -> int:
        self._connection.close()
        self._process.kill()
        return self._process.wait()


class _Pool:
    """At most PROCESSES of them. Safe to use from several threads."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(PROCESSES)
        self._idle: list[_Worker] = []

    def run(self, name: str, arguments: tuple[Any, ...]) -> Any:
        if not self._free.acquire(timeout=WAIT_SECONDS):
            raise RuleSetError([Fault("", BUSY)])
        try:
            kind, found = self._asked(name, arguments)
        finally:
            self._free.release()
        if kind == "done":
            return found
        if kind == "refused":
            raise RuleSetError(read_faults(found) or [])
        raise CheckingError(found)

    def _asked(self, name: str, arguments: tuple[Any, ...]) -> tuple[str, Any]:
        worker = self._take()
        try:
            answer = worker.ask(name, arguments)
        except RecursionError:
            self._idle.append(worker)  # nothing was sent
            return "refused", write_faults([Fault("", TOO_DEEP)])
        except BaseException:
            worker.end()
            raise
        if answer is not None:
            self._idle.append(worker)
            return answer
        logger.warning("a check was ended: %s, exit %s", name, worker.end())
        return "refused", write_faults([Fault("", TOO_MUCH)])

    def end(self) -> None:
        """End the processes that nobody is asking."""
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
    """Leave the processes to the parent: a child that was forked has its own."""
    global _pool  # noqa: PLW0603 - one a process
    _pool = _Pool()


def end() -> None:
    """End the processes; the next check starts another."""
    _pool.end()


os.register_at_fork(after_in_child=_start_anew)
atexit.register(end)


def run(name: str, *arguments: Any) -> Any:
    """Do a job of `jobs` in a process with limits.

    Raises:
        RuleSetError: with the faults of the document, or because it takes too much.
        CheckingError: a fault of Berth's own.
    """
    return _pool.run(name, arguments)
