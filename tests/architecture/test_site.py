"""The site of the documentation: what docs/site.py makes of a document's Markdown."""

import re
import runpy
from collections.abc import Callable
from typing import Any

import pytest

from tests.architecture.tracked import ROOT


@pytest.fixture(scope="module")
def site() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "site.py"))


@pytest.fixture(scope="module")
def apart(site: dict[str, Any]) -> Callable[[str], str]:
    found: Callable[[str], str] = site["_apart"]
    return found


@pytest.mark.parametrize("first", ["- a", "* a", "1. a", "| a |"])
def test_a_list_or_a_table_right_after_a_paragraph_gets_an_empty_line(apart: Callable[[str], str], first: str) -> None:
    assert apart(f"# T\n\nIt checks:\n{first}") == f"# T\n\nIt checks:\n\n{first}"


def test_a_list_that_goes_on_after_a_fence_gets_an_empty_line(apart: Callable[[str], str]) -> None:
    assert apart("\n2. b") == "\n\n2. b"


def test_a_number_that_begins_a_line_of_a_paragraph_begins_no_list(apart: Callable[[str], str]) -> None:
    text = "# T\n\nthe answer is\n503. Berth asks at most 30 times."
    assert apart(text) == text


def test_the_page_of_settings_says_what_each_is_for(site: dict[str, Any]) -> None:
    page = site["_settings"]()

    assert "## BERTH_BEAT_BIND\n" in page
    assert re.findall(r"^## (BERTH_\w+)\n\n", page, re.MULTILINE) == []
