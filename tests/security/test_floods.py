"""Strangers that flood a server: it goes on, and whoever calls honestly is answered. `python -m bench.floods` has the times.

Floods come from a process of their own, and over the loopback alone. SECURITY=whole makes bursts of 40,000. No time is asserted
but the worker's own on the processor: other tests have the processors at the same moment.
"""

import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from bench.floods import ATTACKS, flood
from scheduler.http_server.server import MOST_CONNECTIONS
from scheduler.serving.probes import Probes
from tests.certificates import Files
from tests.extender import BASE_DIR, Extender, client_context, free_port, post
from tests.stack import eventually

WHOLE = os.environ.get("SECURITY") == "whole"
BURST = 40_000 if WHOLE else 6_000
# Calls beside each flood, half of them on a connection of their own.
CALLS = 200 if WHOLE else 20
# Of the worker's own on the processor, while one call is under way: what it does for strangers first. Who is known waits for a turn,
# who is new behind all who stand in the listener's backlog before it, 2,048 at most. kube-scheduler gives up after 5 s.
MOST_CPU_SECONDS_KNOWN, MOST_CPU_SECONDS_NEW = 2.0, 5.0
TRIES = 3


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


# A burst of calls, each over a connection of its own, comes faster on a fast machine than first calls may: that is another test's.
WITHOUT_RATE = {"BERTH_EXTENDER_CALLS_PER_SECOND": "1000000"}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extender]:
    with Extender(tmp_path_factory.mktemp("plain"), WITHOUT_RATE) as extender:
        yield extender


@pytest.fixture(scope="module")
def secured(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extender]:
    with Extender(tmp_path_factory.mktemp("secured"), files.environment() | WITHOUT_RATE) as extender:
        yield extender


def workers(extender: Extender) -> list[int]:
    """The processes that serve: the master's children."""
    assert extender.process is not None
    children = Path(f"/proc/{extender.process.pid}/task/{extender.process.pid}/children")
    return [int(number) for number in children.read_text().split()]


def sockets_of(worker: int) -> int:
    """How many it has open, those that listen among them."""
    found = 0
    for descriptor in Path(f"/proc/{worker}/fd").iterdir():
        with suppress(FileNotFoundError):
            found += str(descriptor.readlink()).startswith("socket:")
    return found


def cpu_seconds(worker: int) -> float:
    fields = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Honest:
    """Who calls beside strangers, over one connection that it keeps and over new ones; each call is looked at."""

    def __init__(self, extender: Extender, context: ssl.SSLContext | None = None) -> None:
        self._extender, self._context = extender, context
        self._kept = self._connect()
        # What the flood before has left to be answered goes first. Who calls again comes before those who call once.
        self._answer = post(self._kept)
        assert self._answer[0] == 200
        assert post(self._kept) == self._answer
        self._port = self._kept.sock.getsockname()
        (self._worker,) = workers(extender)
        eventually(lambda: sockets_of(self._worker) < 64, what="the strangers of before have gone")
        self._sockets = sockets_of(self._worker)

    def _connect(self) -> HTTPConnection:
        return self._extender.connect(self._context, timeout=None)

    def call(self) -> None:
        """Call once in each way: the answer is right, and strangers weren't many, nor given much time."""
        for ask, most in ((self._ask, MOST_CPU_SECONDS_KNOWN), (self._ask_anew, MOST_CPU_SECONDS_NEW)):
            before = cpu_seconds(self._worker)
            assert ask() == self._answer
            assert cpu_seconds(self._worker) - before < most
            assert sockets_of(self._worker) <= self._sockets + MOST_CONNECTIONS

    def _ask(self) -> Any:
        return post(self._kept)

    def _ask_anew(self) -> Any:
        """Ask over a new connection. Until it has said something it is a stranger's, and may be let go: then over another."""
        for _ in range(TRIES - 1):
            with closing(self._connect()) as new, suppress(ConnectionResetError, BrokenPipeError):
                return post(new)
        with closing(self._connect()) as new:
            return post(new)

    def wait_for_strangers(self, number: int) -> None:
        eventually(lambda: sockets_of(self._worker) >= self._sockets + number, what="the flood is there")

    def has_been_served_throughout(self) -> bool:
        """Whether by one process, and on one connection."""
        assert self._extender.process is not None
        is_the_same = workers(self._extender) == [self._worker] and self._extender.process.poll() is None
        return is_the_same and self._kept.sock.getsockname() == self._port


