"""Groups the Decisions of a search by Pod, rule, reason or node.

The groups cover one page of a search, newest first: the database counts nothing, and the next page has the groups of older Decisions.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from policies.parameters import MAX_LIMIT, SearchError
from scheduler.decisions.search import Page, Search
from scheduler.models import Decision

WAYS = {"pod": "Pod", "rule": "rule that refused", "reason": "reason", "node": "best node"}


class Group(msgspec.Struct, kw_only=True):
    """Decisions with one value in common.

    Attributes:
        narrows: the search filters that select them.
        row: the newest of them.
        decisions: their number.
        refused: the number of them that found no node.
        pods: the UIDs of their Pods.
        oldest: when the oldest was made.
    """

    narrows: Mapping[str, str]
    row: Decision
    decisions: int = 0
    refused: int = 0
    pods: set[str] = msgspec.field(default_factory=set)
    oldest: datetime

    def add(self, row: Decision) -> None:
        """Add a Decision."""
        self.decisions += 1
        self.refused += row.found_no_node
        self.pods.add(row.pod_uid)
        self.oldest = min(self.oldest, row.at)


def grouped(rows: Iterable[Decision], way: str) -> list[Group]:
    """Return groups of Decisions, which are given newest first; the largest group comes first. Pure.

    A Decision in which several rules refused nodes is in the group of each; one without a value to group by is in none.

    Args:
        rows: without their bodies.
        way: one of WAYS.
    """
    groups: dict[tuple[tuple[str, str], ...], Group] = {}
    for row in rows:
        for narrows in _narrowings(row, way):
            key = tuple(narrows.items())
            if key not in groups:
                groups[key] = Group(narrows=narrows, row=row, oldest=row.at)
            groups[key].add(row)
    return sorted(groups.values(), key=lambda each: (-each.decisions, tuple(each.narrows.values())))


def _narrowings(row: Decision, way: str) -> list[dict[str, str]]:
    match way:
        case "pod":
            named = {"pod_namespace": row.pod_namespace, "pod_name": row.pod_name}
            return [{"pod_uid": row.pod_uid} if row.pod_uid else named]
        case "rule":
            return [{"refused_by": rule} for rule in row.refused_by.strip().splitlines()]
        case "reason":
            return [{"top_reason": row.top_reason}] if row.top_reason else []
        case _:
            return [{"best": row.best}] if row.best else []


def groups_of(search: Search, way: str) -> tuple[list[Group], Page]:
    """Search for at most MAX_LIMIT Decisions and group them; also returns the page that was grouped.

    Raises:
        SearchError: there is no such way.
        django.db.DatabaseError: the database is unavailable, or took too long.
    """
    if way not in WAYS:
        raise SearchError({"group": f"{way[:40]!r} is none of {', '.join(WAYS)}"})
    page = msgspec.structs.replace(search, limit=MAX_LIMIT).page()
    return grouped(page.rows, way), page
