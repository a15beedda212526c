"""Beat goes on by the clock that there is."""

import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.worker.request import Request
from kombu import Message

from controlplane.beat import Scheduler, Staggered

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SCHEDULES = {"often": Staggered(1), "seldom": Staggered(10), "hourly": Staggered(3600)}


class Beat:
    """A Scheduler with a clock of its own; `sent` has what it sent since it was asked last."""

    def __init__(self, at: datetime, patch: pytest.MonkeyPatch, schedules: dict[str, Staggered] = SCHEDULES) -> None:
        self.now, self._sent = at, list[str]()
        schedule = {name: {"task": name, "schedule": each} for name, each in schedules.items()}
        app: Any = Celery("test", broker="memory://", set_as_current=False, beat_schedule=schedule, timezone="UTC")
        patch.setattr(app, "now", lambda: self.now)
        self.scheduler = Scheduler(app=app)
        self.scheduler.apply_entry = lambda entry, producer=None: self._sent.append(entry.name)

    def after(self, seconds: float) -> list[str]:
        self.now += timedelta(seconds=seconds)
        self._sent.clear()
        for _ in range(20):
            self.scheduler.tick()
        return sorted(self._sent)


@pytest.fixture
def beat(monkeypatch: pytest.MonkeyPatch) -> Beat:
    made = Beat(NOON, monkeypatch)
    made.after(0)
    assert [made.after(1), made.after(10), made.after(1)] == [["often"], ["often", "seldom"], ["often"]]
    return made


def test_all_tasks_are_sent_at_their_interval_after_the_clock_was_set_back(beat: Beat) -> None:
    assert beat.after(-86_400) == []
    assert [beat.after(1), beat.after(9)] == [["often"], ["often", "seldom"]]
    assert beat.after(3600) == ["hourly", "often", "seldom"]


def test_all_tasks_are_sent_when_beat_starts_and_then_in_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    beat = Beat(NOON + timedelta(minutes=30), monkeypatch)
    assert beat.after(0) == ["hourly", "often", "seldom"]
    assert [beat.after(0), beat.after(1), beat.after(9)] == [[], ["often"], ["often", "seldom"]]


def test_beat_keeps_no_file_that_a_full_disk_could_cost_it(beat: Beat, tmp_path: Path) -> None:
    made = Scheduler(app=beat.scheduler.app, schedule_filename=str(tmp_path / "beat"))  # as Celery's command makes it
    made.sync()
    made.close()
    assert list(tmp_path.iterdir()) == []


def test_tasks_of_one_interval_are_sent_one_after_the_other_all_day(monkeypatch: pytest.MonkeyPatch) -> None:
    from controlplane.celery import app

    schedules = {name: each["schedule"] for name, each in app.conf.beat_schedule.items()}
    beat = Beat(NOON + timedelta(seconds=5), monkeypatch, schedules)
    beat.after(0)
    sent = [(name, round(step * 0.01, 2)) for step in range(1, 6001) for name in beat.after(0.01)]
    times = sorted(at for _, at in sent)
    assert min(later - earlier for earlier, later in pairwise(times)) > 0.03
    assert Counter(name for name, _ in sent) == {
        name: 60 // each.seconds for name, each in schedules.items() if each.seconds <= 60
    }


def test_a_task_whose_beat_stood_still_is_sent_at_once_and_then_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    beat = Beat(NOON, monkeypatch, {"ingest": Staggered(10, 4)})
    assert [beat.after(seconds) for seconds in (0, 3, 2, 8, 2, 95, 0, 8, 2)] == [
        ["ingest"], [], ["ingest"], [], ["ingest"], ["ingest"], [], ["ingest"], [],
    ]  # fmt: skip


def test_what_the_processes_run_is_this_scheduler() -> None:
    from controlplane.celery import app

    assert app.conf.beat_scheduler == f"{Scheduler.__module__}:{Scheduler.__qualname__}"


@pytest.mark.parametrize(("seconds", "is_dropped"), [(19, False), (600, True)])
def test_a_worker_whose_clock_is_ahead_of_beats_runs_what_it_sends(
    seconds: int, is_dropped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from controlplane.celery import app

    monkeypatch.setattr("celery.worker.request.datetime", _Clock(NOON + timedelta(seconds=seconds)))
    often = {name: each for name, each in app.conf.beat_schedule.items() if each["schedule"].seconds <= 60}
    dropped = {name for name, each in often.items() if _as_received(app, each).maybe_expire()}
    assert dropped == (set(often) if is_dropped else set())


class _Clock:
    """Stands in for a worker's `datetime`."""

    def __init__(self, at: datetime) -> None:
        self._at = at

    def now(self, _: object) -> datetime:
        return self._at


def _as_received(app: Celery, entry: Any) -> Request:
    """Return a tick that beat sent at noon, as a worker has it in hand."""
    sent = app.amqp.as_task_v2("1", entry["task"], expires=entry["options"]["expires"], now=NOON)
    message = Message(body=sent.body, headers=sent.headers, properties=sent.properties)
    return Request(message, app=app, headers=sent.headers, body=sent.body, decoded=True, task=object())


def test_a_beat_that_is_ended_while_it_waits_for_an_answer_of_redis_ends_without_an_error(
    beat: Beat, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    del beat.scheduler.apply_entry  # its own, in place of the stand-in

    def end(*_: Any, **__: Any) -> None:
        beat.scheduler.close()  # as the handler of SIGTERM does
        message = "I/O operation on closed file."
        raise ValueError(message)  # redis-py's, instead of SystemExit

    monkeypatch.setattr(beat.scheduler, "send_task", end)
    monkeypatch.setattr(beat.scheduler.app, "tasks", {})
    with pytest.raises(SystemExit):
        beat.after(10)
    assert caplog.records == []


def test_tasks_that_redis_refuses_are_said_in_a_line_a_minute(
    beat: Beat, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    del beat.scheduler.apply_entry  # its own, in place of the stand-in

    def refuse(*_: Any, **__: Any) -> None:
        message = "command not allowed when used memory > 'maxmemory'"
        raise RuntimeError(message)

    monkeypatch.setattr(beat.scheduler, "send_task", refuse)
    monkeypatch.setattr(beat.scheduler.app, "tasks", {})
    for seconds, lines in [(0, 1), (1, 1), (58, 1), (1, 2)]:
        clock[0] += seconds
        beat.after(10)
        assert len(caplog.records) == lines
    said = caplog.records[0].getMessage()
    assert said.startswith("tasks can't be sent, ")
    assert said.endswith("command not allowed when used memory > 'maxmemory'")
