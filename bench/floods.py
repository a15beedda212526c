"""How an honest caller of the extender is affected by floods of strangers' connections, on this machine only.

`python -m bench.floods` starts an extender without a cluster and calls it every few ms, over one kept-alive connection and over a
new connection for each call: first without a flood, then during each flood, which another process makes. It prints
the p50 and the p99 of both, and how many calls failed. `--tls` adds client certificates. The server's limits are in
docs/security.md.
"""

import argparse
import http.client
import os
import selectors
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple, cast

from bench.extender import percentile
from bench.running import BASE_DIR, machine

HEAD = b"POST /filter HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
BODY = b'{"Pod":{"metadata":{"name":"p","namespace":"d","uid":"u"}},"NodeNames":["n1"]}'
CALL = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
# How many connections are open at once; a machine's limit of open files is often 1,024.
_AT_ONCE = 900
# A port can't be used again for a minute: one address of this machine has too few for a burst.
_SOURCES = 16
_DRIP_SECONDS = 0.2


class Attack(NamedTuple):
    """What each connection of a flood sends first and later, and whether it ends and reconnects.

    Attributes:
        connections: how many are open at once; for a burst, how many are made.
    """

    start: bytes
    drip: bytes
    connections: int = 480
    is_burst: bool = False


def _client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


