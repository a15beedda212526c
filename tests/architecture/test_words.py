"""Docstrings and comments open as those of Django and Kubernetes do."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.tracked import named, tracked_files

# No reader of the field expects these: Return, Whether, Raise and Iterate say the same.
NOT_OURS = ("Give ", "Tell ", "Have ", "Say ")


def _modules() -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".py" and path.parent.name != "migrations"]


def _docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            yield ast.get_docstring(node) or ""


def test_no_docstring_opens_with_a_private_word() -> None:
    opened = {
        f"{named(path)}: {text[:60]}"
        for path in _modules()
        for text in _docstrings(ast.parse(path.read_text()))
        if text.startswith(NOT_OURS)
    }
    assert opened == set()


def test_generators_yield_and_functions_return() -> None:
    wrong = {
        f"{named(path)}:{each.lineno} {each.name}"
        for path in _modules()
        for each in ast.walk(ast.parse(path.read_text()))
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        and (first := (ast.get_docstring(each) or "").partition(" ")[0])
        and ((first == "Return" and _yields(each)) or (first == "Yield" and not _yields(each)))
    }
    assert wrong == set()


def _yields(function: ast.AST) -> bool:
    """Whether it is a generator itself, whatever the functions inside it are."""
    inside = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
    return any(
        isinstance(each, ast.Yield | ast.YieldFrom) or (not isinstance(each, inside) and _yields(each))
        for each in ast.iter_child_nodes(function)
    )


def test_constants_are_explained_by_comments_above_them() -> None:
    below = {
        f"{named(path)}:{after.lineno}"
        for path in _modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        for before, after in zip(node.body, node.body[1:], strict=False)
        if isinstance(before, ast.Assign | ast.AnnAssign)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
        and isinstance(after.value.value, str)
    }
    assert below == set()


def test_how_long_ago_something_was_is_said_by_one_function() -> None:
    own_words = re.compile(r"f\} s ago|\)\} ago|\}\} ago\b|\btimesince\b")
    pages = [path for path in tracked_files() if path.suffix in {".py", ".html"} and "tests" not in named(path)]
    found = {named(path) for path in pages if own_words.search(path.read_text(encoding="utf-8"))}
    assert found == {"policies/wording.py"}
