"""What a scenario says of a Change is what happens once that is published and the Deployment scaled."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.builders import assignment_document, rule_set_document
from tests.stack import Stack, eventually, make_node

pytestmark = pytest.mark.e2e
NODES, PODS = 50, 200
NOT_C = {"name": "zone", "expression": "node.metadata.labels.zone != 'c'", "reason": "zone c is closed"}


def node(number: int) -> dict[str, Any]:
    """Of three zones, and of two sizes."""
    made = make_node(f"n{number:02}", zone="abc"[number % 3])
    made["status"]["allocatable"] |= {"cpu": "16" if number % 4 == 0 else "8"}
    return made


@pytest.fixture
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("scenario"), nodes=[node(number) for number in reversed(range(NODES))]) as made:
        yield made


def deployment(replicas: int) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"schedulerName": "berth", "containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }


def placed(stack: Stack) -> Counter[str]:
    return Counter(pod["spec"].get("nodeName", "") for pod in stack.pods().values())


def test_each_node_gets_as_many_pods_as_the_scenario_said(
    stack: Stack, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("rules") / "rules.json"
    documents = [
        rule_set_document("web", filters=[NOT_C], scores=[{"builtin": "LeastRequestedPriority"}]),
        assignment_document("web", "web", match={"podSelector": {"matchLabels": {"app": "web"}}}),
    ]
    file.write_text(json.dumps(documents[0]) + "\n---\n" + json.dumps(documents[1]))
    file = file.rename(file.with_suffix(".yaml"))
    path = "/apis/apps/v1/namespaces/default"
    stack.client.post(path=f"{path}/deployments", body=json.dumps(deployment(0)).encode())
    eventually(
        lambda: json.loads(stack.client.get(path=f"{path}/replicasets"))["items"],
        what="the Deployment has a ReplicaSet",
    )
    # Of equal nodes Berth's scheduler takes the next one by name, around: so that it begins somewhere.
    for number in range(7):
        stack.create_pod(f"before-{number}", schedulerName="berth")
    eventually(lambda: len(stack.sql("SELECT 1 FROM scheduler_decision WHERE placed_on <> ''")) == 7)
    before = placed(stack)
    change = int(json.loads(stack.manage("apply", "--output", "json", str(file)))["change"])

    asked = (
        "scenario",
        "--deployment",
        "default/web",
        "--pods",
        str(PODS),
        "--change",
        str(change),
        "--output",
        "json",
    )
    found = json.loads(stack.manage(*asked))
    assert found["ok"]
    assert found["live"]["fits"] == found["drafted"]["fits"] == PODS
    assert not any(int(name[1:]) % 3 == 2 for name in found["drafted"]["nodes"])
    assert found["live"]["nodes"] != found["drafted"]["nodes"]
    assert placed(stack) == before

    stack.manage("change", "publish", str(change))
    stack.wait_until_served()
    eventually(
        lambda: (
            {row[0] for row in stack.sql("SELECT revision FROM scheduler_process WHERE role = 'binder'")}
            == {stack.newest_revision()}
        )
    )
    stack.client.patch(
        path=f"{path}/deployments/web",
        body=json.dumps({"spec": {"replicas": PODS}}).encode(),
        content_type="application/merge-patch+json",
    )
    eventually(
        lambda: (counts := placed(stack)).total() == 7 + PODS and not counts[""],
        seconds=180,
        every=1,
        what="all are bound",
    )
    assert placed(stack) - before == found["drafted"]["nodes"]
