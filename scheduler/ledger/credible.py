"""Which AuditEvents count as evidence: those with a leaf, and those that are too new to have one."""

from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Exists, OuterRef, Q, QuerySet, TextField, Value
from django.db.models.functions import Cast, Replace

from policies.models import AuditEvent
from policies.models.audit import first_id_at
from scheduler.ledger.logs import EVENTS
from scheduler.models import LedgerLeaf

# Beat appends events to the log every two seconds.
_TIME_TO_LOG = timedelta(minutes=10)


def overdue(now: datetime) -> QuerySet[AuditEvent]:
    """Return the events that should have a leaf by now but have none: nothing proves them.

    Their age comes from their ids, by which events are selected for logging. An event's own time isn't proved until it is logged.
    """
    return AuditEvent.objects.filter(~_is_logged(), pk__lt=first_id_at(now - _TIME_TO_LOG))


def credible(now: datetime) -> QuerySet[AuditEvent]:
    """Return the other events: those that are logged, and those that will be. Only these count as evidence."""
    return AuditEvent.objects.filter(_is_logged() | Q(pk__gte=first_id_at(now - _TIME_TO_LOG)))


def _is_logged() -> Q:
    leaves = LedgerLeaf.objects.filter(log=EVENTS)
    if connection.vendor == "postgresql":
        return Q(Exists(leaves.filter(row=Cast(OuterRef("pk"), TextField()))))
    # Ids are hex without dashes there.
    hexes = Replace("row", Value("-"), Value(""), output_field=TextField())
    return Q(pk__in=leaves.values_list(hexes, flat=True))
