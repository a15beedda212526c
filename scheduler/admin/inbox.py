"""Every user's own inbox: requests for reviews, and news of the user's Changes and objects."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from policies import publishing
from policies.admin.base import person
from policies.parameters import one_of, read_parameters, whole_number
from scheduler.notices.inbox import entries_of, mark_all_read, mark_read, mark_unread
from scheduler.notices.table import WORDS, Kind

_PER_PAGE = 50
_BADLY_ASKED = 400
_MOST_AT_ONCE = 200
# The largest number of a Notice in either database.
_LARGEST = 2**63 - 1
_ASKS: Mapping[str, Callable[[str], Any]] = {
    "kind": partial(one_of, list(Kind)),
    "unread": partial(one_of, ["1"]),
    "before": partial(whole_number, largest=_LARGEST),
}
# What appears in the inbox, for users whose inbox is empty.
_COMES = (
    "Changes sent to review, if you may approve them, and reviews that you were asked for by name",
    "your own Changes, when somebody else approves, rejects or publishes them",
    "rollbacks and Pauses by others, PriorityClasses that drift, and whatever ends soon, if you may publish",
    "shadows that would have decided differently, if you may edit",
    "lost Decisions",
)


@admin.site.admin_view
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Show the user's Notices, the newest first."""
    asked, faults = read_parameters(request.GET.dict(), _ASKS, what="the inbox")
    kind, unread, before = asked.get("kind", ""), "unread" in asked, asked.get("before", 0)
    entries = entries_of(person(request), kind=kind, unread=unread)
    entries = entries.filter(notice__lt=before) if before else entries
    found = [] if faults else list(entries[: _PER_PAGE + 1])
    rows = found[:_PER_PAGE]
    context = {
        **admin.site.each_context(request),
        "title": "Inbox",
        "faults": faults,
        "waiting": publishing.changes_waiting_for(person(request).get_username()),
        "rows": [{"row": row, "kind": _words(row.notice.kind)} for row in rows],
        "newest": found[0].notice_id if found and not before else 0,
        "has_unread": any(row.read_at is None for row in rows),
        "kinds": [{"key": key, "words": words, "is_chosen": key == kind} for key, words in WORDS.items()],
        "kind": kind,
        "unread": unread,
        "before": rows[-1].notice_id if len(found) > _PER_PAGE else 0,
        "is_narrowed": bool(kind or unread or before),
        "comes": _COMES,
        "here": request.get_full_path(),
    }
    return TemplateResponse(request, "scheduler/inbox.html", context, status=_BADLY_ASKED if faults else None)


@admin.site.admin_view
@require_POST
def read(request: HttpRequest) -> HttpResponse:
    """Mark Notices as read: the named ones, or all up to one."""
    user, now = person(request).pk, timezone.now()
    until = _number(request.POST.get("until", ""))
    number = mark_all_read(user, until, now) if until else mark_read(user, _numbers(request), now)
    if until:
        messages.success(request, f"{number} marked as read." if number else "There was nothing unread.")
    return HttpResponseRedirect(_back(request))


@admin.site.admin_view
@require_POST
def unread(request: HttpRequest) -> HttpResponse:
    """Mark Notices as unread again."""
    mark_unread(person(request).pk, _numbers(request))
    return HttpResponseRedirect(_back(request))


def _numbers(request: HttpRequest) -> Sequence[int]:
    found = [_number(text) for text in request.POST.getlist("number")[:_MOST_AT_ONCE]]
    return [number for number in found if number]


def _number(text: str) -> int:
    """Return the number of a Notice; 0 for an invalid one."""
    return min(int(text), _LARGEST) if text.isascii() and text.isdecimal() and len(text) < 20 else 0  # noqa: PLR2004 - digits


def _words(kind: str) -> str:
    return WORDS[Kind(kind)] if kind in set(Kind) else kind


def _back(request: HttpRequest) -> str:
    """Return the page with the button, if it was the inbox: never another site."""
    inbox, asked = reverse("inbox"), request.POST.get("back", "")
    return asked if asked == inbox or asked.startswith(f"{inbox}?") else inbox


def newest_unread(request: HttpRequest, most: int) -> list[dict[str, Any]]:
    """Return the user's newest unread Notices, for the first page."""
    rows = entries_of(person(request), unread=True)[:most]
    return [{"notice": row.notice, "kind": _words(row.notice.kind)} for row in rows]
