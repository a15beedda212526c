"""A client that calls an extender as kube-scheduler does, with Go's own transport: the program in tests/steadycaller."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parent / "steadycaller" / "main.go"


def go_command() -> str:
    """Return the go command; skips the test if there is none."""
    beside_python = Path(sys.executable).with_name("go")
    found = os.environ.get("BERTH_GO") or shutil.which("go") or (str(beside_python) if beside_python.exists() else "")
    if not found:
        pytest.skip("Go is missing, and the cluster's programs came from elsewhere")
    return found


def build(folder: Path) -> Path:
    """Build the program, which needs only Go's standard library."""
    program = folder / "steadycaller"
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off", "GO111MODULE": "off", "CGO_ENABLED": "0"}
    subprocess.run([go_command(), "build", "-o", str(program), str(SOURCE)], check=True, env=environment, cwd=folder)
    return program


class SteadyCaller:
    """Calls during a `with`; `result` then has the numbers of calls, connections and failures."""

    def __init__(self, program: Path, url: str, body: bytes, *arguments: str) -> None:
        sent = program.with_name("body.json")
        sent.write_bytes(body)
        self._command = [str(program), "-url", url, "-body", str(sent), *arguments]
        self.result: dict[str, Any] = {}

    def __enter__(self) -> "SteadyCaller":
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def __exit__(self, *_: Any) -> None:
        written, _errors = self._process.communicate(timeout=60)
        self.result = json.loads(written)
