"""Two texts line by line, as a unified diff has them, with the words that differ. Pure."""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

from policies import manifests
from policies.engine import ruleset as engine
from policies.engine.documents import document_of

# Lines around what differs.
_CONTEXT = 3
# Beyond so many lines, or words of a line, comparing takes longer than it helps: one text stands for the other as a whole.
_MAX_LINES, _MAX_WORDS = 2_000, 1_000
# One value a line: where YAML breaks a long one, a word more would move all words behind it.
_ONE_LINE = 1_000_000


class Piece(NamedTuple):
    """A part of a line, and whether the other side has it otherwise."""

    text: str
    differs: bool


class Line(NamedTuple):
    """A line: on both sides, on one; or what stands for lines that are the same and left out."""

    kind: Literal["same", "added", "removed", "gap"]
    pieces: tuple[Piece, ...]


def yaml_of(value: engine.Document | None) -> str:
    """Return a thing's document as YAML; what isn't asked of a Pod is left out. Nothing of its absence."""
    if value is None:
        return ""
    document = document_of(value)
    if given := {name: each for name, each in document["spec"].pop("match", {}).items() if each}:
        document["spec"]["match"] = given
    return manifests.to_yaml(document, width=_ONE_LINE)


def unified(before: str, after: str) -> list[Line]:
    """Return what differs between two texts, and what stands around it; nothing where they are the same."""
    old, new = before.splitlines(), after.splitlines()
    lines: list[Line] = []
    for kind, low, high, left, right in _opcodes(old, new):
        if kind == "equal":
            lines += [_line("same", text) for text in old[low:high]]
        else:
            lines += _changed(old[low:high], new[left:right])
    return _with_gaps(lines)


def _opcodes(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[str, int, int, int, int]]:
    first = _alike(old, new)
    last = _alike(old[first:][::-1], new[first:][::-1])
    if first:
        yield "equal", 0, first, 0, first
    middle = old[first : len(old) - last], new[first : len(new) - last]
    if sum(map(len, middle)) > _MAX_LINES:
        yield "replace", first, first + len(middle[0]), first, first + len(middle[1])
    else:
        for kind, low, high, left, right in SequenceMatcher(None, *middle, autojunk=False).get_opcodes():
            yield kind, low + first, high + first, left + first, right + first
    if last:
        yield "equal", len(old) - last, len(old), len(new) - last, len(new)


def _alike(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many lines both begin with."""
    return next(
        (index for index, (one, other) in enumerate(zip(old, new, strict=False)) if one != other),
        min(len(old), len(new)),
    )


def _changed(old: Sequence[str], new: Sequence[str]) -> list[Line]:
    if len(old) != len(new):
        return [*(_line("removed", text) for text in old), *(_line("added", text) for text in new)]
    pairs = [_words(*pair) for pair in zip(old, new, strict=True)]
    return [*(Line("removed", left) for left, _ in pairs), *(Line("added", right) for _, right in pairs)]


def _words(before: str, after: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    old, new = (re.findall(r"\s+|\w+|[^\w\s]", side) for side in (before, after))
    if len(old) + len(new) > _MAX_WORDS:
        return (Piece(before, differs=True),), (Piece(after, differs=True),)
    sides: tuple[list[Piece], list[Piece]] = [], []
    for kind, low, high, left, right in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for pieces, text in zip(sides, ("".join(old[low:high]), "".join(new[left:right])), strict=True):
            if text:
                pieces.append(Piece(text, differs=kind != "equal"))
    return tuple(sides[0]), tuple(sides[1])


def _line(kind: Literal["same", "added", "removed", "gap"], text: str) -> Line:
    return Line(kind, (Piece(text, differs=False),))


def _with_gaps(lines: Sequence[Line]) -> list[Line]:
    """Leave out lines that are the same, but for some around what differs."""
    near: set[int] = set()
    for index, line in enumerate(lines):
        if line.kind != "same":
            near.update(range(index - _CONTEXT, index + _CONTEXT + 1))
    found: list[Line] = []
    left_out = 0
    for index, line in enumerate(lines):
        if index not in near:
            left_out += 1
            continue
        if left_out:
            found.append(_gap(left_out))
        left_out = 0
        found.append(line)
    return [*found, _gap(left_out)] if found and left_out else found


def _gap(number: int) -> Line:
    return _line("gap", f"… {number} line{'s' if number > 1 else ''} the same")
