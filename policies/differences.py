"""Unified diffs of two texts, with the words that differ. Pure."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import Match, SequenceMatcher
from typing import Literal, NamedTuple

from policies import manifests
from policies.engine import ruleset as engine
from policies.engine.documents import document_of

# Lines of context around a difference.
_CONTEXT = 3
# The most steps, some 50 ns each, for comparing two documents with their words, and two texts. If texts have the same words in
# other places, the steps are the cube of the words' number. Beyond the limit, the whole text counts as replaced.
_DOCUMENT_STEPS, TEXT_STEPS = 4_000_000, 200_000
# One value on each line: if YAML broke a long value, one more word would move all words after it.
_ONE_LINE = 1_000_000


class Piece(NamedTuple):
    """A part of a line, and whether it differs from the other side."""

    text: str
    differs: bool


class Line(NamedTuple):
    """A line on both sides or on one; or a placeholder for equal lines that are left out."""

    kind: Literal["same", "added", "removed", "gap"]
    pieces: tuple[Piece, ...]


class _TooLongError(Exception):
    """Comparing takes longer than it helps."""


class _Matcher(SequenceMatcher[str]):
    """Compares within a number of steps, and subtracts those that it used."""

    def __init__(self, old: Sequence[str], new: Sequence[str], steps: list[int]) -> None:
        super().__init__(None, old, new, autojunk=False)
        self._old, self._often, self._steps = old, Counter(new), steps

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        """Return the longest common part.

        Raises:
            _TooLongError: there are no steps left.
        """
        self._steps[0] -= sum(1 + self._often[each] for each in self._old[alo:ahi])
        if self._steps[0] < 0:
            raise _TooLongError
        return super().find_longest_match(alo, ahi, blo, bhi)


Opcode = tuple[str, int, int, int, int]


def opcodes(old: Sequence[str], new: Sequence[str], steps: list[int] | None = None) -> Sequence[Opcode]:
    """Return SequenceMatcher's opcodes; a single replacement where comparing would take too long."""
    try:
        return _Matcher(old, new, [TEXT_STEPS] if steps is None else steps).get_opcodes()
    except _TooLongError:
        return [("replace", 0, len(old), 0, len(new))]


def yaml_of(value: engine.Document | None) -> str:
    """Return a thing's document as YAML, without conditions that aren't set; empty for its absence."""
    if value is None:
        return ""
    document = document_of(value)
    if given := {name: each for name, each in document["spec"].pop("match", {}).items() if each}:
        document["spec"]["match"] = given
    return manifests.to_yaml(document, width=_ONE_LINE)


def unified(before: str, after: str) -> list[Line]:
    """Return the differences of two texts, with context; empty where they are equal."""
    old, new = before.splitlines(), after.splitlines()
    lines: list[Line] = []
    steps = [_DOCUMENT_STEPS]
    for kind, low, high, left, right in _of_lines(old, new, steps):
        if kind == "equal":
            lines += [_line("same", text) for text in old[low:high]]
        else:
            lines += _changed(old[low:high], new[left:right], steps)
    return _with_gaps(lines)


def _of_lines(old: Sequence[str], new: Sequence[str], steps: list[int]) -> Iterator[Opcode]:
    first = _alike(old, new)
    last = _alike(old[first:][::-1], new[first:][::-1])
    if first:
        yield "equal", 0, first, 0, first
    middle = old[first : len(old) - last], new[first : len(new) - last]
    for kind, low, high, left, right in opcodes(*middle, steps):
        yield kind, low + first, high + first, left + first, right + first
    if last:
        yield "equal", len(old) - last, len(old), len(new) - last, len(new)


def _alike(old: Sequence[str], new: Sequence[str]) -> int:
    """Return the number of equal first lines."""
    return next(
        (index for index, (one, other) in enumerate(zip(old, new, strict=False)) if one != other),
        min(len(old), len(new)),
    )


def _changed(old: Sequence[str], new: Sequence[str], steps: list[int]) -> list[Line]:
    if len(old) != len(new):
        return [*(_line("removed", text) for text in old), *(_line("added", text) for text in new)]
    pairs = [_words(before, after, steps) for before, after in zip(old, new, strict=True)]
    return [*(Line("removed", left) for left, _ in pairs), *(Line("added", right) for _, right in pairs)]


def _words(before: str, after: str, steps: list[int]) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    old, new = (re.findall(r"\s+|\w+|[^\w\s]", side) for side in (before, after))
    sides: tuple[list[Piece], list[Piece]] = [], []
    for kind, low, high, left, right in opcodes(old, new, steps):
        for pieces, text in zip(sides, ("".join(old[low:high]), "".join(new[left:right])), strict=True):
            if text:
                pieces.append(Piece(text, differs=kind != "equal"))
    return tuple(sides[0]), tuple(sides[1])


def _line(kind: Literal["same", "added", "removed", "gap"], text: str) -> Line:
    return Line(kind, (Piece(text, differs=False),))


def _with_gaps(lines: Sequence[Line]) -> list[Line]:
    """Leave out equal lines, except for context around differences."""
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
