"""The live Snapshot and the client against a real API server."""

import logging
import threading
import time
from pathlib import Path

import msgspec
import pytest

from scheduler.cluster import errors
from scheduler.cluster.client import MERGE_PATCH, Client, pending_pods
from scheduler.cluster.live import LiveSnapshot, PodEvent
from tests.e2e.cluster.conftest import Cluster
from tests.e2e.cluster.waiting import eventually


def pods_on(live: LiveSnapshot, node: str) -> set[str]:
    """Return the names of the Pods that count on a node."""
    info = live.snapshot().nodes.get(node)
    return {pod.name for pod in info.pods} if info else set()


def phase_of(live: LiveSnapshot, name: str) -> str:
    """Return the phase of a Pod that counts; "" when there is none of this name."""
    phases = [
        pod.parsed.status.phase for info in live.snapshot().nodes.values() for pod in info.pods if pod.name == name
    ]
    return phases[0] if phases else ""


def as_listed(cluster: Cluster) -> dict[str, set[str]]:
    """Read the truth: node -> UIDs of its live Pods."""
    nodes = msgspec.json.decode(cluster.client.get(path="/api/v1/nodes"))["items"]
    truth: dict[str, set[str]] = {node["metadata"]["name"]: set() for node in nodes}
    for pod in cluster.client.list_pods():
        if pod["status"]["phase"] not in {"Succeeded", "Failed"} and pod["spec"].get("nodeName") in truth:
            truth[pod["spec"]["nodeName"]].add(pod["metadata"]["uid"])
    return truth


def as_seen(live: LiveSnapshot) -> dict[str, set[str]]:
    """Return the UIDs of the Pods on each node, as the live Snapshot has them."""
    return {name: {pod.uid for pod in info.pods} for name, info in live.snapshot().nodes.items()}


pytestmark = pytest.mark.e2e


