"""Berth's own scheduler as a Celery bootstep, in a dedicated worker.

Celery starts, stops and inspects the scheduler. The broker holds none of its state: the API server knows which Pods are waiting,
and a restarted scheduler lists them there. So a broker that is down or delivers twice has no effect.
"""

from typing import Any

from celery import bootsteps


class BindingLoop(bootsteps.StartStopStep):  # type: ignore[misc] # Celery has no types
    """Runs the scheduler in the worker's main process, once its pool exists."""

    requires = {"celery.worker.components:Pool"}

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self._runtime: Any = None

    def start(self, parent: Any) -> None:
        """Start the scheduler; its own threads wait for whatever isn't available yet."""
        # Imported here: the runtime needs Django's apps, and no other worker needs the runtime.
        from scheduler.binder.runtime import Runtime
        from scheduler.serving.memory import shorten_pauses

        self._runtime = Runtime()
        self._runtime.start()
        shorten_pauses()

    def stop(self, parent: Any) -> None:
        """Stop deciding and finish the bindings that were sent."""
        self._end()

    def terminate(self, parent: Any) -> None:
        """Stop as `stop` does: that takes seconds at most, and the next process finds whatever is left half done."""
        self._end()

    def _end(self) -> None:
        if self._runtime is not None:
            self._runtime.stop()
            self._runtime = None
