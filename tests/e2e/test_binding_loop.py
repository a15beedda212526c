"""Berth's own scheduler against the real API server, with kube-scheduler beside it."""

import json
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from tests.kubernetes_version import needs_kubernetes
from tests.stack import Stack, eventually, make_node

pytestmark = pytest.mark.e2e
BERTH = {"schedulerName": "berth"}
# Celery's workers: both wait for messages.
WORKERS = ("binder", "worker")
HUGE = [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "100"}}}]
TOO_HUGE = (
    "0/6 nodes are available: 6 Insufficient cpu. "
    "preemption: 0/6 nodes are available: 6 Preemption is not helpful for scheduling."
)


@pytest.fixture(scope="module")
def binding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    nodes = [make_node(f"n{number}", zone="abc"[number % 3]) for number in range(6)]
    with Stack(tmp_path_factory.mktemp("binding"), nodes=nodes) as stack:
        yield stack


@pytest.fixture(autouse=True)
def no_pods(binding: Stack) -> None:
    binding.delete_all_pods()


def events_of(stack: Stack, name: str) -> list[dict[str, Any]]:
    answer = stack.client.get(path="/apis/events.k8s.io/v1/namespaces/default/events")
    return [event for event in json.loads(answer)["items"] if event["regarding"]["name"] == name]


def test_sixty_pods_are_each_bound_to_a_node_with_room(binding: Stack) -> None:
    names = [f"many-{number}" for number in range(60)]
    for name in names:
        binding.create_pod(name, **BERTH)

    eventually(lambda: all(binding.pods()[name]["spec"].get("nodeName") for name in names), what="all are bound")
    used = [pod["spec"]["nodeName"] for pod in binding.pods().values()]
    assert {used.count(node) for node in set(used)} == {10}
    assert {event["reason"] for name in names[:3] for event in events_of(binding, name)} <= {"Scheduled", "Pulled"}


def test_a_pod_that_no_node_has_room_for_says_so_and_is_bound_once_there_is_one(binding: Stack) -> None:
    binding.create_pod("huge", **BERTH, containers=HUGE)

    message = eventually(lambda: binding.scheduled_message("huge"))
    assert message == TOO_HUGE
    found = eventually(lambda: [event for event in events_of(binding, "huge") if event["reason"] == "FailedScheduling"])
    assert [(event["note"], event["type"], event["reportingController"]) for event in found] == [
        (message, "Warning", "berth")
    ]

    node = make_node("giant")
    node["status"]["allocatable"]["cpu"] = "200"
    binding.client.post(path="/api/v1/nodes", body=json.dumps(node).encode())
    try:
        assert binding.wait_for_node("huge", seconds=10) == "giant"
    finally:
        binding.client.delete(path="/api/v1/nodes/giant")


def test_a_pod_that_restarts_all_containers_waits_for_a_node_that_can_do_it_as_behind_kube_scheduler(
    binding: Stack,
) -> None:
    needs_kubernetes(binding.client, 36)
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    containers = [{"name": "main", "image": "busybox", "restartPolicy": "Never", "restartPolicyRules": [rule]}]
    binding.create_pod("theirs", containers=containers)
    binding.create_pod("ours", **BERTH, containers=containers)
    for name in ("theirs", "ours"):
        message = eventually(lambda name=name: binding.scheduled_message(name))
        assert message.startswith("0/6 nodes are available: 6 node(s) didn't match Pod's required features.")

    declares = {"status": {"declaredFeatures": ["RestartAllContainersOnContainerExits"]}}
    path, patch = "/api/v1/nodes/n3/status", "application/merge-patch+json"
    binding.client.patch(path=path, body=json.dumps(declares).encode(), content_type=patch)
    try:
        assert [binding.wait_for_node(name, seconds=10) for name in ("theirs", "ours")] == ["n3", "n3"]
    finally:
        declares["status"]["declaredFeatures"] = []
        binding.client.patch(path=path, body=json.dumps(declares).encode(), content_type=patch)


