"""How Celery runs a watch: beside the tasks of each worker."""

from typing import Any

from celery import bootsteps


class WatchStep(bootsteps.StartStopStep):  # type: ignore[misc] # Celery has no types
    """Runs a watch in the worker's main process. With several workers each has one, so what it leads to is idempotent."""

    requires = {"celery.worker.components:Pool"}

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self._watch: Any = None

    def reflector(self, client: Any) -> Any:
        """Return the watch, which isn't started yet. What needs Django's apps is imported here."""
        raise NotImplementedError

    def start(self, parent: Any) -> None:
        """Start it; an API server that isn't there yet is waited for in its own thread."""
        from django.conf import settings

        from scheduler.cluster.client import Client

        self._watch = self.reflector(Client.connect(settings.BERTH.kubeconfig))
        self._watch.start()

    def stop(self, parent: Any) -> None:
        """End it."""
        if self._watch is not None:
            self._watch.ask_to_stop()
            self._watch.join()
            self._watch = None

    def terminate(self, parent: Any) -> None:
        """Stop, as `stop` does."""
        self.stop(parent)
