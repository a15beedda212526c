"""Runs processes at the lowest priority: a gate's or a backtest's processor time must not slow down calls of the extender."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from django.conf import settings

# The kernel's lowest priority.
_NICENESS = 19


def run_command(*arguments: str, seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a command of manage.py at the lowest priority, and wait for its end.

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
    """Start a process at the lowest priority; its output is read from its pipes.

    Raises:
        OSError: it could not be started.
    """
    running = subprocess.Popen(  # noqa: S603 - our own command
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Linux first divides a processor among sessions (autogroups): in the extender's session, a nice process's time would be
        # charged to both, and the extender would wait for processes of other sessions.
        start_new_session=True,
    )
    _put_behind(running.pid)
    return running


def _put_behind(pid: int) -> None:
    """Set the lowest priority for a process that leads its session; if the kernel refuses, its priority is unchanged."""
    with contextlib.suppress(OSError):  # the process has ended
        os.setpriority(os.PRIO_PROCESS, pid, _NICENESS)
    with contextlib.suppress(OSError):  # no autogroups in this kernel; or the process has ended
        Path(f"/proc/{pid}/autogroup").write_text(str(_NICENESS))
