"""The roles as groups: who may see, edit, publish, approve, and publish in an emergency."""

from typing import Any

from django.contrib.auth.models import Group, Permission

from controlplane.account_events import unrecorded

_EDITED = ("add_ruleset", "change_ruleset", "change_rulesetversion", "add_assignment", "change_assignment")
_PRIORITY_CLASSES = ("add_priorityclass", "change_priorityclass", "delete_priorityclass")
_EDITED_ROWS = ("delete_assignment", "add_rule", "change_rule", "delete_rule")
_RUN = ("run_canary", "run_backtest")
_HOLD, _LIFT = ("make_legalhold",), ("lift_legalhold",)
_ADDRESSES = ("see_addresses",)
_SEEN_APPS = ("policies", "scheduler")

# What each role may do besides seeing everything.
ROLES: dict[str, tuple[str, ...]] = {
    "Operator": (*_EDITED, *_EDITED_ROWS, *_PRIORITY_CLASSES, "publish", *_RUN, *_HOLD),
    "Approver": ("publish", "approve", *_HOLD, *_LIFT),
    "Emergency": ("publish", "break_glass"),
    "Auditor": _ADDRESSES,
}


def make_roles(**_: Any) -> None:
    """Make the groups, and give each exactly its permissions. Runs after every migration."""
    with unrecorded():
        _make_roles()


def _make_roles() -> None:
    seen = Permission.objects.filter(content_type__app_label__in=_SEEN_APPS, codename__startswith="view_")
    for name, codenames in ROLES.items():
        group, _created = Group.objects.get_or_create(name=name)
        done = Permission.objects.filter(content_type__app_label__in=_SEEN_APPS, codename__in=codenames)
        group.permissions.set([*seen, *done])
