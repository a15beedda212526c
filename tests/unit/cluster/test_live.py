"""The live Snapshot over three watches."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from scheduler.cluster.client import Client
from scheduler.cluster.live import LiveSnapshot, PodEvent
from tests.unit.cluster.kubernetes_json import event_json, list_json, namespace_json, node_json, pod_json
from tests.unit.cluster.scripted_server import Answer, Request, ScriptedServer, serving, write_kubeconfig
from tests.unit.cluster.test_watch import OPEN_SECONDS, eventually


class Script:
    """A cluster with these objects, whose watches say what a test puts in."""

    def __init__(self) -> None:
        self.away = False
        self.items: dict[str, list[dict[str, Any]]] = {
            "/api/v1/nodes": [node_json("n1"), node_json("n2")],
            "/api/v1/pods": [pod_json("a", node="n1")],
            "/api/v1/namespaces": [namespace_json("default", labels={"team": "x"})],
        }
        self.lines: dict[str, list[bytes]] = {path: [] for path in self.items}

    def __call__(self, request: Request) -> Answer:
        """Answer a request."""
        if self.away:
            return Answer(503)
        if not request.is_watch:
            return Answer(body=list_json(self.items[request.path]))
        return Answer(stream=self._events(self.lines[request.path]))

    @staticmethod
    def _events(lines: list[bytes]) -> Any:
        deadline = time.monotonic() + OPEN_SECONDS
        sent = 0
        while time.monotonic() < deadline:
            if sent < len(lines):
                yield lines[sent] + b"\n"
                sent += 1
            else:
                yield 0.01


def live_of(folder: Path, server: ScriptedServer) -> LiveSnapshot:
    """Make a live Snapshot of this server."""
    return LiveSnapshot(Client.connect(write_kubeconfig(folder, server.url)))


def test_snapshot_follows_the_cluster(tmp_path: Path) -> None:
    """Nodes, Pods and namespaces are there once synced, and change with the watches."""
    script = Script()
    with serving(script) as server:
        live = live_of(tmp_path, server)
        assert not live.synced
        live.start()
        try:
            assert live.wait_until_synced(10.0)
            assert live.synced
            snapshot = live.snapshot()
            assert [pod.name for pod in snapshot.nodes["n1"].pods] == ["a"]
            assert snapshot.namespace_labels("default") == {"team": "x"}
            assert live.snapshot() is snapshot
            script.lines["/api/v1/pods"].append(event_json("DELETED", pod_json("a", node="n1", version="11")))
            assert eventually(lambda: live.snapshot().nodes["n1"].pods == ())
            assert [pod.name for pod in snapshot.nodes["n1"].pods] == ["a"]
            assert live.age_seconds() < 10.0
        finally:
            live.stop()


def test_last_snapshot_stays_while_the_server_is_away(tmp_path: Path) -> None:
    """Answers don't stop; the age says how old they are."""
    script = Script()
    with serving(script) as server:
        live = live_of(tmp_path, server)
        script.away = True
        live.start()
        try:
            assert not live.wait_until_synced(0.3)
            assert live.snapshot().nodes == {}
            assert live.age_seconds() == float("inf")
            script.away = False
            assert live.wait_until_synced(10.0)
        finally:
            live.stop()
    before = live.age_seconds()
    time.sleep(0.1)
    assert live.age_seconds() >= before + 0.1
    assert set(live.snapshot().nodes) == {"n1", "n2"}


def test_wait_for_nodes_is_woken_when_the_last_one_comes(tmp_path: Path) -> None:
    """It comes back at once when they are known, in time when they come, and False when they don't."""
    script = Script()
    with serving(script) as server:
        live = live_of(tmp_path, server)
        live.start()
        try:
            assert live.wait_for_nodes(["n1", "n2"], timeout_seconds=10.0)
            assert not live.wait_for_nodes(["n1", "n3"], timeout_seconds=0.1)
            line = event_json("ADDED", node_json("n3", version="11"))
            threading.Timer(0.2, script.lines["/api/v1/nodes"].append, [line]).start()
            assert live.wait_for_nodes(["n3"], timeout_seconds=10.0)
        finally:
            live.stop()


def test_subscribers_hear_every_pod_event_in_order(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One that fails doesn't keep the others from hearing, and who left hears no more."""
    script = Script()
    heard: list[PodEvent] = []

    def fails(_: PodEvent) -> None:
        raise RuntimeError

    with serving(script) as server:
        live = live_of(tmp_path, server)
        leave = live.subscribe(fails)
        live.subscribe(heard.append)
        live.start()
        try:
            assert eventually(lambda: len(heard) == 1)
            leave()
            deleting = pod_json("a", node="n1", version="11")
            deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            ended = pod_json("a", node="n1", version="12", phase="Succeeded")
            script.lines["/api/v1/pods"] += [event_json("MODIFIED", deleting), event_json("MODIFIED", ended)]
            assert eventually(lambda: len(heard) == 3)
        finally:
            live.stop()
    assert heard == [
        PodEvent("added", "uid-a", "default", "a", "n1", "1", deleting=False),
        PodEvent("modified", "uid-a", "default", "a", "n1", "11", deleting=True),
        PodEvent("deleted", "uid-a", "default", "a", "n1", "12", deleting=False),
    ]
    assert caplog.text.count("subscriber_failed") == 1


def test_stopping_is_quick_and_leaves_no_thread(tmp_path: Path) -> None:
    """Also when it was never started."""
    with serving(Script()) as server:
        live_of(tmp_path, server).stop()
        live = live_of(tmp_path, server)
        live.start()
        assert live.wait_until_synced(10.0)
        started = time.monotonic()
        live.stop()
        assert time.monotonic() - started < 1.0
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("berth-watch-")]
