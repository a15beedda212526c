"""A TCP balancer for tests: several extenders behind one address.

Connections go to the backends in turn. A backend that refuses a connection, or whose probe fails, is skipped, as a
Service skips Pods that aren't ready. Bytes are passed on unchanged, including TLS; so are the ends of both directions.
"""

import asyncio
import contextlib
import socket
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.stack import eventually

PROBE_SECONDS = 0.1
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Backend:
    """A port of this machine; `probes_port`, if given, answers `GET /readyz`: only 200 means ready."""

    port: int
    probes_port: int = 0


class Balancer:
    """Listens at `port` during a `with`. `connections` counts the connections by the backend's port."""

    def __init__(self, *backends: Backend) -> None:
        self._backends = backends
        self._ready = {backend: not backend.probes_port for backend in backends}
        self._turn = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections: Counter[int] = Counter()
        # Bound at once, so that the port is known before anything is served.
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="balancer")
        self._enough = asyncio.Event()

    def __enter__(self) -> "Balancer":
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._loop.call_soon_threadsafe(self._enough.set)
        self._thread.join()

    @property
    def url(self) -> str:
        """The URL at which it listens."""
        return f"http://127.0.0.1:{self.port}"

    def wait_for(self, port: int) -> None:
        """Wait until connections are passed on to a backend, whose probe is polled."""
        backend = next(each for each in self._backends if each.port == port)
        eventually(lambda: self._ready[backend], what=f"the backend {port} is taken in")

    def add(self, backend: Backend) -> None:
        """Send connections to one more backend from now on. Its probe isn't polled."""
        self._ready[backend] = True
        self._backends = (*self._backends, backend)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._on_connection, sock=self._listener)
        probes = [asyncio.create_task(self._probe(backend)) for backend in self._backends if backend.probes_port]
        await self._enough.wait()
        server.close()
        for task in [*probes, *self._tasks]:
            task.cancel()
        await asyncio.gather(*probes, *self._tasks, return_exceptions=True)

    async def _probe(self, backend: Backend) -> None:
        # Not an endless loop: `wait_for` of Python 3.11 can swallow a cancellation that arrives with the answer.
        while not self._enough.is_set():
            try:
                self._ready[backend] = await asyncio.wait_for(_says_yes(backend.probes_port), timeout=2)
            except (OSError, TimeoutError):
                self._ready[backend] = False
            await asyncio.sleep(PROBE_SECONDS)

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        other: asyncio.StreamWriter | None = None
        try:
            backend_reader, other = await self._connect()
            await asyncio.gather(_pump(reader, other), _pump(backend_reader, writer))
        except OSError:
            writer.transport.abort()
        finally:
            for open_writer in (writer, other):
                if open_writer:
                    open_writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        first = self._turn
        self._turn += 1
        for turn in range(first, first + len(self._backends)):
            backend = self._backends[turn % len(self._backends)]
            if self._ready[backend]:
                with contextlib.suppress(OSError):
                    connection = await asyncio.open_connection("127.0.0.1", backend.port)
                    self.connections[backend.port] += 1
                    return connection
        message = "no backend takes connections"
        raise ConnectionRefusedError(message)


async def _says_yes(port: int) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n")
        return b" 200 " in await reader.readline()
    finally:
        writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on one side's bytes, and its end."""
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()
