"""The page of scenarios: operators ask, and where Pods would land stands side by side."""

import json

import pytest
from django.test import Client

from scheduler.admin import scenario as scenario_page
from scheduler.admin.scenario import ScenarioForm
from scheduler.scenario import MOST_PODS
from tests.component.pages import change_url, text_of
from tests.component.scenario.cases import DEPLOYMENT, cluster, only_a

pytestmark = pytest.mark.django_db


def test_a_scenario_stands_side_by_side(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario_page, "live_snapshot", lambda *_: cluster())
    monkeypatch.setattr(scenario_page, "connect", lambda: None)
    change = only_a()
    asked = {"document": json.dumps(DEPLOYMENT), "pods": 6, "change": change}
    shown = operator.post("/admin/scheduler/scenario/", asked)
    page = shown.content.decode()
    assert 'href="/admin/scheduler/nodes/n0/"' in page
    assert f'href="{change_url("change", change)}"' in page
    text = text_of(shown)
    assert "Result for 6 Pods" in text
    assert f"By Change {change} (rule set web), 4 of 6 fit, on 2 nodes" in text
    assert "cpu live 0.0 % 0.0 % 0.0 % 50.0 % 100.0 %" in text
    assert "Name a Deployment in the cluster, or paste a manifest." in text_of(
        operator.post("/admin/scheduler/scenario/", {"pods": 6})
    )


def test_an_auditor_asks_for_no_scenario(auditor: Client) -> None:
    assert "Only Operators can run this." in text_of(auditor.get("/admin/scheduler/scenario/"))
    assert auditor.post("/admin/scheduler/scenario/", {"document": "kind: Pod", "pods": 6}).status_code == 403


def test_a_page_asks_for_a_few_pods_more_of_a_deployment_however_many_run() -> None:
    form = ScenarioForm({"deployment": "shop/web", "pods": str(MOST_PODS + 10)})

    assert form.is_valid(), form.errors
