"""The app of what happens to Pods."""

from django.apps import AppConfig


class SchedulerConfig(AppConfig):
    """Decisions and the processes that make them."""

    name = "scheduler"
    verbose_name = "Scheduling"
