"""Finds Decisions that were answered but aren't stored, of processes that ended: they are missing until they arrive.

Once a second, a process writes how many Decisions it has numbered, next to the checkpoint of its stored ones. While it lives, the
difference is in transit. Once it is silent, the rest is in its state folder, which the next process ships, or in Redis, or lost:
nobody can know, so it is listed among the gaps until it arrives.
"""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.db import connection, transaction
from django.db.models import F, Sum
from django.db.models.functions import Now

from scheduler.decisions.storing import hold_up_others
from scheduler.models import Checkpoint, DecisionGap, Process

# A process that was silent for this long counts as ended, and its shipped records as stored.
SILENT = timedelta(seconds=30)
REASON = "not stored, and the process is gone: in its state folder, in Redis, or lost"


class Absent(NamedTuple):
    """How many answered Decisions are not in the history: those lost for good, and those that may still arrive."""

    lost: int
    may_return: int


def absent() -> Absent:
    """Return how many Decisions are in gaps.

    Raises:
        django.db.DatabaseError: the database is unavailable.
    """
    rows = DecisionGap.objects.order_by("may_return").values_list("may_return")
    numbers: dict[bool, int] = dict(rows.annotate(number=Sum(F("last") - F("first") + 1)))
    return Absent(lost=numbers.get(False, 0), may_return=numbers.get(True, 0))


def database_now() -> datetime:
    """Return the time by the database's clock, which heartbeats use: reader and writer may have different clocks."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT CURRENT_TIMESTAMP")
        now: datetime | str = cursor.fetchone()[0]
    return datetime.fromisoformat(now).replace(tzinfo=UTC) if isinstance(now, str) else now


def note_numbered(writer: str, numbered: int, now: datetime | Now) -> None:
    """Write how many Decisions a writer has numbered.

    Raises:
        django.db.DatabaseError: the database is unavailable.
    """
    fields = {"numbered": numbered, "numbered_at": now}
    if not Checkpoint.objects.filter(writer=writer).update(**fields):
        Checkpoint.objects.get_or_create(writer=writer, defaults={"at": now, **fields})


def missing(now: datetime) -> list[DecisionGap]:
    """Return the Decisions that are missing now, as one unsaved gap for each writer that ended."""
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
    """Keep a row for each current gap, and delete rows of gaps that are closed. Safe to run concurrently."""
    with transaction.atomic():
        hold_up_others(now)
        gaps = missing(now)
        rows = DecisionGap.objects.filter(may_return=True)
        there = set(rows.values_list("process", "first", "last"))
        if there != {(gap.process, gap.first, gap.last) for gap in gaps}:
            rows.delete()
            DecisionGap.objects.bulk_create(gaps)
