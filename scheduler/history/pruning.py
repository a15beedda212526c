"""Prunes the history by its settings: Decisions and Outcomes, details of Decisions, and unused parts of the journal.

On PostgreSQL, a week of Decisions is dropped with its partition. If a hold keeps some of its rows, and on other databases, pruning
works row by row, in batches of one transaction each. The transaction that prunes also records what was pruned by which rule.
"""

import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from django.db import OperationalError, connection, models, transaction
from django.db.models import Count, Max, Min, Q, QuerySet, Sum
from django.db.models.functions import Length

from scheduler.history import partitions
from scheduler.history.holds import active_holds, digest_of_hold, held, held_by
from scheduler.history.late import Late
from scheduler.ledger.deletions import Deletion, Range, note_deleted
from scheduler.ledger.keys import KeyFileError
from scheduler.ledger.logs import DECISIONS, OUTCOMES
from scheduler.models import (
    Checkpoint,
    Decision,
    JournalUse,
    LedgerPruned,
    LegalHold,
    NodeNames,
    Outcome,
    Pruning,
    SnapshotPart,
)

logger = logging.getLogger("berth.history")

BATCH = 2_000
# A run ends after this; the next one continues. Celery would stop it after 75 s.
RUN_SECONDS = 45.0
_JOURNAL_BATCH = 200
# The most rows that a run leaves because their times aren't proved.
_MOST_LEFT = 20_000
_EARLIEST = datetime(1, 1, 1, tzinfo=UTC)


class Retention(msgspec.Struct, frozen=True):
    """How many days each kind of record is kept; 0: for ever. Details are pruned with their Decision at the latest."""

    days: int
    details_days: int

    @property
    def of_details(self) -> int:
        """For how many days details are kept."""
        return self.details_days or self.days


class _Pruned:
    """The row about a rule's pruning in this run, with the pruned leaves of the ledger; saved once something is pruned."""

    def __init__(self, rule: Pruning.Rule, days: int, now: datetime) -> None:
        self._row = Pruning(rule=rule, days=days, at=now)

    def add(self, rows: int, size: int, first: datetime, until: datetime, *, whole: int = 0) -> None:
        """Note rows that the current transaction prunes."""
        row = self._row
        if row.pk is None:
            row.from_at, row.until_at = first, until
        row.from_at, row.until_at = min(row.from_at, first), max(row.until_at, until)
        row.rows += rows
        row.bytes += size
        row.whole_partitions += whole
        row.save()

    def add_leaves(self, log: str, rows: QuerySet[Any], holds: Sequence[LegalHold]) -> None:
        """Note the exact ledger leaves of rows that are about to be pruned, whose hashes stay, and the holds in force.

        Raises:
            KeyFileError: the note can't be signed. Nothing may be pruned.
        """
        ranges = _ranges_of(rows)
        if not ranges:
            return
        what = LedgerPruned.What.DETAILS if self._row.rule == Pruning.Rule.DETAILS else LedgerPruned.What.ROWS
        rule = f"{self._row.rule} are kept for {self._row.days} days"
        deleted = [Deletion(log, what, first, until, rule, self._row.at) for first, until in ranges]
        note_deleted(deleted, {hold.pk: digest_of_hold(hold) for hold in holds})


def prune(retention: Retention, now: datetime, *, clock: Callable[[], float] = time.monotonic) -> int:
    """Prune records that have passed their retention, within RUN_SECONDS; return how many were deleted or lost their details.

    Safe to run concurrently: each row is deleted once, and counted by the run that deleted it.

    Raises:
        django.db.DatabaseError: the database is unavailable. Everything pruned so far is noted.
    """
    run = _Run(retention, now, clock)
    try:
        run.all()
    except KeyFileError as error:
        logger.error("pruning stops: deletions can't be signed: %s", error)  # noqa: TRY400 - the file's fault
    if run.pruned:
        _give_back()
    return run.pruned


