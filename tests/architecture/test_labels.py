"""Buttons, pages and headings that the docs name in italics are there, under these names."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.test_texts import CODE, FENCE
from tests.architecture.tracked import ROOT, named, tracked_files

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "howto").glob("*.md"))]
LABEL = re.compile(r"(?<![\w*])\*([A-Z][^*]{1,80})\*(?![\w*])")
# Of programs that aren't Berth.
FOREIGN = {"Workflows"}


@cache
def _sources() -> str:
    files = [path for path in tracked_files() if named(path).startswith(("controlplane/", "policies/", "scheduler/"))]
    texts = [
        path.read_text() for path in files if path.suffix in {".py", ".html", ".js"} and "migrations" not in path.parts
    ]
    return re.sub(r"\s+", " ", "\n".join(texts))


def _labels(page: Path) -> set[str]:
    text = CODE.sub("``", FENCE.sub("", page.read_text()))
    return {re.sub(r"\s+", " ", label) for label in LABEL.findall(text)} - FOREIGN


def _is_label(label: str) -> bool:
    """Return whether a label is a string of its own, or the text of an element."""
    return re.search(rf"""[>"'}}] ?{re.escape(label)} ?[<"'{{]""", _sources()) is not None


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_each_label_that_a_page_of_the_docs_names_is_on_a_page_of_the_admin(page: Path) -> None:
    assert {label for label in _labels(page) if not _is_label(label)} == set()


def test_labels_are_found_on_the_pages_and_a_wrong_one_is_told() -> None:
    assert len({label for page in PAGES for label in _labels(page)}) > 50
    assert not _is_label("Open again")
