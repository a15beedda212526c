"""README's commands: those that need nothing that runs print what it says. tests/e2e/test_readme.py runs the others."""

import re
from pathlib import Path

import pytest

from tests.readme import ROOT, Command, blocks, consoles, run, steady, write_files

OFFLINE, ONLINE = consoles()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    write_files(folder)
    return folder


@pytest.mark.parametrize("command", OFFLINE, ids=lambda command: command.text[:60])
def test_commands_that_need_nothing_print_what_readme_says(command: Command, checkout: Path) -> None:
    printed = run(command.text, checkout, {"BERTH_STATE_DIR": str(checkout / "nothing-runs-here")})

    assert printed.strip() == command.output.strip()


def test_the_shell_commands_are_targets_that_make_help_lists() -> None:
    listed = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    typed = [line for block in blocks("sh") for line in block.splitlines()]

    assert typed == ["make up", "make test"]
    assert {line.removeprefix("make ") for line in typed} <= listed


def test_what_the_commands_need_stands_among_what_is_needed() -> None:
    needed = (ROOT / "README.md").read_text().split("Needed: ")[1].split("\n\n")[0]
    programs = {command.text.split()[0] for command in ONLINE} - {"export", ".venv/bin/python"}

    assert programs == {"kubectl"}
    assert {name for name in (*programs, "git", "make") if name not in needed} == set()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("mine    1/1     Running   0          3s\n", "mine  1/1  Running  0  1m2s", True),
        ("mine    1/1     Running   0          3s", "mine    0/1     Pending   0          3s", False),
        ("0/10 nodes are available", "0/9 nodes are available", False),
        ("pod/mine created", "pod/mine created\npod/ghost created", False),
    ],
)
def test_outputs_are_the_same_but_for_ages_and_columns(one: str, other: str, *, same: bool) -> None:
    assert (steady(one) == steady(other)) is same
