"""A row of everything that REST shows, who may ask for it, and a request for each operation of its schema."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any
from uuid import uuid4

from django.contrib.auth.models import Group, User
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

from policies import publishing
from policies.models import AuditEvent, Change
from scheduler.models import Backtest, BinderState, CanaryRun, ShadowCount
from tests.builders import (
    TEAM_FILTER,
    assignment_document,
    exemption_document,
    make_assignment,
    make_exemption,
    make_pause,
    make_pod,
    make_priority_class,
    make_rule_set,
    priority_class_document,
    rule_set_document,
)
from tests.component.controlplane.test_pages import make_decision, make_process
from tests.component.pages import publish_all
from tests.conftest import HTTPSClient
from tests.tokens import bearer, secret_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
_ROLES = {
    "no role": (),
    "Auditor": ("Auditor",),
    "Operator": ("Operator",),
    "Approver": ("Approver",),
    "Emergency": ("Emergency",),
}
# Tokens of somebody with all four roles, each with one scope.
_SCOPES = ("read", "edit", "review", "publish")


@cache
def schema() -> dict[str, Any]:
    """Return the OpenAPI document."""
    found: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return found


def operations() -> list[tuple[str, str]]:
    """Return each method and path of the schema."""
    return sorted((path, method) for path, of in schema()["paths"].items() for method in of if path != "/api/schema/")


def people() -> dict[str, Client]:
    """Return a client of each who may ask: by a session, and by a token of each scope."""
    found: dict[str, Client] = {"nobody": HTTPSClient()}
    for name, groups in _ROLES.items():
        user = User.objects.create(username=name.replace(" ", "-").lower(), is_staff=True)
        user.groups.set(Group.objects.filter(name__in=groups))
        found[name] = HTTPSClient()
        found[name].force_login(user)
    owner = User.objects.create(username="owner", is_staff=True)
    owner.groups.set(Group.objects.filter(name__in=["Auditor", "Operator", "Approver", "Emergency"]))
    for scope in _SCOPES:
        found[f"token {scope}"] = HTTPSClient(headers=bearer(secret_of(owner, ["read", *{scope} - {"read"}])))
    return found


class World:
    """What there is: each row's key by its place in a path."""

    def __init__(self) -> None:
        filters = [TEAM_FILTER]
        self.first = publish_all(make_rule_set("web", filters=filters), make_assignment(), make_priority_class("batch"))
        publish_all(make_rule_set("free", filters=filters), make_pause("p", "RuleSet/web"), make_exemption("cart"))
        edits = [
            make_rule_set("other", filters=filters),
            make_assignment("other", order=7),
            make_priority_class("other", 5),
        ]
        author = User.objects.create(username="author", is_staff=True)
        author.groups.set(Group.objects.filter(name="Operator"))
        change = publishing.open_change(title="t", edits=[publishing.Edit.of(each) for each in edits], by=author)
        self.change: Change = publishing.submit_change(change=change, by=author, expected_digest=change.digest)
        make_process()
        decision = make_decision()
        canary = CanaryRun.objects.create(asked_by="ops", asked_at=NOW, namespace="n", scheduler_name="s", state="done")
        BinderState.objects.filter(pk="b").delete()
        self.keys: dict[str, Mapping[str, Any]] = {
            "assignments": {"name": "all-web"},
            "canary-pods": {"id": canary.pk},
            "changes": {"number": self.change.pk, "name": "other"},
            "decisions": {"id": decision.pk},
            "events": {"id": AuditEvent.objects.first().pk},  # type: ignore[union-attr]
            "exemptions": {"name": "cart"},
            "pauses": {"target": "RuleSet/web"},
            "pods": {"namespace": decision.pod_namespace, "name": decision.pod_name},
            "priority-classes": {"name": "batch"},
            "revisions": {"number": self.first.number},
            "rule-sets": {"name": "free"},
            "backtests": {"id": _key(Backtest, 1)},
            "shadows": {"id": _key(ShadowCount, 1)},
            "scheduler": {"identity": "b"},
        }

    def path(self, path: str) -> str:
        """Return a path with the keys of rows in it."""
        keys = self.keys.get(path.split("/")[3], {})
        return re.sub(r"\{(\w+)\}", lambda hole: str(keys.get(hole[1], uuid4())), path)

    def headers(self, path: str) -> dict[str, str]:
        """Return the ETag of what a write is about."""
        if path.startswith("/api/v1/changes/{"):
            return {"If-Match": f'"{self.change.digest}"'}
        kinds = {"rule-sets": "RuleSet", "assignments": "Assignment", "priority-classes": "PriorityClass"}
        words = path.split("/")
        if words[3] not in kinds or len(words) < 5:
            return {}
        key = (kinds[words[3]], str(self.keys[words[3]]["name"]))
        live = publishing.values_of(publishing.current_revision()).get(key)
        return {"If-Match": f'"{publishing.content_digest(live)}"'}


