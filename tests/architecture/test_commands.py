"""What can be typed: the help of each `manage.py` command names what commands take, and `make bench` runs every bench."""

import re
import subprocess
from argparse import Action, ArgumentParser, _SubParsersAction
from collections.abc import Iterator

import pytest
from django.core.management import get_commands, load_command_class

from controlplane.up import read_options
from tests.architecture.tracked import ROOT

BENCHES = {
    path.stem: text for path in (ROOT / "bench").glob("*.py") if '__name__ == "__main__"' in (text := path.read_text())
}
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


@pytest.fixture(scope="module")
def parsers() -> dict[str, ArgumentParser]:
    ours = {name: app for name, app in get_commands().items() if app in ("controlplane", "policies", "scheduler")}
    return {name: load_command_class(app, name).create_parser("manage.py", name) for name, app in ours.items()}


def test_options_that_the_help_names_are_taken(parsers: dict[str, ArgumentParser]) -> None:
    taken = {option for each in parsers.values() for action in each._actions for option in action.option_strings}
    named = {name: set(_OPTION.findall(each.description or "")) for name, each in parsers.items()}

    assert {name: options - taken for name, options in named.items() if options - taken} == {}


def test_a_usage_that_lists_sub_commands_lists_all(parsers: dict[str, ArgumentParser]) -> None:
    parts = {
        name: (action.metavar, "{" + ",".join(action.choices) + "}")
        for name, each in parsers.items()
        for action in each._actions
        if isinstance(action, _SubParsersAction)
    }

    assert "doctor" in parts
    listed = {name: (said, there) for name, (said, there) in parts.items() if said and said.startswith("{")}
    assert {name: said for name, (said, there) in listed.items() if said != there} == {}


def test_each_argument_says_what_it_is(parsers: dict[str, ArgumentParser]) -> None:
    taken = [(name, action) for name, each in parsers.items() for action in _arguments(each)]

    # What --output takes says it itself.
    silent = {(name, action.dest) for name, action in taken if not action.help and action.dest != "output"}
    assert silent == set()


def _arguments(parser: ArgumentParser) -> Iterator[Action]:
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for each in action.choices.values():
                yield from _arguments(each)
        else:
            yield action


def test_make_bench_runs_every_bench_and_the_page_of_performance_names_it() -> None:
    run = set(re.findall(r"-m bench\.(\w+)", (ROOT / "Makefile").read_text()))
    named = set(re.findall(r"bench\.(\w+)", (ROOT / "docs" / "performance.md").read_text()))

    assert (run, set(BENCHES) - named) == (set(BENCHES), set())


@pytest.mark.parametrize("name", BENCHES)
def test_every_bench_reads_its_arguments(name: str) -> None:
    assert re.search(r"\b(parse_args|parse_no_arguments)\(", BENCHES[name])


@pytest.mark.parametrize(
    ("given", "ports"),
    [([], (8000, 8010)), (["ADMIN_PORT=8001"], (8001, 8010)), (["ADMIN_PORT=1", "EXTENDER_PORT=2"], (1, 2))],
)
def test_make_up_takes_the_ports_that_it_is_told(given: list[str], ports: tuple[int, int]) -> None:
    # Only what make would type: its set-up counts as done.
    command = ["make", "--dry-run", "--no-print-directory", "--old-file=setup", "up", *given]
    typed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    options = read_options(typed.partition(" -m controlplane.up")[2].split())
    assert (options.admin_port, options.extender_port) == ports
