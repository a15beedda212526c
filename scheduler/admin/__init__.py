"""The pages of what happened to Pods."""

from scheduler.admin import assignments, decisions, preview, processes, rule_sets, shadows, versions

__all__ = ["assignments", "decisions", "preview", "processes", "rule_sets", "shadows", "versions"]
