"""Berth's own scheduler while things fail: no Pod is bound twice, none is lost, none goes where it may not be.

What became of the Pods is judged by kube-scheduler's own filters (tests/placements.py). FAULT_RUNS says how many runs of
300 Pods there are with each process killed; `make long` makes 30. FAULT_SEED chooses Pods and moments.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench.running import Cluster, berth, cluster
from scheduler.cluster.client import Client
from tests.placements import History, settled
from tests.proxy import Proxy
from tests.stack import Stack, eventually
from tests.workload import create_pods, create_priority_classes, delete_pods, make_nodes, make_pods

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(3600),
    # What urllib3 leaves to the garbage collector when a server dies in the middle of a handshake.
    pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"),
]
NAME = "berth"
RUNS = int(os.environ.get("FAULT_RUNS", "1"))
SEED = int(os.environ.get("FAULT_SEED", "1"))
PODS, NODES, APP_SIZE = 300, 60, 10
COMPONENTS = ("kube-apiserver", "etcd")
VICTIMS = ("binder", "worker", "beat", "redis", *COMPONENTS)
PODS_A_SECOND = 100
# Half a second apart. Nothing is decided while the cluster can't be seen, so watches that never hold would bind no Pod.
CUTS = 8
SETTLES_SECONDS = 120.0


def pods_of(seed: str, count: int = PODS) -> list[dict[str, Any]]:
    return make_pods(count, scheduler_name=NAME, seed=seed, app_size=APP_SIZE)


class Creator(threading.Thread):
    """Creates Pods at a steady pace, and goes on where the API server is away."""

    def __init__(self, client: Client, pods: Sequence[dict[str, Any]]) -> None:
        super().__init__(name="creator")
        self._client = client
        self._pods = pods
        self.uids: list[str] = []

    def run(self) -> None:
        starts = time.monotonic()
        for number in range(0, len(self._pods), 10):
            time.sleep(max(starts + number / PODS_A_SECOND - time.monotonic(), 0))
            self.uids += create_pods(self._client, self._pods[number : number + 10], still=lambda: True)


def test_a_killed_process_costs_no_pod(program: Path, own_stack: Stack) -> None:
    """In each run, each process is killed at a random moment while its share of the Pods comes."""
    stack = own_stack
    recovered: dict[str, list[float]] = {victim: [] for victim in VICTIMS}
    for run in range(RUNS):
        random = Random(f"{SEED}/{run}")
        watching = empty_and_watch(stack)
        pods, created = pods_of(f"{SEED}/{run}"), []
        for turn, victim in enumerate(random.sample(VICTIMS, len(VICTIMS))):
            share = PODS // len(VICTIMS)
            creator = Creator(stack.client, pods[turn * share : (turn + 1) * share])
            creator.start()
            time.sleep(random.uniform(0.0, share / PODS_A_SECOND))
            killed_at = time.monotonic()
            kill(stack, victim)
            creator.join()
            created += creator.uids
            recovered[victim].append(binds_again(stack, watching, killed_at, f"{run}-{turn}") - killed_at)

        found = settled(program, stack.client, watching, [NAME], created, seconds=SETTLES_SECONDS)

        watching.stop()
        assert found.faults == {}, f"run {run}"
        assert len(created) == PODS // len(VICTIMS) * len(VICTIMS)
        assert found.placed > PODS / 3
    for victim, seconds in recovered.items():
        ordered = sorted(seconds)
        print(
            f"{victim} killed {len(ordered)} times; seconds until a Pod that came afterwards was bound: "
            f"median {ordered[len(ordered) // 2]:.2f}, most {ordered[-1]:.2f}"
        )


@pytest.fixture(scope="module")
def own_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("binding"), nodes=make_nodes(NODES)) as stack:
        create_priority_classes(stack.client)
        yield stack


def empty_and_watch(stack: Stack) -> History:
    """Begin without Pods, and watch what comes."""
    delete_pods(stack.client)
    eventually(lambda: not stack.pods(), what="all Pods gone")
    watching = History(stack.client)
    watching.start()
    return watching


def kill(stack: Stack, victim: str) -> None:
    """Kill -9, and see that it is back."""
    if victim in COMPONENTS:
        before = stack.cluster_status()["components"][victim]["pid"]
        stack.kill_component(victim)
        eventually(lambda: stack.cluster_status()["components"][victim]["pid"] != before, what=f"{victim} is back")
        return
    killed = stack.kill(victim)
    eventually(lambda: stack.pid(victim) not in {0, killed}, what=f"{victim} is back")


def binds_again(stack: Stack, watching: History, since: float, name: str) -> float:
    """Return when a Pod was bound that was created after a moment, and that fits everywhere."""
    probe = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"probe-{name}", "labels": {"app": "probe"}},
        "spec": {
            "schedulerName": NAME,
            "terminationGracePeriodSeconds": 0,
            "priorityClassName": "workload-high",
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}],
        },
    }
    [uid] = create_pods(stack.client, [probe])
    eventually(lambda: uid in watching.bound_at(), what="a Pod that came afterwards is bound", every=0.02)
    later = [at for other, at in watching.bound_at().items() if watching.created_at(other) > since]
    return min(later)


Fault = Callable[[Proxy, threading.Event], None]


def cut(proxy: Proxy, enough: threading.Event) -> None:
    """Watches break in the middle, again and again while the Pods come."""
    ended = 0
    for _ in range(CUTS):
        enough.wait(0.5)
        ended += proxy.end_watches()
    assert ended > 0


def delayed(proxy: Proxy, enough: threading.Event) -> None:
    """All that watches show is five seconds old."""
    proxy.watch_delay_seconds = 5.0
    enough.wait()
    proxy.watch_delay_seconds = 0.0


def expired(proxy: Proxy, enough: threading.Event) -> None:
    """Watches answer 410: what they would go on from is gone."""
    ended = 0
    for _ in range(CUTS):
        enough.wait(0.5)
        ended += proxy.end_watches(expired=True)
    assert ended > 0


def unanswered(proxy: Proxy, enough: threading.Event) -> None:
    """Bindings are done, and nobody is told."""
    while not enough.wait(0.3):
        proxy.binds_to_eat = 5
    proxy.binds_to_eat = 0
    assert proxy.binds_eaten > 5


@pytest.fixture(scope="module")
def bare_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server with nodes, on which nothing else schedules."""
    with cluster(tmp_path_factory.mktemp("proxied") / "cluster") as running:
        running.create_nodes(make_nodes(NODES))
        create_priority_classes(running.client)
        yield running