def test_a_gated_pod_waits_until_its_gate_is_gone(binding: Stack) -> None:
    binding.create_pod("gated", **BERTH, schedulingGates=[{"name": "example.org/wait"}])
    binding.create_pod("free", **BERTH)
    binding.wait_for_node("free")
    assert binding.node_of("gated") == ""

    binding.client.patch(
        path="/api/v1/namespaces/default/pods/gated",
        body=json.dumps({"spec": {"schedulingGates": None}}).encode(),
        content_type="application/merge-patch+json",
    )

    assert binding.wait_for_node("gated", seconds=5)


def test_a_pod_deleted_while_it_waits_is_forgotten(binding: Stack) -> None:
    binding.create_pod("doomed", **BERTH, containers=HUGE)
    eventually(lambda: binding.scheduled_message("doomed"))

    binding.client.delete(path="/api/v1/namespaces/default/pods/doomed")
    binding.create_pod("next", **BERTH)

    assert binding.wait_for_node("next")
    assert "doomed" not in binding.pods()


def test_kube_scheduler_and_berth_fill_the_same_nodes_without_overcommitting_them(binding: Stack) -> None:
    one_cpu = [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}]
    for number in range(18):
        binding.create_pod(f"ours-{number}", **BERTH, containers=one_cpu)
        binding.create_pod(f"theirs-{number}", containers=one_cpu)

    eventually(lambda: all(pod["spec"].get("nodeName") for pod in binding.pods().values()), what="all are bound")
    used = [pod["spec"]["nodeName"] for pod in binding.pods().values()]
    assert max(used.count(node) for node in used) <= 8


def make_many(stack: Stack, prefix: str, number: int) -> list[str]:
    names = [f"{prefix}-{index}" for index in range(number)]
    for name in names:
        stack.create_pod(name, **BERTH)
    return names


def all_bound(stack: Stack, names: list[str]) -> bool:
    pods = stack.pods()
    return all(pods[name]["spec"].get("nodeName") for name in names)


def bound_once(stack: Stack, names: list[str]) -> bool:
    """Return whether no Pod was said to be scheduled to two nodes."""
    notes: dict[str, set[str]] = {}
    answer = stack.client.get(path="/apis/events.k8s.io/v1/namespaces/default/events")
    for event in json.loads(answer)["items"]:
        if event["reason"] == "Scheduled":
            notes.setdefault(event["regarding"]["uid"], set()).add(event["note"])
    uids = {pod["metadata"]["uid"] for name, pod in stack.pods().items() if name in names}
    return all(len(notes.get(uid, ())) <= 1 for uid in uids)


def seconds_until_next_binding(stack: Stack, name: str) -> float:
    """Create a Pod and give the seconds until it is bound."""
    started = time.monotonic()
    stack.create_pod(name, **BERTH)
    eventually(lambda: stack.node_of(name), seconds=30, every=0.02, what=f"{name} is bound")
    return time.monotonic() - started


def test_it_goes_on_after_its_worker_was_killed(binding: Stack) -> None:
    names = make_many(binding, "before", 50)
    binding.kill("binder")
    seconds = seconds_until_next_binding(binding, "after")
    names += make_many(binding, "later", 50)

    eventually(lambda: all_bound(binding, names), what="all are bound")
    assert bound_once(binding, names)
    print(f"went on {seconds:.1f} s after the worker was killed")


def test_it_goes_on_while_redis_is_killed(binding: Stack) -> None:
    binding.kill("redis")
    seconds = seconds_until_next_binding(binding, "meanwhile")

    print(f"went on {seconds:.2f} s after Redis was killed")


def test_the_same_processes_go_on_after_redis_was_a_replica_for_a_while(binding: Stack) -> None:
    """As in a failover: what waits for messages is told that the instance isn't the master any more, and writes are refused."""
    import redis

    def clients() -> int:
        return int(broker.info("clients")["connected_clients"])

    def refused() -> list[int]:
        return [(binding.state / "logs" / f"{name}.log").read_text().count("Cannot connect") for name in WORKERS]

    with redis.Redis.from_url(binding._settings()["BERTH_REDIS_URL"]) as broker:
        eventually(lambda: broker.info("clients")["blocked_clients"] >= 2, what="binder and worker wait for messages")
        pids, connected, before = [binding.pid(name) for name in WORKERS], clients(), refused()
        broker.replicaof("127.0.0.1", "1")
        uid = binding.create_pod("in-between", **BERTH)
        binding.wait_for_node("in-between")
        eventually(lambda: min(np.subtract(refused(), before)) >= 3, what="each has tried several times")
        left_open = clients() - connected
        broker.replicaof("NO", "ONE")

    eventually(lambda: binding.sql(f"SELECT 1 FROM scheduler_decision WHERE pod_uid = '{uid}'"), what="it is ingested")
    assert [binding.pid(name) for name in WORKERS] == pids
    assert left_open <= 0


