"""The Django app of Decisions and everything about Pods."""

from django.apps import AppConfig
from django.conf import settings

from scheduler.serving.memory import widen_stacks


class SchedulerConfig(AppConfig):
    """Decisions and the processes that make them."""

    name = "scheduler"
    verbose_name = "Scheduling"

    def ready(self) -> None:
        """Prepare the process before it starts threads."""
        widen_stacks()
        if settings.BERTH.role != "command":
            # Imported here: commands have no /metrics, and start without loading the metrics.
            from scheduler.metrics import PROCESS

            PROCESS.labels(settings.BERTH.role).set(1)
