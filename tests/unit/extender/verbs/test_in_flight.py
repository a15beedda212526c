"""Pods between an answer and their node: where they count, who waits for them, what ends the wait."""

import threading

import pytest

from policies.engine.objects.pod import Pod
from scheduler.cluster.live import PodEvent
from scheduler.extender.verbs.in_flight import Ledger
from tests.builders import make_pod

LONG, SHORT = 60.0, 0.01


def pod(uid: str, version: str = "1") -> Pod:
    json = make_pod(name=uid)
    json["metadata"] |= {"uid": uid, "resourceVersion": version}
    return Pod.from_json(json)


def event(uid: str, kind: str = "modified", *, node: str = "", version: str = "1") -> PodEvent:
    return PodEvent(kind, uid, "default", uid, node, version, False)  # type: ignore[arg-type]


def placed(ledger: Ledger, uid: str = "other", *, only_binding: bool = False) -> dict[str, str]:
    return {found.uid: node for found, node in ledger.placements(uid, only_binding=only_binding)}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


FATES = [
    pytest.param(event("a", node="n1"), id="on its node"),
    pytest.param(event("a", node="n9"), id="on another node than promised"),
    pytest.param(event("a", "deleted"), id="gone"),
    pytest.param(event("a", version="11"), id="changed since: not bound, tried again later"),
    pytest.param(event("a", version="9x"), id="a version that is no number and differs"),
]
NO_FATES = [
    pytest.param(event("a", version="9"), id="the version that was answered"),
    pytest.param(event("a", version="8"), id="an older one, seen late"),
    pytest.param(event("c", node="n1"), id="another Pod"),
]


class TestPlacements:
    def test_a_pod_counts_on_the_only_node_that_it_may_use(self) -> None:
        ledger = Ledger()
        ledger.passed(pod("a"), "n1")
        assert placed(ledger) == {"a": "n1"}

    def test_a_pod_that_may_use_several_counts_nowhere_until_it_is_scored(self) -> None:
        ledger = Ledger()
        ledger.passed(pod("a"))
        assert placed(ledger) == {}
        ledger.scored("a", "n2")
        assert placed(ledger) == {"a": "n2"}

    def test_a_pod_with_several_equally_good_nodes_counts_nowhere(self) -> None:
        ledger = Ledger()
        ledger.passed(pod("a"))
        ledger.scored("a", "n2")
        ledger.scored("a", "")
        assert placed(ledger) == {}

    def test_scores_of_a_pod_that_never_passed_promise_nothing(self) -> None:
        ledger = Ledger()
        ledger.scored("a", "n2")
        assert placed(ledger) == {}

    def test_binding_decides_where_a_pod_counts(self) -> None:
        ledger = Ledger()
        ledger.passed(pod("a"), "n1")
        ledger.binding(pod("a"), "n7")
        assert placed(ledger) == placed(ledger, only_binding=True) == {"a": "n7"}

    def test_only_pods_that_are_being_bound_are_given_where_only_those_are_wanted(self) -> None:
        ledger = Ledger()
        ledger.passed(pod("a"), "n1")
        ledger.binding(pod("b"), "n2")
        assert placed(ledger, only_binding=True) == {"b": "n2"}

    def test_a_pod_is_not_in_its_own_way(self) -> None:
        ledger = Ledger()
        ledger.passed(pod("a"), "n1")
        assert placed(ledger, "a") == {}

    def test_asking_again_voids_what_was_promised_before(self) -> None:
        ledger = Ledger()
        ledger.binding(pod("a"), "n1")
        ledger.passed(pod("a"))
        assert placed(ledger) == {}

    def test_a_pod_refused_everywhere_counts_nowhere(self) -> None:
        ledger = Ledger()
        ledger.passed(pod("a"), "n1")
        ledger.refused("a")
        ledger.refused("never seen")
        assert (placed(ledger), len(ledger)) == ({}, 0)

    @pytest.mark.parametrize("seen", FATES)
    def test_the_watch_ends_a_promise(self, seen: PodEvent) -> None:
        ledger = Ledger()
        ledger.passed(pod("a", "9"), "n1")
        ledger.observe(seen)
        assert placed(ledger) == {}

    @pytest.mark.parametrize("seen", NO_FATES)
    def test_what_tells_nothing_of_its_fate_ends_no_promise(self, seen: PodEvent) -> None:
        ledger = Ledger()
        ledger.passed(pod("a", "9"), "n1")
        ledger.observe(seen)
        assert placed(ledger) == {"a": "n1"}

    def test_a_change_from_before_the_binding_does_not_end_the_promise_of_a_pod_that_is_bound(self) -> None:
        ledger = Ledger()
        ledger.binding(pod("a", "9"), "n1")
        ledger.observe(event("a", version="11"))
        assert placed(ledger) == {"a": "n1"}
        ledger.observe(event("a", version="12", node="n1"))
        assert placed(ledger) == {}

    def test_a_promise_of_which_nothing_is_ever_heard_is_forgotten(self) -> None:
        clock = Clock()
        ledger = Ledger(forget_seconds=30, clock=clock)
        ledger.passed(pod("a"), "n1")
        clock.now += 29
        assert placed(ledger) == {"a": "n1"}
        clock.now += 1
        assert placed(ledger) == {}

    def test_a_promised_pod_can_be_looked_up(self) -> None:
        ledger = Ledger()
        asked = pod("a")
        ledger.passed(asked)
        assert (ledger.pod("a"), ledger.pod("b")) == (asked, None)


