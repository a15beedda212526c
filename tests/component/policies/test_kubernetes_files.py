"""Kubernetes' own files by `apply`: PriorityClasses alone, in a List, with tabs."""

import json
from pathlib import Path

import pytest

from policies import manifests, publishing
from policies.models import PriorityClass
from tests.builders import rule_set_document
from tests.component.policies.test_commands import _run as run
from tests.unit.policies.test_official_policies import KUBERNETES

pytestmark = pytest.mark.django_db


def test_a_priority_class_of_kubernetes_is_applied_published_and_exported(tmp_path: Path) -> None:
    path = tmp_path / "class.yaml"
    path.write_text(manifests.to_yaml(KUBERNETES))
    assert "PriorityClass high-priority version 1 added" in run("apply", "--publish", str(path))
    assert publishing.live_priority_classes()["high-priority"].preemption_policy == "Never"
    exported = tmp_path / "exported.yaml"
    exported.write_text(run("export"))
    assert "Nothing to publish" in run("apply", "--publish", str(exported))
    assert "Nothing to publish" in run("apply", "--publish", str(path))


def test_a_list_is_applied_item_by_item(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    items = [KUBERNETES | {"metadata": {"name": name}} for name in ("a", "b")]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent="\t"))
    run("apply", "--publish", str(path))
    assert sorted(PriorityClass.objects.values_list("name", flat=True)) == ["a", "b"]


def test_json_with_tabs_is_applied(tmp_path: Path) -> None:
    path = tmp_path / "web.json"
    path.write_text(json.dumps(rule_set_document(), indent="\t"))
    assert "rule set web added" in run("apply", str(path))
