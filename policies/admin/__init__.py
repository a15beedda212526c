"""The pages of what operators decide."""

from policies.admin import assignments, revisions, rule_sets, versions

__all__ = ["assignments", "revisions", "rule_sets", "versions"]
