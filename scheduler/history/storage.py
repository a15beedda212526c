"""The size of the history, and its forecast at today's rate. A sample is taken once an hour."""

from datetime import datetime, timedelta

import msgspec
from django.conf import settings
from django.db import connection
from django.db.models import Avg, F, Sum
from django.db.models.functions import Length

from policies.wording import counted
from scheduler.history.pruning import Retention
from scheduler.models import Checkpoint, Decision, NodeNames, SnapshotPart, StorageSample

SAMPLE_EVERY = timedelta(hours=1)
_KEPT = timedelta(days=90)
# The number of newest Decisions whose details are measured.
_WEIGHED = 500
# Today's rate is that of the last day, over at least an hour.
_RATE_OVER = timedelta(days=1)
_RATE_FROM = timedelta(minutes=30)
# The time for forecasts if Decisions are kept for ever.
_USUAL_DAYS = 30


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The future size of the history.

    Attributes:
        days: how many days Decisions are kept, or would be.
        per_day: Decisions per day at today's rate.
        bytes: their size then, with Snapshots and indexes.
        bytes_each: the size of a Decision now, without its details.
        details_each: the size of its details and its share of Snapshots.
    """

    days: int
    per_day: int
    bytes: int
    bytes_each: int
    details_each: int


def retention() -> Retention:
    """Return the retention in the settings."""
    return Retention(settings.BERTH.retention_days, settings.BERTH.retention_details_days)


def sample(now: datetime) -> StorageSample | None:
    """Measure the history if that is due; return the sample.

    Raises:
        django.db.DatabaseError: the database is unavailable.
    """
    # Of a clock that was set back since: no other sample would be due before that time.
    StorageSample.objects.filter(at__gt=now + SAMPLE_EVERY).delete()
    newest = StorageSample.objects.first()
    if newest and now - newest.at < SAMPLE_EVERY - _RATE_FROM:
        return None
    stored = Checkpoint.objects.aggregate(number=Sum(F("next_decision") - 1))["number"] or 0
    decision_bytes, journal_bytes, rows = weigh()
    taken = StorageSample.objects.create(
        at=now, decisions=stored, rows=rows, decision_bytes=decision_bytes, journal_bytes=journal_bytes,
        detail_bytes=_details(),
    )  # fmt: skip
    StorageSample.objects.filter(at__lt=now - _KEPT).delete()
    return taken


def weigh() -> tuple[int, int, int]:
    """Return the bytes of Decisions and outcomes, those of Snapshots and names, and how many Decisions there are.

    Raises:
        django.db.DatabaseError: the database is away.
    """
    return _postgresql() if connection.vendor == "postgresql" else _sqlite()


def _details() -> int:
    newest = Decision.objects.order_by("-at", "-sequence")[:_WEIGHED]
    return int(newest.annotate(size=Length("body")).aggregate(mean=Avg("size"))["mean"] or 0)


def _postgresql() -> tuple[int, int, int]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(pg_total_relation_size(relid)) + pg_total_relation_size('scheduler_outcome'), "
            "pg_total_relation_size('scheduler_snapshotpart') + pg_total_relation_size('scheduler_nodenames'), "
            # As the planner does: statistics may be old, so only their number of rows per page is used.
            "sum(pg_relation_size(relid)) / current_setting('block_size')::numeric * sum(reltuples) FILTER (WHERE relpages > 0) "
            "/ sum(relpages) FILTER (WHERE relpages > 0) "
            "FROM pg_partition_tree('scheduler_decision') JOIN pg_class ON oid = relid WHERE isleaf"
        )
        decision_bytes, journal_bytes, rows = cursor.fetchone()
    # Before the first ANALYZE there are no statistics, and few rows.
    return int(decision_bytes), int(journal_bytes), round(rows or 0) or Decision.objects.count()


def _sqlite() -> tuple[int, int, int]:
    """Return the sizes; everything outside the journal counts as Decisions."""
    with connection.cursor() as cursor:
        pages = {}
        for pragma in ("page_count", "freelist_count", "page_size"):
            cursor.execute(f"PRAGMA {pragma}")
            pages[pragma] = int(cursor.fetchone()[0])
    used = (pages["page_count"] - pages["freelist_count"]) * pages["page_size"]
    journal = sum(
        table._default_manager.aggregate(bytes=Sum(Length("data")))["bytes"] or 0  # noqa: SLF001 - Django's name for it
        for table in (SnapshotPart, NodeNames)
    )
    return max(used - journal, 0), journal, Decision.objects.count()


def samples_now() -> tuple[StorageSample | None, StorageSample | None]:
    """Return the newest sample, and the one that today's rate is computed from; None for one that doesn't exist yet."""
    newest = StorageSample.objects.first()
    if newest is None:
        return None, None
    older = StorageSample.objects.filter(at__lte=newest.at - _RATE_FROM)
    within = older.filter(at__gte=newest.at - _RATE_OVER)
    return newest, within.last() or older.first()


def forecast(newest: StorageSample, before: StorageSample, kept: Retention) -> Forecast:
    """Return the size of the history after its full retention, at the rate between two samples."""
    seconds = (newest.at - before.at).total_seconds()
    per_day = max(newest.decisions - before.decisions, 0) / seconds * 86_400
    days = kept.days or _USUAL_DAYS
    details_days = min(kept.of_details or days, days)
    rows = max(newest.rows, 1)
    # Rows older than the details' retention have no details.
    detailed = min(1.0, per_day * details_days / rows) if kept.details_days else 1.0
    bytes_each = max(newest.decision_bytes / rows - newest.detail_bytes * detailed, 0.0)
    details_each = newest.detail_bytes + newest.journal_bytes / max(rows * detailed, 1.0)
    whole = per_day * (days * bytes_each + details_days * details_each)
    return Forecast(
        days=days, per_day=round(per_day), bytes=round(whole), bytes_each=round(bytes_each), details_each=round(details_each)
    )  # fmt: skip


def forecast_now() -> Forecast | None:
    """Return the forecast from the newest samples; None if there are too few yet."""
    newest, before = samples_now()
    return forecast(newest, before, retention()) if newest and before else None


def over_budget(found: Forecast) -> bool:
    """Return whether a forecast exceeds BERTH_HISTORY_BUDGET_BYTES, if that is set."""
    return 0 < settings.BERTH.history_budget_bytes < found.bytes


def in_words(found: Forecast) -> str:
    """Return a forecast in a sentence."""
    return f"at today's rate, {found.per_day:,} Decisions a day, {found.days} days need {size_in_words(found.bytes)}"


def size_in_words(size: float) -> str:
    """Return a number of bytes in a readable form: 410 GB."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}" if size < 10 * factor else f"{size / factor:.0f} {unit}"
    return counted(round(size), "byte")
