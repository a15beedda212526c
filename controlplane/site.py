"""The frame around the pages: navigation, style sheet, script."""

from collections.abc import Iterable
from typing import Any, Final

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import NoReverseMatch, reverse
from django.utils.functional import SimpleLazyObject

from scheduler.notices.inbox import MOST_COUNTED, unread_count

# A page's title, its icon, the name of its URL, and the permission to see it; "" for none.
_Page = tuple[str, str, str, str]

# The contents of the sidebar, in the order of work: groups, each with its title and pages.
_GROUPS: Final[tuple[tuple[str, tuple[_Page, ...]], ...]] = (
    ("", (("Home", "anchor", "admin:index", ""), ("Inbox", "inbox", "inbox", ""))),
    (
        "Decide",
        (
            ("Rule sets", "rule", "admin:policies_ruleset_changelist", "policies.view_ruleset"),
            ("Assignments", "alt_route", "admin:policies_assignment_changelist", "policies.view_assignment"),
            (
                "PriorityClasses",
                "low_priority",
                "admin:policies_priorityclass_changelist",
                "policies.view_priorityclass",
            ),
            ("Pauses", "pause_circle", "pauses", "policies.view_revision"),
            ("Changes", "rate_review", "admin:policies_change_changelist", "policies.view_change"),
            ("Revisions", "history", "admin:policies_revision_changelist", "policies.view_revision"),
            ("Audit", "policy", "audit", "policies.view_auditevent"),
        ),
    ),
    (
        "See",
        (
            ("Pending Pods", "hourglass_empty", "pending", "scheduler.view_decision"),
            ("Decisions", "fact_check", "admin:scheduler_decision_changelist", "scheduler.view_decision"),
            ("Shadows", "compare", "shadows", "scheduler.view_shadowcount"),
            ("Backtests", "update", "backtests", "scheduler.view_backtest"),
            ("Scenario", "science", "scenario", "scheduler.view_backtest"),
            ("Queue", "queue", "queue", "scheduler.view_binderstate"),
            ("Processes", "memory", "admin:scheduler_process_changelist", "scheduler.view_process"),
            ("Evidence", "inventory_2", "evidence", "scheduler.view_evidenceexport"),
            ("Ledger", "verified", "ledger", "scheduler.view_evidenceexport"),
            ("Storage", "database", "storage", "scheduler.view_pruning"),
            ("Doctor", "stethoscope", "doctor", "scheduler.view_caller"),
        ),
    ),
    (
        "People",
        (
            ("Profile", "account_circle", "profile", ""),
            ("Accounts", "person", "admin:auth_user_changelist", "auth.view_user"),
            ("Roles", "group", "admin:auth_group_changelist", "auth.view_group"),
            ("Tokens", "key", "tokens", ""),
            (
                "Review settings",
                "how_to_reg",
                "admin:policies_reviewsetting_changelist",
                "policies.view_reviewsetting",
            ),
            ("Gate settings", "rule", "admin:policies_gatesetting_changelist", "policies.view_gatesetting"),
            ("Webhooks", "webhook", "webhooks", "scheduler.manage_webhook"),
        ),
    ),
)
# Pages that aren't in the sidebar.
_ELSEWHERE: Final[tuple[_Page, ...]] = (
    ("Decision gaps", "report", "admin:scheduler_decisiongap_changelist", "scheduler.view_decisiongap"),
    ("Dead letters", "report", "admin:scheduler_deadletter_changelist", "scheduler.view_deadletter"),
    ("Legal holds", "gavel", "legal_holds", "scheduler.view_legalhold"),
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


# The key after "g" for each page: a letter of its name that no other page uses; pages for one-time setup have a capital.
KEYS = {
    "admin:index": "h",
    "admin:policies_ruleset_changelist": "r",
    "admin:policies_assignment_changelist": "a",
    "admin:policies_priorityclass_changelist": "c",
    "pauses": "z",
    "admin:policies_change_changelist": "w",
    "admin:policies_revision_changelist": "v",
    "audit": "u",
    "admin:scheduler_decision_changelist": "d",
    "pending": "n",
    "shadows": "s",
    "backtests": "b",
    "scenario": "e",
    "queue": "q",
    "admin:scheduler_process_changelist": "p",
    "evidence": "x",
    "ledger": "l",
    "storage": "t",
    "doctor": "o",
    "admin:auth_user_changelist": "i",
    "inbox": "m",
    "tokens": "k",
    "profile": "y",
    "admin:auth_group_changelist": "R",
    "admin:policies_reviewsetting_changelist": "V",
    "admin:policies_gatesetting_changelist": "G",
    "webhooks": "W",
}


def keys(request: HttpRequest) -> dict[str, Any]:
    """Return the pages that "g" and a letter lead to, among those that this person may see, for the context of every page."""
    return {"keys": SimpleLazyObject(lambda: _keys(request))}


def _keys(request: HttpRequest) -> list[tuple[str, str, str]]:
    found = [item for group in navigation(request) for item in group["items"]]
    letters = {_url(name): key for name, key in KEYS.items()}
    return [(item["title"], letters[item["link"]], item["link"]) for item in found if item["link"] in letters]


def _url(name: str) -> str:
    try:
        return reverse(name)
    except NoReverseMatch:
        return ""


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the sidebar: the pages that this person may see, in the order of work."""
    shown = [(title, _items(request, items)) for title, items in _GROUPS]
    return [{"title": title, "separator": bool(title), "items": items} for title, items in shown if items]


def elsewhere(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the pages outside the sidebar that this person may see: Ctrl-K finds them by their names."""
    return _items(request, _ELSEWHERE)


def _items(request: HttpRequest, items: Iterable[_Page]) -> list[dict[str, Any]]:
    return [
        {"title": title, "icon": icon, "link": reverse(url)}
        | (_badge(request) if url == "inbox" else {})
        | ({"active": True} if request.path_info.startswith(_BELOW.get(url, ())) else {})
        for title, icon, url, permission in items
        if not permission or request.user.has_perm(permission)
    ]


def _badge(request: HttpRequest) -> dict[str, str]:
    """Return the badge of the inbox: the number of unread notices. A page builds its navigation twice, with one query."""
    unread = request.META.get(_UNREAD)
    if unread is None:
        unread = request.META[_UNREAD] = unread_count(request.user)
    if not unread:
        return {}
    return {"badge": f"{MOST_COUNTED}+" if unread > MOST_COUNTED else str(unread)}
