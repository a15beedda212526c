"""The live Snapshot over three watches."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from policies.engine.objects.cluster_kinds import CLAIMS, SERVICES, VOLUMES
from scheduler.cluster.client import Client
from scheduler.cluster.live import LiveSnapshot, PodEvent
from tests.unit.cluster.kubernetes_json import (
    claim_json,
    event_json,
    list_json,
    namespace_json,
    node_json,
    pod_json,
    service_json,
)
from tests.unit.cluster.scripted_server import Answer, Request, ScriptedServer, serving, write_kubeconfig
from tests.unit.cluster.test_watch import OPEN_SECONDS, eventually


class Script:
    """A cluster with these objects, whose watches say what a test puts in."""

    def __init__(self) -> None:
        self.away = False
        self.forbidden: set[str] = set()
        self.items: dict[str, list[dict[str, Any]]] = {
            "/api/v1/nodes": [node_json("n1"), node_json("n2")],
            "/api/v1/pods": [pod_json("a", node="n1")],
            "/api/v1/namespaces": [namespace_json("default", labels={"team": "x"})],
            "/api/v1/persistentvolumeclaims": [claim_json("c")],
            "/api/v1/persistentvolumes": [],
            "/api/v1/services": [service_json("s", selector={"app": "a"})],
        }
        self.lines: dict[str, list[bytes]] = {path: [] for path in self.items}

    def __call__(self, request: Request) -> Answer:
        """Answer a request."""
        if self.away:
            return Answer(503)
        if request.path in self.forbidden:
            return Answer(403)
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
    """One that fails doesn't keep the others from hearing."""
    script = Script()
    heard: list[PodEvent] = []

    def fails(_: PodEvent) -> None:
        raise RuntimeError

    with serving(script) as server:
        live = live_of(tmp_path, server)
        live.subscribe(fails)
        live.subscribe(heard.append)
        live.start()
        try:
            assert eventually(lambda: len(heard) == 1)
            deleting = pod_json("a", node="n1", version="11")
            deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            ended = pod_json("a", node="n1", version="12", phase="Succeeded")
            script.lines["/api/v1/pods"] += [event_json("MODIFIED", deleting), event_json("MODIFIED", ended)]
            assert eventually(lambda: len(heard) == 3)
        finally:
            live.stop()
    assert heard == [
        PodEvent("added", "uid-a", "default", "a", "n1", "1"),
        PodEvent("modified", "uid-a", "default", "a", "n1", "11"),
        PodEvent("deleted", "uid-a", "default", "a", "n1", "12"),
    ]
    assert caplog.text.count("subscriber_failed") == 3


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


def watching_threads() -> set[str]:
    """Return the kinds that are watched, by their threads."""
    found = {thread.name for thread in threading.enumerate() if thread.name.startswith("berth-watch-")}
    return {name.removeprefix("berth-watch-") for name in found}


def claims_of(live: LiveSnapshot) -> set[tuple[str, str]] | None:
    """Return the names of the claims that are known; None when nobody knows."""
    objects = live.snapshot().knowing(frozenset({CLAIMS}))
    return None if objects is None else set(objects.claims)


