"""When each Assignment last took a Pod: updated as Decisions are stored, because searching the history for no match is expensive."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

import msgspec
from django.conf import settings

from policies.models import RevisionPart
from policies.publishing import live_since
from scheduler.decisions.record import NewDecision
from scheduler.models import AssignmentUse, Decision

# A stored time that is this recent isn't updated: a busy Assignment takes a Pod in every batch.
_CLOSE = timedelta(minutes=1)


class Idle(msgspec.Struct, frozen=True):
    """An Assignment that took no Pod for a long time, and since when it is known to be idle."""

    name: str
    since: datetime


def note_uses(decisions: Iterable[Decision | NewDecision]) -> None:
    """Note that Assignments took Pods, also in shadow mode.

    Raises:
        django.db.DatabaseError: the database is unavailable.
    """
    newest: dict[str, datetime] = {}
    for row in decisions:
        if row.assignment:
            newest[row.assignment] = max(row.at, newest.get(row.assignment, row.at))
    if not newest:
        return
    known = last_uses(newest)
    rows = [
        AssignmentUse(name=name, last_at=at)
        for name, at in sorted(newest.items())
        if name not in known or at - known[name] >= _CLOSE
    ]
    AssignmentUse.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["name"], update_fields=["last_at"], batch_size=500
    )


def last_uses(names: Iterable[str]) -> dict[str, datetime]:
    """Return when each of these Assignments last took a Pod; those that never did are missing."""
    return dict(AssignmentUse.objects.filter(name__in=list(names)).values_list("name", "last_at"))


def kept_since() -> datetime | None:
    """Return since when uses are recorded."""
    return AssignmentUse.objects.filter(name=AssignmentUse.KEPT_SINCE).values_list("last_at", flat=True).first()


def idle_now(now: datetime, names: Collection[str] | None = None) -> list[Idle]:
    """Return the live Assignments that took no Pod for longer than the setting allows; with `names`, only among these."""
    kept = kept_since()
    since = live_since(RevisionPart.Kind.ASSIGNMENT, names)
    if kept is None or not since:
        return []
    longest = timedelta(days=settings.BERTH.assignment_idle_days)
    return idle(since, last_uses(since), kept, now, longest)


def idle(
    live_since: Mapping[str, datetime], last: Mapping[str, datetime], kept: datetime, now: datetime, longest: timedelta
) -> list[Idle]:
    """Return the Assignments that took no Pod for longer than `longest`, those idle longest first. Pure.

    Args:
        live_since: for each live Assignment, since when its current form is live.
        last: when each last took a Pod; those that never did are missing.
        kept: since when uses are recorded.
        now: the current time.
        longest: how long an Assignment may be idle.
    """
    found = [Idle(name, max(since, kept, last.get(name, kept))) for name, since in live_since.items()]
    return sorted((each for each in found if now - each.since > longest), key=lambda each: (each.since, each.name))