def test_it_goes_on_after_the_api_server_was_killed(binding: Stack) -> None:
    names = make_many(binding, "before", 100)
    binding.kill_component("kube-apiserver")
    eventually(lambda: binding.cluster_status()["components"]["kube-apiserver"]["state"] != "ready", every=0.02)
    eventually(lambda: binding.cluster_status()["components"]["kube-apiserver"]["state"] == "ready", every=0.02)
    seconds = seconds_until_next_binding(binding, "after")

    eventually(lambda: all_bound(binding, names), what="all are bound")
    assert bound_once(binding, names)
    print(f"went on {seconds:.1f} s after the API server was back")


def test_the_queue_is_written_down_with_what_waits_and_why(binding: Stack) -> None:
    binding.create_pod("huge", **BERTH, containers=HUGE)

    def shown() -> list[tuple[str, str]]:
        rows = binding.sql("SELECT pods FROM scheduler_binderstate WHERE leads")
        return [(pod["name"], pod["message"]) for (pods,) in rows for pod in as_json(pods)]

    wanted = [("huge", TOO_HUGE)]
    eventually(lambda: shown() == wanted, what="the queue's row")


def as_json(found: Any) -> Any:
    return json.loads(found) if isinstance(found, str) else found


def test_decisions_name_the_node_and_replay_to_the_same_answer(binding: Stack) -> None:
    uid = binding.create_pod("decided", **BERTH)
    node = binding.wait_for_node("decided")
    query = f"SELECT id, verb, feasible, placed_on FROM scheduler_decision WHERE pod_uid = '{uid}' AND placed_on <> ''"
    rows = eventually(lambda: binding.sql(query))

    assert [(verb, feasible, placed) for _, verb, feasible, placed in rows] == [("schedule", 6, node)]
    assert "the same answer" in binding.manage("replay", str(rows[0][0]))
    assert binding.pods()["decided"]["metadata"]["annotations"]["berth/decision"] == str(UUID(str(rows[0][0])))
    said = binding.manage("explain", "decided")
    assert "6 of 6 nodes may be used" in said
    assert "isn't here" not in said


def test_one_pass_by_hand_waits_for_nobody_who_schedules_already(binding: Stack) -> None:
    said = binding.manage("schedule", "--once", "--wait-seconds", "5", code=1)

    assert "another process schedules: berth-binder@" in said


def test_one_pass_by_hand_binds_what_waits_and_says_why_the_rest_does(
    binding: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(binding._environment, "BERTH_SCHEDULER_NAMES", "by-hand")
    monkeypatch.setitem(binding._environment, "BERTH_LEASE_NAMESPACE", "default")
    for number in range(3):
        binding.create_pod(f"hand-{number}", schedulerName="by-hand")
    binding.create_pod("huge", schedulerName="by-hand", containers=HUGE)

    said = binding.manage("schedule", "--once")

    assert "3 Pods bound, 1 wait" in said
    assert "default/huge: 0/6 nodes are available: 6 Insufficient cpu." in said
    assert all_bound(binding, [f"hand-{number}" for number in range(3)])


def test_only_nodes_with_the_label_are_used_where_nodes_are_reserved(
    binding: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(binding._environment, "BERTH_SCHEDULER_NAMES", "by-hand")
    monkeypatch.setitem(binding._environment, "BERTH_LEASE_NAMESPACE", "default")
    monkeypatch.setitem(binding._environment, "BERTH_SCHEDULER_NODE_LABEL", "zone=a")
    names = [f"mine-{number}" for number in range(8)]
    for name in names:
        binding.create_pod(name, schedulerName="by-hand")

    binding.manage("schedule", "--once")

    assert {binding.node_of(name) for name in names} == {"n0", "n3"}
