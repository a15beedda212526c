"""What the gate found, in lines."""

from collections.abc import Iterable, Mapping
from typing import Any

_SIGNS = {"passed": "✓", "found": "!", "unknown": "?"}


def gate_lines(results: Iterable[dict[str, Any]], levels: Mapping[str, str]) -> Iterable[str]:
    """Iterate over what the gate found: what stands against publishing is marked ✗, what should be looked at !."""
    for each in results:
        yield f"{sign_of(each, levels)} {each['says']}"
        yield from (f"    {line}" for line in each.get("lines") or ())


def sign_of(result: dict[str, Any], levels: Mapping[str, str]) -> str:
    """Return the sign of what comes of a check."""
    sign = _SIGNS.get(result["verdict"], "!")
    return "✗" if sign != "✓" and levels.get(result["check"]) == "blocking" else sign
