"""The cost of a regular expression in `matches`.

RE2 never takes more than linear time over a text. But CEL compiles the pattern at each evaluation, and the item before a
repeat `{1,1000}` is compiled a thousand times.
"""

import re
from typing import NamedTuple

COMPILE_MICROSECONDS = 4.0
# Microseconds to compile one character or class; a negated class; a Unicode class; a range inside a class, and an end of one
# that isn't ASCII, of which a negated class has twice as many.
_ATOM, _WIDE_ATOM, _UNICODE_ATOM = 1.0, 4.0, 1500.0
_RANGE, _UNICODE_END = 0.4, 1.3
_IGNORING_CASE = 3.0
# Microseconds to read a character of the text, and more for each atom of the pattern.
_CHARACTER, _CHARACTER_AND_ATOM = 0.002, 0.004
_MOST_ATOMS = 10**6
_CASELESS = re.compile(r"\(\?[msU]*i")
_MOST_DIGITS = 5

_TOKEN = re.compile(
    r"""(?P<quoted>\\Q.*?(\\E|\Z))
    |(?P<unicode>\\[pP](\{[^}]*\}|.))
    |(?P<wide>\.|\\[WDSX])
    |(?P<escape>\\.)
    |(?P<set>\[\^?\]?([^]\\]|\\.|\[:\^?\w+:\])*\])
    |(?P<open>\((\?(P?<\w+>|[-imsU]*[:)]))?)
    |(?P<close>\))
    |(?P<repeat>\{(?P<low>\d+)(?P<comma>,)?(?P<high>\d*)\})
    |(?P<plain>.)""",
    re.VERBOSE | re.DOTALL,
)


class RegexCost(NamedTuple):
    """Microseconds to compile a pattern, and atoms that it consists of once repeats are written out."""

    compile_microseconds: float
    atoms: float

    def microseconds(self, length: int) -> float:
        """Estimate a match against a text of this many characters."""
        return self.compile_microseconds + length * (_CHARACTER + _CHARACTER_AND_ATOM * self.atoms)


# For a pattern that is known only when the expression is evaluated, and may come from anybody.
UNKNOWN = RegexCost(2000.0, 1000.0)
# In characters: to find the cost of a longer one would take too long by itself.
_LONGEST_UNKNOWN = 500


def pattern(text: str) -> str:
    """Return a pattern that anybody may have written unchanged, if it costs no more than UNKNOWN."""
    cost = cost_of(text) if len(text) <= _LONGEST_UNKNOWN else None
    if cost is None or cost.compile_microseconds > UNKNOWN.compile_microseconds or cost.atoms > UNKNOWN.atoms:
        message = "the pattern costs too much: one that is read from a Pod or a node must be shorter, or repeat less"
        raise ValueError(message)
    return text


def cost_of(text: str) -> RegexCost:
    """Return the cost of a pattern."""
    groups = [[0.0, 0.0, 0.0, 0.0]]  # compile and atoms of the group's content, and of its last item
    factor = _IGNORING_CASE if _CASELESS.search(text) else 1.0
    for found in _TOKEN.finditer(text):
        group = groups[-1]
        if found["open"]:
            if not found["open"].endswith(")"):
                groups.append([0.0, 0.0, 0.0, 0.0])
        elif found["close"]:
            if len(groups) > 1:
                inner = groups.pop()
                _add(groups[-1], inner[0] + _ATOM, inner[1])
        elif found["quoted"]:
            for _ in found["quoted"]:
                _add(group, _ATOM, _ATOM)
        elif found["repeat"]:
            # RE2 repeats a thousand times at most, and refuses more.
            times = max(*(int(found[name][:_MOST_DIGITS] or 0) for name in ("low", "high")), 1)
            group[0] += group[2] * (times - 1)
            group[1] += group[3] * (times - 1)
        else:
            price = _price(found)
            _add(group, price, min(price, _WIDE_ATOM))
    compiling = sum(group[0] for group in groups)
    atoms = sum(group[1] for group in groups)
    return RegexCost(COMPILE_MICROSECONDS + factor * compiling, min(factor * atoms, _MOST_ATOMS))


def _add(group: list[float], compiling: float, atoms: float) -> None:
    group[0] += compiling
    group[1] += atoms
    group[2:] = [compiling, atoms]


def _price(found: re.Match[str]) -> float:
    if found["unicode"]:
        return _UNICODE_ATOM
    if found["wide"]:
        return _WIDE_ATOM
    characters = found["set"]
    if not characters:
        return _ATOM
    negated = characters.startswith("[^")
    wide = _WIDE_ATOM if negated or any(text in characters for text in _WIDE_IN_SETS) else _ATOM
    ends = sum(not text.isascii() or text.startswith("\\x") for text in _END.findall(characters))
    ranges: float = _RANGE * len(_RANGES.findall(characters[1:-1])) + _UNICODE_END * ends * (1 + negated)
    return max(wide, ranges) + _UNICODE_ATOM * (characters.count("\\p") + characters.count("\\P"))


_END = re.compile(r"\\x(?:\{[^}]*\}|..)|\\.|.", re.DOTALL)
_RANGES = re.compile(rf"\[:\^?\w+:\]|({_END.pattern})(-({_END.pattern}))?", re.DOTALL)
_WIDE_IN_SETS = ("\\W", "\\D", "\\S", "[:^")
