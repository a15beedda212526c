"""Pods that need what not every kubelet can do."""

from typing import Any

import pytest

from policies.engine.decision import decide
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.reuse import signature
from policies.engine.rule import Cycle
from policies.engine.scheduling import default_profile
from tests.builders import make_node, make_pod
from tests.unit.engine.objects.asking import JSON, NOW

RESTARTS = "RestartAllContainersOnContainerExits"
USERS = "UserNamespacesHostNetworkSupport"


def node(name: str, *features: str) -> Node:
    made = make_node(name)
    return Node.from_json({**made, "status": {**made["status"], "declaredFeatures": list(features)}})


def container(*actions: str) -> list[JSON]:
    return [{"name": "main", "restartPolicyRules": [{"action": action} for action in actions]}]


NODES = [node("none"), Node.from_json(make_node("old")), node("restarts", RESTARTS), node("all", RESTARTS, USERS, "X")]


def refusals(**spec: Any) -> dict[str, str]:
    snapshot = Snapshot.of(NODES)
    cycle = Cycle(pod=Pod.from_json(make_pod(**spec)), snapshot=snapshot, now=NOW)
    answer = decide(default_profile(), cycle, snapshot.table.all_rows())
    return {name: status.reason for name, status in answer.refused()}


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        pytest.param({}, set(), id="nothing is needed"),
        pytest.param({"containers": container("Restart")}, set(), id="another action"),
        pytest.param({"containers": container("Restart", "RestartAllContainers")}, {"none", "old"}, id="restarts all"),
        pytest.param({"initContainers": container("RestartAllContainers")}, {"none", "old"}, id="init container"),
        pytest.param({"hostNetwork": True}, set(), id="the host's network"),
        pytest.param({"hostUsers": False}, set(), id="users of its own"),
        pytest.param({"hostNetwork": True, "hostUsers": True}, set(), id="the host's network and users"),
        pytest.param(
            {"hostNetwork": True, "hostUsers": False}, {"none", "old", "restarts"}, id="network without users"
        ),
    ],
)
def test_only_nodes_that_declare_what_the_pod_needs_pass(spec: JSON, refused: set[str]) -> None:
    assert refusals(**spec) == dict.fromkeys(refused, "node(s) didn't match Pod's required features")


def test_pods_that_need_different_features_are_not_alike() -> None:
    specs: list[JSON] = [
        {},
        {"containers": container("RestartAllContainers")},
        {"hostNetwork": True, "hostUsers": False},
    ]
    assert len({signature(Pod.from_json(make_pod(**spec))) for spec in specs}) == 3
