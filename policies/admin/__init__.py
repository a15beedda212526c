"""The pages of what operators decide."""

from policies.admin import assignments, priority_classes, revisions, rule_sets, versions

__all__ = ["assignments", "priority_classes", "revisions", "rule_sets", "versions"]
