"""The admin's pages at existing rows, for the bench of pages and for the baseline of their queries."""

import re
from typing import Any

from django.apps import apps
from django.contrib.auth.models import User
from django.db import connection
from django.urls import reverse

from policies.models import Assignment, PriorityClass, RuleSet, RuleSetVersion
from scheduler.models import Decision
from tests.conftest import HTTPSClient
from tests.security.crawl import Place, places

# URLs that only redirect, aren't pages, or need a cluster.
_OTHERS = re.compile(
    r"/(logout|jsi18n|autocomplete|r/|history|document|pods\.csv|doctor|scenario|search|progress)\b|/admin/r/|login|\(\?"
)


def pattern(place: Place) -> str:
    """Return a URL's pattern, with * for each key."""
    return "*".join(place.parts)


def paths() -> dict[str, str]:
    """Return the path of each page, at the newest row; pages without a row are left out."""
    found = {}
    for place in places():
        name = pattern(place)
        if not name.startswith("/admin/") or _OTHERS.search(name):
            continue
        path = _named().get(name) or (place.path(_key(name)) if place.has_keys and _key(name) else "")
        if not place.has_keys:
            path = place.path("")
        if path:
            found[name] = path
    return found


def _key(name: str) -> str:
    """Return the key of the newest row of a page's model; "" if there is no row or no model."""
    about = re.match(r"/admin/(auth|policies|scheduler)/(\w+)/\*", name)
    models = {model._meta.model_name: model for model in apps.get_app_config(about[1]).get_models()} if about else {}
    model: Any = models.get(about[2]) if about else None
    row = model._default_manager.order_by("-pk").first() if model and name.count("*") == 1 else None
    return str(row.pk) if row else ""


def _named() -> dict[str, str]:
    """Return the pages whose keys aren't a row's."""
    decision = Decision.objects.order_by("-at").first()
    rule_set = RuleSet.objects.order_by("-pk").first()
    assignment, priority_class = (
        Assignment.objects.order_by("-pk").first(),
        PriorityClass.objects.order_by("-pk").first(),
    )
    found: dict[str, str] = {}
    if decision is not None:
        found["/admin/scheduler/nodes/*/"] = reverse("node", args=[decision.placed_on or decision.best or "n1"])
        found["/admin/scheduler/pods/*/*/"] = reverse("pod_story", args=[decision.pod_namespace, decision.pod_name])
    if rule_set is not None:
        form = reverse("admin:policies_rulesetversion_change", args=[f"edit:{rule_set.name}"])
        found["/admin/policies/rulesetversion/*/change/"] = form
        newest = RuleSetVersion.objects.filter(rule_set=rule_set).order_by("-number").first()
        if newest is not None:
            found["/admin/scheduler/versions/*/*/"] = reverse("rule_set_version", args=[rule_set.name, newest.number])
    if assignment is not None:
        found["/admin/policies/assignment/versions/*/"] = reverse(
            "admin:policies_assignment_versions", args=[assignment.name]
        )
    if priority_class is not None:
        found["/admin/scheduler/priority-classes/*/"] = reverse("cluster_priority_class", args=[priority_class.name])
    return found


class Asked:
    """A superuser's client, which collects each page's queries."""

    def __init__(self) -> None:
        self.client = HTTPSClient()
        account, _ = User.objects.get_or_create(username="bench", is_staff=True, is_superuser=True)
        self.client.force_login(account)

    def get(self, path: str) -> tuple[Any, list[str]]:
        """Return a page and its SQL statements."""
        asked: list[str] = []

        def note(execute: Any, sql: str, *more: Any) -> Any:
            asked.append(sql)
            return execute(sql, *more)

        with connection.execute_wrapper(note):
            page = self.client.get(path)
        return page, [sql for sql in asked if not sql.startswith(("SAVEPOINT", "RELEASE"))]
