"""How Celery runs the watch of PriorityClasses: beside the tasks of each worker."""

from typing import Any

from celery import bootsteps


class PriorityClassWatch(bootsteps.StartStopStep):  # type: ignore[misc] # Celery has no types
    """Runs the watch in the worker's main process. With several workers each has one: a look is done once all the same."""

    requires = {"celery.worker.components:Pool"}

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self._watch: Any = None

    def start(self, parent: Any) -> None:
        """Start it; an API server that isn't there yet is waited for in its own thread."""
        # Imported here: it needs Django's apps.
        from django.conf import settings

        from scheduler.cluster.client import Client
        from scheduler.priority_classes.watch import watch_priority_classes

        self._watch = watch_priority_classes(Client.connect(settings.BERTH.kubeconfig))
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
