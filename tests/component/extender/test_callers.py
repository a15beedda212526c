"""Who called last: noted by calls, written with the heartbeat."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from scheduler.extender.callers import MAX_CALLERS, Callers
from scheduler.extender.runtime import FORGET_CALLERS, Runtime
from scheduler.models import Caller

KUBE = "system:kube-scheduler"


def written() -> list[tuple[str, str, str, str]]:
    return list(Caller.objects.values_list("identity", "verb", "address", "process"))


def test_of_many_calls_the_last_is_kept_for_each_caller_and_verb() -> None:
    callers = Callers()
    for address in ("10.0.0.1", "10.0.0.2"):
        callers.note("filter", KUBE, address)
    callers.note("prioritize", KUBE)
    callers.note("filter", "another")
    assert [(row.identity, row.verb, row.address) for row in callers.rows()] == [
        ("another", "filter", ""), (KUBE, "filter", "10.0.0.2"), (KUBE, "prioritize", ""),
    ]  # fmt: skip


def test_who_makes_up_names_fills_no_memory() -> None:
    callers = Callers()
    for number in range(MAX_CALLERS + 10):
        callers.note("filter", f"{number:04}" + "x" * 100_000)
    assert len(callers.rows()) == MAX_CALLERS
    assert max(len(row.identity) for row in callers.rows()) <= 256
    assert callers.rows()[0].identity.startswith("0010")


def test_threads_may_note_at_once() -> None:
    callers = Callers()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: callers.note("filter", f"caller {number % 10}"), range(2000)))
    assert len(callers.rows()) == 10


@pytest.mark.django_db
def test_what_is_new_is_written_and_written_again_when_it_changes() -> None:
    callers = Callers()
    callers.note("filter", KUBE, "10.0.0.1")
    callers.save("one")
    callers.note("filter", KUBE, "10.0.0.2")
    callers.save("one")
    assert written() == [(KUBE, "filter", "10.0.0.2", "one")]


@pytest.mark.django_db
def test_what_is_not_new_is_left_to_the_process_that_was_called_last() -> None:
    first, second = Callers(), Callers()
    first.note("filter", KUBE)
    first.save("first")
    second.note("filter", KUBE)
    second.save("second")
    first.save("first")
    assert written() == [(KUBE, "filter", "", "second")]


@pytest.mark.django_db
def test_who_is_silent_is_left_to_the_other_process_while_somebody_else_calls() -> None:
    first, second = Callers(), Callers()
    for name in (KUBE, "another"):
        first.note("filter", name)
    first.save("first")
    second.note("filter", KUBE)
    second.save("second")
    for _ in range(2):
        first.note("filter", "another")
        first.save("first")
    assert sorted(written()) == [("another", "filter", "", "first"), (KUBE, "filter", "", "second")]


@pytest.mark.django_db
def test_the_beat_writes_who_called() -> None:
    runtime = Runtime()
    runtime.callers.note("filter", KUBE)
    runtime.heartbeat.write()
    assert written() == [(KUBE, "filter", "", runtime.heartbeat.process_id)]


@pytest.mark.django_db
def test_callers_that_were_silent_for_a_month_are_forgotten() -> None:
    for name, silent in (("old", FORGET_CALLERS + timedelta(hours=1)), ("new", timedelta(days=1))):
        Caller.objects.create(identity=name, verb="filter", process="p", last_at=datetime.now(UTC) - silent)
    Runtime()._forget_the_dead()
    assert list(Caller.objects.values_list("identity", flat=True)) == ["new"]
