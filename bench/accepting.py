"""The processor time that a flood's connection costs the server: how long a new caller waits for each.

`python -m bench.accepting` fills all places of a server with silent strangers, lets a thousand more wait in the kernel's accept queue,
and runs the server's loop step by step until it has accepted them. They send nothing (`silent`), or have already closed (`gone`). It
prints this process's time, and the kernel's share of it: the median and the best of several rounds. `bench.floods` measures what a
caller notices.
"""

import os
import selectors
import socket
import time
from contextlib import ExitStack
from statistics import median
from unittest import mock

from bench.arguments import parse_no_arguments
from bench.running import machine
from scheduler.http_server import server as module
from scheduler.http_server.body import Budget, WholeBody
from scheduler.http_server.connection import Listener
from scheduler.http_server.head import HeadLimits
from scheduler.http_server.listeners import base_environ
from scheduler.http_server.server import MOST_CONNECTIONS, Server

QUEUE = 1_000
ROUNDS = 9
# One address has too few ports for all rounds.
_SOURCES = 16


def _connect(stack: ExitStack, listener: socket.socket, number: int) -> socket.socket:
    made = stack.enter_context(socket.socket())
    made.bind((f"127.0.0.{2 + number % _SOURCES}", 0))
    made.connect(listener.getsockname())
    return made


def take(*, have_gone: bool) -> float:
    """Return the seconds of the processor for each connection."""
    with ExitStack() as stack:
        sock = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=4_096))
        budget = Budget(1 << 20)
        limits = HeadLimits(line=2_048, fields=32, field=4_096)
        listener = Listener(sock, lambda _, length: WholeBody(budget, length, most=1), limits, base_environ(sock))
        server = Server([listener], lambda *_: (), threads=0)
        for each, data in ((sock, listener), (server._alarm, None), (server._wake, None)):  # noqa: SLF001 - turned by hand
            each.settimeout(0)
            if each is not server._wake:  # noqa: SLF001 - as above
                server._selector.register(each, selectors.EVENT_READ, data)  # noqa: SLF001 - as above
        for number in range(MOST_CONNECTIONS):
            _connect(stack, sock, number)
        _turn_until_all_are_taken(server, sock)
        for number in range(QUEUE):
            waiting = _connect(stack, sock, number)
            if have_gone:
                waiting.close()
        began = time.process_time()
        _turn_until_all_are_taken(server, sock)
        used = time.process_time() - began
        server._end()  # noqa: SLF001 - as above
        return used / QUEUE


def _turn_until_all_are_taken(server: Server, sock: socket.socket) -> None:
    while module._is_readable(sock):  # noqa: SLF001 - turned by hand
        server._turn_round(0)  # noqa: SLF001 - as above


def main() -> None:
    """Measure and print."""
    parse_no_arguments(__doc__)
    print(f"{machine()}; load average {os.getloadavg()[0]:.1f}")
    # On a busy machine the round's time limit for strangers could pass before it is used.
    with mock.patch.object(module, "STRANGERS_SECONDS", 1.0):
        for name, have_gone in (("silent", False), ("gone", True)):
            seconds = [take(have_gone=have_gone) for _ in range(ROUNDS)]
            print(f"{name:>6}: median {median(seconds) * 1e6:.0f} µs, best {min(seconds) * 1e6:.0f} µs a connection")


if __name__ == "__main__":
    main()
