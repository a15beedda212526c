"""One request to a webhook, within its one deadline."""

import errno
import os
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scheduler.webhooks.sending import Answer, post
from scheduler.webhooks.targets import read_url
from tests.certificates import Authority, write


def test_a_handshake_has_only_the_time_that_connecting_left() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = read_url(f"https://receiver.example:{silent.getsockname()[1]}/hook")
        readings = iter([0.0, 0.0, 59.8])
        began = time.monotonic()
        answer = post(target, ["127.0.0.1"], b"{}", {}, seconds=60, clock=lambda: next(readings, 60.0))
    assert answer == Answer(None, "no answer within 60 s")
    assert time.monotonic() - began < 30


def test_a_certificate_is_valid_for_its_name_with_a_dot_at_the_end_too(tmp_path: Path) -> None:
    ours = Authority("ours")
    certificate, key = ours.sign("receiver", dns=("hooks.team.svc.cluster.local",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(write(tmp_path / "receiver.pem", certificate + key))
    trusted = str(write(tmp_path / "ca.pem", ours.pem))
    with socket.create_server(("127.0.0.1", 0)) as receiver, ThreadPoolExecutor(1) as others:
        receiver.settimeout(10)
        target = read_url(f"https://hooks.team.svc.cluster.local.:{receiver.getsockname()[1]}/hook")
        sending = others.submit(post, target, ["127.0.0.1"], b"{}", {}, seconds=60, ca_file=trusted)
        plain, _ = receiver.accept()
        with context.wrap_socket(plain, server_side=True) as connection:
            connection.recv(4_096)
            connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        assert sending.result() == Answer(204, "")


def test_of_several_addresses_the_first_that_can_be_reached_is_sent_to() -> None:
    with socket.create_server(("127.0.0.2", 0)) as receiver:
        receiver.settimeout(10)
        target = read_url(f"http://receiver.example:{receiver.getsockname()[1]}/hook")
        with ThreadPoolExecutor(1) as others:
            sending = others.submit(post, target, ["127.0.0.1", "127.0.0.2"], b"{}", {}, seconds=60)
            connection, _ = receiver.accept()
            with connection:
                connection.recv(4_096)
                connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
            assert sending.result() == Answer(204, "")


def test_of_several_addresses_that_cannot_be_reached_the_fault_of_the_first_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults = {"8.8.8.8": errno.ECONNREFUSED, "2001:4860:4860::8888": errno.ENETUNREACH}

    def away(address: tuple[str, int], timeout: float) -> socket.socket:
        raise OSError(faults[address[0]], os.strerror(faults[address[0]]))

    monkeypatch.setattr(socket, "create_connection", away)
    answer = post(read_url("https://receiver.example/hook"), list(faults), b"{}", {}, seconds=60)
    assert answer == Answer(None, "can't be reached: Connection refused")


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (errno.ETIMEDOUT, errno.ECONNREFUSED, "can't be reached: Connection refused"),
        (errno.ECONNREFUSED, errno.ETIMEDOUT, "can't be reached: Connection refused"),
        (errno.ETIMEDOUT, errno.ENETUNREACH, "no answer within 60 s"),
    ],
)
def test_of_several_addresses_a_refusal_is_said_before_silence(
    first: int, second: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = {"8.8.8.8": first, "8.8.4.4": second}

    def away(address: tuple[str, int], timeout: float) -> socket.socket:
        raise OSError(faults[address[0]], os.strerror(faults[address[0]]))

    monkeypatch.setattr(socket, "create_connection", away)
    answer = post(read_url("https://receiver.example/hook"), list(faults), b"{}", {}, seconds=60)
    assert answer == Answer(None, says)


def test_a_refusal_is_said_although_no_time_is_left_for_the_next_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: tuple[str, int], timeout: float) -> socket.socket:
        raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))

    monkeypatch.setattr(socket, "create_connection", refuse)
    target = read_url("https://receiver.example/hook")
    readings = iter([0.0, 59.9])
    answer = post(target, ["8.8.8.8", "8.8.4.4"], b"{}", {}, seconds=60, clock=lambda: next(readings, 60.0))
    assert answer == Answer(None, "can't be reached: Connection refused")


def test_an_address_that_does_not_answer_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[str, float]] = []

    def silent(address: tuple[str, int], timeout: float) -> socket.socket:
        tried.append((address[0], timeout))
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", silent)
    target = read_url("https://receiver.example/hook")
    readings = iter([0.0, 0.0, 30.0])
    answer = post(target, ["8.8.8.8", "8.8.4.4"], b"{}", {}, seconds=60, clock=lambda: next(readings))
    assert answer == Answer(None, "no answer within 60 s")
    assert tried == [("8.8.8.8", 30.0), ("8.8.4.4", 30.0)]
