"""A namespace's own scheduler, by the component's policy in a real API server."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.e2e.cluster.conftest import Cluster
from tests.e2e.cluster.test_manifests import MANIFESTS, kubectl
from tests.e2e.cluster.waiting import eventually
from tests.kubernetes_version import needs_kubernetes

pytestmark = pytest.mark.e2e
POLICY = MANIFESTS / "components" / "namespace-scheduler" / "policy.yaml"


@pytest.fixture
def labelled(cluster: Cluster) -> Iterator[None]:
    needs_kubernetes(cluster.client, 36)
    kubectl(cluster, "apply", "-f", str(POLICY), "-f", str(MANIFESTS / "base" / "namespace.yaml"))
    for name in ("shop", "berth"):
        if name != "berth":
            kubectl(cluster, "create", "namespace", name)
        kubectl(cluster, "label", "namespace", name, "berth/scheduler-name=berth-extended")
    yield
    kubectl(cluster, "delete", "-f", str(POLICY))
    kubectl(cluster, "label", "namespace", "berth", "berth/scheduler-name-")


def scheduler_of(cluster: Cluster, namespace: str, **spec: str) -> str:
    """Return the scheduler that a new Pod would wait for."""
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True}
    container = {"name": "main", "image": "busybox", "securityContext": {**security, "seccompProfile": {"type": "RuntimeDefault"}}}  # fmt: skip
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"}, "spec": {"containers": [container], **spec}}
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    made: dict[str, Any] = msgspec.json.decode(cluster.client.post(path=path, body=msgspec.json.encode(pod)))
    return str(made["spec"]["schedulerName"])


@pytest.mark.usefixtures("labelled")
def test_pods_of_a_labelled_namespace_wait_for_its_scheduler_unless_they_name_one(cluster: Cluster) -> None:
    assert eventually(lambda: scheduler_of(cluster, "shop") == "berth-extended")
    assert scheduler_of(cluster, "shop", schedulerName="another") == "another"
    assert scheduler_of(cluster, "default") == "default-scheduler"
    assert scheduler_of(cluster, "berth") == "default-scheduler"
