"""The pages of what happened to Pods."""

from scheduler.admin import decisions, processes, shadows

__all__ = ["decisions", "processes", "shadows"]
