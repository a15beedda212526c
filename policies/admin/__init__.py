"""The pages of what operators decide."""

from policies.admin import (
    assignments,
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
    "changes",
    "gate_settings",
    "pauses",
    "priority_classes",
    "review_settings",
    "revisions",
    "rule_sets",
    "versions",
]
