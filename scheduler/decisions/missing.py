"""Decisions that were answered and aren't stored, of processes that are gone: missing until they are found.

A process writes once a second how many Decisions it has numbered, beside how far it is stored. While it lives, the difference
is on its way. Once it is silent, the rest is in its state folder, which the next process ships, or in Redis, or lost:
nobody can know, so it stands among the gaps until it arrives.
"""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.db import connection, transaction
from django.db.models import F, Sum
from django.db.models.functions import Now

from scheduler.decisions.storing import hold_up_others
from scheduler.models import Checkpoint, DecisionGap, Process

# A process that wasn't heard of for this long is taken for gone, and what it had shipped for stored.
SILENT = timedelta(seconds=30)
REASON = "not stored, and the process is gone: in its state folder, in Redis, or lost"


class Absent(NamedTuple):
    """How many Decisions were answered and are not in the history: lost for good, and those that may still come."""

    lost: int
    may_return: int


def absent() -> Absent:
    """Return how many Decisions the gaps are of.

    Raises:
        django.db.DatabaseError: the database is away.
    """
    rows = DecisionGap.objects.order_by("may_return").values_list("may_return")
    numbers: dict[bool, int] = dict(rows.annotate(number=Sum(F("last") - F("first") + 1)))
    return Absent(lost=numbers.get(False, 0), may_return=numbers.get(True, 0))


def database_now() -> datetime:
    """Return the moment by the database's clock, which heartbeats go by: who asks may have another one than who wrote them."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT CURRENT_TIMESTAMP")
        now: datetime | str = cursor.fetchone()[0]
    return datetime.fromisoformat(now).replace(tzinfo=UTC) if isinstance(now, str) else now


def note_numbered(writer: str, numbered: int, now: datetime | Now) -> None:
    """Write how many Decisions a writer has numbered.

    Raises:
        django.db.DatabaseError: the database is away.
    """
    fields = {"numbered": numbered, "numbered_at": now}
    if not Checkpoint.objects.filter(writer=writer).update(**fields):
        Checkpoint.objects.get_or_create(writer=writer, defaults={"at": now, **fields})


def missing(now: datetime) -> list[DecisionGap]:
    """Return what is missing now, a gap for each writer that is gone; not as rows."""
    alive = Process.objects.filter(heartbeat_at__gt=now - SILENT).values("id")
    behind = Checkpoint.objects.filter(numbered__gte=F("next_decision"), numbered_at__lte=now - SILENT)
    return [
        DecisionGap(
            process=found.writer,
            first=found.next_decision,
            last=found.numbered,
            reason=REASON,
            at=found.numbered_at or now,
            may_return=True,
        )
        for found in behind.exclude(writer__in=alive)
    ]


def note_missing(now: datetime) -> None:
    """Keep a row for each gap that is missing now, and none that isn't any more. Safe to run twice at once."""
    with transaction.atomic():
        hold_up_others(now)
        gaps = missing(now)
        rows = DecisionGap.objects.filter(may_return=True)
        there = set(rows.values_list("process", "first", "last"))
        if there != {(gap.process, gap.first, gap.last) for gap in gaps}:
            rows.delete()
            DecisionGap.objects.bulk_create(gaps)
