"""The thread that decides by rule sets in mode shadow: after the answer, giving way, within its time, and counted."""

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial

import pytest
from prometheus_client import REGISTRY

from policies.engine.decision import CompiledRevision
from policies.engine.objects.pod import Pod
from policies.engine.ruleset import Revision
from scheduler.decisions.divergence import Subject
from scheduler.decisions.record import Entry
from scheduler.decisions.spool import SpoolFullError
from scheduler.serving import shadows as module
from scheduler.serving.shadows import MOST_PASSED_OVER, MOST_WAITING, QUIET_SECONDS, WAIT_SECONDS, GiveWay, Shadows
from tests.builders import make_assignment, make_pod, make_rule_set

AT = datetime(2026, 1, 1, tzinfo=UTC)


def entry(name: str = "p") -> Entry:
    return Entry(now=AT, verb="filter", pod=Pod.from_json(make_pod(name)), mode="shadow")


def of(rule_set: str) -> Subject:
    return Subject(1, "assigned", rule_set, 2, "filter")


def counted(rule_set: str, result: str) -> float:
    labels = {"rule_set": rule_set, "result": result}
    return REGISTRY.get_sample_value("berth_shadow_decisions_total", labels) or 0.0


def seconds(rule_set: str) -> float:
    return REGISTRY.get_sample_value("berth_shadow_seconds_total", {"rule_set": rule_set}) or 0.0


def eventually(holds: Callable[[], object], within: float = 10.0) -> None:
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def spin(cpu_seconds: float, give_way: GiveWay | None = None) -> None:
    """Use the processor, without letting go of the interpreter for long."""
    until = time.thread_time() + cpu_seconds
    while time.thread_time() < until:
        if give_way is not None:
            give_way()


class Running:
    """Shadows that run, and what they recorded."""

    def __init__(self) -> None:
        self.recorded: list[Entry] = []
        self.shadows = Shadows(self.recorded.append)
        self.shadows.start()

    @property
    def names(self) -> list[str]:
        return [entry.pod.name for entry in self.recorded]


@pytest.fixture
def running() -> Iterator[Running]:
    made = Running()
    yield made
    made.shadows.stop()


class TestDeciding:
    def test_what_is_offered_is_decided_in_another_thread_and_recorded(self, running: Running) -> None:
        threads: list[str] = []

        def decide(give_way: GiveWay) -> Entry:
            give_way()
            threads.append(threading.current_thread().name)
            return entry("a")

        before = counted("plain", "decided")
        running.shadows.offer(of("plain"), decide)

        eventually(lambda: counted("plain", "decided") == before + 1)
        assert (threads, running.names) == (["berth-shadows"], ["a"])

    def test_they_are_decided_in_the_order_of_their_calls(self, running: Running) -> None:
        for name in "abcdef":
            running.shadows.offer(of("order"), lambda _, name=name: entry(name))
        eventually(lambda: len(running.recorded) == 6)
        assert running.names == list("abcdef")

    def test_a_decision_says_how_long_the_rules_took_without_the_pauses(self, running: Running) -> None:
        def decide(give_way: GiveWay) -> Entry:
            spin(0.02, give_way)
            return entry()

        before = seconds("timed")
        started = time.monotonic()
        running.shadows.offer(of("timed"), decide)
        eventually(lambda: running.recorded)

        assert 20_000 <= running.recorded[0].duration_microseconds < 60_000
        assert time.monotonic() - started > 0.02 / module.MOST_SHARE * 0.8
        eventually(lambda: seconds("timed") > before)
        assert 0.02 <= seconds("timed") - before < 0.06

    def test_a_fault_in_one_is_counted_and_the_next_is_decided(self, running: Running) -> None:
        def fails(_: GiveWay) -> Entry:
            message = "a Pod's data"
            raise ValueError(message)

        before = counted("faulty", "failed")
        running.shadows.offer(of("faulty"), fails)
        running.shadows.offer(of("faulty"), lambda _: entry("next"))

        eventually(lambda: running.names == ["next"])
        assert counted("faulty", "failed") == before + 1

    def test_one_that_cant_be_recorded_is_counted_as_dropped(self) -> None:
        def record(_: Entry) -> None:
            raise SpoolFullError

        shadows = Shadows(record)
        before = counted("full", "dropped"), counted("full", "decided")
        shadows._decide(module._Task(of("full"), lambda _: entry(), time.monotonic()))
        assert (counted("full", "dropped"), counted("full", "decided")) == (before[0] + 1, before[1])


