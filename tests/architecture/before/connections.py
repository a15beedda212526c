"""Tried on `f51a37f` and the commit before: silent connections that stir while room is made for others don't end the worker."""

import os
import signal
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.extender import Extender, post


def test_the_worker_outlives_those_who_stir_in_the_moment_that_they_would_be_let_go(tmp_path: Path) -> None:
    with Extender(tmp_path) as extender, ExitStack() as stack:

        def connect() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", extender.port)))

        assert post(extender.connect())[0] == 200
        assert extender.process is not None
        children = Path(f"/proc/{extender.process.pid}/task/{extender.process.pid}/children")
        (worker,) = map(int, children.read_text().split())
        silent = [connect() for _ in range(600)]
        assert post(extender.connect())[0] == 200
        os.kill(worker, signal.SIGSTOP)
        for _ in range(200):
            connect()
        for stranger in silent:
            with suppress(OSError):
                stranger.sendall(b"G")
        os.kill(worker, signal.SIGCONT)

        with suppress(OSError):
            post(extender.connect())
        assert post(extender.connect())[0] == 200
        assert list(map(int, children.read_text().split())) == [worker]
