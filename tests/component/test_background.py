"""What runs in the background goes behind all others, and ends when its time is over."""

import json
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from scheduler.background import run_command

ASK = """
import json, os
group = "/proc/self/autogroup"
print(json.dumps([os.nice(0), os.getsid(0) == os.getpid(), open(group).read().split()[-1] if os.path.exists(group) else "19"]))
"""


def test_a_command_goes_behind_all_others_in_a_session_of_its_own() -> None:
    """Linux shares a processor between sessions first, where it makes autogroups: the extender's would pay for what it takes."""
    done = run_command("shell", "-v", "0", "-c", ASK, seconds=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [19, True, "19"]


def test_what_a_command_says_and_how_it_ended_is_returned() -> None:
    done = run_command("gate", seconds=300)
    assert (done.returncode, done.stdout) == (2, "")
    assert "CHANGE is required" in done.stderr


def test_a_command_whose_time_is_over_is_killed(tmp_path: Path) -> None:
    # By its arguments: on a busy machine it hasn't run a line of its own by then, for it goes behind all others.
    with pytest.raises(subprocess.TimeoutExpired):
        run_command("shell", "-v", "0", "-c", f"import time; time.sleep(600)  # {tmp_path}", seconds=8)
    assert not commands_with(str(tmp_path))


def commands_with(text: str) -> list[str]:
    """Return the processes of this machine that have a text among their arguments."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            found.append(file.read_text(errors="replace"))
    return [each for each in found if text in each]