def _key(model: Any, unless: int) -> Any:
    row = model.objects.first()
    return row.pk if row else unless


_LATER = "2126-01-01T00:00:00Z"
_APPLY = {"documents": [rule_set_document("new", filters=[TEAM_FILTER])], "asks_cluster": False}
# What each write is asked with: a new operation without a row fails its test.
BODIES: dict[tuple[str, str], Any] = {
    ("/api/v1/assignments/which", "post"): {"pod": make_pod()},
    ("/api/v1/assignments/{name}", "put"): assignment_document("all-web", order=77),
    ("/api/v1/canary-pods", "post"): {},
    ("/api/v1/changes", "post"): {"title": "mine"},
    ("/api/v1/changes/apply", "post"): {**_APPLY, "publish": True},
    ("/api/v1/changes/plan", "post"): _APPLY,
    ("/api/v1/changes/{number}/assignments/{name}", "put"): assignment_document("other", order=78),
    ("/api/v1/changes/{number}/assignments/{name}/discard", "post"): None,
    ("/api/v1/changes/{number}", "patch"): {"title": "another"},
    ("/api/v1/changes/{number}/comment", "post"): {"comment": "look"},
    ("/api/v1/changes/{number}/expire", "post"): {"expires_at": _LATER},
    ("/api/v1/changes/{number}/gate", "post"): None,
    ("/api/v1/changes/{number}/priority-classes/{name}", "put"): priority_class_document("other", 6),
    ("/api/v1/changes/{number}/priority-classes/{name}/discard", "post"): None,
    ("/api/v1/changes/{number}/rebase", "post"): {},
    ("/api/v1/changes/{number}/request-review", "post"): {"whom": "approver"},
    ("/api/v1/changes/{number}/rule-sets/{name}", "put"): rule_set_document("other"),
    ("/api/v1/changes/{number}/rule-sets/{name}/discard", "post"): None,
    ("/api/v1/changes/{number}/schedule", "post"): {"publish_at": _LATER},
    **{
        (f"/api/v1/changes/{{number}}/{act}", "post"): {"reason": "because"}
        for act in ("approve", "publish", "publish-urgently", "reject", "reopen", "submit", "withdraw")
    },
    ("/api/v1/exemptions", "post"): exemption_document("another", until=_LATER),
    ("/api/v1/lint", "post"): {"files": [{"name": "web.yaml", "text": "kind: RuleSet"}]},
    ("/api/v1/pauses", "post"): {"target": "RuleSet/free", "reason": "because"},
    ("/api/v1/priority-classes/{name}", "put"): priority_class_document("batch", 17),
    ("/api/v1/revisions/{number}/rollback", "post"): {"reason": "because"},
    ("/api/v1/rule-sets/{name}", "put"): rule_set_document("free"),
    ("/api/v1/scenario", "post"): {"manifest": make_pod()},
    ("/api/v1/validate", "post"): rule_set_document(),
}
QUERIES = {("/api/v1/assignments/which", "get"): "pod=shop/web"}
