"""Numbers, durations, lists and texts in words, for pages, messages and tables. Pure."""

from collections.abc import Iterable

import msgspec

# First characters that make a spreadsheet read a cell as a formula, also in their full-width forms (U+FF1D and others).
_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def counted(number: int, word: str) -> str:
    """Return a number with its noun: 1 node, 1,200 nodes."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def percentage(share: float, *, decimals: int = 1) -> str:
    """Return a share of one in per cent, as all pages and messages write it: 37.5 %. Only nothing is 0.0 %, and only all of it 100.0 %."""
    said, none, all_of_it, least = (f"{each:.{decimals}f} %" for each in (100 * share, 0, 100, 10**-decimals))
    if said == none and share > 0:
        return f"below {least}"
    if said == all_of_it and share < 1:
        return f"above {100 - 10**-decimals:.{decimals}f} %"
    return said


def passed(feasible: int, nodes: int) -> str:
    """Return how many of a request's nodes passed: 7 of 10 nodes."""
    return f"{feasible:,} of {nodes:,} nodes" if nodes else "no node to ask about"


def listed(names: Iterable[str]) -> str:
    """Return names as a list in prose: one; one and another; one, another and a third."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def duration(seconds: float) -> str:
    """Return a duration in words: 4 s, 3 min, 2 h, 5 d."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size):,} {unit}"
    return f"{max(int(seconds), 0)} s"


def ago(seconds: float) -> str:
    """Return how long ago something was, in words."""
    return f"{duration(seconds)} ago"


def visible(text: str) -> str:
    """Return a text with unprintable characters as their numbers: terminals obey some, and nobody sees the others."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(ord(char)) for char in text)


def _escaped(number: int) -> str:
    return f"\\U{number:08x}" if number >> 16 else f"\\u{number:04x}"


def on_one_line(text: str) -> str:
    """Return the whole text on one line; a part that is cut off here would be published unseen."""
    return visible(" ".join(line.strip() for line in text.splitlines() if line.strip()))


def cell_text(text: str) -> str:
    """Return a text as a cell of a table, with an apostrophe before it if a spreadsheet would read it as a formula."""
    return f"'{text}" if text.startswith(_FORMULAS) else text


def json_text(value: object) -> str:
    """Return a value as JSON on one line, with sorted members."""
    return msgspec.json.encode(value, order="sorted").decode()
