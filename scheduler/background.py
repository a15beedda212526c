"""Processes that go behind all others: what a gate or a backtest takes must not be missed by calls of the extender."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from django.conf import settings

# The kernel's lowest.
_NICENESS = 19


def run_command(*arguments: str, seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a command of manage.py behind all others, and wait for its end.

    Raises:
        subprocess.TimeoutExpired: it took longer, and was killed.
        OSError: it could not be started.
    """
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), *arguments]
    with start_behind(command, {**os.environ, "BERTH_ROLE": "command"}) as running:
        try:
            output, errors = running.communicate(timeout=seconds)
        except BaseException:
            running.kill()
            raise
    return subprocess.CompletedProcess(command, running.returncode, output, errors)


def start_behind(command: Sequence[str], environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start a process behind all others; what it prints is read from its pipes.

    Raises:
        OSError: it could not be started.
    """
    running = subprocess.Popen(  # noqa: S603 - our own command
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Linux shares a processor between sessions first (autogroups): in one with the extender, what a nice process takes is
        # charged to both, and the extender waits for whoever is in other sessions.
        start_new_session=True,
    )
    _put_behind(running.pid)
    return running


def _put_behind(pid: int) -> None:
    """Make a process that leads its session the last to get a processor; where the kernel won't, it is as it was."""
    with contextlib.suppress(OSError):  # it has ended
        os.setpriority(os.PRIO_PROCESS, pid, _NICENESS)
    with contextlib.suppress(OSError):  # no autogroups in this kernel; or it has ended
        Path(f"/proc/{pid}/autogroup").write_text(str(_NICENESS))
