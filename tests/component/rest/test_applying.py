"""Whole files over REST: what `manage.py apply` and `plan` do, with every fault at its place."""

import pytest
from django.test import Client

from policies import manifests
from policies.models import AuditEvent, Change, Revision
from tests.builders import TEAM_FILTER, assignment_document, rule_set_document
from tests.component.rest.asking import ask, told

pytestmark = pytest.mark.django_db

DOCUMENTS = [rule_set_document("web", filters=[TEAM_FILTER]), assignment_document()]


def test_documents_are_applied_and_then_are_live(operator: Client) -> None:
    body = {"documents": DOCUMENTS, "title": "teams", "publish": True, "asks_cluster": False}
    applied = told(ask(operator, "post", "/changes/apply", body), 201)
    assert (applied["ok"], applied["revision"]) == (True, Revision.objects.get().number)
    assert Change.objects.get(pk=applied["change"]).opened_by == "operator"
    again = told(ask(operator, "post", "/changes/apply", body))
    assert (again["change"], again["unchanged"]) == (None, ["rule set web", "Assignment all-web"])


def test_what_is_exported_is_applied_without_a_change(operator: Client) -> None:
    told(ask(operator, "post", "/changes/apply", {"documents": DOCUMENTS, "publish": True, "asks_cluster": False}), 201)
    exported = ask(operator, "get", "/export")
    assert exported["Content-Type"].startswith("application/yaml")
    files = [{"name": "live.yaml", "text": exported.content.decode()}]
    assert told(ask(operator, "post", "/changes/apply", {"files": files}))["change"] is None
    assert AuditEvent.objects.filter(kind="export", by="operator", door="rest").count() == 1
    assert ask(operator, "get", "/export?name=web").content.decode().count("kind:") == 1
    assert "is called nobody" in told(ask(operator, "get", "/export?name=nobody"), 404)["detail"]


def test_each_fault_is_told_with_its_file_and_line(operator: Client) -> None:
    text = manifests.to_yaml(rule_set_document("web", filters=[{"builtin": "Nope"}]))
    body = {"files": [{"name": "a.yaml", "text": text}], "documents": [assignment_document(order=-1)]}
    found = told(ask(operator, "post", "/changes/apply", body), 422)["faults"]
    assert [(each["file"], each["path"]) for each in found] == [
        ("a.yaml", "spec.filters[0].builtin"),
        ("documents[0]", "spec.order"),
    ]
    assert found[0]["text"].startswith("a.yaml:")
    assert found[0]["line"] > 1
    assert not Change.objects.exists()


def test_a_plan_says_what_would_be_and_keeps_nothing(auditor: Client, operator: Client) -> None:
    body = {"documents": DOCUMENTS, "asks_cluster": False}
    before = AuditEvent.objects.count()
    planned = told(ask(auditor, "post", "/changes/plan", body))
    assert (planned["ok"], planned["would_change"]) == (True, True)
    assert any("rule set web" in line for line in planned["changes"])
    assert (Change.objects.count(), Revision.objects.count(), AuditEvent.objects.count()) == (0, 0, before)
    told(ask(operator, "post", "/changes/apply", {**body, "publish": True}), 201)
    assert not told(ask(auditor, "post", "/changes/plan", body))["would_change"]


def test_what_is_not_among_them_is_pruned_in_its_scope(operator: Client) -> None:
    told(ask(operator, "post", "/changes/apply", {"documents": DOCUMENTS, "publish": True, "asks_cluster": False}), 201)
    planned = told(ask(operator, "post", "/changes/plan", {"prune": ["*"], "asks_cluster": False}))
    assert planned["would_change"]
    refused = told(ask(operator, "post", "/changes/apply", {"asks_cluster": False}), 400)
    assert refused["faults"][0]["path"] == "documents"


def test_who_only_reads_applies_nothing(auditor: Client) -> None:
    refused = ask(auditor, "post", "/changes/apply", {"documents": DOCUMENTS, "asks_cluster": False})
    assert told(refused, 403)["detail"].startswith("auditor may not edit")