def call_beside(attack: str, extender: Extender, context: ssl.SSLContext | None = None) -> None:
    """Call while a flood goes on; a burst to its end."""
    honest = Honest(extender, context)
    with flood(attack, extender.port, BURST if ATTACKS[attack].is_burst else 0) as wait:
        if not ATTACKS[attack].is_burst:
            honest.wait_for_strangers(ATTACKS[attack].connections // 2)
        ending = threading.Thread(target=wait if ATTACKS[attack].is_burst else lambda: None)
        ending.start()
        calls = 0
        while ending.is_alive() or calls < CALLS:
            honest.call()
            calls += 2
    honest.call()
    assert honest.has_been_served_throughout()


@pytest.mark.parametrize("attack", ATTACKS)
def test_who_calls_beside_a_flood_is_answered_each_time(plain: Extender, attack: str) -> None:
    call_beside(attack, plain)


@pytest.mark.parametrize("attack", ["burst of connections", "half handshakes", "idle ones"])
def test_who_has_a_certificate_is_answered_beside_strangers_that_have_none(
    secured: Extender, files: Files, attack: str
) -> None:
    call_beside(attack, secured, client_context(files.server_ca, files.client()))


@contextmanager
def frozen(process: int) -> Iterator[None]:
    """Stop a process: what comes meanwhile it sees at one look."""
    os.kill(process, signal.SIGSTOP)
    try:
        eventually(lambda: Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        yield
    finally:
        os.kill(process, signal.SIGCONT)


@pytest.mark.parametrize("word", [b"G", b""], ids=["speaks", "hangs up"])
def test_who_stirs_in_the_moment_that_it_would_be_let_go_does_not_end_the_worker(plain: Extender, word: bytes) -> None:
    """A burst without chance in it: room is to be made at the same look at which those who would go have something."""
    honest = Honest(plain)
    (worker,) = workers(plain)
    with ExitStack() as stack:

        def connect() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", plain.port)))

        silent = [connect() for _ in range(600)]
        honest.wait_for_strangers(480)
        with frozen(worker):
            new = [connect() for _ in range(200)]
            for stranger in silent:
                with suppress(OSError):  # there was no room for some
                    stranger.sendall(word) if word else stranger.close()
        honest.call()
        assert len(new) == 200
    honest.call()
    assert honest.has_been_served_throughout()


def test_a_flood_of_the_probes_does_not_reach_the_calls(secured: Extender, files: Files) -> None:
    honest = Honest(secured, client_context(files.server_ca, files.client()))
    with ExitStack() as stack:
        for _ in range(700):
            stack.enter_context(socket.create_connection(("127.0.0.1", secured.probes_port)))
        honest.call()
        assert secured.ask("GET", "/livez", patience_seconds=None)[0] == 200
    assert honest.has_been_served_throughout()


def test_strangers_leave_a_process_with_few_files_enough_for_its_own(tmp_path: Path) -> None:
    """256 are what a shell on macOS gives. The hard limit is lowered too, so that the process can't help itself."""
    extender = Extender(tmp_path)
    try:
        extender.launch()
        assert extender.process is not None
        resource.prlimit(extender.process.pid, resource.RLIMIT_NOFILE, (256, 256))  # before it starts its worker
        eventually(lambda: extender.says_yes("livez"), what="the extender answers")
        with ExitStack() as stack:
            for _ in range(300):
                stack.enter_context(socket.create_connection(("127.0.0.1", extender.port)))
            (worker,) = workers(extender)
            files = Path(f"/proc/{worker}/fd")
            eventually(lambda: len(list(files.iterdir())) > 96, what="the flood is there")
            assert post(extender.connect())[0] == 200
            assert len(list(files.iterdir())) < 192
    finally:
        extender.stop()
    assert "Too many open files" not in extender.log


SLOW = (
    b"",
    b"G",
    b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: ",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx",
)


@pytest.mark.parametrize("count", [9, 500])
def test_slow_clients_do_not_stop_the_probes_of_the_other_processes(count: int) -> None:
    port = free_port()
    probes = Probes(f"127.0.0.1:{port}", unready=list)
    probes.start()
    try:
        ask_beside_slow_clients(port, count)
    finally:
        probes.stop()


def ask_beside_slow_clients(port: int, count: int) -> None:
    with ExitStack() as stack:
        for number in range(count):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            slow.sendall(SLOW[number % len(SLOW)])
        for _ in range(5):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez") as answer:
                assert answer.status == 200


def is_up(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez") as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_slow_clients_do_not_stop_the_admin(tmp_path: Path) -> None:
    port = free_port()
    environment = {name: text for name, text in os.environ.items() if not name.startswith("BERTH_")}
    environment |= {"BERTH_LOCAL": "true", "BERTH_STATE_DIR": str(tmp_path / "state")}
    command = [sys.executable, "-m", "gunicorn", "-c", "python:controlplane.gunicorn_conf", "-b", f"127.0.0.1:{port}"]
    with subprocess.Popen(
        [*command, "controlplane.wsgi"], cwd=BASE_DIR, env=environment, stderr=subprocess.DEVNULL
    ) as admin:
        try:
            eventually(lambda: is_up(port), what="the admin answers")
            for count in (9, 500):
                ask_beside_slow_clients(port, count)
            assert admin.poll() is None
        finally:
            admin.terminate()


def test_a_caller_over_its_rate_does_not_use_up_another_s(tmp_path: Path) -> None:
    """Without certificates all are on this machine; a connection that was answered has a rate of its own."""
    with Extender(tmp_path, {"BERTH_EXTENDER_CALLS_PER_SECOND": "10"}) as extender:
        honest, other = extender.connect(), extender.connect()
        assert post(honest)[0] == 200
        assert 429 in {post(other)[0] for _ in range(60)}
        assert [post(honest)[0] for _ in range(5)] == [200] * 5


def test_a_body_in_chunks_is_read_as_one_of_known_length(plain: Extender) -> None:
    pieces = [b'{"Pod":{"metadata":{"name":"p","namespace":"d","uid":"u"}},', b'"NodeNames":["n1"]}']
    connection = plain.connect()
    connection.request("POST", "/filter", iter(pieces), {"Content-Type": "application/json"}, encode_chunked=True)
    in_chunks = connection.getresponse().read()
    assert b"empty" not in in_chunks
    connection.request("POST", "/filter", b"".join(pieces), {"Content-Type": "application/json"})
    assert connection.getresponse().read() == in_chunks


def test_a_body_in_chunks_over_the_limit_is_refused_in_words(tmp_path: Path) -> None:
    with Extender(tmp_path, {"BERTH_EXTENDER_MAX_BODY_BYTES": "100000"}) as extender:
        connection = extender.connect()
        pieces = [b" " * 50_000] * 3
        connection.request("POST", "/filter", iter(pieces), {"Content-Type": "application/json"}, encode_chunked=True)
        answer = connection.getresponse()
        assert answer.status == 413
        assert b"BERTH_EXTENDER_MAX_BODY_BYTES" in answer.read()


def test_a_certificate_that_is_not_said_to_be_for_clients_is_refused(secured: Extender, files: Files) -> None:
    silent = files.client(says_purpose=False)
    assert post(secured.connect(client_context(files.server_ca, silent)))[0] == 403
    assert post(secured.connect(client_context(files.server_ca, files.client())))[0] == 200
