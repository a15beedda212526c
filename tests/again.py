"""Runs a lane of tests, and its failed tests a second time: `python -m tests.again LANE ARGUMENTS-OF-PYTEST…`.

Tests against real servers wait for other processes. With three lanes on two processors, a process may be too late for one
test of thousands, which passes alone. So the few failed tests are run a second time, alone in their lane. A test that fails
twice fails the lane; a test that then passes is listed, to be fixed. Failures in more than a few modules aren't due to chance,
and aren't run again; a cluster that didn't start in time fails all tests of one module. See
docs/adr/0060-what-fails-is-run-once-more.md.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

# A slow machine fails tests of one or two modules; a fault in the code or in a server that many share fails more.
MOST_MODULES = 5


def main(lane: str, arguments: list[str], folder: Path = Path(".pytest_cache")) -> int:
    """Return the exit code of the lane, whose pytest remembers its failures in a folder of its own."""
    cache = (folder / lane).absolute()
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *arguments]
    code = _run([*command, "--cache-clear", "--durations=20"])
    failed = _failed(cache)
    modules = {test.partition("::")[0] for test in failed}
    if code != pytest.ExitCode.TESTS_FAILED or not 0 < len(modules) <= MOST_MODULES:
        return code
    print(f"{lane}: {len(failed)} failed, once more:", *failed, sep="\n  ", flush=True)
    measured = ["--cov-append"] if any(argument.startswith("--cov") for argument in arguments) else []
    code = _run([*command, "--last-failed", "--last-failed-no-failures=none", *measured])
    if code == pytest.ExitCode.OK:
        print(f"{lane}: passed at the second run only, to be mended:", *failed, sep="\n  ", flush=True)
    return code


def _run(command: list[str]) -> int:
    return subprocess.run(command, check=False).returncode


def _failed(cache: Path) -> list[str]:
    try:
        return sorted(json.loads((cache / "v" / "cache" / "lastfailed").read_bytes()))
    except FileNotFoundError:
        return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
