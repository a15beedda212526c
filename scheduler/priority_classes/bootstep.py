"""The Celery bootstep that runs the watch of PriorityClasses."""

from typing import Any

from scheduler.cluster.watch_step import WatchStep


class PriorityClassWatch(WatchStep):
    """Runs the watch beside the tasks of each worker. A look is done once, however many workers request it."""

    def reflector(self, client: Any) -> Any:
        """Return the watch, not yet started."""
        from scheduler.priority_classes.watch import watch_priority_classes

        return watch_priority_classes(client)
