"""A former version's extender and binder run while the database is migrated and the new ones start, and come back afterwards."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import caller
from tests.balancer import Backend, Balancer
from tests.e2e.test_rolling_restart import BODY, PodCreator, failed_scheduling, program
from tests.extender import Extender, free_port
from tests.stack import BASE_DIR, Stack, eventually, make_node

__all__ = ["program"]
pytestmark = pytest.mark.e2e

# The commit that is upgraded from; `make long` names the last one without outcomes, AuditEvents and a ledger.
FORMER = os.environ.get("FORMER", "")
# What a process of the former version runs when it is started again after it was "scaled to zero".
ASLEEP = "import time\n\ntime.sleep(1e6)\n"


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of the former version, as git has it."""
    if not FORMER:
        pytest.skip("FORMER names no commit to upgrade from: make long does")
    if subprocess.run(["git", "cat-file", "-e", f"{FORMER}^{{commit}}"], cwd=BASE_DIR, check=False).returncode:
        pytest.skip(f"{FORMER} is not in this checkout: git fetch --unshallow brings it")
    folder = tmp_path_factory.mktemp("former")
    archive = subprocess.run(["git", "archive", FORMER], cwd=BASE_DIR, check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    return folder


@pytest.fixture(scope="module")
def extenders(tmp_path_factory: pytest.TempPathFactory, former: Path) -> tuple[Extender, Extender]:
    """The former version's and the new one's; they have their settings once there is a stack."""
    old, new = (tmp_path_factory.mktemp(name) for name in ("old", "new"))
    return Extender(old, checkout=former), Extender(new)


@pytest.fixture(scope="module")
def balanced(extenders: tuple[Extender, Extender]) -> Iterator[Balancer]:
    with Balancer(*(Backend(extender.port, extender.probes_port) for extender in extenders)) as balancer:
        yield balancer


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, former: Path, balanced: Balancer) -> Iterator[Stack]:
    """The former version, whole; kube-scheduler asks what is behind the balancer."""
    nodes = [make_node(name) for name in ("n1", "node-two")]
    for node in nodes:
        node["status"]["allocatable"] = node["status"]["capacity"] = {"cpu": "64", "memory": "256Gi", "pods": "2000"}
    folder = tmp_path_factory.mktemp("upgrade")
    with Stack(folder, nodes=nodes, checkout=former, urlPrefix=balanced.url, ignorable=False) as running:
        running.publish(*(BASE_DIR / "examples" / f"{name}.yaml" for name in ("shortest-name", "policy-by-label")))
        yield running


class Processes:
    """Processes of the new version, with the settings of a stack of the former one."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self._environment = {**os.environ, **stack.settings_of_another(stack.state)}
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, role: str, *command: str) -> None:
        with (self._folder / f"{role}.log").open("ab") as log:
            self._running[role] = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=BASE_DIR,
                env={**self._environment, "BERTH_ROLE": role, f"BERTH_{role.upper()}_BIND": f"127.0.0.1:{free_port()}"},
                stdout=log,
                stderr=log,
            )

    def manage(self, *arguments: str) -> str:
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, cwd=BASE_DIR, env=self._environment, capture_output=True, text=True, check=False)
        assert not done.returncode, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: Any) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()

    def stop(self, role: str) -> None:
        process = self._running.pop(role)
        assert process.poll() is None, (self._folder / f"{role}.log").read_text()[-3000:]
        process.terminate()
        process.wait(60)


CELERY = ("celery", "-A", "controlplane")


def bound_by(stack: Stack) -> Counter[str]:
    """How often each Pod was bound, as the cluster's events say."""
    events = json.loads(stack.client.get(path="/apis/events.k8s.io/v1/events"))["items"]
    return Counter(event["regarding"]["name"] for event in events if event["reason"] == "Scheduled")


class Creator(PodCreator):
    """Creates Pods of a scheduler, two a second."""

    def __init__(self, stack: Stack, scheduler: str) -> None:
        super().__init__(stack)
        self.scheduler = scheduler

    def run(self) -> None:
        while not self.enough.wait(0.5):
            name = f"{self.scheduler[0]}{len(self.names):x}"  # the rules take names of up to four characters
            self.stack.create_pod(name, labels={"policy": "shortest-name"}, schedulerName=self.scheduler)
            self.names.append(name)


def test_an_upgrade_under_load_and_the_way_back_fail_no_call_and_place_no_pod_twice(
    stack: Stack, former: Path, extenders: tuple[Extender, Extender], balanced: Balancer, program: Path, tmp_path: Path
) -> None:
    with Processes(stack, tmp_path) as new:
        for extender in extenders:
            extender.environment |= stack.settings_of_another(extender.folder / "state")
        old_extender, new_extender = extenders
        celery = former / "controlplane" / "celery.py"
        awake = celery.read_text()

        def scaled_to_zero(*names: str) -> None:
            celery.write_text(ASLEEP)
            for name in names:
                before = stack.kill(name, signal.SIGTERM)
                eventually(lambda name=name, before=before: stack.pid(name) not in {0, before}, what=f"{name} is away")

        load = caller.SteadyCaller(program, f"{balanced.url}/filter", BODY)
        creators = [Creator(stack, name) for name in ("default-scheduler", "berth")]
        old_extender.start("readyz")
        balanced.wait_for(old_extender.port)
        try:
            with load:
                for creator in creators:
                    creator.start()
                time.sleep(2)  # some load on the former version alone
                scaled_to_zero("beat", "worker")
                new.manage("migrate", "--verbosity", "0")
                new.start("worker", *CELERY, "worker", "-P", "threads", "-c", "4", "-Q", "ingest,ops")
                new.start("beat", *CELERY, "beat", "--pidfile=", f"--schedule={tmp_path / 'beat'}")
                new_extender.start("readyz")
                balanced.wait_for(new_extender.port)
                new.start("binder", "controlplane.binder")
                time.sleep(2)  # some load on both
                assert old_extender.stop() == 0
                scaled_to_zero("binder")
                number = len(creators[1].names)
                eventually(lambda: len(creators[1].names) > number + 3)
                stack.wait_for_node(creators[1].names[number + 2], seconds=60)

                # And back: the former extender and binder on the new schema. The worker stays: it alone writes the ledger.
                old_extender.start("readyz")
                balanced.wait_for(old_extender.port)
                assert new_extender.stop() == 0
                celery.write_text(awake)
                stack.kill("binder", signal.SIGTERM)
                new.stop("binder")
                number = len(creators[1].names)
                eventually(lambda: len(creators[1].names) > number + 3)
                stack.wait_for_node(creators[1].names[number + 2], seconds=60)
        finally:
            for creator in creators:
                creator.enough.set()
                creator.join()
            celery.write_text(awake)
            old_extender.stop()

        assert load.result["failures"] == []
        assert load.result["calls"] > 200
        assert all(balanced.connections[extender.port] for extender in (old_extender, new_extender))
        names = [name for creator in creators for name in creator.names]
        eventually(
            lambda: all(pod["spec"].get("nodeName") for pod in stack.pods().values()), what="every Pod has a node"
        )
        assert failed_scheduling(stack) == []
        assert set(bound_by(stack).values()) == {1}
        decided = "SELECT DISTINCT pod_name FROM scheduler_decision"
        eventually(lambda: {name for (name,) in stack.sql(decided)} >= set(names), what="every Pod has its Decision")
        new.manage("ledger", "checkpoint")
        new.manage("verify")
        new.stop("beat")
        new.stop("worker")
