"""The pages of what happened to Pods."""

from scheduler.admin import assignments, decisions, preview, processes, shadows, versions

__all__ = ["assignments", "decisions", "preview", "processes", "shadows", "versions"]
