"""A user's inbox: its entries, the number of unread ones, and marking them as read."""

from collections.abc import Sequence
from datetime import datetime

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import QuerySet

from scheduler.models import InboxEntry

# A badge shows above this only that there are more.
MOST_COUNTED = 99


# Every role has this permission, so an account that lost its last role can't read its old Notices.
_SEE = "policies.view_change"


def entries_of(user: User, *, unread: bool, kind: str = "") -> QuerySet[InboxEntry]:
    """Return a user's entries, the newest first: all, those of a kind, or the unread ones; none for a user without a role."""
    if not user.has_perm(_SEE):
        return InboxEntry.objects.none()
    rows = InboxEntry.objects.filter(user=user).select_related("notice").order_by("-notice_id")
    if kind:
        rows = rows.filter(notice__kind=kind)
    return rows.filter(read_at=None) if unread else rows


def unread_count(user: User | AnonymousUser) -> int:
    """Return the number of a user's unread entries, at most one above MOST_COUNTED; 0 for a user without a role."""
    if isinstance(user, AnonymousUser) or not user.has_perm(_SEE):
        return 0
    return InboxEntry.objects.filter(user=user, read_at=None).order_by()[: MOST_COUNTED + 1].count()


def mark_read(user: int, numbers: Sequence[int], now: datetime) -> int:
    """Mark these Notices as read by a user; return how many were unread."""
    return InboxEntry.objects.filter(user=user, notice__in=numbers, read_at=None).update(read_at=now)


def mark_told_read(username: str, thing: tuple[str, str], now: datetime) -> None:
    """Mark the Notices about a thing as read by a user: who acts on it has seen what they tell."""
    kind, name = thing
    about = InboxEntry.objects.filter(notice__thing_kind=kind, notice__thing_name=name)
    about.filter(user__username=username, read_at=None).update(read_at=now)


def mark_all_read(user: int, until: int, now: datetime) -> int:
    """Mark all of a user's entries up to a Notice as read: those that came while the page was open stay unread."""
    return InboxEntry.objects.filter(user=user, notice__lte=until, read_at=None).update(read_at=now)


def mark_unread(user: int, numbers: Sequence[int]) -> int:
    """Mark Notices as unread again."""
    return InboxEntry.objects.filter(user=user, notice__in=numbers).exclude(read_at=None).update(read_at=None)
