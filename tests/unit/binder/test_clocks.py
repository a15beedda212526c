"""Clocks that jump: who leads, and whose turn it is, goes by each process's own monotonic clock and by nothing else."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from policies.engine.objects.pod import Pod
from policies.engine.rule import NODE
from scheduler.binder.leader import DURATION_SECONDS, RENEW_WITHIN_SECONDS, Elector
from scheduler.binder.queue import FIRST_BACKOFF_SECONDS, Queue
from scheduler.cluster import lease as lease_module
from scheduler.cluster.errors import APIConflictError, APINotFoundError, APIUnavailableError
from tests.builders import make_pod

Json = dict[str, Any]


class Clock:
    """Monotonic seconds, put forward by the test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Leases:
    """An API server that has one Lease."""

    def __init__(self) -> None:
        self.lease: Json | None = None
        self.version = 0
        self.is_away = False

    def get(self, *, path: str, timeout_seconds: float) -> bytes:
        self._answer(timeout_seconds)
        if self.lease is None:
            raise APINotFoundError(path)
        return json.dumps(self.lease).encode()

    def post(self, *, path: str, body: bytes, timeout_seconds: float) -> bytes:
        self._answer(timeout_seconds)
        if self.lease is not None:
            raise APIConflictError(path)
        return self._store(body)

    def put(self, *, path: str, body: bytes, timeout_seconds: float) -> bytes:
        self._answer(timeout_seconds)
        if json.loads(body)["metadata"]["resourceVersion"] != str(self.version):
            raise APIConflictError(path)
        return self._store(body)

    def _answer(self, timeout_seconds: float) -> None:
        assert timeout_seconds < RENEW_WITHIN_SECONDS
        if self.is_away:
            message = "away"
            raise APIUnavailableError(message)

    def _store(self, body: bytes) -> bytes:
        self.version += 1
        self.lease = json.loads(body)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return body


@pytest.fixture
def leases() -> Leases:
    return Leases()


def elector(leases: Leases, identity: str, clock: Clock) -> Elector:
    return Elector(leases, namespace="kube-system", name="berth-binder", identity=identity, clock=clock)  # type: ignore[arg-type] # what it uses of a client


def set_wall_clock(monkeypatch: pytest.MonkeyPatch, moment: datetime) -> None:
    class Wall(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return moment.astimezone(tz)

    monkeypatch.setattr(lease_module, "datetime", Wall)


@pytest.mark.parametrize("jump", [timedelta(days=-400), timedelta(hours=-1), timedelta(hours=1), timedelta(days=400)])
def test_a_jump_of_the_wall_clock_neither_takes_nor_gives_the_lead(
    leases: Leases, monkeypatch: pytest.MonkeyPatch, jump: timedelta
) -> None:
    first_clock, second_clock = Clock(), Clock()
    first, second = elector(leases, "first", first_clock), elector(leases, "second", second_clock)
    first.step()
    second.step()

    set_wall_clock(monkeypatch, datetime.now(UTC) + jump)
    for _ in range(20):
        first_clock.now += 2
        second_clock.now += 2
        first.step()
        second.step()

        assert (first.leads(), second.leads()) == (True, False)


def test_a_holder_whose_own_clock_jumped_ahead_leads_no_more_until_it_has_renewed(leases: Leases) -> None:
    """As after a pause of the whole process: others may have taken over meanwhile."""
    clock = Clock()
    first = elector(leases, "first", clock)
    first.step()
    assert first.leads()

    clock.now += RENEW_WITHIN_SECONDS + 0.1

    assert not first.leads()
    first.step()
    assert first.leads()


def test_a_holder_that_was_away_too_long_finds_another_and_leads_no_more(leases: Leases) -> None:
    first_clock, second_clock = Clock(), Clock()
    first, second = elector(leases, "first", first_clock), elector(leases, "second", second_clock)
    first.step()
    second.step()
    second_clock.now += DURATION_SECONDS + 0.1
    second.step()
    assert second.leads()

    first_clock.now += DURATION_SECONDS + 0.1
    first.step()

    assert not first.leads()
    assert second.leads()


def test_two_never_lead_at_once_while_one_can_not_reach_the_api_server(leases: Leases) -> None:
    """Both clocks run alike; the first is cut off after each number of seconds and comes back later."""
    for cut_off_at in range(0, 40, 3):
        leases.lease, leases.version = None, 0
        clock = Clock()
        first, second = elector(leases, "first", clock), elector(leases, "second", clock)
        led = set()
        for seconds in range(120):
            clock.now += 0.5
            leases.is_away = cut_off_at <= seconds < cut_off_at + 50
            first.step()
            leases.is_away = False
            second.step()

            assert not (first.leads() and second.leads())
            led |= {name for name, found in (("first", first), ("second", second)) if found.leads()}
        assert "second" in led


def test_a_lease_whose_times_are_of_another_year_is_judged_by_what_is_seen_of_it(leases: Leases) -> None:
    clock = Clock()
    for year in ("1999", "2999"):
        times = {"renewTime": f"{year}-01-01T00:00:00.000000Z", "acquireTime": f"{year}-01-01T00:00:00.000000Z"}
        spec = {"holderIdentity": "other", "leaseDurationSeconds": 15, **times}
        leases.version += 1
        leases.lease = {"metadata": {"resourceVersion": str(leases.version)}, "spec": spec}
        found = elector(leases, "found", clock)
        found.step()
        assert not found.leads()

        clock.now += DURATION_SECONDS + 0.1
        found.step()

        assert found.leads()


def test_a_pod_that_was_refused_comes_back_once_after_a_jump_of_the_clock() -> None:
    queue, pod = Queue(), Pod.from_json(make_pod("one"))
    queue.put(pod, 0.0)
    assert queue.take(0.0) is not None
    queue.refuse(pod.uid, 0.0, requeued_by={NODE})
    queue.requeue(NODE, 0.1)
    assert queue.take(FIRST_BACKOFF_SECONDS - 0.1) is None

    later = 10_000_000.0

    assert queue.take(later) is not None
    assert queue.take(later) is None
