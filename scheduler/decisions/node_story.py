"""The story of a node: when it was accepted or refused for Pods and why, and the Pods that went there."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby

import msgspec

from policies.engine.decision import Answer
from policies.engine.status import PASSED
from scheduler.decisions.matrix import refusals_of
from scheduler.decisions.reading import Names, read_decision, recorded
from scheduler.decisions.search import Search
from scheduler.models import OPENING_VERBS, Decision

# Decisions whose bodies are read for a page: the newest.
MOST_READ = 100
_MOST_PLACED = 50
# The approximate number of periods, each of one of these lengths.
_PERIODS = 10
_LENGTHS = [
    *(timedelta(minutes=minutes) for minutes in (1, 5, 15)),
    *(timedelta(hours=hours) for hours in (1, 6)),
    *(timedelta(days=days) for days in (1, 7, 30, 365)),
]
_EPOCH = datetime(2001, 1, 1, tzinfo=UTC)  # a Monday


class Reason(msgspec.Struct, frozen=True):
    """How often a rule refused the node for a reason, and the newest Decision in which it did."""

    rule: str
    reason: str
    number: int
    newest: Decision


class Period(msgspec.Struct, frozen=True):
    """How many Decisions of a period accepted the node, and how many refused it."""

    begins: datetime
    ends: datetime
    accepted: int
    refused: int


class NodeStory(msgspec.Struct, frozen=True, kw_only=True):
    """The whole story. `read` Decisions were read, from `since` on; `not_asked` of them weren't about the node.

    `unknown`: of how many the details were pruned, or are damaged.
    `has_more`: whether there are older Decisions in the requested time.
    """

    read: int
    since: datetime | None
    accepted: int
    refused: int
    not_asked: int
    unknown: int
    best: int
    reasons: list[Reason]
    periods: list[Period]
    placed: list[Decision]
    has_more: bool


def node_story(name: str, search: Search) -> NodeStory:
    """Return the story of a node in a search's time.

    Raises:
        django.db.DatabaseError: the database is unavailable, or took too long.
    """
    times = {"at__gte": search.since, "at__lt": search.until}
    within = recorded().filter(**{key: value for key, value in times.items() if value})
    rows = list(within.filter(mode="enforce", verb__in=OPENING_VERBS, error="")[: MOST_READ + 1])
    has_more = len(rows) > MOST_READ
    rows = rows[:MOST_READ]
    said, unknown = _said_of(name, rows)
    reasons: dict[tuple[str, str], Decision] = {}
    numbers: Counter[tuple[str, str]] = Counter()
    for row, verdict in said:
        if verdict is not None:
            numbers[verdict] += 1
            reasons.setdefault(verdict, row)
    placed = within.filter(placed_on=name).defer("body")[: _MOST_PLACED * 3]
    return NodeStory(
        read=len(rows),
        since=rows[-1].at if rows else None,
        accepted=sum(verdict is None for _, verdict in said),
        refused=sum(numbers.values()),
        not_asked=len(rows) - len(said) - unknown,
        unknown=unknown,
        best=sum(row.best == name for row in rows),
        reasons=[Reason(*key, number, reasons[key]) for key, number in numbers.most_common()],
        periods=_periods(said),
        placed=list({row.pod_uid: row for row in placed}.values())[:_MOST_PLACED],
        has_more=has_more,
    )


def _said_of(name: str, rows: Sequence[Decision]) -> tuple[list[tuple[Decision, tuple[str, str] | None]], int]:
    """Return the Decisions about a node, each with the rule and the reason of its refusal, None if it passed.

    Also returns the number of Decisions for which this isn't known; their own pages say why.
    """
    names, found, unknown = Names(), [], 0
    for row in rows:
        try:
            read = read_decision(row, names)
        except ValueError:
            unknown += 1
            continue
        unknown += bool(read.missing)
        answer = read.answer
        if name in answer.names:
            found.append((row, _verdict(answer, answer.names.index(name))))
    return found, unknown


def _verdict(answer: Answer, position: int) -> tuple[str, str] | None:
    if answer.refusal[position] == PASSED:
        return None
    for column in answer.filters:
        code = int(column.codes[position]) if position < len(column.codes) else PASSED
        if column.rule.mode == "enforce" and 0 <= code < len(column.statuses):
            status = column.statuses[code]
            return column.rule.key, status.reason or status.code.value
    return next((each.rule, each.reason) for each in refusals_of(answer) if answer.names[position] in each.nodes)


def _periods(said: Sequence[tuple[Decision, tuple[str, str] | None]]) -> list[Period]:
    """Return the Decisions by periods of equal length, the newest first, without empty periods."""
    if not said:
        return []
    # Ids are ordered by the clocks of several writers.
    said = sorted(said, key=lambda each: each[0].at, reverse=True)
    whole = said[0][0].at - said[-1][0].at
    length = next((each for each in _LENGTHS if whole < each * _PERIODS), _LENGTHS[-1])
    periods = []
    for since, group in groupby(said, key=lambda each: each[0].at - (each[0].at - _EPOCH) % length):
        verdicts = [verdict for _, verdict in group]
        refused = sum(verdict is not None for verdict in verdicts)
        periods.append(Period(since, since + length, len(verdicts) - refused, refused))
    return periods