@pytest.fixture(scope="module")
def proxied(bare_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """Berth, which reaches the API server through a proxy."""
    folder = tmp_path_factory.mktemp("proxy")
    with Proxy(bare_cluster.kubeconfig, folder) as proxy, berth(folder / "berth", proxy.kubeconfig):
        yield proxy


@pytest.mark.parametrize("fault", [cut, delayed, expired, unanswered], ids=lambda fault: fault.__name__)
def test_a_bad_connection_costs_no_pod(program: Path, bare_cluster: Cluster, proxied: Proxy, fault: Fault) -> None:
    client = bare_cluster.client
    delete_pods(client)
    watching = History(client)
    watching.start()
    enough, failed = threading.Event(), []

    def disturb() -> None:
        try:
            fault(proxied, enough)
        except AssertionError as error:
            failed.append(error)

    disturbing = threading.Thread(target=disturb)
    disturbing.start()

    creator = Creator(client, pods_of(f"{SEED}/{fault.__name__}"))
    try:
        creator.run()
        eventually(lambda: len(watching.bound_at()) > PODS / 3, what="Pods are bound all the same")
    finally:
        enough.set()
        disturbing.join()
    found = settled(program, client, watching, [NAME], creator.uids, seconds=SETTLES_SECONDS)

    watching.stop()
    assert not failed
    assert found.faults == {}
    assert found.placed > PODS / 3
