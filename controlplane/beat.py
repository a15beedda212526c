"""Celery's beat, made robust: it survives a clock that is set back, staggers its tasks, and limits the log of failures."""

import logging
import time
from datetime import UTC, datetime
from typing import Any

from celery import Celery
from celery.beat import ScheduleEntry, SchedulingError
from celery.beat import Scheduler as CelerysScheduler
from celery.schedules import schedstate, schedule

logger = logging.getLogger("berth.beat")

# Beat checks an entry this many seconds before it is due, and then in a busy loop until it is due.
_EARLY_SECONDS = 0.01
_SAY_AGAIN_SECONDS = 60.0
_NEVER = datetime.fromtimestamp(0, UTC)


class Staggered(schedule):  # type: ignore[misc] # Celery has no types
    """Due once in each interval, a fixed number of seconds after the interval's start by the clock.

    Celery's own schedule is due one interval after the last run: tasks of the same interval that were once sent together are always
    sent together. Ten of them at once occupy every processor of a small machine, and calls of the extender have to wait.
    """

    def __init__(self, run_every: float, offset: float = 0, nowfun: Any = None, app: Celery | None = None) -> None:
        super().__init__(run_every, nowfun=nowfun, app=app)
        self.offset = offset

    def is_due(self, last_run_at: datetime) -> schedstate:
        """Return whether an interval has begun since the last run, and in how many seconds to check again."""
        now = self.now().timestamp() - self.offset
        last = self.maybe_make_aware(last_run_at).timestamp() - self.offset
        seconds = self.seconds - now % self.seconds
        return schedstate(is_due=now // self.seconds > last // self.seconds, next=seconds + _EARLY_SECONDS)


class Scheduler(CelerysScheduler):  # type: ignore[misc] # Celery has no types
    """Sends each task when beat starts, and then whenever it is due.

    Celery's PersistentScheduler would keep the times of the last runs in a file: a full disk would end beat, and nothing would be
    ingested, found or signed. The longest interval is an hour, and no task does harm when it is sent once more.

    After the clock is set back by a day, Celery's own scheduler sends a task only when the time of its last run is reached again.
    """

    _said_at = float("-inf")
    _is_closed = False

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        """Send a task, or log, once a minute, that it can't be sent.

        Celery's own scheduler logs two tracebacks for each task: while Redis is full, that would be 10 GB of log a day.
        """
        try:
            self.apply_async(entry, producer=producer, advance=False)
        except SchedulingError as error:
            if self._is_closed:
                # SIGTERM closes the schedule and raises SystemExit. If beat was waiting for Redis' answer, redis-py raises an
                # error of its own instead (redis-py v8.1.0 _parsers/socket.py, _read_from_socket).
                raise SystemExit from error
            now = time.monotonic()
            if now - self._said_at >= _SAY_AGAIN_SECONDS:
                self._said_at = now
                logger.error("tasks can't be sent, each is tried again when it is next due: %s", error)  # noqa: TRY400 - Redis' fault

    def setup_schedule(self) -> None:
        """Make the entries. None counts as sent: what became due while no beat ran is sent now."""
        self.merge_inplace(self.app.conf.beat_schedule)
        for entry in self.schedule.values():
            entry.last_run_at = _NEVER

    def close(self) -> None:
        """Note that beat ends."""
        self._is_closed = True
        super().close()

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send the tasks that are due; a last run that the clock says is in the future counts as now."""
        now = self.app.now()
        ahead = [entry for entry in self.schedule.values() if entry.last_run_at > now]
        for entry in ahead:
            entry.last_run_at = now
        if ahead:
            self._heap = None  # its order is by the former clock
        seconds: float = super().tick(*args, **kwargs)
        return seconds
