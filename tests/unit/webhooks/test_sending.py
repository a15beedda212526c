"""One request to a webhook, within its one deadline."""

import socket
import time

from scheduler.webhooks.sending import Answer, post
from scheduler.webhooks.targets import read_url


def test_a_handshake_has_only_the_time_that_connecting_left() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = read_url(f"https://receiver.example:{silent.getsockname()[1]}/hook")
        readings = iter([0.0, 0.0, 59.8])
        began = time.monotonic()
        answer = post(target, "127.0.0.1", b"{}", {}, seconds=60, clock=lambda: next(readings, 60.0))
    assert answer == Answer(None, "no answer within 60 s")
    assert time.monotonic() - began < 30
