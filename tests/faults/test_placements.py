"""2,000 Pods of mixed shapes on 200 nodes: each bound once, none where it may not be, none left that would fit.

Judged by kube-scheduler's own filters (tests/placements.py), for kube-scheduler itself first: that proves the judge.
PLACEMENTS_SEED chooses the cluster and the Pods.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.placements import History, check, read_state, settled
from tests.stack import Stack, eventually
from tests.workload import create_pods, create_priority_classes, delete_pods, make_nodes, make_pods

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]
NODES, PODS = 200, 2000
SEED = int(os.environ.get("PLACEMENTS_SEED", "1"))
SETTLES_SECONDS = 240.0


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("placements"), nodes=make_nodes(NODES, seed=SEED)) as made:
        create_priority_classes(made.client)
        yield made


@pytest.fixture
def history(stack: Stack) -> Iterator[History]:
    """The Pods are watched, and there are none."""
    delete_pods(stack.client)
    eventually(lambda: not stack.pods(), what="all Pods gone")
    watching = History(stack.client)
    watching.start()
    yield watching
    watching.stop()


@pytest.mark.parametrize("name", ["default-scheduler", "berth"])
def test_pods_of_mixed_shapes_are_each_bound_once_where_they_fit(
    program: Path, stack: Stack, history: History, name: str
) -> None:
    pods = make_pods(PODS, scheduler_name=name, seed=SEED)
    started = time.monotonic()

    created = create_pods(stack.client, pods)
    found = settled(program, stack.client, history, [name], created, seconds=SETTLES_SECONDS)

    assert found.faults == {}
    assert found.placed + found.waiting == PODS
    assert found.placed > PODS / 2
    assert found.waiting > PODS / 50
    bound_at = eventually(lambda: bounds if len(bounds := history.bound_at()) >= found.placed else None)
    assert bound_at.keys() <= set(created)
    assert len(bound_at) == found.placed
    took = max(bound_at.values()) - started
    print(f"{name}: {found.placed} Pods placed in {took:.1f} s, {found.waiting} fit nowhere, by seed {SEED}")


def test_the_judge_finds_a_pod_that_is_taken_off_its_node(program: Path, stack: Stack, history: History) -> None:
    """Otherwise "none is left" could mean that it finds none that fits."""
    name = "default-scheduler"
    created = create_pods(stack.client, make_pods(PODS // 10, scheduler_name=name, seed=SEED))
    assert settled(program, stack.client, history, [name], created, seconds=SETTLES_SECONDS).faults == {}
    state = read_state(stack.client, scheduler_names=[name])
    placed = [pod for pod in state["pods"] if pod["spec"].get("nodeName")]

    for pod in placed[::40]:
        node = pod["spec"].pop("nodeName")
        full = check(program, state)
        pod["spec"]["nodeName"] = node
        assert [left["pod"] for left in full.left] == [f"default/{pod['metadata']['name']}"]


def test_two_schedulers_on_the_same_nodes_bind_each_pod_once(program: Path, stack: Stack, history: History) -> None:
    """kube-scheduler and Berth at the same time. Within the lag of their watches both can use the same room."""
    names = ["default-scheduler", "berth"]
    pods = make_pods(PODS, scheduler_name="", seed=SEED)
    for pod in pods:
        app = pod["metadata"]["labels"]["app"]
        pod["spec"]["schedulerName"] = names[int(app.removeprefix("app-")) % 2]

    created = create_pods(stack.client, pods)
    found = settled(program, stack.client, history, names, created, seconds=SETTLES_SECONDS)

    assert found.faults.keys() <= {"misplaced"}
    assert found.placed + found.waiting == PODS
    assert found.placed > PODS / 2
    print(f"both: {found.placed} Pods placed, each once; {len(found.misplaced)} where the other had just used the room")