class TestRequire:
    """Kinds that are watched only where rules read them."""

    def test_what_is_required_is_listed_and_followed(self, tmp_path: Path) -> None:
        """Before that it isn't known; `synced` isn't about it."""
        script = Script()
        with serving(script) as server:
            live = live_of(tmp_path, server)
            live.start()
            try:
                assert live.wait_until_synced(10.0)
                assert claims_of(live) is None
                assert live.missing(frozenset({CLAIMS, "pods"})) == {CLAIMS}
                live.require(frozenset({CLAIMS}))
                assert live.wait_until_listed(frozenset({CLAIMS}), 10.0) == frozenset()
                assert claims_of(live) == {("default", "c")}
                line = event_json("ADDED", claim_json("d", version="11"))
                script.lines["/api/v1/persistentvolumeclaims"].append(line)
                assert eventually(lambda: claims_of(live) == {("default", "c"), ("default", "d")})
                assert live.ages().keys() == {"nodes", "pods", "namespaces", CLAIMS}
                assert max(live.ages().values()) < 10.0
            finally:
                live.stop()

    def test_what_is_no_longer_required_is_given_up_and_its_watch_ends(self, tmp_path: Path) -> None:
        """Required again it is listed anew. What stays required isn't touched."""
        script = Script()
        with serving(script) as server:
            live = live_of(tmp_path, server)
            live.start()
            try:
                both = frozenset({CLAIMS, SERVICES})
                live.require(both)
                live.require(both)
                assert live.wait_until_listed(both, 10.0) == frozenset()
                live.require(frozenset({SERVICES}))
                assert live.missing(both) == {CLAIMS}
                assert claims_of(live) is None
                assert live.snapshot().knowing(frozenset({SERVICES})) is not None
                assert eventually(lambda: CLAIMS not in watching_threads())
                script.items["/api/v1/persistentvolumeclaims"] = []
                live.require(both)
                assert live.wait_until_listed(both, 10.0) == frozenset()
                assert claims_of(live) == set()
                lists = [request.path for request in server.requests if not request.is_watch]
                assert lists.count("/api/v1/services") == 1
                assert lists.count("/api/v1/persistentvolumeclaims") == 2
            finally:
                live.stop()
        assert watching_threads() == set()

    def test_what_is_required_before_the_start_begins_with_it(self, tmp_path: Path) -> None:
        """And after the end nothing begins."""
        with serving(Script()) as server:
            live = live_of(tmp_path, server)
            live.require(frozenset({CLAIMS}))
            assert watching_threads() == set()
            live.start()
            try:
                assert live.wait_until_listed(frozenset({CLAIMS}), 10.0) == frozenset()
            finally:
                live.stop()
            live.require(frozenset({SERVICES}))
            assert watching_threads() == set()

    def test_a_kind_that_is_forbidden_is_not_waited_for(self, tmp_path: Path) -> None:
        """The others are there; it is tried again, and found when it is allowed."""
        script = Script()
        script.forbidden = {"/api/v1/persistentvolumeclaims"}
        with serving(script) as server:
            live = live_of(tmp_path, server)
            live.start()
            try:
                both = frozenset({CLAIMS, SERVICES})
                live.require(both)
                assert live.wait_until_listed(both, 60.0) == {CLAIMS}
                assert eventually(lambda: live.failing() == {CLAIMS})
                assert live.wait_until_synced(10.0)
                script.forbidden = set()
                assert eventually(lambda: not live.missing(both))
                assert live.failing() == frozenset()
            finally:
                live.stop()

    def test_a_kind_that_there_is_not_is_refused(self, tmp_path: Path) -> None:
        """Nothing else changes then."""
        with serving(Script()) as server:
            live = live_of(tmp_path, server)
            with pytest.raises(ValueError, match="secrets"):
                live.require(frozenset({"secrets", CLAIMS}))
            assert live.ages().keys() == {"nodes", "pods", "namespaces"}

    def test_any_number_of_threads_may_require(self, tmp_path: Path) -> None:
        """The last one wins, and nothing is watched twice."""
        wishes = [frozenset({CLAIMS}), frozenset({CLAIMS, VOLUMES}), frozenset({SERVICES}), frozenset[str]()]
        with serving(Script()) as server:
            live = live_of(tmp_path, server)
            live.start()
            try:

                def churn(number: int) -> None:
                    for turn in range(20):
                        live.require(wishes[(number + turn) % len(wishes)])

                threads = [threading.Thread(target=churn, args=(number,)) for number in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                live.require(frozenset({CLAIMS, SERVICES}))
                assert live.wait_until_listed(frozenset({CLAIMS, SERVICES}), 10.0) == frozenset()
                assert claims_of(live) == {("default", "c")}
                wanted = {"nodes", "pods", "namespaces", CLAIMS, SERVICES}
                assert eventually(lambda: watching_threads() == wanted)
            finally:
                live.stop()


class TestPods:
    """All Pods, and how far the watch of Pods has seen."""

    def test_pods_that_wait_are_listed_beside_those_on_nodes(self, tmp_path: Path) -> None:
        script = Script()
        with serving(script) as server:
            live = live_of(tmp_path, server)
            assert live.pods() == []
            live.start()
            try:
                assert live.wait_until_synced(10.0)
                lines = script.lines["/api/v1/pods"]
                lines.append(event_json("ADDED", pod_json("w", version="11", phase="Pending")))
                assert live.wait_for_pods_version("11", 10.0)
                assert {pod.name: pod.spec.node_name for pod in live.pods()} == {"a": "n1", "w": ""}
            finally:
                live.stop()

    def test_versions_are_reached_by_lists_events_and_bookmarks(self, tmp_path: Path) -> None:
        """They are compared as numbers, and one that isn't reached in time isn't reached."""
        script = Script()
        with serving(script) as server:
            live = live_of(tmp_path, server)
            assert not live.wait_for_pods_version("1", 0.0)
            live.start()
            try:
                assert live.wait_for_pods_version("9", 10.0)
                assert live.wait_for_pods_version("10", 10.0)
                assert not live.wait_for_pods_version("11", 0.05)
                assert not live.wait_for_pods_version("", 10.0)
                assert not live.wait_for_pods_version("x", 10.0)
                bookmark = event_json("BOOKMARK", {"metadata": {"resourceVersion": "100"}})
                threading.Timer(0.1, script.lines["/api/v1/pods"].append, [bookmark]).start()
                assert live.wait_for_pods_version("99", 10.0)
            finally:
                live.stop()

    def test_all_kinds_fail_while_the_server_is_away(self, tmp_path: Path) -> None:
        """Until it takes a request again."""
        script = Script()
        script.away = True
        with serving(script) as server:
            live = live_of(tmp_path, server)
            assert live.failing() == frozenset()
            live.start()
            try:
                assert eventually(lambda: live.failing() == {"nodes", "pods", "namespaces"})
                script.away = False
                assert eventually(lambda: live.failing() == frozenset())
            finally:
                live.stop()
