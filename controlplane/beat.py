"""Celery's beat, which goes on where the machine's clock is set back."""

from typing import Any

from celery.beat import PersistentScheduler


class Scheduler(PersistentScheduler):  # type: ignore[misc] # Celery has no types
    """Sends what is due by the clock.

    After a clock was set back by a day, Celery's own sends a task again when the time has come at which it was sent last: for a
    day nothing would be ingested, found or signed, also by a beat that is started anew, which reads those times from a file.
    """

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