class TestGivingWay:
    def test_it_begins_when_the_answer_was_sent_and_not_before(self, running: Running) -> None:
        call = running.shadows.begin()
        running.shadows.offer(of("after"), lambda _: entry())
        time.sleep(0.1)
        assert running.recorded == []

        running.shadows.end(call)
        eventually(lambda: running.recorded)

    def test_another_thread_may_end_a_call_while_the_own_one_has_the_next_in_hand(self, running: Running) -> None:
        """The rest of a long answer is sent by the server's loop, and the thread that decided goes on."""
        first = running.shadows.begin()
        running.shadows.offer(of("first"), lambda _: entry("first"))
        second = running.shadows.begin()
        running.shadows.offer(of("second"), lambda _: entry("second"))
        thread = threading.Thread(target=running.shadows.end, args=[first])
        thread.start()
        thread.join()
        eventually(lambda: running.names == ["first"])

        running.shadows.end(second)
        eventually(lambda: running.names == ["first", "second"])

    def test_what_a_call_offered_is_not_decided_beside_it_though_others_end(self, running: Running) -> None:
        """Calls of other threads come and go: each holds its own shadows back."""
        call = running.shadows.begin()
        running.shadows.offer(of("own"), lambda _: entry("own"))

        def other() -> None:
            with running.shadows.call():
                running.shadows.offer(of("other"), lambda _: entry("other"))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        eventually(lambda: running.names == ["other"])
        running.shadows.end(call)
        eventually(lambda: running.names == ["other", "own"])

    def test_it_rests_while_a_call_is_in_hand(self, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "LEAST_SHARE", 1e-9)  # never again, as long as there are calls
        turns: list[int] = []
        begun = threading.Event()

        def decide(give_way: GiveWay) -> Entry:
            for number in range(200):
                spin(0.000_3)
                give_way()
                turns.append(number)
                begun.set()
            return entry()

        running.shadows.offer(of("rests"), decide)
        assert begun.wait(5)
        with running.shadows.call():
            time.sleep(0.05)  # the slice in hand ends
            before = len(turns)
            time.sleep(0.2)
            assert len(turns) == before < 200
        eventually(lambda: running.recorded)

    def test_calls_without_end_leave_it_a_small_share_and_not_nothing(self, running: Running) -> None:
        def decide(give_way: GiveWay) -> Entry:
            spin(0.003, give_way)
            return entry()

        with running.shadows.call():
            thread = threading.Thread(target=lambda: running.shadows.offer(of("share"), decide))
            thread.start()
            thread.join()
            started = time.monotonic()
            eventually(lambda: running.recorded, within=20)
            took = time.monotonic() - started

        # The rest after the last slice is not part of it, so a lower bound well above what the larger share would take.
        assert took > 2 * 0.003 / module.MOST_SHARE

    def test_it_waits_for_a_pause_between_two_calls_that_is_long_enough(
        self, running: Running, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "LEAST_SHARE", 1e-9)
        monkeypatch.setattr(module, "QUIET_SECONDS", 0.2)
        call = running.shadows.begin()
        running.shadows.offer(of("quiet"), lambda _: entry())
        for _ in range(5):
            running.shadows.end(call)
            time.sleep(0.02)
            call = running.shadows.begin()
        assert running.recorded == []
        running.shadows.end(call)
        eventually(lambda: running.recorded)

    def test_what_is_offered_behind_a_call_that_has_ended_waits_for_none(self, running: Running) -> None:
        call = running.shadows.begin()
        running.shadows.end(call)
        running.shadows.end(call)
        running.shadows.offer(of("later"), lambda _: entry())
        eventually(lambda: running.recorded)

    def test_a_fault_inside_a_call_ends_it_too(self, running: Running) -> None:
        def fails() -> None:
            with running.shadows.call():
                running.shadows.offer(of("kept"), lambda _: entry("kept"))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fails()
        eventually(lambda: running.names == ["kept"])

    def test_offering_never_waits_for_what_is_decided(self, running: Running) -> None:
        begun, go_on = threading.Event(), threading.Event()

        def decide(_: GiveWay) -> Entry:
            begun.set()
            go_on.wait(10)
            return entry()

        running.shadows.offer(of("slow"), decide)
        assert begun.wait(5)
        for _ in range(100):
            running.shadows.offer(of("slow"), lambda _: entry())
        # Offering came back a hundred times while the shadow in hand still waits to be let go.
        assert running.recorded == []
        go_on.set()


