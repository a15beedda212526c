"""The partitions of Decisions on PostgreSQL, one per week: created in advance, and dropped as a whole.

Database functions do both (see the migration `partitions`): they belong to the role that owns the tables, so the role that
Berth runs as needs no right to change tables. Other databases have no partitions.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from django.db import connection, transaction

WEEK = timedelta(days=7)
# Partitions exist for this many weeks after the current one. Later rows go to the default partition.
_AHEAD = 4
_EARLIEST = datetime(1, 1, 1, tzinfo=UTC)
# Makes readers wait before their queries are planned. A query that was planned without the new partition, and then waits for the
# default one, would find the moved rows in neither: `verify` would miss stored Decisions.
_LOCK = "SET LOCAL lock_timeout = '5s'; LOCK TABLE ONLY scheduler_decision IN ACCESS EXCLUSIVE MODE"
_BOUNDS = re.compile(r"FOR VALUES FROM \((?P<first>.+?)\) TO \('(?P<end>[^']+)'\)")


class Partition(msgspec.Struct, frozen=True):
    """The rows from `first_at` on, before `end_at`."""

    name: str
    first_at: datetime
    end_at: datetime


def _has_partitions() -> bool:
    """Return whether the database keeps Decisions by week."""
    return connection.vendor == "postgresql"


def partitions() -> list[Partition]:
    """Return the partitions by time, the oldest first; the default one isn't among them."""
    if not _has_partitions():
        return []
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname, pg_get_expr(relpartbound, oid) FROM pg_inherits JOIN pg_class ON oid = inhrelid "
            "WHERE inhparent = 'scheduler_decision'::regclass"
        )
        found = [(name, _BOUNDS.fullmatch(bounds)) for name, bounds in cursor.fetchall()]
    rows = [Partition(name, _time(bounds["first"]), _time(bounds["end"])) for name, bounds in found if bounds]
    return sorted(rows, key=lambda each: each.end_at)


def _time(text: str) -> datetime:
    return _EARLIEST if text == "MINVALUE" else datetime.fromisoformat(text.strip("'")).astimezone(UTC)


def week_of(at: datetime) -> datetime:
    """Return when the week of a time begins: Monday, 0:00 UTC."""
    day = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day - timedelta(days=day.weekday())


def make_ahead(now: datetime) -> int:
    """Create the missing partitions of this week and the next ones; return how many were created.

    Raises:
        django.db.DatabaseError: the database is unavailable, or a long read blocks this; the next run tries again.
    """
    if not _has_partitions():
        return 0
    there = partitions()
    weeks = [week_of(now) + number * WEEK for number in range(_AHEAD + 1)]
    missing = [span for week in weeks for span in _missing(week, there)]
    for first, end in missing:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_LOCK)
            cursor.execute("SELECT berth_make_partition(%s, %s)", [first, end])
    return len(missing)


def _missing(week: datetime, there: Sequence[Partition]) -> Iterator[tuple[datetime, datetime]]:
    """Iterate over the parts of a week without a partition: all of it, or the rest beside partitions that users made."""
    first, end = week, week + WEEK
    for each in there:
        if each.first_at < end and each.end_at > first:
            if each.first_at > first:
                yield first, each.first_at
            first = each.end_at
    if first < end:
        yield first, end


def drop(partition: Partition) -> tuple[int, int]:
    """Drop a partition with all its rows; return the number of rows and bytes.

    Raises:
        django.db.DatabaseError: the database is unavailable, or a long read blocks this; the next run tries again.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT rows, bytes FROM berth_drop_partition(%s)", [partition.name])
        rows, size = cursor.fetchone()
    return int(rows), int(size)


def whole_until(cutoff: datetime) -> datetime:
    """Return the time before which whole partitions can be dropped for a cutoff: the start of the cutoff's week.

    The partition of rows from before partitioning has no lower bound, and is pruned row by row.
    """
    for each in partitions():
        if each.first_at <= cutoff < each.end_at and each.first_at > _EARLIEST:
            return each.first_at
    return cutoff
