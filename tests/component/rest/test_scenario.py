"""Where Pods would land, over REST."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from scheduler.cluster.errors import APINotFoundError, APIUnavailableError
from scheduler.scenario import live_snapshot
from tests.component.rest.asking import ask, told
from tests.component.scenario.cases import cluster
from tests.conftest import HTTPSClient
from tests.tokens import bearer, secret_of

pytestmark = pytest.mark.django_db
POD = {
    "kind": "Pod",
    "metadata": {"name": "web-1", "namespace": "shop"},
    "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]},
}


class Cluster:
    def get(self, *, path: str, timeout_seconds: float) -> bytes:
        if path != "/api/v1/namespaces/shop/pods/web-1":
            message = "404 not found"
            raise APINotFoundError(message)
        return json.dumps(POD).encode()


class ClusterAway:
    def get(self, **_: object) -> bytes:
        message = "connection refused"
        raise APIUnavailableError(message)

    list_pages = get


@pytest.fixture(autouse=True)
def _cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.api.scenario.connect", Cluster)
    monkeypatch.setattr("scheduler.api.scenario.live_snapshot", lambda *_: cluster())


def test_more_of_a_pod_of_the_cluster_are_placed(operator: Client) -> None:
    found = told(ask(operator, "post", "/scenario", {"pod": "shop/web-1", "pods": 2}))
    assert "2 of 2 fit" in found["says"][0]
    assert sum(found["live"]["nodes"].values()) == 2
    assert (found["change"], found["drafted"]) == (None, None)


def test_so_are_those_of_a_manifest(operator: Client) -> None:
    assert sum(told(ask(operator, "post", "/scenario", {"manifest": POD}))["live"]["nodes"].values()) == 1


def test_the_schema_names_each_member_of_the_answer_and_how_refusals_are_written(operator: Client) -> None:
    found = told(ask(operator, "post", "/scenario", {"pod": "shop/web-1", "pods": 1000}))
    schema = operator.get("/api/schema/", headers={"Accept": "application/json"}).json()
    schemas = schema["components"]["schemas"]
    for name, shown in (("ScenarioAnswer", found), ("Side", found["live"]), ("Stop", found["live"]["stop"])):
        assert schemas[name]["properties"].keys() == shown.keys()
    assert "application/problem+json" in schema["paths"]["/api/v1/scenario"]["post"]["responses"]["409"]["content"]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({}, 400, "name a Pod in the cluster, or give a manifest"),
        ({"pod": "shop/web-1", "manifest": POD}, 400, "name a Pod in the cluster, or give a manifest"),
        ({"pod": "shop/nobody"}, 409, "Pod shop/nobody can't be read"),
        ({"pod": "a/b/c"}, 409, "name a Pod as NAMESPACE/NAME"),
        ({"pod": "shop/web-1", "change": 2**31 - 1}, 409, "Change"),
        ({"manifest": POD, "pods": 2**31 - 1}, 409, "ask for 1 to"),
    ],
)
def test_what_cant_be_worked_out_is_said(operator: Client, body: dict[str, Any], status: int, said: str) -> None:
    assert said in told(ask(operator, "post", "/scenario", body), status)["detail"]


@pytest.mark.parametrize("body", [{"pod": "shop/web-1"}, {"manifest": POD}])
def test_an_api_server_that_is_away_is_no_conflict_of_the_request(
    operator: Client, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any]
) -> None:
    monkeypatch.setattr("scheduler.api.scenario.connect", ClusterAway)
    monkeypatch.setattr("scheduler.api.scenario.live_snapshot", live_snapshot)
    assert "connection refused" in told(ask(operator, "post", "/scenario", body), 503)["detail"]


def test_only_who_may_start_scenarios_is_answered_as_on_the_page(auditor: Client, operator: Client) -> None:
    said = told(ask(auditor, "post", "/scenario", {"manifest": POD}), 403)["detail"]
    assert said == "auditor may not start a scenario; an Operator may."
    owner = User.objects.get(username="operator")
    for scopes, status in ((["read"], 403), (["read", "edit"], 200)):
        program = HTTPSClient(headers=bearer(secret_of(owner, scopes)))
        assert ask(program, "post", "/scenario", {"manifest": POD}).status_code == status


def test_who_has_no_role_isnt_answered(client: Client) -> None:
    assert ask(client, "post", "/scenario", {"manifest": POD}).status_code in {401, 403}