class TestFollowing:
    """The Snapshot goes with the cluster."""

    def test_nodes_are_there_once_synced(self, live: LiveSnapshot) -> None:
        """With what they can hold and the JSON that expressions see."""
        assert live.wait_for_nodes(["node-1", "node-2", "node-3"], timeout_seconds=30.0)
        node = live.snapshot().nodes["node-1"].node
        assert node.allocatable.get("cpu") > 0
        assert node.json["metadata"]["name"] == "node-1"
        assert "default" in live.snapshot().namespaces
        assert live.age_seconds() < 90.0

    def test_a_node_comes_changes_its_labels_and_goes(self, cluster: Cluster, live: LiveSnapshot) -> None:
        """Waiting for it wakes when it comes."""
        threading.Timer(0.3, cluster.create_node, ["passing"], {"team": "a"}).start()
        assert live.wait_for_nodes(["passing"], timeout_seconds=30.0)
        assert live.snapshot().nodes["passing"].node.labels["team"] == "a"
        body = msgspec.json.encode({"metadata": {"labels": {"team": "b"}}})
        cluster.client.patch(path="/api/v1/nodes/passing", body=body, content_type=MERGE_PATCH)
        assert eventually(lambda: live.snapshot().nodes["passing"].node.labels["team"] == "b")
        cluster.delete_node("passing")
        assert eventually(lambda: "passing" not in live.snapshot().nodes)

    def test_a_pod_counts_from_its_binding_to_its_end(self, cluster: Cluster, live: LiveSnapshot) -> None:
        """Waiting it is nowhere, bound it takes up room, deleted it doesn't; each step is told."""
        heard: list[PodEvent] = []
        live.subscribe(heard.append)
        uid = cluster.create_pod("counted", cpu="250m")
        assert eventually(lambda: any(event.uid == uid and event.kind == "added" for event in heard))
        assert [pod["metadata"]["uid"] for pod in pending_pods(cluster.client)] == [uid]
        before = live.snapshot().nodes["node-1"].requested.get("cpu")
        binding = {"metadata": {"name": "counted", "uid": uid}, "target": {"kind": "Node", "name": "node-1"}}
        path = "/api/v1/namespaces/default/pods/counted/binding"
        cluster.client.post(path=path, body=msgspec.json.encode(binding))
        assert eventually(lambda: "counted" in pods_on(live, "node-1"))
        assert live.snapshot().nodes["node-1"].requested.get("cpu") == before + 250
        with pytest.raises(errors.APIConflictError):
            cluster.client.post(path=path, body=msgspec.json.encode(binding))
        cluster.delete_pod("counted")
        assert eventually(lambda: "counted" not in pods_on(live, "node-1"))
        assert live.snapshot().nodes["node-1"].requested.get("cpu") == before
        assert eventually(lambda: heard[-1].kind == "deleted" and heard[-1].uid == uid)
        assert any(event.node_name == "node-1" for event in heard if event.kind == "modified")

    @pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
    def test_a_pod_that_ended_counts_no_more(self, cluster: Cluster, live: LiveSnapshot, phase: str) -> None:
        """It is still there to be read, but it takes up no room."""
        name = f"ends-{phase.lower()}"
        cluster.create_pod(name, node="node-2")
        # kwok writes Running first, and would write it over an end that came sooner.
        assert eventually(lambda: phase_of(live, name) == "Running")
        path = f"/api/v1/namespaces/default/pods/{name}/status"
        body = msgspec.json.encode({"status": {"phase": phase}})
        cluster.client.patch(path=path, body=body, content_type=MERGE_PATCH)
        assert eventually(lambda: name not in pods_on(live, "node-2"))
        assert name in {pod["metadata"]["name"] for pod in cluster.client.list_pods()}
        cluster.delete_pod(name)

    def test_many_changes_end_at_what_a_list_shows(self, cluster: Cluster, live: LiveSnapshot) -> None:
        """Created, deleted and made again under the same name, by several threads at once."""

        def churn(thread: int) -> None:
            for turn in range(40):
                name = f"churn-{thread}-{turn % 5}"
                if turn >= 5:
                    cluster.delete_pod(name)
                cluster.create_pod(name, node=f"node-{turn % 3 + 1}")

        threads = [threading.Thread(target=churn, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(len(uids) for uids in as_listed(cluster).values()) >= 15
        assert eventually(lambda: as_seen(live) == as_listed(cluster))
        for thread_number in range(3):
            for turn in range(5):
                cluster.delete_pod(f"churn-{thread_number}-{turn}")
        assert eventually(lambda: as_seen(live) == as_listed(cluster))


class TestApiServerKilled:
    """Kill -9 of the API server."""

    def test_snapshot_stays_and_then_follows_again(
        self, cluster: Cluster, live: LiveSnapshot, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Nothing is lost, nothing stale is kept, and the log has one line a watch for each change of state."""
        caplog.set_level(logging.INFO, "berth.cluster")
        cluster.create_pod("before", node="node-1")
        cluster.create_pod("goes", node="node-1")
        assert eventually(lambda: {"before", "goes"} <= pods_on(live, "node-1"))
        killed = cluster.api_server_pid()
        cluster.kill_api_server()
        assert eventually(lambda: "watch_lost" in caplog.text)
        assert {"before", "goes"} <= pods_on(live, "node-1")
        assert eventually(lambda: cluster.api_server_pid() != killed and cluster.answers(), seconds=60.0)
        cluster.delete_pod("goes")
        cluster.create_pod("after", node="node-2")
        assert eventually(lambda: "after" in pods_on(live, "node-2"), seconds=60.0)
        assert eventually(lambda: as_seen(live) == as_listed(cluster))
        assert "goes" not in pods_on(live, "node-1")
        assert caplog.text.count("watch_lost kind=pods") == 1
        cluster.delete_pod("before")
        cluster.delete_pod("after")

    def test_a_live_snapshot_that_begins_while_it_is_away_gets_there(self, cluster: Cluster) -> None:
        """The order of starting doesn't matter."""
        assert eventually(cluster.answers)
        killed = cluster.api_server_pid()
        cluster.kill_api_server()
        live = LiveSnapshot(Client.connect(cluster.folder / "kubeconfig"))
        live.start()
        try:
            assert live.wait_until_synced(60.0)
            assert cluster.api_server_pid() != killed
            assert eventually(lambda: as_seen(live) == as_listed(cluster))
        finally:
            live.stop()

    def test_kills_in_the_middle_of_changes_lose_nothing(self, cluster: Cluster, live: LiveSnapshot) -> None:
        """Pods come and go while the server is killed twice; in the end the Snapshot is the truth."""
        stop = threading.Event()

        def churn() -> None:
            for turn in range(10_000):
                if stop.is_set():
                    return
                try:
                    cluster.create_pod(f"storm-{turn}", node=f"node-{turn % 3 + 1}")
                    if turn % 2:
                        cluster.delete_pod(f"storm-{turn}")
                except errors.APIError:
                    time.sleep(0.05)

        thread = threading.Thread(target=churn)
        thread.start()
        for _ in range(2):
            time.sleep(1.0)
            killed = cluster.api_server_pid()
            cluster.kill_api_server()
            assert eventually(
                lambda killed=killed: cluster.api_server_pid() != killed and cluster.answers(),  # type: ignore[misc]  # bound per turn
                seconds=60.0,
            )
        time.sleep(0.5)
        stop.set()
        thread.join()
        truth = as_listed(cluster)
        assert sum(len(uids) for uids in truth.values()) > 10
        assert eventually(lambda: as_seen(live) == as_listed(cluster), seconds=60.0)


class TestClient:
    """Single requests."""

    def test_annotations_reach_only_the_pod_of_this_uid(self, cluster: Cluster) -> None:
        """A Pod of the same name that came later isn't touched."""
        assert eventually(cluster.answers)
        uid = cluster.create_pod("noted")
        arguments = {"namespace": "default", "name": "noted"}
        pod = cluster.client.patch_pod_annotations(**arguments, uid=uid, annotations={"berth/a": "1", "berth/b": "2"})
        assert pod["metadata"]["annotations"] == {"berth/a": "1", "berth/b": "2"}
        pod = cluster.client.patch_pod_annotations(**arguments, uid=uid, annotations={"berth/a": None})
        assert pod["metadata"]["annotations"] == {"berth/b": "2"}
        with pytest.raises(errors.APIConflictError):
            cluster.client.patch_pod_annotations(**arguments, uid="another", annotations={"berth/c": "3"})
        with pytest.raises(errors.APIConflictError):
            cluster.client.patch_pod_annotations(
                **arguments, uid=uid, annotations={"berth/c": "3"}, resource_version="1"
            )
        cluster.delete_pod("noted")
        with pytest.raises(errors.APINotFoundError):
            cluster.client.patch_pod_annotations(**arguments, uid=uid, annotations={"berth/c": "3"})

    def test_pages_add_up_to_the_whole_list(self, cluster: Cluster) -> None:
        """However small they are."""
        pages = list(cluster.client.list_pages(path="/api/v1/namespaces", limit=2))
        names = [item["metadata"]["name"] for page in pages for item in msgspec.json.decode(page)["items"]]
        assert len(pages) >= 2
        assert {"default", "kube-system", "kube-public"} <= set(names)
        assert len(names) == len(set(names))

    def test_a_stranger_is_forbidden(self, cluster: Cluster, tmp_path: Path) -> None:
        """Wrong credentials are told from a server that is away."""
        document = (cluster.folder / "kubeconfig").read_text()
        lines = [
            "    token: wrong" if line.strip().startswith("token:") else line
            for line in document.splitlines()
            if not line.strip().startswith("client-")
        ]
        stranger = tmp_path / "kubeconfig"
        stranger.write_text("\n".join(lines))
        with pytest.raises(errors.APIForbiddenError):
            Client.connect(stranger).get(path="/api/v1/nodes")
