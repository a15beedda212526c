"""The frame around the pages: navigation, style sheet, script."""

from collections.abc import Iterable
from typing import Any, Final

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse
from django.utils.functional import SimpleLazyObject

from scheduler.notices.inbox import MOST_COUNTED, unread_count

# A page's title, its icon, the name of its URL, the permission to see it, and its key after "g"; "" for none. A key is a letter of
# the page's name that no other page uses; pages for one-time setup have a capital.
_Page = tuple[str, str, str, str, str]

# The contents of the sidebar, in the order of work: groups, each with its title and pages.
_GROUPS: Final[tuple[tuple[str, tuple[_Page, ...]], ...]] = (
    ("", (("Home", "anchor", "admin:index", "", "h"), ("Inbox", "inbox", "inbox", "", "m"))),
    (
        "Decide",
        (
            ("Rule sets", "rule", "admin:policies_ruleset_changelist", "policies.view_ruleset", "r"),
            ("Assignments", "alt_route", "admin:policies_assignment_changelist", "policies.view_assignment", "a"),
            (
                "PriorityClasses",
                "low_priority",
                "admin:policies_priorityclass_changelist",
                "policies.view_priorityclass",
                "c",
            ),
            ("Pauses", "pause_circle", "pauses", "policies.view_revision", "z"),
            ("Changes", "rate_review", "admin:policies_change_changelist", "policies.view_change", "w"),
            ("Revisions", "history", "admin:policies_revision_changelist", "policies.view_revision", "v"),
            ("Audit", "policy", "audit", "policies.view_auditevent", "u"),
        ),
    ),
    (
        "See",
        (
            ("Pending Pods", "hourglass_empty", "pending", "scheduler.view_decision", "n"),
            ("Decisions", "fact_check", "admin:scheduler_decision_changelist", "scheduler.view_decision", "d"),
            ("Shadows", "compare", "shadows", "scheduler.view_shadowcount", "s"),
            ("Backtests", "update", "backtests", "scheduler.view_backtest", "b"),
            ("Scenario", "science", "scenario", "scheduler.view_backtest", "e"),
            ("Queue", "queue", "queue", "scheduler.view_binderstate", "q"),
            ("Processes", "memory", "admin:scheduler_process_changelist", "scheduler.view_process", "p"),
            ("Evidence", "inventory_2", "evidence", "scheduler.view_evidenceexport", "x"),
            ("Ledger", "verified", "ledger", "scheduler.view_evidenceexport", "l"),
            ("Storage", "database", "storage", "scheduler.view_pruning", "t"),
            ("Doctor", "stethoscope", "doctor", "scheduler.view_caller", "o"),
        ),
    ),
    (
        "People",
        (
            ("Profile", "account_circle", "profile", "", "y"),
            ("Accounts", "person", "admin:auth_user_changelist", "auth.view_user", "i"),
            ("Roles", "group", "admin:auth_group_changelist", "auth.view_group", "R"),
            ("Tokens", "key", "tokens", "", "k"),
            (
                "Review settings",
                "how_to_reg",
                "admin:policies_reviewsetting_changelist",
                "policies.view_reviewsetting",
                "V",
            ),
            ("Gate settings", "rule", "admin:policies_gatesetting_changelist", "policies.view_gatesetting", "G"),
            ("Webhooks", "webhook", "webhooks", "scheduler.manage_webhook", "W"),
        ),
    ),
)
# Pages that aren't in the sidebar.
_ELSEWHERE: Final[tuple[_Page, ...]] = (
    ("Decision gaps", "report", "admin:scheduler_decisiongap_changelist", "scheduler.view_decisiongap", ""),
    ("Dead letters", "report", "admin:scheduler_deadletter_changelist", "scheduler.view_deadletter", ""),
    ("Legal holds", "gavel", "legal_holds", "scheduler.view_legalhold", ""),
)
# Which page of the sidebar is marked on pages whose URLs begin otherwise than its own.
_BELOW: Final[dict[str, tuple[str, ...]]] = {
    "admin:policies_ruleset_changelist": ("/admin/policies/rulesetversion/",),
    "admin:policies_priorityclass_changelist": ("/admin/scheduler/priority-classes/",),
    "storage": ("/admin/scheduler/legal-holds/",),
}
# The request attribute with the number of unread notices.
_UNREAD = "berth.unread"


def stylesheet(_request: HttpRequest) -> str:
    """Return the URL of Berth's styles."""
    return static("berth/berth.css")


def icon(_request: HttpRequest) -> str:
    """Return the URL of the icon that browsers show in a tab."""
    return static("berth/icon.svg")


def script(_request: HttpRequest) -> str:
    """Return the URL of Berth's script."""
    return static("berth/berth.js")


def keys(request: HttpRequest) -> dict[str, Any]:
    """Return the pages that "g" and a letter lead to, among those that this person may see, for the context of every page."""
    return {"keys": SimpleLazyObject(lambda: _keys(request))}


def _keys(request: HttpRequest) -> list[tuple[str, str, str]]:
    return [(title, key, reverse(url)) for _, pages in _GROUPS for title, _, url, _, key in _seen(request, pages)]


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the sidebar: the pages that this person may see, in the order of work."""
    shown = [(title, _items(request, items)) for title, items in _GROUPS]
    return [{"title": title, "separator": bool(title), "items": items} for title, items in shown if items]


def elsewhere(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the pages outside the sidebar that this person may see: Ctrl-K finds them by their names."""
    return _items(request, _ELSEWHERE)


def _seen(request: HttpRequest, pages: Iterable[_Page]) -> list[_Page]:
    return [page for page in pages if not page[3] or request.user.has_perm(page[3])]


def _items(request: HttpRequest, pages: Iterable[_Page]) -> list[dict[str, Any]]:
    return [
        {"title": title, "icon": icon, "link": reverse(url)}
        | (_badge(request) if url == "inbox" else {})
        | ({"active": True} if request.path_info.startswith(_BELOW.get(url, ())) else {})
        for title, icon, url, _, _ in _seen(request, pages)
    ]


def _badge(request: HttpRequest) -> dict[str, str]:
    """Return the badge of the inbox: the number of unread notices. A page builds its navigation twice, with one query."""
    unread = request.META.get(_UNREAD)
    if unread is None:
        unread = request.META[_UNREAD] = unread_count(request.user)
    if not unread:
        return {}
    return {"badge": f"{MOST_COUNTED}+" if unread > MOST_COUNTED else str(unread)}
