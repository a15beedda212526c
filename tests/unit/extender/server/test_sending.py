"""Answers in pieces over a real socket."""

import socket
import threading

import pytest

from scheduler.extender.server.sending import send_pieces


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([b"one"], id="one"),
        pytest.param([b"", b"a", b"", b"b"], id="empty ones among them"),
        pytest.param([b"%d," % number for number in range(5000)], id="more than the kernel takes at once"),
        pytest.param([bytes([number % 251]) * 70_000 for number in range(200)], id="more than the buffers hold"),
    ],
)
def test_all_pieces_arrive_in_order(pieces: list[bytes]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        ours.settimeout(10)
        sending = threading.Thread(target=lambda: (send_pieces(ours, pieces), ours.shutdown(socket.SHUT_WR)))
        sending.start()
        received = bytearray()
        while part := theirs.recv(10_000):
            received += part
        sending.join()
    assert bytes(received) == b"".join(pieces)


def test_a_client_that_takes_nothing_is_given_up() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.05)
        with pytest.raises(TimeoutError):
            send_pieces(ours, [b"x" * 1_000_000] * 20)
