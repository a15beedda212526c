"""Somebody's inbox: what is in it, how much of it is unread, and what was read."""

from collections.abc import Sequence
from datetime import datetime

from django.db.models import QuerySet

from scheduler.models import InboxEntry

# A badge says no more than that there are many.
MOST_COUNTED = 99


def entries_of(user: int, *, kind: str = "", unread: bool = False) -> QuerySet[InboxEntry]:
    """Return somebody's entries, the newest first: all of them, those of a kind, those that weren't read."""
    rows = InboxEntry.objects.filter(user=user).select_related("notice").order_by("-notice_id")
    if kind:
        rows = rows.filter(notice__kind=kind)
    return rows.filter(read_at=None) if unread else rows


def unread_count(user: int) -> int:
    """Return how many entries somebody hasn't read; no more than one above MOST_COUNTED."""
    return InboxEntry.objects.filter(user=user, read_at=None).order_by()[: MOST_COUNTED + 1].count()


def mark_read(user: int, numbers: Sequence[int], now: datetime) -> int:
    """Note that somebody has read these Notices; return how many were unread."""
    return InboxEntry.objects.filter(user=user, notice__in=numbers, read_at=None).update(read_at=now)


def mark_all_read(user: int, until: int, now: datetime) -> int:
    """Note that somebody has read everything up to a Notice: what came while the page stood open stays unread."""
    return InboxEntry.objects.filter(user=user, notice__lte=until, read_at=None).update(read_at=now)


def mark_unread(user: int, numbers: Sequence[int]) -> int:
    """Mark Notices as unread again."""
    return InboxEntry.objects.filter(user=user, notice__in=numbers).exclude(read_at=None).update(read_at=None)
