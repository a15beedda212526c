"""How Celery runs Berth's own scheduler: as a step of a worker of its own.

Celery starts, stops and inspects it. The broker holds no state of it: what is waiting is known by the API server, and a scheduler
that is started anew asks there. So neither a broker that is away nor one that delivers twice has a say.
"""

import logging
from typing import Any

from celery import bootsteps

logger = logging.getLogger("berth.binding")


class BindingLoop(bootsteps.StartStopStep):  # type: ignore[misc] # Celery has no types
    """Runs the scheduler in the worker's main process, once its pool exists."""

    requires = {"celery.worker.components:Pool"}

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self._runtime: Any = None

    def start(self, parent: Any) -> None:
        """Start it; what it needs and isn't there yet is waited for in its own threads."""
        # Imported here: it needs Django's apps, and no other worker needs it.
        from scheduler.binder.runtime import Runtime
        from scheduler.serving.memory import shorten_pauses

        self._runtime = Runtime()
        self._runtime.start()
        shorten_pauses()

    def stop(self, parent: Any) -> None:
        """Stop deciding, finish what was sent."""
        self._end()

    def terminate(self, parent: Any) -> None:
        """Stop at once too: stopping takes seconds at most, and the next process finds what is left half done."""
        self._end()

    def _end(self) -> None:
        if self._runtime is not None:
            self._runtime.stop()
            self._runtime = None
