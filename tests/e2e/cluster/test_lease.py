"""The lock across processes, on a real API server."""

import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIError
from scheduler.cluster.lease_lock import DURATION_SECONDS, LeaseLock, LockBusyError
from tests.e2e.cluster.conftest import Cluster

MakeLock = Callable[..., LeaseLock]


@pytest.fixture
def make_lock(cluster: Cluster) -> MakeLock:
    name = f"lock-{uuid.uuid4().hex[:8]}"

    def make(identity: str = "") -> LeaseLock:
        client = Client.connect(cluster.folder / "kubeconfig")
        return LeaseLock(client, namespace="kube-system", name=name, identity=identity or uuid.uuid4().hex)

    return make


def test_the_next_holder_reads_what_the_last_one_left(make_lock: MakeLock) -> None:
    first, second = make_lock(), make_lock()
    with first.hold(1) as held:
        assert held.note == ""
        held.note = "41"
    with second.hold(1) as held:
        assert held.note == "41"
        held.note = "42"
    with first.hold(1) as held:
        assert held.note == "42"


def test_two_processes_never_hold_it_at_once(make_lock: MakeLock) -> None:
    """Eight threads of two processes add up a number that only the lock protects."""
    locks = [make_lock(), make_lock()]
    inside: list[int] = []
    total = 0
    failures: list[BaseException] = []

    def work(lock: LeaseLock) -> None:
        nonlocal total
        for _ in range(10):
            try:
                with lock.hold(30) as held:
                    inside.append(1)
                    assert len(inside) == 1
                    assert lock.is_valid(held)
                    assert int(held.note or 0) == total
                    time.sleep(0.002)
                    total += 1
                    held.note = str(total)
                    inside.pop()
            except BaseException as error:
                failures.append(error)
                raise

    threads = [threading.Thread(target=work, args=(locks[place % 2],)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert (failures, total) == ([], 80)


def test_a_holder_that_never_gives_it_back_is_waited_for_until_its_time_is_over(make_lock: MakeLock) -> None:
    crashed, other = make_lock(), make_lock()
    holding = crashed.hold(1)
    holding.__enter__().note = "7"
    with pytest.raises(LockBusyError), other.hold(0.2):
        pytest.fail("it is held")
    began = time.monotonic()
    with other.hold(3 * DURATION_SECONDS):
        waited = time.monotonic() - began
    assert waited > DURATION_SECONDS - 1


def test_a_holder_whose_time_is_over_no_longer_relies_on_it(make_lock: MakeLock) -> None:
    lock = make_lock()
    with lock.hold(1) as held:
        assert lock.is_valid(held)
        held.until = time.monotonic()
        assert not lock.is_valid(held)


def test_a_process_that_comes_back_under_its_name_has_its_lock_again(make_lock: MakeLock) -> None:
    before, after = make_lock("replica-1"), make_lock("replica-1")
    before.hold(1).__enter__()
    with after.hold(0.5) as held:
        assert after.is_valid(held)


def test_threads_that_give_up_leave_the_lock_to_others(make_lock: MakeLock) -> None:
    first, second = make_lock(), make_lock()
    refused: list[Exception] = []

    def impatient() -> None:
        try:
            with first.hold(0.05):
                pass
        except LockBusyError as error:
            refused.append(error)

    with first.hold(1):
        threads = [threading.Thread(target=impatient) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(refused) == 4
    with second.hold(1):
        pass


def test_without_an_api_server_there_is_no_lock(tmp_path: Path) -> None:
    lock = LeaseLock(Client.connect(tmp_path / "none"), namespace="kube-system", name="l", identity="a")
    with pytest.raises(APIError), lock.hold(1):
        pytest.fail("nobody can have given it")
