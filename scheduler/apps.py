"""The app of what happens to Pods."""

from django.apps import AppConfig

from scheduler.serving.memory import widen_stacks


class SchedulerConfig(AppConfig):
    """Decisions and the processes that make them."""

    name = "scheduler"
    verbose_name = "Scheduling"

    def ready(self) -> None:
        """Prepare what each process is to have before it starts threads."""
        widen_stacks()
