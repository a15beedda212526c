"""Makes Berth's own scheduler try waiting Pods at once, when a user requests it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec
from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from policies import publishing
from policies.publishing.actors import By
from scheduler.models import PendingPod, Wake
from scheduler.pending.holding import GATED

# The most Pods per request: a group may be as large as the cluster.
MOST = 5_000
_MOST_NAMED = 20
_CHUNK = 500


class Woken(msgspec.Struct, frozen=True):
    """The result: the number of Pods that are tried at once, and by reason the number of those that can't be."""

    pods: int
    left: Mapping[str, int]


def wake(rows: Iterable[PendingPod], *, what: tuple[str, str], by: By, now: datetime) -> Woken:
    """Ask the process that leads to try Pods at once; it checks for requests once a second.

    Args:
        rows: the Pods.
        what: kind and name of the selection, for the AuditEvent.
        by: the account.
        now: the current time.
    """
    rows = list(rows)
    left = Counter(why for row in rows if (why := why_not(row)))
    woken = [row for row in rows if not why_not(row)]
    if woken:
        named = [str(row) for row in woken[:_MOST_NAMED]]
        with transaction.atomic():
            publishing.record_event(
                publishing.AuditKind.WAKE, by=by, thing=what, more={"pods": len(woken), "first": named}
            )
            wakes = [Wake(uid=row.uid, asked_at=now) for row in woken]
            Wake.objects.bulk_create(wakes, batch_size=_CHUNK, ignore_conflicts=True)
    return Woken(len(woken), left)


def why_not(row: PendingPod) -> str:
    """Return why a Pod can't be woken; empty if it can."""
    if row.condition == GATED:
        return "scheduling gates keep it back until whoever set them takes them off"
    if row.scheduler_name not in settings.BERTH.scheduler_names:
        return (
            f"{row.scheduler_name or 'its scheduler'} keeps a queue of its own; "
            "Berth has it try as soon as a Revision, the time or labels of its namespace let a Pod pass"
        )
    return ""


def is_any_to_wake(rows: QuerySet[PendingPod]) -> bool:
    """Return whether one of these Pods can be woken."""
    mine = rows.filter(scheduler_name__in=settings.BERTH.scheduler_names)
    return mine.exclude(condition=GATED).exists()