class TestSettle:
    def test_nobody_in_flight_is_settled_at_once(self) -> None:
        assert Ledger(settle_seconds=LONG).settle("a")

    def test_a_pod_does_not_wait_for_itself(self) -> None:
        ledger = Ledger(settle_seconds=LONG)
        ledger.passed(pod("a"))
        assert ledger.settle("a")

    @pytest.mark.parametrize("seen", FATES)
    def test_a_pod_whose_fate_is_known_is_not_waited_for(self, seen: PodEvent) -> None:
        ledger = Ledger(settle_seconds=LONG)
        ledger.passed(pod("a", "9"))
        ledger.observe(seen)
        assert ledger.settle("b")

    @pytest.mark.parametrize("seen", NO_FATES)
    def test_what_tells_nothing_of_its_fate_does_not_end_the_wait(self, seen: PodEvent) -> None:
        ledger = Ledger(settle_seconds=LONG)
        ledger.passed(pod("a", "9"))
        ledger.observe(seen)
        assert not ledger.settle("b", SHORT)

    def test_a_pod_that_berth_binds_is_not_waited_for_since_its_node_is_sure(self) -> None:
        ledger = Ledger(settle_seconds=LONG)
        ledger.passed(pod("a"))
        ledger.binding(pod("a"), "n1")
        assert ledger.settle("b")

    def test_a_pod_answered_longer_ago_than_the_limit_is_not_waited_for_but_still_counts(self) -> None:
        clock = Clock()
        ledger = Ledger(settle_seconds=1, clock=clock)
        ledger.passed(pod("a"), "n1")
        clock.now += 2
        assert ledger.settle("b", 0)
        assert placed(ledger) == {"a": "n1"}

    def test_a_call_that_has_little_time_waits_no_longer_than_that(self) -> None:
        ledger = Ledger(settle_seconds=LONG)
        ledger.passed(pod("a"))
        assert not ledger.settle("b", SHORT)

    @pytest.mark.parametrize("ending", ["observe", "binding", "refused"])
    def test_what_settles_a_pod_wakes_whoever_waits(self, ending: str) -> None:
        ledger = Ledger(settle_seconds=LONG)
        names = [f"p{place}" for place in range(20)]
        for name in names:
            ledger.passed(pod(name))
        settled: list[bool] = []
        waiting = [threading.Thread(target=lambda: settled.append(ledger.settle("new"))) for _ in range(4)]
        for thread in waiting:
            thread.start()
        end = {
            "observe": lambda name: ledger.observe(event(name, node="n1")),
            "binding": lambda name: ledger.binding(pod(name), "n1"),
            "refused": ledger.refused,
        }[ending]
        telling = [threading.Thread(target=end, args=(name,)) for name in names]
        for thread in telling:
            thread.start()
        for thread in [*telling, *waiting]:
            thread.join(LONG)
        assert settled == [True] * 4

    def test_a_pod_that_is_answered_again_counts_by_its_last_answer(self) -> None:
        ledger = Ledger(settle_seconds=LONG)
        ledger.passed(pod("a", "9"))
        ledger.passed(pod("a", "12"))
        ledger.observe(event("a", version="11"))
        assert not ledger.settle("b", SHORT)
