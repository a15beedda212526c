"""The gate's results as lines."""

from collections.abc import Iterable, Mapping
from typing import Any

_SIGNS = {"passed": "✓", "found": "!", "unknown": "?"}


def gate_lines(results: Iterable[dict[str, Any]], levels: Mapping[str, str]) -> Iterable[str]:
    """Yield the gate's results: those that prevent publishing are marked ✗, those that somebody should check !."""
    for each in results:
        yield f"{_sign_of(each, levels)} {each['says']}"
        yield from (f"    {line}" for line in each.get("lines") or ())


def _sign_of(result: dict[str, Any], levels: Mapping[str, str]) -> str:
    """Return the sign of a check's result."""
    sign = _SIGNS.get(result["verdict"], "!")
    return "✗" if sign != "✓" and levels.get(result["check"]) == "blocking" else sign
