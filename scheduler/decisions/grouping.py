"""Decisions that were found, grouped by what people ask about first: the Pod, the rule, the reason, the node.

Of as many as a search gives at once, newest first: nothing is counted by the database, and the next page has the groups of older ones.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from policies.parameters import MAX_LIMIT, SearchError
from scheduler.decisions.search import Page, Search
from scheduler.models import Decision

WAYS = {"pod": "Pod", "rule": "rule that refused", "reason": "reason", "node": "best node"}


class Group(msgspec.Struct, kw_only=True):
    """Decisions that are alike in one way.

    Attributes:
        narrows: the filters of a search that lead to them.
        row: the newest of them.
        decisions: how many.
        refused: of these, how many found no node.
        pods: the UIDs of the Pods that they are about.
        oldest: when the oldest was made.
    """

    narrows: Mapping[str, str]
    row: Decision
    decisions: int = 0
    refused: int = 0
    pods: set[str] = msgspec.field(default_factory=set)
    oldest: datetime

    def add(self, row: Decision) -> None:
        """Take another one in."""
        self.decisions += 1
        self.refused += row.found_no_node
        self.pods.add(row.pod_uid)
        self.oldest = min(self.oldest, row.at)


def grouped(rows: Iterable[Decision], way: str) -> list[Group]:
    """Return groups of Decisions that come newest first, the largest group first. Pure.

    One in which several rules refused nodes is in the group of each; one that has nothing of what is asked for is in none.

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
            return [{"reason": row.top_reason}] if row.top_reason else []
        case _:
            return [{"best": row.best}] if row.best else []


def groups_of(search: Search, way: str) -> tuple[list[Group], Page]:
    """Look for Decisions, MAX_LIMIT of them at most, and group them; returns the page that was grouped, too.

    Raises:
        SearchError: there is no such way.
        django.db.DatabaseError: the database is away, or took too long.
    """
    if way not in WAYS:
        raise SearchError({"group": f"{way[:40]!r} is none of {', '.join(WAYS)}"})
    page = msgspec.structs.replace(search, limit=MAX_LIMIT).page()
    return grouped(page.rows, way), page
