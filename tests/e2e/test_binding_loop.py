"""Berth's own scheduler against the real API server, with kube-scheduler beside it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.stack import Stack, eventually, make_node

pytestmark = pytest.mark.e2e
BERTH = {"schedulerName": "berth"}
HUGE = [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "100"}}}]


@pytest.fixture(scope="module")
def binding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    nodes = [make_node(f"n{number}", zone="abc"[number % 3]) for number in range(6)]
    stack = Stack(tmp_path_factory.mktemp("binding"), nodes=nodes)
    stack.start()
    yield stack
    stack.stop()


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
    assert message == (
        "0/6 nodes are available: 6 Insufficient cpu. "
        "preemption: 0/6 nodes are available: 6 Preemption is not helpful for scheduling."
    )
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
