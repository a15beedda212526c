"""The page of the command says what it takes."""

import tomllib

import pytest

from tests.unit.berth.conftest import Berth, Stub
from tests.unit.berth.reference import PAGE, page


def test_the_reference_is_made_from_the_arguments() -> None:
    text = PAGE.read_text()

    assert page(text) == text, "write it anew: python -m tests.unit.berth.reference"
    assert "### simulate" in text


@pytest.mark.parametrize(("program", "said"), [("berth", "berth"), ("kubectl-berth", "kubectl berth")])
def test_the_command_says_which_version_it_is(
    berth: Berth, stub: Stub, monkeypatch: pytest.MonkeyPatch, program: str, said: str
) -> None:
    monkeypatch.setattr("sys.argv", [program])
    version = tomllib.loads((PAGE.parents[1] / "berth" / "pyproject.toml").read_text())["project"]["version"]

    ran = berth("--version")

    assert (ran.code, ran.out, stub.asked) == (0, f"{said} {version}\n", [])


def test_each_argument_says_what_it_is() -> None:
    assert [line for line in page(PAGE.read_text()).splitlines() if line.endswith("|  |")] == []
