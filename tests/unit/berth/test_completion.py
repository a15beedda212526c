"""Completion, and that every sub-command is carried out by something."""

import subprocess
import sys
from pathlib import Path

import pytest
from berth.arguments import build_parser
from berth.commands import COMMANDS
from berth.completion import commands_of

from tests.unit.berth.conftest import Berth

HERE_ALONE = {"login", "logout", "completion"}


def test_every_sub_command_has_something_that_carries_it_out() -> None:
    assert set(commands_of(build_parser())) == set(COMMANDS) | HERE_ALONE


def test_bash_completes_commands_and_options(berth: Berth) -> None:
    script = berth("completion", "bash").out
    asked = f'{script}\nCOMP_WORDS=(berth pl); COMP_CWORD=1; _berth; echo "${{COMPREPLY[*]}}"\n'
    asked += 'COMP_WORDS=(berth plan --ma); COMP_CWORD=2; _berth; echo "${COMPREPLY[*]}"\n'
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == ["plan", "--markdown"]


@pytest.mark.parametrize("shell", ["fish", "zsh"])
def test_other_shells_know_the_commands_too(berth: Berth, shell: str) -> None:
    assert "whoami" in berth("completion", shell).out


def test_nothing_is_loaded_that_a_command_doesnt_need() -> None:
    source = Path(__file__).parents[3] / "berth" / "src"
    seen = "import sys; sys.path.insert(0, sys.argv.pop()); from berth.main import main; main(['completion', 'bash'])"
    names = "import json; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"{seen}; {names}", str(source)], capture_output=True, text=True, check=True
    )
    assert '"berth.main"' in done.stderr
    for heavy in ("httpx", "yaml", "rich", "django"):
        assert f'"{heavy}"' not in done.stderr


@pytest.mark.parametrize("arguments", [["completion", "bash"], ["--help"], ["changes", "--help"]])
def test_output_without_room_is_said_in_a_line(arguments: list[str]) -> None:
    source = Path(__file__).parents[3] / "berth" / "src"
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "berth", *arguments]
        done = subprocess.run(
            command, env={"PYTHONPATH": str(source)}, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (1, "berth: the output: No space left on device\n")


@pytest.mark.parametrize(("arguments", "code"), [("completion bash", 0), ("--help", 0), ("nonsense", 1)])
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_take_nothing_and_change_no_exit_code(arguments: str, code: int, closed: str) -> None:
    source = Path(__file__).parents[3] / "berth" / "src"
    command = ["sh", "-c", f"exec {sys.executable} -m berth {arguments} {closed}"]
    done = subprocess.run(command, env={"PYTHONPATH": str(source)}, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
