"""kube-scheduler's own plugins, and Kubernetes' own quantities: the Go program deploy/localcluster/cmd/plugins."""

import subprocess
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

LOCALCLUSTER = Path(__file__).parents[2] / "deploy/localcluster/localcluster"
# What stands before the folder in the last line of `localcluster build`.
SAYS = "binaries in "

_encode = msgspec.json.encode


def build() -> Path:
    """Return the program, building it when the cache doesn't have it.

    Raises:
        RuntimeError: it can't be built; the message says why.
    """
    built = subprocess.run([LOCALCLUSTER, "build"], capture_output=True, text=True, check=False)
    program = Path(built.stdout.strip().rpartition(SAYS)[2]) / "plugins"
    if built.returncode or not program.is_file():
        raise RuntimeError(f"no {program.name} from {LOCALCLUSTER.name} build:\n{built.stdout}{built.stderr}")
    return program


def answer_all(program: Path, lines: Iterable[object], *arguments: str) -> list[Any]:
    """Let the program answer many lines at once."""
    text = b"\n".join(_encode(line) for line in lines)
    done = subprocess.run([program, *arguments], input=text, capture_output=True, check=True, timeout=600)
    return [msgspec.json.decode(line) for line in done.stdout.splitlines()]


class Conversation:
    """The program, asked one line at a time."""

    def __init__(self, program: Path, *arguments: str) -> None:
        self._process = subprocess.Popen([program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> "Conversation":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=10)
        self._process.stdout.close()

    def ask(self, line: object) -> Any:
        """Return the answer to one line."""
        self._process.stdin.write(_encode(line) + b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline())
