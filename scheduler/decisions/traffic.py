"""Measures the last hour of Decisions by verb: their number, their duration, and how many left a Pod no node.

It reads only the newest Decisions, so that a busy cluster's first page costs no more than a quiet one's; if there were more,
the figures are for the time that these cover.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from scheduler.decisions.reading import recorded
from scheduler.models import found_no_node

SPAN = timedelta(hours=1)
# The most Decisions that are read: some 40 ms of a page's 300.
MOST = 20_000
# Columns of a sparkline.
BINS = 60


class Answered(msgspec.Struct, frozen=True, array_like=True):
    """The measured columns of a Decision."""

    at: datetime
    verb: str
    nodes: int
    feasible: int
    error: str
    microseconds: int


class VerbTraffic(msgspec.Struct, frozen=True):
    """The Decisions of one verb.

    Attributes:
        verb: the extender's verb; "schedule" is Berth's own scheduler.
        decisions: their number.
        a_second: their number per second of the time measured.
        refused: the number that left no node.
        errors: the number that failed.
        p50, p99: milliseconds from the request to the answer.
        bins: the number in each of BINS equal parts of the time, oldest first.
    """

    verb: str
    decisions: int
    a_second: float
    refused: int
    errors: int
    p50: float
    p99: float
    bins: Sequence[int]


class Traffic(msgspec.Struct, frozen=True):
    """The Decisions since a time, the busiest verb first; `is_part` means that there were more within the hour."""

    since: datetime
    verbs: Sequence[VerbTraffic]
    is_part: bool = False

    @property
    def decisions(self) -> int:
        """The number of Decisions."""
        return sum(each.decisions for each in self.verbs)

    @property
    def refused(self) -> int:
        """The number that left no node."""
        return sum(each.refused for each in self.verbs)


def traffic(rows: Iterable[Answered], *, now: datetime, most: int = MOST) -> Traffic:
    """Measure Decisions of the last hour, newest first. Pure.

    Args:
        rows: Decisions of the hour; if there are `most`, there may be more, and the time measured begins with the oldest of them.
        now: the end of the time measured.
        most: the number that was requested.
    """
    by_verb: dict[str, list[Answered]] = {}
    oldest = now
    for row in rows:
        by_verb.setdefault(row.verb, []).append(row)
        oldest = min(oldest, row.at)
    is_part = sum(map(len, by_verb.values())) >= most
    since = oldest if is_part else now - SPAN
    seconds = max((now - since).total_seconds(), 1.0)
    found = [_verb_traffic(verb, answered, since, seconds) for verb, answered in by_verb.items()]
    return Traffic(since, sorted(found, key=lambda each: (-each.decisions, each.verb)), is_part)


def _verb_traffic(verb: str, answered: Sequence[Answered], since: datetime, seconds: float) -> VerbTraffic:
    bins = [0] * BINS
    for row in answered:
        part = int(BINS * (row.at - since).total_seconds() / seconds)
        bins[min(max(part, 0), BINS - 1)] += 1
    times = sorted(row.microseconds for row in answered)
    return VerbTraffic(
        verb=verb,
        decisions=len(answered),
        a_second=len(answered) / seconds,
        refused=sum(found_no_node(row.nodes, row.feasible, row.error) for row in answered),
        errors=sum(bool(row.error) for row in answered),
        p50=_percentile(times, 50) / 1000,
        p99=_percentile(times, 99) / 1000,
        bins=bins,
    )


def _percentile(ordered: Sequence[int], percent: int) -> int:
    """Return the smallest value that this percentage of values doesn't exceed (the nearest rank)."""
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]


def traffic_now(now: datetime) -> Traffic:
    """Measure the last hour of the history: answers, without shadows. One query, along an index."""
    fields = ("at", "verb", "nodes", "feasible", "error", "duration_microseconds")
    rows = recorded().filter(at__gt=now - SPAN).exclude(mode="shadow").order_by("-at", "-sequence")
    return traffic((Answered(*row) for row in rows.values_list(*fields)[:MOST]), now=now)
