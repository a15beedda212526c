"""Docstrings and comments open as those of Django and Kubernetes do."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.architecture.tracked import named, tracked_files

# No reader of the field expects these: Return, Whether, Raise and Iterate say the same.
NOT_OURS = ("Give ", "Tell ", "Have ", "Say ")


def _modules() -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".py" and path.parent.name != "migrations"]


class Said(NamedTuple):
    """A module, a class or a function: where it stands and what it says of itself."""

    place: str
    docstring: str
    # Of a function whether it is a generator.
    yields: bool | None
    # Where texts stand below assignments.
    below: list[int]


@cache
def _said() -> list[Said]:
    """Read all modules: it takes seconds."""
    return [
        Said(
            f"{named(path)}:{getattr(each, 'lineno', 1)}",
            ast.get_docstring(each) or "",
            _kind(each),
            list(_below(each)),
        )
        for path in _modules()
        for each in ast.walk(ast.parse(path.read_text()))
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module)
    ]


def _kind(each: ast.AST) -> bool | None:
    return _yields(each) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) else None


def _below(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module) -> Iterator[int]:
    for before, after in pairwise(node.body):
        if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
            value = after.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield after.lineno


def test_no_docstring_opens_with_a_private_word() -> None:
    assert [f"{each.place}: {each.docstring[:60]}" for each in _said() if each.docstring.startswith(NOT_OURS)] == []


def test_what_is_returned_is_a_thing_and_no_sentence() -> None:
    # Other verbs stood there once: "Say that", "Give up".
    openings = ("Return that ", "Return up ")
    assert [f"{each.place}: {each.docstring[:60]}" for each in _said() if each.docstring.startswith(openings)] == []


def test_no_docstring_leaves_its_noun_to_another_one() -> None:
    # A page of the reference and an editor show each by itself; and another function may come to stand between the two.
    the_same = re.compile(r"(?:Return the|The) same(?= (?:for|of|with|without|as|in|and|not)\b|[,;.])")
    assert [f"{each.place}: {each.docstring[:60]}" for each in _said() if the_same.match(each.docstring)] == []


def test_generators_yield_and_functions_return() -> None:
    words = {"Return": True, "Yield": False}
    assert [each.place for each in _said() if each.yields is words.get(each.docstring.partition(" ")[0], "")] == []


def _yields(function: ast.AST) -> bool:
    """Whether it is a generator itself, whatever the functions inside it are."""
    inside = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
    return any(
        isinstance(each, ast.Yield | ast.YieldFrom) or (not isinstance(each, inside) and _yields(each))
        for each in ast.iter_child_nodes(function)
    )


def test_constants_are_explained_by_comments_above_them() -> None:
    assert [(each.place, each.below) for each in _said() if each.below] == []


def test_how_long_ago_something_was_is_said_by_one_function() -> None:
    own_words = re.compile(r"f\} s ago|\)\} ago|\}\} ago\b|\btimesince\b")
    pages = [path for path in tracked_files() if path.suffix in {".py", ".html"} and "tests" not in named(path)]
    found = {named(path) for path in pages if own_words.search(path.read_text(encoding="utf-8"))}
    assert found == {"policies/wording.py"}