ATTACKS = {
    "burst of connections": Attack(b"", b"", 40_000, is_burst=True),
    "burst of calls": Attack(CALL, b"", 40_000, is_burst=True),
    "slow heads": Attack(HEAD + b"X-Slow: ", b"x"),
    "half handshakes": Attack(_client_hello(), b""),
    "slow bodies": Attack(HEAD + b"Content-Length: 50000000\r\n\r\n{", b" "),
    "tiny chunks": Attack(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n" * 2700),
    "idle ones": Attack(b"", b""),
    "calls over the rate": Attack(CALL, CALL * 4, 32),
}


def _await_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def attack(name: str, port: int, count: int) -> None:
    """Make a flood until standard input ends."""
    chosen = ATTACKS[name]
    print("begun", flush=True)
    ended = threading.Event()
    threading.Thread(target=_await_end, args=[ended], daemon=True).start()
    if chosen.is_burst:
        _burst(chosen, port, count, ended)
        print("over", flush=True)
    else:
        _hold(chosen, port, count, ended)


def _connect(port: int, number: int, *, source: bool) -> socket.socket | None:
    made = socket.socket()
    made.settimeout(0)
    with suppress(OSError):
        if source:
            made.bind((f"127.0.0.{2 + number % _SOURCES}", 0))
        made.connect_ex(("127.0.0.1", port))
        return made
    made.close()
    return None


def _burst(chosen: Attack, port: int, count: int, ended: threading.Event) -> None:
    made: deque[socket.socket] = deque()
    for number in range(count):
        if ended.is_set():
            break
        if connection := _connect(port, number, source=True):
            made.append(connection)
        if len(made) > _AT_ONCE // 2 and chosen.start:
            with suppress(OSError):
                made[-_AT_ONCE // 4].send(chosen.start)
        if len(made) > _AT_ONCE:
            made.popleft().close()


def _hold(chosen: Attack, port: int, count: int, ended: threading.Event) -> None:
    """Hold connections that send something now and then; closed ones are opened again."""
    watched = selectors.DefaultSelector()
    while not ended.is_set():
        for number in range(count - len(watched.get_map())):
            if connection := _connect(port, number, source=False):
                watched.register(connection, selectors.EVENT_READ, [chosen.start])
        time.sleep(0.01 if chosen.drip == CALL * 4 else _DRIP_SECONDS)
        for key in list(watched.get_map().values()):
            with suppress(BlockingIOError):
                if not _goes_on(key, chosen):
                    connection = cast("socket.socket", watched.unregister(key.fileobj).fileobj)
                    connection.close()


def _goes_on(key: selectors.SelectorKey, chosen: Attack) -> bool:
    connection = key.fileobj
    assert isinstance(connection, socket.socket)  # noqa: S101 - nothing else was registered
    try:
        rest = key.data.pop() if key.data else chosen.drip
        if rest:
            connection.send(rest)
        while connection.recv(1 << 16):
            pass
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


class Felt(NamedTuple):
    """An honest caller's results: seconds of each answered call, and the errors of others."""

    seconds: list[float]
    failures: list[str]

    def __str__(self) -> str:
        times = self.seconds or [0.0]
        return (
            f"p50 {median(times) * 1e3:6.1f} ms  p99 {percentile(times, 0.99) * 1e3:6.1f} ms  "
            f"{len(self.failures)} of {len(self.seconds) + len(self.failures)} failed {sorted(set(self.failures)) or chr(32)}"
        )


# kube-scheduler's default httpTimeout.
_PATIENCE_SECONDS = 5.0


def call(
    port: int,
    *,
    keeps: bool,
    until: Callable[[], bool],
    context: ssl.SSLContext | None = None,
) -> Felt:
    """Call the extender every few ms."""
    felt = Felt([], [])

    def connect() -> http.client.HTTPConnection:
        if context:
            return http.client.HTTPSConnection("127.0.0.1", port, timeout=_PATIENCE_SECONDS, context=context)
        return http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_SECONDS)

    connection = connect()
    while not until():
        began = time.perf_counter()
        try:
            connection.request("POST", "/filter", BODY, {"Content-Type": "application/json"})
            status = connection.getresponse()
            status.read()
            if status.status != http.HTTPStatus.OK:
                felt.failures.append(str(status.status))
            else:
                felt.seconds.append(time.perf_counter() - began)
        except (OSError, http.client.HTTPException) as error:
            felt.failures.append(type(error).__name__)
            connection.close()
            connection = connect()
        if not keeps:
            connection.close()
            connection = connect()
        time.sleep(0.01)
    connection.close()
    return felt


@contextmanager
def flood(name: str, port: int, count: int = 0) -> Iterator[Callable[[], float]]:
    """Make a flood in another process; yields a function that waits for a burst's end and returns how long it took."""
    command = [sys.executable, "-m", "bench.floods", "--attack", name, "--port", str(port)]
    command += ["--count", str(count or ATTACKS[name].connections)]
    with subprocess.Popen(command, cwd=BASE_DIR, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:  # noqa: S603
        assert running.stdin is not None  # noqa: S101 - a pipe was asked for
        assert running.stdout is not None  # noqa: S101 - the same
        lines = running.stdout
        lines.readline()
        began = time.monotonic()

        def wait() -> float:
            lines.readline()
            return time.monotonic() - began

        try:
            yield wait
        finally:
            running.stdin.close()
            running.wait(timeout=60)


def beside(
    name: str,
    port: int,
    seconds: float,
    context: ssl.SSLContext | None = None,
    count: int = 0,
) -> tuple[Felt, Felt]:
    """Return the results of two callers during a flood: one keeps its connection, one makes a new one for each call."""
    felt: list[Felt | None] = [None, None]
    over = threading.Event()

    def run(index: int) -> None:
        felt[index] = call(port, keeps=not index, until=over.is_set, context=context)

    callers = [threading.Thread(target=run, args=(index,)) for index in (0, 1)]
    for caller in callers:
        caller.start()
    time.sleep(0.5)
    try:
        if name:
            with flood(name, port, count) as wait_for_its_end:
                if ATTACKS[name].is_burst:
                    print(f"{count or ATTACKS[name].connections} connections in {wait_for_its_end():.1f} s")
                else:
                    time.sleep(seconds)
        else:
            time.sleep(seconds)
    finally:
        over.set()
        for caller in callers:
            caller.join()
    kept, new = felt
    assert kept is not None  # noqa: S101 - the thread has ended
    assert new is not None  # noqa: S101 - the thread has ended
    return kept, new


def measure(port: int, asked: argparse.Namespace, context: ssl.SSLContext | None, names: Sequence[str]) -> None:
    """Print callers' results without a flood and during each flood."""
    for name in ("", *names):
        kept, new = beside(name, port, asked.seconds, context)
        print(f"{name or 'calm':>22} | kept {kept} | new {new}", flush=True)


def main() -> None:
    """Measure and print; with --attack, be the flood."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attack", choices=ATTACKS, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="*", choices=ATTACKS, default=list(ATTACKS))
    parser.add_argument("--seconds", type=float, default=6.0, help="of each flood")
    parser.add_argument("--tls", action="store_true", help="with client certificates")
    asked = parser.parse_args()
    if asked.attack:
        attack(asked.attack, asked.port, asked.count)
        return
    from tests.certificates import Files
    from tests.extender import Extender, client_context

    print(f"{machine()}; load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        files = Files(Path(folder) / "tls") if asked.tls else None
        context = client_context(files.server_ca, files.client()) if files else None
        with Extender(Path(folder), files.environment() if files else None) as extender:
            measure(extender.port, asked, context, asked.only)
            assert extender.process is not None  # noqa: S101 - it was started
            lived = extender.process.poll() is None and extender.log.count("Booting worker") == 1
            print("the extender's process lived" if lived else "THE EXTENDER'S PROCESS ENDED")


if __name__ == "__main__":
    main()
