"""One pass without Celery: what it says where it can't begin."""

from collections.abc import Iterator
from itertools import chain, count, repeat
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler.binder import once


def test_a_pass_that_cannot_begin_says_what_is_missing_and_who_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    unready = SimpleNamespace(
        start=lambda: None,
        stop=lambda: None,
        elector=SimpleNamespace(leads=lambda: False),
        unready=lambda: ["Revision", "Snapshot"],
    )
    monkeypatch.setattr(once, "Runtime", lambda identity: unready)
    with pytest.raises(once.NotReadyError, match=r"without a Revision and a Snapshot: manage\.py doctor says whether"):
        once.schedule_once(0.1)


def runtime(*, missing: Iterator[list[str]], leads: Iterator[bool]) -> Any:
    """A process whose parts come one look after the other, with nothing to schedule."""
    return SimpleNamespace(
        start=lambda: None,
        stop=lambda: None,
        elector=SimpleNamespace(leads=lambda: next(leads), holder="berth-binder@other"),
        loop=SimpleNamespace(passes=1, bound=0, status=SimpleNamespace(in_flight=0, counts={})),
        unready=lambda: next(missing),
        waiting=list,
    )


@pytest.fixture
def _a_look_takes_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = count()
    monkeypatch.setattr(once, "time", SimpleNamespace(monotonic=lambda: next(seconds), sleep=lambda _: None))


@pytest.mark.usefixtures("_a_look_takes_a_second")
def test_a_cluster_that_takes_long_to_list_is_waited_for_as_long_as_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listing = chain([["Snapshot"]] * 100, repeat([]))
    monkeypatch.setattr(once, "Runtime", lambda identity: runtime(missing=listing, leads=repeat(True)))
    assert once.schedule_once(600.0) == once.Passed(0, [])


@pytest.mark.usefixtures("_a_look_takes_a_second")
def test_a_lease_that_could_not_be_asked_for_while_the_api_server_was_away_is_waited_for_once_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away, not_yet = chain([["Snapshot"]] * 100, repeat([])), chain([False] * 3, repeat(True))
    monkeypatch.setattr(once, "Runtime", lambda identity: runtime(missing=away, leads=not_yet))
    assert once.schedule_once(600.0) == once.Passed(0, [])


@pytest.mark.usefixtures("_a_look_takes_a_second")
def test_another_scheduler_is_waited_for_only_until_its_lease_would_have_run_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(once, "Runtime", lambda identity: runtime(missing=repeat([]), leads=repeat(False)))
    with pytest.raises(once.LeaseHeldError, match="another process schedules: berth-binder@other"):
        once.schedule_once(600.0)
