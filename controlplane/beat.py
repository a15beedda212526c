"""Celery's beat, which goes on where the machine's clock is set back, sends one task at a time, and says little of those that it can't."""

import logging
import time
from datetime import datetime
from typing import Any

from celery import Celery
from celery.beat import PersistentScheduler, ScheduleEntry, SchedulingError
from celery.schedules import schedstate, schedule

logger = logging.getLogger("berth.beat")

# Beat looks at an entry so many seconds before its schedule asks for it, and again without rest until it is due.
_EARLY_SECONDS = 0.01
_SAY_AGAIN_SECONDS = 60.0


class Staggered(schedule):  # type: ignore[misc] # Celery has no types
    """Due once in each interval, so many seconds after its start by the clock.

    Celery's own is due an interval after the last time: tasks of one interval, once sent together, are sent together for good. Ten
    of them at once take every processor of a small machine, and calls of the extender wait for their turn.
    """

    def __init__(self, run_every: float, offset: float = 0, nowfun: Any = None, app: Celery | None = None) -> None:
        super().__init__(run_every, nowfun=nowfun, app=app)
        self.offset = offset

    def is_due(self, last_run_at: datetime) -> schedstate:
        """Return whether an interval has begun since, and in how many seconds to ask again."""
        now = self.now().timestamp() - self.offset
        last = self.maybe_make_aware(last_run_at).timestamp() - self.offset
        seconds = self.seconds - now % self.seconds
        return schedstate(is_due=now // self.seconds > last // self.seconds, next=seconds + _EARLY_SECONDS)

    def __eq__(self, other: object) -> bool:
        """Compare what entries of the file of beat are compared by."""
        return isinstance(other, Staggered) and (self.run_every, self.offset) == (other.run_every, other.offset)

    __hash__ = None  # type: ignore[assignment] # as Celery's own

    def __reduce__(self) -> tuple[type, tuple[float, float]]:
        """Return what the file of beat keeps."""
        return type(self), (self.seconds, self.offset)


class Scheduler(PersistentScheduler):  # type: ignore[misc] # Celery has no types
    """Sends what is due by the clock.

    After a clock was set back by a day, Celery's own sends a task again when the time has come at which it was sent last: for a
    day nothing would be ingested, found or signed, also by a beat that is started anew, which reads those times from a file.
    """

    _said_at = float("-inf")

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        """Send a task, or say, once a minute, that it can't be done.

        Celery's own says it of each with two traces: while Redis has no room, that would fill a disk with 10 GB of log a day.
        """
        try:
            self.apply_async(entry, producer=producer, advance=False)
        except SchedulingError as error:
            now = time.monotonic()
            if now - self._said_at >= _SAY_AGAIN_SECONDS:
                self._said_at = now
                logger.error("tasks can't be sent, the next are tried as they are due: %s", error)  # noqa: TRY400 - Redis' fault

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send what is due; what was sent in the future, as the clock has it, counts as sent now."""
        now = self.app.now()
        ahead = [entry for entry in self.schedule.values() if entry.last_run_at > now]
        for entry in ahead:
            entry.last_run_at = now
        if ahead:
            self._heap = None  # in its order stands what was due by the former clock
        seconds: float = super().tick(*args, **kwargs)
        return seconds
