"""Pods between an answer and their node: where they count, who waits for them, what ends the wait."""

import threading

import pytest

from policies.engine.objects.pod import Pod
from scheduler.cluster.live import PodEvent
from scheduler.extender.verbs.in_flight import InFlight
from tests.builders import make_pod

LONG, SHORT = 60.0, 0.01


def pod(uid: str, version: str = "1") -> Pod:
    json = make_pod(name=uid)
    json["metadata"] |= {"uid": uid, "resourceVersion": version}
    return Pod.from_json(json)


def event(uid: str, kind: str = "modified", *, node: str = "", version: str = "1") -> PodEvent:
    return PodEvent(kind, uid, "default", uid, node, version)  # type: ignore[arg-type]


def placed(in_flight: InFlight, uid: str = "other", *, only_binding: bool = False) -> dict[str, str]:
    return {found.uid: node for found, node in in_flight.placements(uid, only_binding=only_binding)}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


OUTCOMES = [
    pytest.param(event("a", node="n1"), id="on its node"),
    pytest.param(event("a", node="n9"), id="on another node than promised"),
    pytest.param(event("a", "deleted"), id="gone"),
    pytest.param(event("a", version="11"), id="changed since: not bound, tried again later"),
    pytest.param(event("a", version="9x"), id="a version that is no number and differs"),
]
NO_OUTCOMES = [
    pytest.param(event("a", version="9"), id="the version that was answered"),
    pytest.param(event("a", version="8"), id="an older one, seen late"),
    pytest.param(event("c", node="n1"), id="another Pod"),
]


class TestPlacements:
    @pytest.mark.parametrize(("answered", "is_left"), [("9" * 5_000, True), ("8\N{SUPERSCRIPT TWO}", False)])
    def test_what_no_number_can_be_read_from_is_no_fault(self, answered: str, is_left: bool) -> None:
        in_flight = InFlight()
        in_flight.passed(pod("a", answered), "n1")
        in_flight.observe(event("a", version="11"))
        assert ("a" in placed(in_flight)) is is_left

    def test_a_pod_counts_on_the_only_node_that_it_may_use(self) -> None:
        in_flight = InFlight()
        in_flight.passed(pod("a"), "n1")
        assert placed(in_flight) == {"a": "n1"}

    def test_a_pod_that_may_use_several_counts_nowhere_until_it_is_scored(self) -> None:
        in_flight = InFlight()
        in_flight.passed(pod("a"))
        assert placed(in_flight) == {}
        in_flight.scored("a", "n2")
        assert placed(in_flight) == {"a": "n2"}

    def test_a_pod_with_several_equally_good_nodes_counts_nowhere(self) -> None:
        in_flight = InFlight()
        in_flight.passed(pod("a"))
        in_flight.scored("a", "n2")
        in_flight.scored("a", "")
        assert placed(in_flight) == {}

    def test_scores_of_a_pod_that_never_passed_promise_nothing(self) -> None:
        in_flight = InFlight()
        in_flight.scored("a", "n2")
        assert placed(in_flight) == {}

    def test_binding_decides_where_a_pod_counts(self) -> None:
        in_flight = InFlight()
        in_flight.passed(pod("a"), "n1")
        in_flight.binding(pod("a"), "n7")
        assert placed(in_flight) == placed(in_flight, only_binding=True) == {"a": "n7"}

    def test_only_pods_that_are_being_bound_are_given_where_only_those_are_wanted(self) -> None:
        in_flight = InFlight()
        in_flight.passed(pod("a"), "n1")
        in_flight.binding(pod("b"), "n2")
        assert placed(in_flight, only_binding=True) == {"b": "n2"}

    def test_a_pod_is_not_in_its_own_way(self) -> None:
        in_flight = InFlight()
        in_flight.passed(pod("a"), "n1")
        assert placed(in_flight, "a") == {}

    def test_asking_again_voids_what_was_promised_before(self) -> None:
        in_flight = InFlight()
        in_flight.binding(pod("a"), "n1")
        in_flight.passed(pod("a"))
        assert placed(in_flight) == {}

    def test_a_pod_refused_everywhere_counts_nowhere(self) -> None:
        in_flight = InFlight()
        in_flight.passed(pod("a"), "n1")
        in_flight.refused("a")
        in_flight.refused("never seen")
        assert (placed(in_flight), len(in_flight)) == ({}, 0)

    @pytest.mark.parametrize("seen", OUTCOMES)
    def test_the_watch_ends_a_promise(self, seen: PodEvent) -> None:
        in_flight = InFlight()
        in_flight.passed(pod("a", "9"), "n1")
        in_flight.observe(seen)
        assert placed(in_flight) == {}

    @pytest.mark.parametrize("seen", NO_OUTCOMES)
    def test_what_tells_nothing_of_its_outcome_ends_no_promise(self, seen: PodEvent) -> None:
        in_flight = InFlight()
        in_flight.passed(pod("a", "9"), "n1")
        in_flight.observe(seen)
        assert placed(in_flight) == {"a": "n1"}

    def test_a_change_from_before_the_binding_does_not_end_the_promise_of_a_pod_that_is_bound(self) -> None:
        in_flight = InFlight()
        in_flight.binding(pod("a", "9"), "n1")
        in_flight.observe(event("a", version="11"))
        assert placed(in_flight) == {"a": "n1"}
        in_flight.observe(event("a", version="12", node="n1"))
        assert placed(in_flight) == {}

    def test_a_promise_of_which_nothing_is_ever_heard_is_forgotten(self) -> None:
        clock = Clock()
        in_flight = InFlight(forget_seconds=30, clock=clock)
        in_flight.passed(pod("a"), "n1")
        clock.now += 29
        assert placed(in_flight) == {"a": "n1"}
        clock.now += 1
        assert placed(in_flight) == {}

    def test_the_one_answered_longest_ago_is_forgotten_where_others_take_all_room(self) -> None:
        in_flight = InFlight(most_bytes=12_000)
        for name in ("a", "b", "c"):
            in_flight.passed(pod(name), "n1")
        in_flight.binding(pod("a"), "n2")
        in_flight.scored("b", "n3")
        in_flight.passed(pod("d"), "n4")
        assert placed(in_flight) == {"a": "n2", "b": "n3", "d": "n4"}

    def test_what_is_dropped_leaves_its_room(self) -> None:
        in_flight = InFlight(most_bytes=12_000)
        for name in ("a", "b", "c", "d"):
            in_flight.passed(pod(name), "n1")
            in_flight.refused(name)
        in_flight.passed(pod("e"), "n1")
        in_flight.passed(pod("f"), "n1")
        assert placed(in_flight) == {"e": "n1", "f": "n1"}

    def test_a_pod_that_takes_more_than_all_may_is_kept_alone(self) -> None:
        in_flight = InFlight(most_bytes=10)
        in_flight.passed(pod("a"), "n1")
        in_flight.passed(pod("b"), "n1")
        assert placed(in_flight) == {"b": "n1"}

    def test_a_promised_pod_can_be_looked_up(self) -> None:
        in_flight = InFlight()
        asked = pod("a")
        in_flight.passed(asked)
        assert (in_flight.pod("a"), in_flight.pod("b")) == (asked, None)


