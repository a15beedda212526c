"""Two of Berth's own schedulers that both bind: no Pod is bound twice, and none is lost."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.running import Cluster, cluster
from policies.engine.decision import CompiledRevision
from policies.engine.ruleset import Revision
from policies.engine.scheduling import default_profile
from scheduler.binder import loop
from scheduler.binder.actions import Events
from scheduler.binder.api_calls import BIND_TIMEOUT_SECONDS
from scheduler.binder.loop import Loop
from scheduler.cluster.client import Client
from scheduler.cluster.dispatcher import Dispatcher
from scheduler.cluster.live import LiveSnapshot
from scheduler.cluster.waiting import pods_waiting_for
from tests.placements import History, check, read_state
from tests.proxy import Proxy
from tests.stack import BASE_DIR, Stack, eventually
from tests.workload import create_pods, create_priority_classes, delete_pods, make_nodes, make_plain_pods, make_pods

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]
NAME = "berth"
PODS, NODES, APP_SIZE = 300, 60, 10
SETTLES_SECONDS = 120.0


@pytest.fixture(scope="module")
def bare_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("leaders") / "cluster") as running:
        running.create_nodes(make_nodes(NODES))
        create_priority_classes(running.client)
        yield running


class Scheduler:
    """One scheduler in this process, which always thinks that it leads."""

    def __init__(self, kubeconfig: Path) -> None:
        client = Client.connect(kubeconfig)
        self.live = LiveSnapshot(client, pods=pods_waiting_for([NAME]))
        self.live.require(default_profile().reads)
        self.dispatcher = Dispatcher(client, timeout_seconds=BIND_TIMEOUT_SECONDS)
        self.loop = Loop(
            client=client,
            live=self.live,
            scheduler_names=[NAME],
            leads=lambda: True,
            dispatcher=self.dispatcher,
            post=Events(self.dispatcher).post,
        )

    def __enter__(self) -> "Scheduler":
        self.dispatcher.start()
        self.live.start()
        self.loop.start()
        self.loop.serve(CompiledRevision(Revision(number=0)))
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.stop()
        self.live.stop()
        self.dispatcher.stop()


def test_two_schedulers_that_both_think_they_lead_bind_each_pod_once(program: Path, bare_cluster: Cluster) -> None:
    """The API server takes the first binding of a Pod, and the other scheduler sees where it went.

    Within the lag of the watch both can use the same room, so that isn't asked for here. When both chose the same node, both
    tell of it: who finds a Pod where it was to be can't know who put it there.
    """
    client = bare_cluster.client
    watching = History(client)
    watching.start()
    with Scheduler(bare_cluster.kubeconfig), Scheduler(bare_cluster.kubeconfig):
        created = create_pods(client, make_pods(PODS, scheduler_name=NAME, seed="two", app_size=APP_SIZE))

        def none_is_left() -> bool:
            return not check(program, read_state(client, scheduler_names=[NAME])).left

        eventually(none_is_left, seconds=SETTLES_SECONDS, every=0.5, what="no Pod waits that would fit")
    watching.stop()

    found = check(program, read_state(client, scheduler_names=[NAME], created=created, history=watching))
    assert found.faults.keys() <= {"misplaced", "bound twice"}
    assert [entry for entry in found.bound_twice if len(entry["nodes"]) > 1] == []
    assert found.placed > PODS / 3
    shared = len(found.misplaced)
    print(f"two leaders: {found.placed} Pods bound once each; {shared} where the other had just used the room")


def test_a_pod_whose_binding_was_confirmed_is_not_sent_again_however_late_the_watch_is(
    bare_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not seen for longer than the loop takes to look for what was lost is not lost for that."""
    monkeypatch.setattr(loop, "SWEEP_SECONDS", 0.5)
    client = bare_cluster.client
    delete_pods(client)
    with Proxy(bare_cluster.kubeconfig, tmp_path) as proxy, Scheduler(proxy.kubeconfig) as scheduler:
        eventually(lambda: scheduler.live.synced, what="the cluster is seen")
        proxy.watch_delay_seconds = 3.0
        watching = History(client)
        watching.start()
        created = create_pods(client, make_plain_pods(20, scheduler_name=NAME))
        eventually(lambda: len(watching.bound_at()) == len(created), what="all are bound")
        eventually(
            lambda: all(pod.spec.node_name for pod in scheduler.live.pods()), what="the scheduler sees that they are"
        )
        watching.stop()

    assert sorted(proxy.binds.values()) == [1] * len(created)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with Stack(tmp_path, nodes=make_nodes(NODES)) as made:
        create_priority_classes(made.client)
        yield made


@pytest.fixture
def second(stack: Stack, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One more binder of the same Berth, with a state folder of its own, as on another machine."""
    folder = tmp_path / "second"
    folder.mkdir()
    environment = {**os.environ, **stack.settings_of_another(folder), "BERTH_ROLE": "binder"}
    command = [sys.executable, "-m", "celery", "-A", "controlplane", "worker", "-P", "threads", "-c", "1"]
    command += ["-Q", "binder", "-n", "second@%h", "--without-gossip", "--without-mingle"]
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(command, cwd=BASE_DIR, env=environment, stdout=log, stderr=log)
        eventually(lambda: b"ready." in (folder / "log").read_bytes(), what="the second binder is ready")
        try:
            yield running
        finally:
            running.terminate()
            running.wait(timeout=60)


def test_a_holder_that_wakes_up_after_another_took_over_does_no_harm(
    program: Path, stack: Stack, second: subprocess.Popen[bytes]
) -> None:
    """It was stopped in the middle of its work, as a machine that hangs; its Lease ran out meanwhile."""
    delete_pods(stack.client)
    watching = History(stack.client)
    watching.start()
    pods = make_pods(2 * PODS, scheduler_name=NAME, seed="paused", app_size=APP_SIZE)
    paused = stack.pid("binder")

    created: list[str] = []
    creating = threading.Thread(target=lambda: created.extend(create_pods(stack.client, pods[:PODS])))
    creating.start()
    eventually(lambda: len(watching.bound_at()) > 20, every=0.01, what="the first binder binds")
    os.kill(paused, signal.SIGSTOP)
    stopped_at = time.monotonic()
    creating.join()
    time.sleep(1)
    bound = len(watching.bound_at())
    eventually(lambda: len(watching.bound_at()) > bound, every=0.01, what="the second binder takes over")
    took_over = time.monotonic() - stopped_at
    os.kill(paused, signal.SIGCONT)
    created += create_pods(stack.client, pods[PODS:])

    def none_is_left() -> bool:
        return not check(program, read_state(stack.client, scheduler_names=[NAME])).left

    eventually(none_is_left, seconds=SETTLES_SECONDS, every=0.5, what="no Pod waits that would fit")
    watching.stop()
    found = check(program, read_state(stack.client, scheduler_names=[NAME], created=created, history=watching))
    assert found.faults == {}
    assert found.placed > 2 * PODS / 3
    print(f"another binder took over {took_over:.1f} s after the first was stopped")
