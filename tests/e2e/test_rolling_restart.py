"""Extenders end and start while kube-scheduler asks: not one call fails."""

import copy
import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests import caller
from tests.balancer import Backend, Balancer
from tests.certificates import Files
from tests.e2e.conftest import NODES
from tests.extender import Extender
from tests.stack import BASE_DIR, Stack, eventually

pytestmark = pytest.mark.e2e

# How often each replica is restarted; `make long` says more.
ROUNDS = int(os.environ.get("ROLLING_ROUNDS", "1"))

BODY = json.dumps(
    {
        "Pod": {"metadata": {"name": "a", "namespace": "default", "uid": "u", "labels": {"policy": "shortest-name"}}},
        "Nodes": None,
        "NodeNames": ["n1", "node-two", "the-third-node"],
    }
).encode()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return caller.build(tmp_path_factory.mktemp("steadycaller"))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, balanced: Balancer, files: Files) -> Iterator[Stack]:
    """kube-scheduler asks what is behind the balancer; the stack's own extender is asked by nobody."""
    client = files.client()
    nodes = copy.deepcopy(NODES)
    for node in nodes:
        node["status"]["allocatable"] = node["status"]["capacity"] = {"cpu": "64", "memory": "256Gi", "pods": "5000"}
    with Stack(
        tmp_path_factory.mktemp("rolling"),
        nodes=nodes,
        urlPrefix=f"https://127.0.0.1:{balanced.port}",
        tlsConfig={"caFile": str(files.server_ca), "certFile": str(client), "keyFile": str(client)},
        ignorable=False,
    ) as stack:
        stack.publish(BASE_DIR / "examples" / "shortest-name.yaml", BASE_DIR / "examples" / "policy-by-label.yaml")
        yield stack


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory, files: Files) -> list[Extender]:
    return [Extender(tmp_path_factory.mktemp(f"replica-{index}"), files.environment()) for index in range(2)]


@pytest.fixture(scope="module")
def balanced(replicas: list[Extender]) -> Iterator[Balancer]:
    with Balancer(*(Backend(replica.port, replica.probes_port) for replica in replicas)) as balancer:
        yield balancer


@pytest.fixture
def running(stack: Stack, replicas: list[Extender], balanced: Balancer) -> Iterator[list[Extender]]:
    with ExitStack() as started:
        for replica in replicas:
            replica.environment |= stack.settings_of_another(replica.folder / "state")
            started.callback(replica.stop)
            replica.start("readyz")
            balanced.wait_for(replica.port)
        yield replicas


class PodCreator(threading.Thread):
    """Creates Pods until it is told to end."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack, self.names, self.enough = stack, list[str](), threading.Event()

    def run(self) -> None:
        while not self.enough.wait(0.1):
            name = f"{len(self.names):x}"  # the rules take names of up to four characters
            self.stack.create_pod(name, labels={"policy": "shortest-name"})
            self.names.append(name)


def failed_scheduling(stack: Stack) -> list[str]:
    """What kube-scheduler said of Pods that it could not place at once."""
    events = json.loads(stack.client.get(path="/apis/events.k8s.io/v1/events"))["items"]
    return [str(event["note"]) for event in events if event["reason"] == "FailedScheduling"]


def test_two_replicas_behind_one_address_are_restarted_in_turn_without_a_failed_call(
    stack: Stack, running: list[Extender], balanced: Balancer, program: Path, files: Files
) -> None:
    load = caller.SteadyCaller(
        program,
        f"https://127.0.0.1:{balanced.port}/filter",
        BODY,
        *("-ca", str(files.server_ca), "-client", str(files.client())),
    )
    pods = PodCreator(stack)
    with load:
        pods.start()
        try:
            for replica in running * ROUNDS:
                time.sleep(1)  # some load before each restart
                assert replica.stop() == 0
                replica.start("readyz")
                balanced.wait_for(replica.port)
        finally:
            pods.enough.set()
            pods.join()

    assert load.result["failures"] == []
    assert load.result["calls"] > 200
    # The connections that were in use when a replica ended were made again.
    assert load.result["connections"] > 4
    assert all(balanced.connections[replica.port] for replica in running)
    assert all(stack.wait_for_node(name) for name in pods.names)
    assert len(pods.names) > 10
    assert failed_scheduling(stack) == []


def test_one_replica_alone_is_replaced_by_a_new_master_without_a_failed_call(
    stack: Stack, program: Path, tmp_path: Path
) -> None:
    alone = Extender(tmp_path, stack.settings_of_another(tmp_path / "state"))
    alone.start("readyz")
    masters = [alone.process.pid if alone.process else 0]
    load = caller.SteadyCaller(program, f"http://127.0.0.1:{alone.port}/filter", BODY)
    try:
        with load:
            for turn in range(2):
                os.kill(masters[-1], signal.SIGUSR2)
                eventually(lambda: alone.log.count("Shutting down: Master") == turn + 1, what="the old one ended")  # noqa: B023
                masters.append(int(re.findall(r"Listening at: \S+ \((\d+)\)", alone.log)[-1]))
                eventually(lambda: "Master has been promoted" in alone.log.rpartition("Shutting down")[2])
                time.sleep(1)  # some load on the new one alone
    finally:
        os.kill(masters[-1], signal.SIGTERM)
        alone.stop()

    assert load.result["failures"] == []
    assert load.result["calls"] > 200
    assert len(set(masters)) == 3
    eventually(lambda: alone.log.count("Shutting down: Master") == 3, what="the last one ended")


def test_a_balancer_passes_over_a_replica_that_is_not_ready(
    stack: Stack, running: list[Extender], balanced: Balancer, program: Path, files: Files
) -> None:
    """What the tests above stand on: without this they would show nothing."""
    first, second = running
    assert first.stop() == 0
    before: dict[int, Any] = dict(balanced.connections)
    load = caller.SteadyCaller(
        program,
        f"https://127.0.0.1:{balanced.port}/filter",
        BODY,
        *("-ca", str(files.server_ca), "-client", str(files.client())),
    )
    with load:
        time.sleep(1)
    assert load.result["failures"] == []
    assert balanced.connections[first.port] == before[first.port]
    assert balanced.connections[second.port] > before[second.port]
