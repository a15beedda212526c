"""The site of the documentation: what docs/site.py makes of a document's Markdown."""

import runpy
from collections.abc import Callable

import pytest

from tests.architecture.tracked import ROOT


@pytest.fixture(scope="module")
def apart() -> Callable[[str], str]:
    found: Callable[[str], str] = runpy.run_path(str(ROOT / "docs" / "site.py"))["_apart"]
    return found


@pytest.mark.parametrize("first", ["- a", "* a", "1. a", "| a |"])
def test_a_list_or_a_table_right_after_a_paragraph_gets_an_empty_line(apart: Callable[[str], str], first: str) -> None:
    assert apart(f"# T\n\nIt checks:\n{first}") == f"# T\n\nIt checks:\n\n{first}"


def test_a_list_that_goes_on_after_a_fence_gets_an_empty_line(apart: Callable[[str], str]) -> None:
    assert apart("\n2. b") == "\n\n2. b"


def test_a_number_that_begins_a_line_of_a_paragraph_begins_no_list(apart: Callable[[str], str]) -> None:
    text = "# T\n\nthe answer is\n503. Berth asks at most 30 times."
    assert apart(text) == text
