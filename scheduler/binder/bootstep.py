"""Berth's own scheduler as a Celery bootstep, in a dedicated worker.

Celery starts, stops and inspects the scheduler. The broker holds none of its state: the API server knows which Pods are waiting,
and a restarted scheduler lists them there. So a broker that is down or delivers twice has no effect.
"""

from typing import Any

from celery import bootsteps


class BindingLoop(bootsteps.StartStopStep):  # type: ignore[misc] # Celery has no types
    """Runs the scheduler in the worker's main process, once its pool exists.

    `obj` is what Celery stops. It does so in a cold shutdown, too: that takes seconds at most, and the next process finds whatever is
    left half done.
    """

    requires = {"celery.worker.components:Pool"}

    def start(self, parent: Any) -> None:
        """Start the scheduler; its own threads wait for whatever isn't available yet."""
        # Imported here: the runtime needs Django's apps, and no other worker needs the runtime.
        from scheduler.binder.runtime import Runtime
        from scheduler.serving.memory import shorten_pauses

        self.obj = Runtime()
        self.obj.start()
        shorten_pauses()
