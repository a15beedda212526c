"""The thread that takes up a Revision lets calls go first."""

import sys
import threading
import time

import pytest

from scheduler.serving import pace
from scheduler.serving.pace import CallsInHand, Pace, switching_often


def test_a_call_is_in_hand_from_its_begin_to_its_end() -> None:
    calls = CallsInHand()
    assert not calls
    with calls:
        assert calls
    assert not calls


def test_a_call_that_fails_is_in_hand_no_more() -> None:
    calls = CallsInHand()
    with pytest.raises(ValueError, match="broken"), calls:
        raise ValueError("broken")
    assert not calls


def test_calls_of_several_threads_end_one_by_one() -> None:
    calls, ended = CallsInHand(), threading.Event()

    def answer() -> None:
        with calls:
            ended.wait(5)

    thread = threading.Thread(target=answer)
    with calls:
        thread.start()
    while not calls:
        time.sleep(0.001)
    ended.set()
    thread.join()
    assert not calls


def test_a_rest_lasts_as_long_as_the_work_before(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, slept = [0.0], []
    monkeypatch.setattr(pace.time, "thread_time", lambda: clock[0])
    monkeypatch.setattr(pace.time, "sleep", slept.append)
    rests = Pace(CallsInHand())
    clock[0] += 0.001
    rests.rest()
    clock[0] += 60
    rests.rest()
    rests.rest()
    assert slept == [pytest.approx(0.001), pace._LONGEST_SECONDS, 0.0]


def test_a_rest_goes_on_while_a_call_is_in_hand_but_not_for_good() -> None:
    calls = CallsInHand()
    rests = Pace(calls)
    with calls:
        started = time.monotonic()
        rests.rest()
        assert time.monotonic() - started >= pace._LONGEST_SECONDS


def test_threads_switch_often_only_while_it_lasts() -> None:
    usual, seen = sys.getswitchinterval(), []

    def work() -> None:
        with switching_often():
            seen.append(sys.getswitchinterval())
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert seen == [pytest.approx(pace._SWITCH_SECONDS)]
    assert sys.getswitchinterval() == usual
