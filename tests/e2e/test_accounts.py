"""Each process under its own account, with the rights of the shipped manifest and no others, does all that it is for."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from scheduler.cluster.errors import APINotFoundError
from scheduler.priority_classes.execute import PATH
from scheduler.requeue.requeuer import ANNOTATION
from tests.builders import priority_class_document
from tests.stack import BASE_DIR, Stack, eventually, make_node

pytestmark = pytest.mark.e2e
MANIFESTS = BASE_DIR / "deploy" / "kubernetes" / "base"
ROOMY = [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "6"}}}]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("accounts")
    environment = {"BERTH_LEASE_NAMESPACE": "berth"}
    with Stack(folder, nodes=[make_node("n1"), make_node("n2", pool="spare")], environment=environment) as stack:
        _apply_manifests(stack)
        for name in ("extender", "binder", "worker"):
            _restart_as(stack, name)
        yield stack


def _apply_manifests(stack: Stack) -> None:
    kubectl = shutil.which("kubectl")
    assert kubectl is not None
    for name in ("namespace", "accounts", "rbac"):
        path = str(MANIFESTS / f"{name}.yaml")
        command = [kubectl, "--kubeconfig", str(stack.state / "kubeconfig"), "-n", "berth", "apply", "-f", path]
        subprocess.run(command, check=True, capture_output=True)


def _restart_as(stack: Stack, name: str) -> None:
    """Kill a process, so that it comes back with the token of its own account."""
    path = f"/api/v1/namespaces/berth/serviceaccounts/berth-{name}/token"
    wish = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = json.loads(stack.client.post(path=path, body=json.dumps(wish).encode()))["status"]["token"]
    kubeconfig = stack.state / "kubeconfig"
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token}
    kubeconfig.write_text(yaml.safe_dump(document))
    before = stack.kill(name)
    eventually(lambda: stack.pid(name) not in {0, before}, what=f"another {name}")
    eventually(lambda: stack.is_up(_probes(stack, name)), what=f"the {name} is ready")


def _probes(stack: Stack, name: str) -> str:
    if name == "extender":
        return stack.extender_url
    settings = dict(line.split("=", 1) for line in (stack.state / "env").read_text().splitlines())
    return f"http://{settings[f'BERTH_{name.upper()}_BIND']}"


@pytest.fixture(autouse=True)
def no_pods(stack: Stack) -> None:
    stack.delete_all_pods()


@pytest.fixture(scope="module")
def written_before(stack: Stack) -> dict[str, int]:
    """How long each log is when all have their own accounts: one that is slow to start may have begun with another's."""
    return {log.name: log.stat().st_size for log in (stack.state / "logs").glob("*.log")}


@pytest.fixture(autouse=True)
def nothing_is_forbidden(stack: Stack, written_before: dict[str, int]) -> Iterator[None]:
    """A right that is missing is no silent matter: the API server's refusal is in a log."""
    yield
    for log in sorted((stack.state / "logs").glob("*.log")):
        written = log.read_bytes()[written_before.get(log.name, 0) :].decode(errors="replace")
        assert [line for line in written.splitlines() if "forbidden" in line.lower()] == [], log.name


def rule_set(expression: str) -> dict[str, Any]:
    filters = [{"name": "pool", "expression": expression, "reason": "the node is of another pool"}]
    return {"apiVersion": "berth/v1", "kind": "RuleSet", "metadata": {"name": "pool"}, "spec": {"filters": filters}}


ASSIGNMENT = {
    "apiVersion": "berth/v1",
    "kind": "Assignment",
    "metadata": {"name": "pool"},
    "spec": {"ruleSet": "pool", "match": {"podSelector": {"matchLabels": {"policy": "pool"}}}},
}


def test_the_extender_filters_scores_and_binds(stack: Stack) -> None:
    stack.publish(rule_set("node.metadata.labels[?'pool'].orValue('') == 'spare'"), ASSIGNMENT)
    stack.create_pod("asked", labels={"policy": "pool"})
    assert stack.wait_for_node("asked") == "n2"


def test_the_worker_requeues_what_a_publish_lets_pass_and_stores_what_became_of_it(stack: Stack) -> None:
    stack.publish(rule_set("false"), ASSIGNMENT)
    stack.create_pod("refused", labels={"policy": "pool"})
    eventually(lambda: stack.scheduled_message("refused"), what="it was refused")
    eventually(lambda: stack.sql("SELECT 1 FROM scheduler_waitingpod"), what="its refusal is stored")
    stack.publish(rule_set("true"), ASSIGNMENT)
    stack.wait_for_node("refused")
    assert "Revision" in stack.pods()["refused"]["metadata"]["annotations"][ANNOTATION]
    query = "SELECT 1 FROM scheduler_decision WHERE pod_name = 'refused' AND placed_on <> ''"
    eventually(lambda: stack.sql(query), what="the Decision has its outcome")


def test_the_binder_binds_and_preempts(stack: Stack) -> None:
    for name in ("a", "b"):
        stack.create_pod(name, schedulerName="berth", containers=ROOMY)
        stack.wait_for_node(name)
    important = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "important"}}
    stack.client.post(path=PATH, body=json.dumps(important | {"value": 1000}).encode())
    stack.create_pod("c", schedulerName="berth", containers=ROOMY, priorityClassName="important")
    stack.wait_for_node("c")
    assert len(stack.pods()) == 2
    answer = json.loads(stack.client.get(path="/apis/events.k8s.io/v1/namespaces/default/events"))
    assert {"Scheduled", "Preempted"} <= {event["reason"] for event in answer["items"]}


def test_the_worker_brings_priority_classes_and_takes_them_away(stack: Stack) -> None:
    def value(name: str) -> int:
        try:
            return int(json.loads(stack.client.get(path=f"{PATH}/{name}"))["value"])
        except APINotFoundError:
            return -1

    stack.publish(rule_set("true"), ASSIGNMENT, priority_class_document("batch", value=10))
    eventually(lambda: value("batch") == 10, what="the class is there")
