"""The pages of what happened to Pods."""

from scheduler.admin import assignments, decisions, processes, shadows, versions

__all__ = ["assignments", "decisions", "processes", "shadows", "versions"]