class _Run:
    """One run."""

    def __init__(self, retention: Retention, now: datetime, clock: Callable[[], float]) -> None:
        self._retention = retention
        self._now = now
        self._clock = clock
        self._ends = clock() + RUN_SECONDS
        self._late = Late(self._horizon())
        self.pruned = 0

    @property
    def _has_time(self) -> bool:
        return self._clock() < self._ends

    def all(self) -> None:
        """Prune by all rules."""
        if self._retention.days:
            self.decisions()
            self.outcomes()
        if self._retention.of_details:
            if self._retention.details_days:
                self.details()
            self.journal()

    def _horizon(self) -> datetime:
        """Return the time before which Decisions are pruned."""
        return partitions.whole_until(self._now - timedelta(days=self._retention.days))

    def _details_horizon(self) -> datetime:
        """Return the time before which details are pruned: a whole hour, because each deletion adds an event."""
        return self._now.replace(minute=0, second=0, microsecond=0) - timedelta(days=self._retention.details_days)

    def decisions(self) -> None:
        """Delete Decisions, as whole partitions if possible."""
        horizon = self._horizon()
        pruned = _Pruned(Pruning.Rule.DECISIONS, self._retention.days, self._now)
        for each in partitions.partitions():
            if each.end_at <= horizon and self._has_time:
                try:
                    self._drop(each, pruned)
                except OperationalError as error:
                    logger.warning("partition %s can't be dropped yet: %s", each.name, error)
                    return
        self._delete(Decision, horizon, pruned, DECISIONS)

    def outcomes(self) -> None:
        """Delete Outcomes of Pods."""
        pruned = _Pruned(Pruning.Rule.OUTCOMES, self._retention.days, self._now)
        self._delete(Outcome, self._horizon(), pruned, OUTCOMES)

    def _drop(self, partition: partitions.Partition, pruned: _Pruned) -> None:
        """Drop a partition, unless a row in it is held: then the other rows are deleted one by one."""
        with transaction.atomic():
            holds = active_holds()
            wanted = held(holds)
            rows = Decision.objects.filter(at__gte=partition.first_at, at__lt=partition.end_at)
            if wanted is not None and rows.filter(wanted).exists():
                return
            late = self._late.among(rows, partition.end_at)
            if late[: BATCH + 1].count() > BATCH or self._late.unproved(late):
                return
            first, counted = rows.aggregate(first=Min("at"), number=Count("pk")).values()
            pruned.add_leaves(DECISIONS, rows, holds)
            number, size = partitions.drop(partition)
            if _has_moved(counted, number, holds):
                return
            if number:
                pruned.add(number, size, first or partition.first_at, partition.end_at, whole=1)
        self.pruned += number
        logger.info("partition %s was dropped: %d Decisions, %d bytes", partition.name, number, size)

    def _delete(self, model: type[models.Model], horizon: datetime, pruned: _Pruned, log: str) -> None:
        """Delete rows by batches, the oldest first."""

        def delete(batch: QuerySet[Any], holds: Sequence[LegalHold]) -> tuple[int, int]:
            pruned.add_leaves(log, batch, holds)
            size = _bytes_of(batch)
            return batch.delete()[0], size

        self._batches(model, Q(), _EARLIEST, horizon, delete, pruned)

    def details(self) -> None:
        """Empty the bodies of Decisions: their columns stay."""
        horizon = self._details_horizon()
        pruned = _Pruned(Pruning.Rule.DETAILS, self._retention.details_days, self._now)

        def empty(batch: QuerySet[Any], holds: Sequence[LegalHold]) -> tuple[int, int]:
            pruned.add_leaves(DECISIONS, batch, holds)
            size = _bytes_of(batch)
            return batch.update(body=b""), size

        # Formerly held rows come last: otherwise the next run would start after rows that this one had no time for.
        if not self._batches(Decision, ~Q(body=b""), self._details_from(), horizon, empty, pruned):
            return
        for hold in LegalHold.objects.filter(released_at=None).exclude(lifted_at=None):
            if self._batches(Decision, ~Q(body=b"") & held_by(hold), _EARLIEST, horizon, empty, pruned):
                LegalHold.objects.filter(pk=hold.pk).update(released_at=self._now)

    def _details_from(self) -> datetime:
        """Return since when there may be details to prune: the end of the last run."""
        last = Pruning.objects.filter(rule=Pruning.Rule.DETAILS).aggregate(last=Max("until_at"))["last"]
        return last or _EARLIEST

    def _batches(
        self,
        model: type[models.Model],
        wanted: Q,
        first: datetime,
        horizon: datetime,
        act: Callable[[QuerySet[Any], Sequence[LegalHold]], tuple[int, int]],
        pruned: _Pruned,
    ) -> bool:
        """Process rows in batches, the oldest first, without held ones and those of unproved times; return whether none are left."""
        left: list[Any] = []
        while self._has_time:
            with transaction.atomic():
                holds = active_holds()
                kept = held(holds)
                found: QuerySet[Any] = model._default_manager.filter(wanted, at__gte=first, at__lt=horizon)  # noqa: SLF001 - Django's name for it
                found = (found if kept is None else found.exclude(kept)).exclude(pk__in=left)
                times = list(found.order_by("at").values_list("at", flat=True)[:BATCH])
                if not times:
                    return True
                # Rows of the same time stay together.
                batch = found.filter(at__gte=times[0], at__lte=times[-1])
                if unproved := self._late.unproved(self._late.among(batch, times[-1])):
                    _say_left(unproved, model)
                    left += unproved
                    if len(left) > _MOST_LEFT:
                        return False
                    continue
                counted = batch.count()
                rows, size = act(batch, holds)
                if _has_moved(counted, rows, holds):
                    continue
                pruned.add(rows, size, times[0], times[-1])
            self.pruned += rows
            first = times[-1]
        return False

    def journal(self) -> None:
        """Delete chains of Snapshots, and names of nodes, that no Decision with details needs any more."""
        days = self._retention.of_details
        horizon = self._details_horizon() if self._retention.details_days else self._horizon()
        needed = self._needed(horizon)
        chains = JournalUse.objects.filter(kind=JournalUse.Kind.CHAIN, last_at__lt=horizon)
        pruned = _Pruned(Pruning.Rule.SNAPSHOTS, days, self._now)
        for use in chains.order_by("last_at").iterator(chunk_size=_JOURNAL_BATCH):
            if not self._has_time:
                return
            if (use.writer, use.number) not in needed.chains:
                self._end_use(use, SnapshotPart.objects.filter(writer=use.writer, chain=use.number), pruned)
        names = JournalUse.objects.filter(kind=JournalUse.Kind.NAMES, last_at__lt=horizon)
        pruned = _Pruned(Pruning.Rule.NAMES, days, self._now)
        for use in names.order_by("last_at").iterator(chunk_size=_JOURNAL_BATCH):
            if not self._has_time:
                return
            if (use.writer, use.number) not in needed.names and not _is_in_a_chain(use):
                self._end_use(use, NodeNames.objects.filter(writer=use.writer, number=use.number), pruned)
        self._orphans(horizon, needed, days)

    def _end_use(self, use: JournalUse, rows: QuerySet[Any], pruned: _Pruned) -> None:
        with transaction.atomic():
            # A chain that was used again meanwhile stays.
            if not JournalUse.objects.filter(pk=use.pk, last_at=use.last_at).delete()[0]:
                return
            size = rows.aggregate(bytes=Sum(Length("data")))["bytes"] or 0
            number = rows.delete()[0]
            pruned.add(number, size, use.last_at, use.last_at)
        self.pruned += number

    def _needed(self, horizon: datetime) -> "_Needed":
        """Return the chains and names that held Decisions need."""
        kept = held(active_holds())
        found = _Needed(set(), set())
        if kept is None:
            return found
        rows = Decision.objects.filter(kept, at__lt=horizon).order_by()
        for writer, chain, names in rows.values_list("process", "chain", "names_number").distinct():
            found.chains.add((writer, chain))
            found.names.add((writer, names))
        return found

    def _orphans(self, horizon: datetime, needed: "_Needed", days: int) -> None:
        """Delete unreferenced data of writers that ended long ago: bases that were never used."""
        writers = {writer for writer, _ in (*needed.chains, *needed.names)}
        used = JournalUse.objects.values("writer")
        gone = Checkpoint.objects.filter(at__lt=horizon).exclude(writer__in=used).exclude(writer="")
        for table, rule in ((SnapshotPart, Pruning.Rule.SNAPSHOTS), (NodeNames, Pruning.Rule.NAMES)):
            pruned = _Pruned(rule, days, self._now)
            left = table._default_manager.filter(writer__in=gone.values("writer"))  # noqa: SLF001 - Django's name for it
            for writer in left.order_by().values_list("writer", flat=True).distinct():
                if writer in writers or not self._has_time:
                    continue
                with transaction.atomic():
                    rows = left.filter(writer=writer)
                    size = rows.aggregate(bytes=Sum(Length("data")))["bytes"] or 0
                    at = Checkpoint.objects.get(writer=writer).at
                    number = rows.delete()[0]
                    pruned.add(number, size, at, at)
                self.pruned += number


