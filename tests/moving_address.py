"""An address that moves: new connections go to another server, and existing connections stay."""

import socket
import threading
from contextlib import suppress
from typing import Self


class MovingAddress:
    """Passes connections to `port` of 127.0.0.1 on to the port in `to`, during a `with`."""

    def __init__(self, to: int) -> None:
        self.to = to
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._sockets: list[socket.socket] = [self._listening]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._sockets:
            with suppress(OSError):  # the other side was faster
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.to))
            self._sockets += caller, server
            for one, other in ((caller, server), (server, caller)):
                threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):  # one of them has gone
        while data := one.recv(65_536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
