"""A Celery bootstep that runs a watch beside the tasks of each worker."""

from typing import Any

from celery import bootsteps


class WatchStep(bootsteps.StartStopStep):  # type: ignore[misc] # Celery has no types
    """Runs a watch in the worker's main process. Each of several workers has one, so its actions must be idempotent.

    Celery calls `obj.stop()`, also in a cold shutdown.
    """

    requires = {"celery.worker.components:Pool"}

    def reflector(self, client: Any) -> Any:
        """Return the watch, not started yet. Imports that need Django's apps are made here."""
        raise NotImplementedError

    def start(self, parent: Any) -> None:
        """Start the watch; its own thread waits for an API server that isn't available yet."""
        from scheduler.cluster.client import connect

        self.obj = self.reflector(connect())
        self.obj.start()
