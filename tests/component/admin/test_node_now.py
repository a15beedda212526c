"""A node as it is now, on its page: how full, what keeps Pods away, which live rule sets name its labels."""

from typing import Any

import msgspec
import pytest
from django.test import Client

from scheduler.admin import nodes
from scheduler.cluster.errors import APIError, APINotFoundError
from scheduler.node_now import labels_named
from tests.builders import TEAM_FILTER, make_node, make_pod, make_rule_set
from tests.component.pages import get, publish_all, text_of

pytestmark = pytest.mark.django_db
PAGE, NOW = "/admin/scheduler/nodes/n1/", "/admin/scheduler/nodes/n1/now/"


class Server:
    """Stands in for the API server: one node, and the Pods on it."""

    def __init__(self, node: dict[str, Any] | None = None, *pods: dict[str, Any]) -> None:
        self._node, self._pods = node, pods

    def get(self, *, path: str, query: Any = None, timeout_seconds: float) -> bytes:
        del timeout_seconds
        if self._node is None:
            message = "the API server is away"
            raise APIError(message)
        return msgspec.json.encode({"items": self._pods} if query else self._node)


def full(**more: Any) -> dict[str, Any]:
    node: dict[str, Any] = make_node("n1", labels={"team": "web", "example.com/rack": "r1", "arch": "arm64"})
    node["status"] = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}, **more}
    return node


def test_it_says_how_full_it_is_and_which_rule_sets_name_its_labels(
    auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    racks = {"name": "rack", "expression": "node.metadata.labels[?'example.com/rack'].orValue('') != 'r9'"}
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]), make_rule_set("racks", filters=[racks]))
    pods = [make_pod(f"p{number}", requests={"cpu": "1500m", "memory": "2Gi"}, nodeName="n1") for number in range(2)]
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    monkeypatch.setattr(nodes, "connect", lambda: Server(full(**ready), *pods))
    assert f'hx-get="{NOW}"' in get(auditor, PAGE).content.decode()
    said = text_of(get(auditor, NOW))
    assert "2 Pods run or start on it." in said
    assert "cpu 3 cores 4 cores 75 %" in said
    assert "memory 4.0 GiB 8.0 GiB 50 %" in said
    assert "pods 2 110 1 %" in said
    assert "example.com/rack: r1 , used by racks team: web , used by web arch: arm64" in said


def test_what_keeps_pods_away_comes_first(auditor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    node = full(conditions=[{"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status."}])
    node["spec"] = {"unschedulable": True, "taints": [{"key": "gpu", "value": "a", "effect": "NoSchedule"}]}
    monkeypatch.setattr(nodes, "connect", lambda: Server(node))
    said = text_of(get(auditor, NOW))
    assert "! It isn't ready: Kubelet stopped posting node status. ! It is cordoned" in said
    assert "! Taint gpu=a: NoSchedule" in said


def test_without_an_api_server_the_page_is_there_and_says_so(auditor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "connect", Server)
    assert "The node can't be asked for: the API server is away" in text_of(get(auditor, NOW))
    assert "Now" in text_of(get(auditor, PAGE))


def test_a_node_that_the_cluster_no_longer_has_is_said_to_be_gone(
    auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Without(Server):
        def get(self, *, path: str, query: Any = None, timeout_seconds: float) -> bytes:
            del query, timeout_seconds
            message = f'GET {path}: 404 NotFound: nodes "n1" not found'
            raise APINotFoundError(message)

    monkeypatch.setattr(nodes, "connect", Without)
    said = text_of(get(auditor, NOW))
    assert said == "! The cluster has no node n1 now: it was removed, or never existed under this name."


def test_a_label_whose_name_begins_as_another_ones_is_not_taken_for_it() -> None:
    filters = [{"name": "x", "expression": "node.metadata.labels.teams == 'a'", "reason": "team"}]
    rows = labels_named({"team": "a", "teams": "a"}, [make_rule_set("web", filters=filters)])
    assert [(row.key, row.rule_sets) for row in rows] == [("teams", ["web"]), ("team", [])]
    assert labels_named({}, [make_rule_set("web")]) == []