def _say_left(rows: Sequence[Any], model: type[models.Model]) -> None:
    logger.warning(
        "%d rows of %s are not pruned, as %s: they say times long before they were logged, and no signed checkpoint shows that they "
        "were logged so. If the ledger has been signed since, `manage.py verify` says more",
        len(rows), model.__name__, rows[0],
    )  # fmt: skip


def _has_moved(counted: int, pruned: int, holds: Sequence[LegalHold]) -> bool:
    """Return whether rows or holds were added or removed during pruning, which is rolled back then.

    A writer that returns may store old records meanwhile, whose leaves weren't noted.
    """
    if counted == pruned and active_holds() == holds:
        return False
    transaction.set_rollback(True)
    return True


class _Needed(msgspec.Struct):
    """Chains and names that held Decisions need, by writer and number."""

    chains: set[tuple[str, int]]
    names: set[tuple[str, int]]


def _is_in_a_chain(use: JournalUse) -> bool:
    """Return whether a chain that still exists may use these names."""
    chains = JournalUse.objects.filter(writer=use.writer, kind=JournalUse.Kind.CHAIN)
    return chains.filter(Q(least_names__lte=use.number, most_names__gte=use.number) | Q(least_names=0)).exists()


def _ranges_of(rows: QuerySet[Any]) -> list[Range]:
    """Return the leaves of rows as ranges, in order: consecutive numbers have the same difference from their rank."""
    leaves, parameters = rows.exclude(ledger_index=None).order_by().values("ledger_index").query.sql_with_params()
    ranked = f"SELECT ledger_index, ledger_index - row_number() OVER (ORDER BY ledger_index) AS island FROM ({leaves}) AS leaves"  # noqa: S608 - Django's own SQL
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT min(ledger_index), max(ledger_index) + 1 FROM ({ranked}) AS ranked GROUP BY island ORDER BY 1",  # noqa: S608 - the same
            parameters,
        )
        return list(cursor.fetchall())


def _bytes_of(batch: QuerySet[Any]) -> int:
    """Return the size of rows' bodies."""
    return batch.aggregate(bytes=Sum(Length("body")))["bytes"] or 0


def _give_back() -> None:
    """Release free pages of SQLite's file to the disk; PostgreSQL does so by itself."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA incremental_vacuum(20000)")
            cursor.fetchall()
