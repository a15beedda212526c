"""One extender process for tests, without a cluster unless the environment names one."""

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from controlplane.up import free_port

BASE_DIR = Path(__file__).resolve().parent.parent
START_SECONDS = 180.0
BODY = json.dumps({"Pod": {"metadata": {"name": "p", "namespace": "d", "uid": "u"}}, "NodeNames": ["n1"]}).encode()


class Extender:
    """A gunicorn process with the extender. `log` is the file with all of its output."""

    def __init__(
        self,
        folder: Path,
        environment: dict[str, str] | None = None,
        *arguments: str,
        application: str = "scheduler.extender.wsgi",
        checkout: Path = BASE_DIR,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port, self.probes_port = free_port(), free_port()
        inherited = {name: text for name, text in os.environ.items() if not name.startswith("BERTH_")}
        self.environment = {
            **inherited,
            "BERTH_LOCAL": "true",
            "BERTH_STATE_DIR": str(folder / "state"),
            "BERTH_EXTENDER_BIND": f"127.0.0.1:{self.port}",
            "BERTH_EXTENDER_HEALTH_BIND": f"127.0.0.1:{self.probes_port}",
            "PYTHONUNBUFFERED": "1",
            **(environment or {}),
        }
        self._arguments = (*arguments, application)
        self._checkout = checkout
        self._log_file = folder / "extender.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._connections: list[http.client.HTTPConnection] = []

    @property
    def log(self) -> str:
        return self._log_file.read_text()

    def launch(self) -> None:
        """Start it, without waiting."""
        # With gunicorn's own command: a master that starts another one (SIGUSR2) repeats its own command line.
        command = [
            str(Path(sys.executable).with_name("gunicorn")),
            "-c",
            "python:scheduler.extender.server.gunicorn_conf",
        ]
        with self._log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *self._arguments],
                cwd=self._checkout,
                env=self.environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def start(self, probe: str = "livez") -> "Extender":
        """Start it, and wait until a probe succeeds."""
        self.launch()
        deadline = time.monotonic() + START_SECONDS
        while not self.says_yes(probe):
            assert self.process is not None
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.1)
        return self

    def says_yes(self, probe: str) -> bool:
        try:
            return self.ask("GET", f"/{probe}")[0] == 200
        except OSError:
            return False

    def ask(
        self, method: str, path: str, body: bytes | None = None, *, patience_seconds: float | None = 5
    ) -> tuple[int, str]:
        """Send a request to the probes' port; returns the status and the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.probes_port, timeout=patience_seconds)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def metric(self, name: str) -> float:
        lines = self.ask("GET", "/metrics")[1].splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))

    def stop(self, number: int = signal.SIGTERM, seconds: float = 40) -> int:
        """Send it a signal and wait for its end; returns its exit code. Connections to it are closed."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(timeout=seconds)
        finally:
            self.process.kill()
            self.process.wait()
            for connection in self._connections:
                connection.close()

    def __enter__(self) -> "Extender":
        return self.start()

    def __exit__(self, *_: Any) -> None:
        for connection in self._connections:
            connection.close()
        self.stop()

    def connect(self, context: ssl.SSLContext | None = None, timeout: float | None = 15) -> http.client.HTTPConnection:
        """Make a connection, which is closed at the latest when the process is stopped."""
        made = (
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
            if context is None
            else http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=context)
        )
        self._connections.append(made)
        return made


def post(
    connection: http.client.HTTPConnection,
    path: str = "/filter",
    body: bytes = BODY,
    headers: dict[str, str] | None = None,
) -> tuple[int, dict[str, Any]]:
    """Make a call; returns the status and the decoded answer."""
    connection.request("POST", path, body, {"Content-Type": "application/json", **(headers or {})})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def client_context(server_ca: Path, client: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=server_ca)
    context.set_alpn_protocols(["h2", "http/1.1"])
    if client:
        context.load_cert_chain(client)
    return context
