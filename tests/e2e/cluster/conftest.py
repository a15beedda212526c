"""A real control plane for these tests."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIError
from scheduler.cluster.live import LiveSnapshot
from tests.e2e.cluster.waiting import eventually

LOCALCLUSTER = Path(__file__).parents[3] / "deploy" / "localcluster" / "localcluster"
# Long enough to build the binaries on a machine that has none yet.
READY_SECONDS = 900.0


class Cluster:
    """A running control plane: its folder, a client, and what tests do to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.client = Client.connect(folder / "kubeconfig")
        self._created = 0

    def status(self) -> dict[str, object]:
        """Read what the supervisor says."""
        document: dict[str, object] = msgspec.json.decode((self.folder / "status.json").read_bytes())
        return document

    def api_server_pid(self) -> int:
        """Return the API server's process, 0 while there is none."""
        components = msgspec.convert(self.status()["components"], dict[str, dict[str, object]])
        return int(str(components["kube-apiserver"]["pid"]))

    def kill_api_server(self) -> None:
        """Kill -9 the API server; its supervisor starts it again."""
        os.kill(self.api_server_pid(), signal.SIGKILL)

    def answers(self) -> bool:
        """Return whether the API server is there."""
        try:
            self.client.get(path="/readyz", timeout_seconds=2.0)
        except APIError:
            return False
        return True

    def create_node(self, name: str, **labels: str) -> None:
        """Create a node, which kwok then makes ready."""
        amounts = {"cpu": "8", "memory": "16Gi", "pods": "110"}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "status": {"allocatable": amounts, "capacity": amounts},
        }
        self.client.post(path="/api/v1/nodes", body=msgspec.json.encode(node))

    def create_pod(self, name: str, *, node: str = "", cpu: str = "100m") -> str:
        """Create a Pod that no scheduler of the control plane touches, and give its UID."""
        spec: dict[str, object] = {
            "schedulerName": "nobody",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}],
        }
        if node:
            spec["nodeName"] = node
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        answer = self.client.post(path="/api/v1/namespaces/default/pods", body=msgspec.json.encode(pod))
        uid: str = msgspec.json.decode(answer)["metadata"]["uid"]
        return uid

    def delete_pod(self, name: str) -> None:
        """Delete a Pod at once."""
        options = msgspec.json.encode({"gracePeriodSeconds": 0})
        self.client.delete(path=f"/api/v1/namespaces/default/pods/{name}", body=options)

    def delete_node(self, name: str) -> None:
        """Delete a node."""
        self.client.delete(path=f"/api/v1/nodes/{name}")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a control plane with three nodes for all tests of this folder."""
    folder = tmp_path_factory.mktemp("cluster")
    bash = shutil.which("bash")
    assert bash is not None
    with (folder / "output.log").open("wb") as output:
        process = subprocess.Popen(
            [bash, str(LOCALCLUSTER), "up", "--dir", str(folder), "--nodes", "3"],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + READY_SECONDS
        while _phase(folder) != "ready":
            assert process.poll() is None, (folder / "output.log").read_text()
            assert time.monotonic() < deadline, "the control plane isn't ready in time"
            time.sleep(0.1)
        yield Cluster(folder)
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture
def live(cluster: Cluster) -> Iterator[LiveSnapshot]:
    """Iterate over a live Snapshot of the cluster that is synced."""
    assert eventually(cluster.answers)
    live = LiveSnapshot(Client.connect(cluster.folder / "kubeconfig"))
    live.start()
    try:
        assert live.wait_until_synced(30.0)
        yield live
    finally:
        live.stop()


def _phase(folder: Path) -> object:
    try:
        return msgspec.json.decode((folder / "status.json").read_bytes())["phase"]
    except (FileNotFoundError, msgspec.DecodeError):
        return None
