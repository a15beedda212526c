"""The pages of what happened to Pods."""

from scheduler.admin import assignments, decisions, processes, shadows

__all__ = ["assignments", "decisions", "processes", "shadows"]
