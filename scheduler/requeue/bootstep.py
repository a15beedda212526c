"""A Celery bootstep that runs the watch of Namespaces."""

from typing import Any

from scheduler.cluster.watch_step import WatchStep


class NamespaceWatch(WatchStep):
    """Runs the watch beside the tasks of each worker. Each notes the same rows."""

    def reflector(self, client: Any) -> Any:
        """Return the watch, which isn't started yet."""
        from scheduler.requeue.relabelled import watch_namespaces

        return watch_namespaces(client)
