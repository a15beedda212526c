"""The pages of what happened to Pods."""

from scheduler.admin import decisions, processes

__all__ = ["decisions", "processes"]
