"""Strangers that flood a server: it goes on, and whoever calls honestly is answered. `python -m bench.floods` has the times.

Floods come from a process of their own, and over the loopback alone. SECURITY=whole makes bursts of 40,000.
"""

import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.floods import ATTACKS, beside
from scheduler.serving.probes import Probes
from tests.certificates import Files
from tests.extender import BASE_DIR, Extender, client_context, free_port, post
from tests.stack import eventually

WHOLE = os.environ.get("SECURITY") == "whole"
BURST = 40_000 if WHOLE else 6_000
# How long it takes is no matter here: other tests have the processors at the same time.
PATIENCE = 60.0
SECONDS = 20.0 if WHOLE else 2.0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extender]:
    with Extender(tmp_path_factory.mktemp("plain")) as extender:
        yield extender


@pytest.fixture(scope="module")
def secured(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extender]:
    with Extender(tmp_path_factory.mktemp("secured"), files.environment()) as extender:
        yield extender


def lives(extender: Extender) -> bool:
    """Whether its first worker is the one that runs."""
    assert extender.process is not None
    return extender.process.poll() is None and extender.log.count("Booting worker") == 1


def wait_for_calm(extender: Extender) -> None:
    """What the flood before has left to be answered may take a while."""
    connection = extender.connect(timeout=60)
    post(connection)
    connection.close()


def count_of(attack: str) -> int:
    return BURST if ATTACKS[attack].is_burst else 0


@pytest.mark.parametrize("attack", ATTACKS)
def test_who_calls_beside_a_flood_is_answered_each_time(plain: Extender, attack: str) -> None:
    wait_for_calm(plain)
    kept, new = beside(attack, plain.port, SECONDS, count=count_of(attack), patience_seconds=PATIENCE)
    assert lives(plain)
    assert (kept.failures, new.failures) == ([], [])
    assert kept.seconds
    assert new.seconds


@pytest.mark.parametrize("attack", ["burst of connections", "half handshakes", "idle ones"])
def test_who_has_a_certificate_is_answered_beside_strangers_that_have_none(
    secured: Extender, files: Files, attack: str
) -> None:
    context = client_context(files.server_ca, files.client())
    kept, new = beside(attack, secured.port, SECONDS, context, count_of(attack), PATIENCE)
    assert lives(secured)
    assert (kept.failures, new.failures) == ([], [])
    assert kept.seconds
    assert new.seconds


def test_a_flood_of_the_probes_does_not_reach_the_calls(secured: Extender, files: Files) -> None:
    with ExitStack() as stack:
        for _ in range(700):
            stack.enter_context(socket.create_connection(("127.0.0.1", secured.probes_port)))
        connection = secured.connect(client_context(files.server_ca, files.client()))
        assert post(connection)[0] == 200
        assert secured.says_yes("livez")
    assert lives(secured)


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
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=5) as answer:
                assert answer.status == 200


def is_up(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=60) as answer:
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