class TestDropping:
    def test_more_than_find_room_are_dropped_and_counted(self) -> None:
        shadows = Shadows(lambda _: None)
        before = counted("many", "dropped")
        for _ in range(MOST_WAITING + 7):
            shadows.offer(of("many"), lambda _: entry())
        assert counted("many", "dropped") == before + 7
        assert len(shadows._waiting) == MOST_WAITING

    def test_what_calls_passed_over_is_counted_at_the_latest_when_it_is_much_or_at_the_end(self) -> None:
        shadows = Shadows(lambda _: None)
        revision = CompiledRevision(Revision(number=1, rule_sets=[make_rule_set("passed")]))
        offered = [(make_assignment("all", "passed"), revision.rule_sets["passed"])]
        before = counted("passed", "dropped")
        for _ in range(MOST_PASSED_OVER):
            shadows.pass_over(revision, "filter", offered)
        assert counted("passed", "dropped") == before
        shadows.pass_over(revision, "filter", offered)
        assert counted("passed", "dropped") == before + MOST_PASSED_OVER + 1
        shadows.pass_over(revision, "filter", offered)
        shadows.stop()
        assert counted("passed", "dropped") == before + MOST_PASSED_OVER + 2

    def test_one_that_waited_too_long_is_dropped_and_never_decided(self) -> None:
        asked: list[str] = []
        recorded: list[Entry] = []

        def decide(_: GiveWay) -> Entry:
            asked.append("asked")
            return entry()

        shadows = Shadows(recorded.append)
        before = counted("late", "dropped")
        shadows._decide(module._Task(of("late"), decide, time.monotonic() - WAIT_SECONDS - 1))
        assert (asked, recorded, counted("late", "dropped")) == ([], [], before + 1)

    def test_one_that_takes_too_long_ends_in_the_middle_and_nothing_of_it_is_recorded(
        self, running: Running, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "DECIDE_SECONDS", 0.1)
        ended = threading.Event()

        def decide(give_way: GiveWay) -> Entry:
            try:
                spin(60, give_way)
            finally:
                ended.set()
            return entry("too long")

        before = counted("long", "dropped")
        running.shadows.offer(of("long"), decide)
        assert ended.wait(10)
        running.shadows.offer(of("long"), lambda _: entry("next"))
        eventually(lambda: running.names == ["next"])
        assert counted("long", "dropped") == before + 1

    def test_stopping_ends_the_one_in_hand_and_counts_those_that_wait(self) -> None:
        running = Running()
        begun = threading.Event()

        def decide(give_way: GiveWay) -> Entry:
            begun.set()
            spin(60, give_way)
            return entry()

        before = counted("stopped", "dropped")
        for _ in range(5):
            running.shadows.offer(of("stopped"), decide)
        assert begun.wait(5)
        started = time.monotonic()
        running.shadows.stop()

        assert time.monotonic() - started < 2
        assert (running.recorded, counted("stopped", "dropped")) == ([], before + 5)
        running.shadows.offer(of("stopped"), decide)
        assert counted("stopped", "dropped") == before + 6

    def test_stopping_what_was_never_started_counts_what_waits(self) -> None:
        shadows = Shadows(lambda _: None)
        before = counted("unstarted", "dropped")
        shadows.offer(of("unstarted"), lambda _: entry())
        shadows.stop()
        assert counted("unstarted", "dropped") == before + 1


def test_a_call_beside_a_shadow_that_never_ends_is_as_fast_as_without(running: Running) -> None:
    """What the harm was: a call that takes milliseconds waited for the interpreter until the shadow was through."""

    def call() -> float:
        started = time.perf_counter()
        with running.shadows.call():
            spin(0.003)
            time.sleep(0)  # where a call lets go of the interpreter, as for its record
            spin(0.003)
        return time.perf_counter() - started

    def calls() -> list[float]:
        found = []
        for _ in range(40):
            found.append(call())
            time.sleep(2 * QUIET_SECONDS)
        return sorted(found)

    without = calls()
    running.shadows.offer(of("endless"), lambda give_way: (spin(60, give_way), entry())[1])
    time.sleep(0.05)
    beside = calls()

    assert running.recorded == []
    # Far from what a machine varies by, and far below the hundred times that it was.
    assert beside[len(beside) // 2] < without[len(without) // 2] * 5


class TestMemory:
    def test_a_shadow_is_kept_no_longer_than_it_waits(self, running: Running) -> None:
        """It holds a Snapshot and a Revision, and the next call may come hours later."""

        class Input:
            """What a shadow decides on."""

        def decide(_: GiveWay, _of: Input) -> Entry:
            return entry()

        made = Input()
        kept = weakref.ref(made)
        with running.shadows.call():
            running.shadows.offer(of("kept"), partial(decide, _of=made))
        del made

        eventually(lambda: running.recorded)
        eventually(lambda: kept() is None, within=2.0)
