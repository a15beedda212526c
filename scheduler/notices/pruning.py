"""Prunes Notices, their inbox entries and their deliveries, once they are older than the setting."""

import time
from datetime import datetime, timedelta

from django.conf import settings

from scheduler.models import Delivery, Notice

BATCH = 500
RUN_SECONDS = 15.0


def prune_notices(now: datetime) -> int:
    """Delete what is too old, for RUN_SECONDS at most; return the number of deleted rows. Safe to run twice at once.

    Raises:
        django.db.DatabaseError: the database is unavailable.
    """
    horizon, ends, pruned = now - timedelta(days=settings.BERTH.notice_days), time.monotonic() + RUN_SECONDS, 0
    notices = Notice.objects.filter(at__lt=horizon).order_by("at").values_list("pk", flat=True)
    while time.monotonic() < ends and (keys := list(notices[:BATCH])):
        pruned += Notice.objects.filter(pk__in=keys).delete()[0]
    # Deliveries of tests have no Notice with which they would be deleted.
    deliveries = Delivery.objects.filter(made_at__lt=horizon).order_by("made_at").values_list("pk", flat=True)
    while time.monotonic() < ends and (keys := list(deliveries[:BATCH])):
        pruned += Delivery.objects.filter(pk__in=keys).delete()[0]
    return pruned