class TestSettle:
    def test_nobody_in_flight_is_settled_at_once(self) -> None:
        assert InFlight(settle_seconds=LONG).settle("a")

    def test_a_pod_does_not_wait_for_itself(self) -> None:
        in_flight = InFlight(settle_seconds=LONG)
        in_flight.passed(pod("a"))
        assert in_flight.settle("a")

    @pytest.mark.parametrize("seen", OUTCOMES)
    def test_a_pod_whose_outcome_is_known_is_not_waited_for(self, seen: PodEvent) -> None:
        in_flight = InFlight(settle_seconds=LONG)
        in_flight.passed(pod("a", "9"))
        in_flight.observe(seen)
        assert in_flight.settle("b")

    @pytest.mark.parametrize("seen", NO_OUTCOMES)
    def test_what_tells_nothing_of_its_outcome_does_not_end_the_wait(self, seen: PodEvent) -> None:
        in_flight = InFlight(settle_seconds=LONG)
        in_flight.passed(pod("a", "9"))
        in_flight.observe(seen)
        assert not in_flight.settle("b", SHORT)

    def test_a_pod_that_berth_binds_is_not_waited_for_since_its_node_is_sure(self) -> None:
        in_flight = InFlight(settle_seconds=LONG)
        in_flight.passed(pod("a"))
        in_flight.binding(pod("a"), "n1")
        assert in_flight.settle("b")

    def test_a_pod_answered_longer_ago_than_the_limit_is_not_waited_for_but_still_counts(self) -> None:
        clock = Clock()
        in_flight = InFlight(settle_seconds=1, clock=clock)
        in_flight.passed(pod("a"), "n1")
        clock.now += 2
        assert in_flight.settle("b", 0)
        assert placed(in_flight) == {"a": "n1"}

    def test_a_call_that_has_little_time_waits_no_longer_than_that(self) -> None:
        in_flight = InFlight(settle_seconds=LONG)
        in_flight.passed(pod("a"))
        assert not in_flight.settle("b", SHORT)

    def test_a_pod_of_which_nothing_is_seen_within_the_limit_is_said_not_to_be_settled(self) -> None:
        in_flight = InFlight(settle_seconds=SHORT)
        in_flight.passed(pod("a"))
        assert not in_flight.settle("b")

    def test_a_pod_is_waited_for_only_for_what_is_left_of_the_limit(self) -> None:
        clock = Clock()
        in_flight = InFlight(settle_seconds=LONG, forget_seconds=2 * LONG, clock=clock)
        in_flight.passed(pod("a"))
        clock.now += LONG - SHORT
        assert not in_flight.settle("b")

    @pytest.mark.parametrize("ending", ["observe", "binding", "refused"])
    def test_what_settles_a_pod_wakes_whoever_waits(self, ending: str) -> None:
        # A wait that ends by time finds them settled, too: it must not end while the threads are joined.
        in_flight = InFlight(settle_seconds=10 * LONG)
        names = [f"p{place}" for place in range(20)]
        for name in names:
            in_flight.passed(pod(name))
        settled: list[bool] = []
        waiting = [threading.Thread(target=lambda: settled.append(in_flight.settle("new"))) for _ in range(4)]
        for thread in waiting:
            thread.start()
        end = {
            "observe": lambda name: in_flight.observe(event(name, node="n1")),
            "binding": lambda name: in_flight.binding(pod(name), "n1"),
            "refused": in_flight.refused,
        }[ending]
        telling = [threading.Thread(target=end, args=(name,)) for name in names]
        for thread in telling:
            thread.start()
        for thread in [*telling, *waiting]:
            thread.join(LONG)
        assert settled == [True] * 4

    def test_a_pod_that_is_answered_again_counts_by_its_last_answer(self) -> None:
        in_flight = InFlight(settle_seconds=LONG)
        in_flight.passed(pod("a", "9"))
        in_flight.passed(pod("a", "12"))
        in_flight.observe(event("a", version="11"))
        assert not in_flight.settle("b", SHORT)
