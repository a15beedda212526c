"""Models of rules and Changes: only fields, constraints and one-row predicates; `policies.publishing` changes the rows."""

from policies.models.assignment import Assignment
from policies.models.audit import AuditEvent
from policies.models.change import Change, ChangeEdit, ChangeEvent, ReviewSetting
from policies.models.gate import GateRun, GateSetting
from policies.models.owner import OwnerMark
from policies.models.priority_class import (
    ClusterPriorityClass,
    PriorityClass,
    PriorityClassLook,
    PriorityClassReplacement,
    PriorityClassUser,
    PriorityClassVersion,
)
from policies.models.revision import Part, Revision, RevisionPart
from policies.models.ruleset import Rule, RuleSet, RuleSetVersion

__all__ = [
    "Assignment",
    "AuditEvent",
    "Change",
    "ChangeEdit",
    "ChangeEvent",
    "ClusterPriorityClass",
    "GateRun",
    "GateSetting",
    "OwnerMark",
    "Part",
    "PriorityClass",
    "PriorityClassLook",
    "PriorityClassReplacement",
    "PriorityClassUser",
    "PriorityClassVersion",
    "ReviewSetting",
    "Revision",
    "RevisionPart",
    "Rule",
    "RuleSet",
    "RuleSetVersion",
]
