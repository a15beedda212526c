"""How much the history takes up, and how much it will at today's rate. A sample is taken once an hour."""

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
# Of so many of the newest Decisions the details are weighed.
_WEIGHED = 500
# Today's rate is that of the last day, of at least an hour.
_RATE_OVER = timedelta(days=1)
_RATE_FROM = timedelta(minutes=30)
# Where nothing ends the time that Decisions are kept.
USUAL_DAYS = 30


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """What the history will take up.

    Attributes:
        days: for how many days Decisions are kept, or would be.
        per_day: Decisions at today's rate.
        bytes: what they take up then, with Snapshots and indexes.
        bytes_each: what a Decision takes up now, without its details.
        details_each: what its details and its share of Snapshots take up.
    """

    days: int
    per_day: int
    bytes: int
    bytes_each: int
    details_each: int


def retention() -> Retention:
    """Return for how long the settings say that the history is kept."""
    return Retention(settings.BERTH.retention_days, settings.BERTH.retention_details_days)


def sample(now: datetime) -> StorageSample | None:
    """Weigh the history where that is due; return the sample.

    Raises:
        django.db.DatabaseError: the database is away.
    """
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
            # As the planner does: statistics may be old, so of them only how many rows a page has.
            "sum(pg_relation_size(relid)) / current_setting('block_size')::numeric * sum(reltuples) FILTER (WHERE relpages > 0) "
            "/ sum(relpages) FILTER (WHERE relpages > 0) "
            "FROM pg_partition_tree('scheduler_decision') JOIN pg_class ON oid = relid WHERE isleaf"
        )
        decision_bytes, journal_bytes, rows = cursor.fetchone()
    # Before the first ANALYZE there are no statistics, and few rows.
    return int(decision_bytes), int(journal_bytes), round(rows or 0) or Decision.objects.count()


def _sqlite() -> tuple[int, int, int]:
    """Return the sizes; all that isn't the journal's is taken for the Decisions'."""
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
    """Return the newest sample, and the one that today's rate is reckoned from; None where there isn't one yet."""
    newest = StorageSample.objects.first()
    if newest is None:
        return None, None
    older = StorageSample.objects.filter(at__lte=newest.at - _RATE_FROM)
    within = older.filter(at__gte=newest.at - _RATE_OVER)
    return newest, within.last() or older.first()


def forecast(newest: StorageSample, before: StorageSample, kept: Retention) -> Forecast:
    """Return what the history will take up when it has been kept for its time, at the rate between two samples."""
    seconds = (newest.at - before.at).total_seconds()
    per_day = max(newest.decisions - before.decisions, 0) / seconds * 86_400
    days = kept.days or USUAL_DAYS
    details_days = min(kept.of_details or days, days)
    rows = max(newest.rows, 1)
    # Rows from before the details' time have none any more.
    detailed = min(1.0, per_day * details_days / rows) if kept.details_days else 1.0
    bytes_each = max(newest.decision_bytes / rows - newest.detail_bytes * detailed, 0.0)
    details_each = newest.detail_bytes + newest.journal_bytes / max(rows * detailed, 1.0)
    whole = per_day * (days * bytes_each + details_days * details_each)
    return Forecast(
        days=days, per_day=round(per_day), bytes=round(whole), bytes_each=round(bytes_each), details_each=round(details_each)
    )  # fmt: skip


def forecast_now() -> Forecast | None:
    """Return the forecast of the newest samples; None where there are too few yet."""
    newest, before = samples_now()
    return forecast(newest, before, retention()) if newest and before else None


def over_budget(found: Forecast) -> bool:
    """Return whether a forecast passes BERTH_HISTORY_BUDGET_BYTES, where that is set."""
    return 0 < settings.BERTH.history_budget_bytes < found.bytes


def in_words(found: Forecast) -> str:
    """Return a forecast in a sentence."""
    return f"at today's rate, {found.per_day:,} Decisions a day, {found.days} days need {size_in_words(found.bytes)}"


def size_in_words(size: float) -> str:
    """Return a number of bytes as people say it: 410 GB."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}" if size < 10 * factor else f"{size / factor:.0f} {unit}"
    return counted(round(size), "byte")
