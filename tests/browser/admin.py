"""Berth's admin alone, without a cluster, with a database of its own."""

import os
import subprocess
import sys
from pathlib import Path

from tests.stack import BASE_DIR, free_port


class Admin:
    """A running admin server; its settings are `settings`, by their names."""

    def __init__(self, folder: Path, *, port: int = 0, settings: dict[str, str] | None = None) -> None:
        self._port = port or free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
        self._environment = {**kept, "BERTH_LOCAL": "true", "BERTH_STATE_DIR": str(folder), **(settings or {})}
        self._log = (folder / "admin.log").open("wb")
        self.manage("migrate")

    def start(self) -> None:
        """Start it; it answers a moment later."""
        command = [sys.executable, "-m", "gunicorn", "-c", "python:controlplane.gunicorn_conf"]
        self._process = subprocess.Popen(
            [*command, "-b", f"127.0.0.1:{self._port}", "controlplane.wsgi"],
            cwd=BASE_DIR,
            env={**self._environment, "BERTH_ROLE": "admin"},
            stdout=self._log,
            stderr=self._log,
        )

    def manage(self, *arguments: str) -> str:
        """Run a command as in a second shell; return what it printed."""
        return self.run("manage.py", *arguments)

    def run(self, *arguments: str) -> str:
        """Run Python with the server's settings; return what it printed."""
        command = [sys.executable, *arguments]
        environment = {**self._environment, "DJANGO_SETTINGS_MODULE": "controlplane.settings"}
        done = subprocess.run(command, cwd=BASE_DIR, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()
        self._log.close()
