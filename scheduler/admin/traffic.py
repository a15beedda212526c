"""The first page's figures about the last hour: number of calls, their duration, the last caller, lost Decisions."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from policies.wording import ago, duration, percentage
from scheduler.decisions.traffic import BINS, Traffic, VerbTraffic, traffic_now
from scheduler.models import Caller

# Units of a sparkline's drawing: a column is one wide.
_HEIGHT = 20
_SCHEDULE = "schedule"
# Lower rates are shown as below this one: two decimal places would round them to zero.
_LOWEST = 0.01


def says_of_traffic(now: datetime) -> dict[str, Any]:
    """Return the context of Home's section about the last hour."""
    found = traffic_now(now)
    return {
        "traffic": found,
        "span": _span(found, now),
        "rows": [_row(each) for each in found.verbs],
        "share": percentage(found.refused / found.decisions) if found.decisions else "",
    }


def last_call(now: datetime) -> dict[str, str] | None:
    """Return the last caller, its verb, and how long ago it called; None if there is none."""
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
        "refused_share": percentage(each.refused / each.decisions),
        "path": spark_path(each.bins),
        "busiest": busiest,
        "width": BINS,
        "height": _HEIGHT,
    }


def _rate(a_second: float) -> str:
    return f"{a_second:,.2f}" if a_second >= _LOWEST else f"below {_LOWEST}"


def spark_path(bins: Sequence[int]) -> str:
    """Return an SVG path with a column for each part of the time, the highest as high as the drawing; empty if all are zero."""
    highest = max(bins, default=0)
    columns = []
    for place, number in enumerate(bins):
        if number:
            height = max(_HEIGHT * number / highest, 1)
            columns.append(f"M{place} {_HEIGHT}v-{height:.1f}h.8v{height:.1f}z")
    return "".join(columns)
