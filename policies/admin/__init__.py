"""The admin pages of rule sets, Assignments, PriorityClasses, Changes and their settings."""

from policies.admin import (
    assignments,
    audit,
    changes,
    gate_settings,
    pauses,
    priority_classes,
    review_settings,
    revisions,
    rule_sets,
    versions,
)

__all__ = [
    "assignments",
    "audit",
    "changes",
    "gate_settings",
    "pauses",
    "priority_classes",
    "review_settings",
    "revisions",
    "rule_sets",
    "versions",
]
