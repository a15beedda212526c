"""Appends AuditEvents to their log. The transaction of an act writes its event without waiting; it is logged a moment later."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice
from uuid import UUID

from django.db import transaction

from policies.models import AuditEvent
from policies.models.audit import first_id_at, time_of_id
from scheduler.ledger.append import Appender, check_last_leaf_row, last_leaf_row
from scheduler.ledger.logs import EVENTS
from scheduler.ledger.tree import leaf_hash
from scheduler.models import LedgerLeaf

BATCH = 1_000
# An event's id is made when the act begins, and visible to others after the commit: no act takes longer than this.
LATEST = timedelta(hours=1)
# Ids have the times of their machines' clocks, which differ and may be set back: this many of the newest leaves show by how much.
_LOOKED_BACK = 500


def append_events(now: datetime) -> int:
    """Log the events that aren't logged yet, in the order of their ids; return how many there were. Safe to run concurrently.

    Raises:
        django.db.DatabaseError: the database is unavailable.
        scheduler.ledger.tree.ProofError: the log was damaged, or its leaves' rows are of another state; nothing is appended to it.
    """
    appended = 0
    while rows := _append_batch(now):
        appended += rows
    return appended


def _append_batch(now: datetime) -> int:
    with transaction.atomic():
        log = Appender(EVENTS, now)
        check_last_leaf_row(last_leaf_row(), before=log.size, after=log.size)
        found = _unlogged(now)
        first = log.append([leaf_hash(bytes(row.body)) for row in found])
        LedgerLeaf.objects.bulk_create(
            LedgerLeaf(log=EVENTS, index=index, row=str(row.pk)) for index, row in enumerate(found, start=first)
        )
    return len(found)


def _unlogged(now: datetime) -> Sequence[AuditEvent]:
    """Return the oldest events without a leaf, among those that may have been added since the newest leaves were logged."""
    ids = AuditEvent.objects.order_by("pk").values_list("pk", flat=True)
    since = _since(now)
    if since is not None:
        ids = ids.filter(pk__gte=first_id_at(since))
    found: list[UUID] = []
    rest = ids.iterator(chunk_size=BATCH)
    while len(found) < BATCH and (batch := list(islice(rest, BATCH))):
        found += _without_leaf(batch)
    return list(AuditEvent.objects.filter(pk__in=found[:BATCH]).order_by("pk").only("pk", "body"))


def _since(now: datetime) -> datetime | None:
    """Return since when, by their ids, there may be events without a leaf; None if that is unknown."""
    leaves = LedgerLeaf.objects.filter(log=EVENTS).order_by("-index")
    times = list(filter(None, map(time_of_row, leaves.values_list("row", flat=True)[:_LOOKED_BACK])))
    return min(now, *times) - LATEST if times else None


def key_in_row(row: str) -> UUID | None:
    """Return the event's key in a leaf's row; None if the row was tampered with, which verification reports."""
    try:
        key = UUID(row)
    except ValueError:
        return None
    return key if str(key) == row else None


def time_of_row(row: str) -> datetime | None:
    """Return when the event in a leaf's row was made, by its key; None if the row was tampered with."""
    key = key_in_row(row)
    try:
        return None if key is None else time_of_id(key)
    except OverflowError:
        return None


def _without_leaf(batch: Sequence[UUID]) -> list[UUID]:
    rows = LedgerLeaf.objects.filter(log=EVENTS, row__in=list(map(str, batch)))
    there = set(rows.values_list("row", flat=True))
    return [key for key in batch if str(key) not in there]
