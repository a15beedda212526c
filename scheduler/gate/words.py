"""The gate's results, as lines for a terminal."""

from collections.abc import Iterable, Iterator, Mapping

from policies.publishing import Result, in_order
from policies.publishing.gates import BLOCKING, PASSED, UNKNOWN


def lines_of(results: Iterable[Result], levels: Mapping[str, str]) -> Iterator[str]:
    """Iterate over the lines: results that block publishing are marked ✗, results to look at !."""
    for each in in_order(results, levels):
        yield f"{_mark_of(each, levels)} {each.says}"
        yield from (f"    {line}" for line in each.lines)


def _mark_of(result: Result, levels: Mapping[str, str]) -> str:
    """Return the sign of a result's consequence."""
    if result.verdict == PASSED:
        return "✓"
    if levels.get(result.check) == BLOCKING:
        return "✗"
    return "?" if result.verdict == UNKNOWN else "!"
