"""Appends AuditEvents to their log: they are written by the transactions of acts, which wait for nobody, and logged a moment later."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction

from policies.models import AuditEvent
from policies.models.audit import first_id_at, time_of_id
from scheduler.ledger.append import Appender
from scheduler.ledger.logs import EVENTS
from scheduler.ledger.tree import leaf_hash
from scheduler.models import LedgerLeaf

BATCH = 1_000
# An event's id is made when the act begins, and seen by others when it is done: none takes so long.
LATEST = timedelta(hours=1)


def append_events(now: datetime) -> int:
    """Log the events that aren't yet, in the order of their ids; return how many these were. Safe to run twice at once.

    Raises:
        django.db.DatabaseError: the database is away.
        scheduler.ledger.tree.ProofError: the log was damaged; nothing can be appended to it.
    """
    appended = 0
    while rows := _append_batch(now):
        appended += rows
    return appended


def _append_batch(now: datetime) -> int:
    with transaction.atomic():
        log = Appender(EVENTS, now)
        found = _unlogged()
        first = log.append([leaf_hash(bytes(row.body)) for row in found])
        LedgerLeaf.objects.bulk_create(
            LedgerLeaf(log=EVENTS, index=index, row=str(row.pk)) for index, row in enumerate(found, start=first)
        )
    return len(found)


def _unlogged() -> Sequence[AuditEvent]:
    """Return the oldest events that have no leaf, of those that can have come since the last one was logged."""
    events = AuditEvent.objects.order_by("pk")
    last = LedgerLeaf.objects.filter(log=EVENTS).order_by("-index").values_list("row", flat=True).first()
    if last is not None:
        newest = AuditEvent.objects.filter(pk=last).values_list("pk", flat=True).first()
        if newest is not None:
            events = events.filter(pk__gte=first_id_at(time_of_id(newest) - LATEST))
    found: list[AuditEvent] = []
    batch: list[AuditEvent] = []
    for row in events.only("pk", "body").iterator(chunk_size=BATCH):
        batch.append(row)
        if len(batch) == BATCH:
            found += _without_leaf(batch)
            batch = []
        if len(found) >= BATCH:
            return found[:BATCH]
    return [*found, *_without_leaf(batch)][:BATCH]


def _without_leaf(batch: Sequence[AuditEvent]) -> list[AuditEvent]:
    rows = LedgerLeaf.objects.filter(log=EVENTS, row__in=[str(row.pk) for row in batch])
    there = set(rows.values_list("row", flat=True))
    return [row for row in batch if str(row.pk) not in there]
