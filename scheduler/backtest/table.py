"""The Pods that a backtest found, as rows of a table for other programs. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from policies.wording import cell_text
from scheduler.backtest.results import Line

HEADINGS = (
    "kind",
    "pod",
    "uid",
    "rule_set",
    "rule",
    "reason",
    "node_before",
    "node_after",
    "nodes",
    "gained",
    "lost",
    "points",
    "by_live_rules",
    "decisions",
    "first_decision",
    "first_at",
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def cells_of(line: Line) -> Sequence[str | int]:
    """Return the cells of a line; a text that a spreadsheet would take for a formula has an apostrophe before it."""
    at = _EPOCH + timedelta(microseconds=line.at_microseconds)
    cells = (
        line.kind.value,
        line.pod,
        line.uid,
        line.rule_set,
        line.rule,
        line.reason,
        line.before,
        line.after,
        line.nodes,
        line.gained,
        line.lost,
        line.points,
        "yes" if line.live else "no",
        line.times,
        line.decision,
        at.isoformat(),
    )
    return [cell_text(value) if isinstance(value, str) else value for value in cells]
