"""The roles as groups: who may see, edit, publish, approve, and publish in an emergency."""

from collections.abc import Collection
from typing import Any

from django.contrib.auth.models import Group, Permission

from controlplane.account_events import unrecorded

_EDITED = ("add_ruleset", "change_ruleset", "change_rulesetversion", "add_assignment", "change_assignment")
_PRIORITY_CLASSES = ("add_priorityclass", "change_priorityclass", "delete_priorityclass")
_EDITED_ROWS = ("delete_assignment", "add_rule", "change_rule", "delete_rule")
_RUN = ("run_canary", "run_backtest", "wake_pod")
_HOLD, _LIFT = ("make_legalhold",), ("lift_legalhold",)
_OF_AUDITORS = ("see_addresses", "export_evidence")
_SEEN_APPS = ("policies", "scheduler")

# The permissions of each role besides seeing everything.
ROLES: dict[str, tuple[str, ...]] = {
    "Operator": (*_EDITED, *_EDITED_ROWS, *_PRIORITY_CLASSES, "publish", *_RUN, *_HOLD),
    "Approver": ("publish", "approve", *_HOLD, *_LIFT),
    "Emergency": ("publish", "break_glass"),
    "Auditor": _OF_AUDITORS,
}


def make_roles(**_: Any) -> None:
    """Create the groups, and give each exactly its permissions. Runs after every migration."""
    with unrecorded():
        _make_roles()


def _make_roles() -> None:
    seen = Permission.objects.filter(content_type__app_label__in=_SEEN_APPS, codename__startswith="view_")
    for name, codenames in ROLES.items():
        group, _created = Group.objects.get_or_create(name=name)
        done = Permission.objects.filter(content_type__app_label__in=_SEEN_APPS, codename__in=codenames)
        group.permissions.set([*seen, *done])


# Permissions in words, in the order in which people look for them.
_WORDS = {
    "change_ruleset": "edit rule sets, Assignments and PriorityClasses in Changes; withdraw Changes; pause, resume, exempt Pods",
    "approve": "approve and reject Changes, but none that they edited",
    "publish": "publish Changes and roll back",
    "break_glass": "publish without approvals in an emergency, with a reason",
    "run_backtest": "start backtests and scenarios",
    "run_canary": "run canary Pods",
    "wake_pod": "make Berth's own scheduler retry waiting Pods at once",
    "make_legalhold": "place legal holds",
    "lift_legalhold": "lift legal holds",
    "see_addresses": "see the IP addresses of people",
    "manage_webhook": "create and change webhooks",
    "export_evidence": "create and download archives of evidence",
}


def words_of(codenames: Collection[str]) -> list[str]:
    """Return in words what these permissions allow."""
    sees = any(name.startswith("view_") for name in codenames)
    looks = ["see rule sets, Assignments, Changes, Revisions, Decisions and who did what"] if sees else []
    return [*looks, *(words for name, words in _WORDS.items() if name in codenames)]
