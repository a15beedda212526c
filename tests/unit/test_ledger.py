"""Pods between an answer and their node: who waits, what ends the wait, what is given up."""

import threading

import pytest

from scheduler.cluster.live import PodEvent
from scheduler.extender.inflight import InFlight

LONG, SHORT = 60.0, 0.01


def event(uid: str, kind: str = "modified", *, node: str = "", version: str = "1") -> PodEvent:
    return PodEvent(kind, uid, "default", uid, node, version, False)  # type: ignore[arg-type]


class TestSettle:
    def test_nobody_in_flight_is_settled_at_once(self) -> None:
        assert InFlight(LONG).settle("a")

    def test_a_pod_does_not_wait_for_itself(self) -> None:
        in_flight = InFlight(LONG)
        in_flight.answered("a", "1")
        assert in_flight.settle("a")

    @pytest.mark.parametrize(
        "seen",
        [
            pytest.param(event("a", node="n1"), id="on its node"),
            pytest.param(event("a", "deleted"), id="gone"),
            pytest.param(event("a", version="11"), id="changed since: not bound, tried again later"),
            pytest.param(event("a", version="9x"), id="a version that is no number and differs"),
        ],
    )
    def test_a_pod_whose_fate_is_known_is_not_waited_for(self, seen: PodEvent) -> None:
        in_flight = InFlight(LONG)
        in_flight.answered("a", "9")
        in_flight.observe(seen)
        assert in_flight.settle("b")

    @pytest.mark.parametrize(
        "seen",
        [
            pytest.param(event("a", version="9"), id="the version that was answered"),
            pytest.param(event("a", version="8"), id="an older one, seen late"),
            pytest.param(event("c", node="n1"), id="another Pod"),
        ],
    )
    def test_what_tells_nothing_of_its_fate_does_not_end_the_wait(self, seen: PodEvent) -> None:
        in_flight = InFlight(SHORT)
        in_flight.answered("a", "9")
        in_flight.observe(seen)
        assert not in_flight.settle("b")

    def test_a_pod_that_was_waited_for_in_vain_is_not_waited_for_again(self) -> None:
        in_flight = InFlight(SHORT)
        in_flight.answered("a", "9")
        assert not in_flight.settle("b")
        assert in_flight.settle("b")

    def test_a_pod_answered_longer_ago_than_the_limit_is_not_waited_for(self) -> None:
        in_flight = InFlight(SHORT)
        in_flight.answered("a", "9")
        threading.Event().wait(2 * SHORT)
        assert in_flight.settle("b")

    def test_the_event_wakes_whoever_waits(self) -> None:
        in_flight = InFlight(LONG)
        names = [f"p{place}" for place in range(20)]
        for name in names:
            in_flight.answered(name, "1")
        settled: list[bool] = []
        waiting = [threading.Thread(target=lambda: settled.append(in_flight.settle("new"))) for _ in range(4)]
        for thread in waiting:
            thread.start()
        telling = [threading.Thread(target=in_flight.observe, args=(event(name, node="n1"),)) for name in names]
        for thread in telling:
            thread.start()
        for thread in [*telling, *waiting]:
            thread.join(LONG)
        assert settled == [True] * 4

    def test_a_pod_that_is_answered_again_counts_by_its_last_answer(self) -> None:
        in_flight = InFlight(SHORT)
        in_flight.answered("a", "9")
        in_flight.answered("a", "12")
        in_flight.observe(event("a", version="11"))
        assert not in_flight.settle("b")
