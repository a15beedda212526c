"""The only place where policies change state: save, publish, roll back, withdraw.

Each verb is one transaction with conditional updates: what somebody else did first is said and loses nothing. A verb
that changes what is live makes the next Revision; when nothing would change it makes none and gives None.
"""

from policies.publishing.assignments import publish_assignments, save_assignment, unpublished_assignments
from policies.publishing.errors import PublishingError
from policies.publishing.priority_classes import (
    live_priority_classes,
    priority_class_faults,
    publish_priority_classes,
    put_back,
    save_priority_class,
    second_global_default,
    unpublished_priority_classes,
)
from policies.publishing.revisions import By, current_revision
from policies.publishing.rule_sets import (
    check_version,
    create_rule_set,
    holds,
    new_draft,
    publish,
    save_draft,
    withdraw,
)
from policies.publishing.together import publish_together, roll_back

__all__ = [
    "By",
    "PublishingError",
    "check_version",
    "create_rule_set",
    "current_revision",
    "holds",
    "live_priority_classes",
    "new_draft",
    "priority_class_faults",
    "publish",
    "publish_assignments",
    "publish_priority_classes",
    "publish_together",
    "put_back",
    "roll_back",
    "save_assignment",
    "save_draft",
    "save_priority_class",
    "second_global_default",
    "unpublished_assignments",
    "unpublished_priority_classes",
    "withdraw",
]
