"""The only place where policies change state: save, publish, roll back, withdraw.

Each verb is one transaction with conditional updates: what somebody else did first is said and loses nothing. A verb
that changes what is live makes the next Revision; when nothing would change it makes none and gives None.
"""

from policies.publishing.assignments import (
    assignment_of_row,
    publish_assignments,
    save_assignment,
    save_assignments,
    unpublished_assignments,
)
from policies.publishing.errors import PublishingError
from policies.publishing.parts import (
    NOTHING,
    StoredRevision,
    digest_text,
    document_text,
    held_by,
    parts_of,
    stored_revision,
)
from policies.publishing.priority_classes import (
    PriorityClassState,
    live_priority_classes,
    priority_class_faults,
    priority_class_of_row,
    priority_class_state,
    publish_priority_classes,
    put_back,
    save_priority_class,
    second_global_default,
    unpublished_priority_classes,
    wanted_priority_classes,
    withdrawn_priority_classes,
)
from policies.publishing.revisions import By, current_revision, load_revision
from policies.publishing.rule_sets import (
    check_version,
    create_rule_set,
    holds,
    lock_versions,
    new_draft,
    publish,
    save_draft,
    save_drafts,
    withdraw,
)
from policies.publishing.shown import digest_of_shown
from policies.publishing.together import publish_together, roll_back

__all__ = [
    "NOTHING",
    "By",
    "PriorityClassState",
    "PublishingError",
    "StoredRevision",
    "assignment_of_row",
    "check_version",
    "create_rule_set",
    "current_revision",
    "digest_of_shown",
    "digest_text",
    "document_text",
    "held_by",
    "holds",
    "live_priority_classes",
    "load_revision",
    "lock_versions",
    "new_draft",
    "parts_of",
    "priority_class_faults",
    "priority_class_of_row",
    "priority_class_state",
    "publish",
    "publish_assignments",
    "publish_priority_classes",
    "publish_together",
    "put_back",
    "roll_back",
    "save_assignment",
    "save_assignments",
    "save_draft",
    "save_drafts",
    "save_priority_class",
    "second_global_default",
    "stored_revision",
    "unpublished_assignments",
    "unpublished_priority_classes",
    "wanted_priority_classes",
    "withdraw",
    "withdrawn_priority_classes",
]
