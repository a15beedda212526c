"""What the first page says of the last hour: how much was asked, how long it took, who called last, what is lost."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from policies.wording import ago, duration
from scheduler.decisions.traffic import BINS, Traffic, VerbTraffic, traffic_now
from scheduler.models import Caller

# Units of a sparkline's drawing: a column is one wide.
_HEIGHT = 20
_SCHEDULE = "schedule"
# A rate of which two places say nothing.
_LOWEST = 0.01


def says_of_traffic(now: datetime) -> dict[str, Any]:
    """Return what Home's section shows of the last hour."""
    found = traffic_now(now)
    return {
        "traffic": found,
        "span": _span(found, now),
        "rows": [_row(each) for each in found.verbs],
        "share": f"{100 * found.refused / found.decisions:.1f}" if found.decisions else "",
    }


def last_call(now: datetime) -> dict[str, str] | None:
    """Return who called last, which verb, and how long ago; None where nobody ever did."""
    row = Caller.objects.order_by("-last_at").first()
    if row is None:
        return None
    return {
        "by": row.identity,
        "verb": row.verb,
        "ago": ago((now - row.last_at).total_seconds()),
        "exact": f"{row.last_at:%Y-%m-%d %H:%M:%S} UTC",
    }


def _span(found: Traffic, now: datetime) -> str:
    if not found.is_part:
        return "last hour"
    return f"last {duration((now - found.since).total_seconds())}: the newest {found.decisions:,}"


def _row(each: VerbTraffic) -> dict[str, Any]:
    busiest = max(each.bins)
    return {
        "each": each,
        "who": "Berth's own scheduler" if each.verb == _SCHEDULE else "",
        "a_second": _rate(each.a_second),
        "path": spark_path(each.bins),
        "busiest": busiest,
        "width": BINS,
        "height": _HEIGHT,
    }


def _rate(a_second: float) -> str:
    return f"{a_second:,.2f}" if a_second >= _LOWEST else f"under {_LOWEST}"


def spark_path(bins: Sequence[int]) -> str:
    """Return an SVG path of a column for each part of the time, the highest as high as the drawing; nothing for nothing."""
    highest = max(bins, default=0)
    columns = []
    for place, number in enumerate(bins):
        if number:
            height = max(_HEIGHT * number / highest, 1)
            columns.append(f"M{place} {_HEIGHT}v-{height:.1f}h.8v{height:.1f}z")
    return "".join(columns)
