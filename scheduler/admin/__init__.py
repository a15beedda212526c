"""The pages of Pods, Decisions and processes."""

from scheduler.admin import (
    assignments,
    decisions,
    documents,
    preview,
    processes,
    refusals,
    rule_sets,
    shadows,
    versions,
)

__all__ = [
    "assignments",
    "decisions",
    "documents",
    "preview",
    "processes",
    "refusals",
    "rule_sets",
    "shadows",
    "versions",
]
