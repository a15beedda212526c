"""What changes rule sets, Assignments and PriorityClasses in one Revision: publishing them together, and rolling back."""

from collections.abc import Sequence

from django.db import transaction

from policies.models import Revision, RuleSetVersion
from policies.publishing.assignments import checked_assignments, follow_assignments
from policies.publishing.errors import PublishingError
from policies.publishing.priority_classes import checked_priority_classes, follow_priority_classes
from policies.publishing.revisions import By, load_revision, lock_revisions, make_revision
from policies.publishing.rule_sets import check_version, follow_versions, mark_published


def publish_together(
    *,
    versions: Sequence[RuleSetVersion],
    assignments: bool,
    by: By,
    reason: str,
    with_priority_classes: bool = False,
) -> Revision | None:
    """Publish several drafts, and the Assignments and PriorityClasses as their rows are now where asked for, in one Revision.

    Returns:
        The new Revision, or None when all of it is live already.

    Raises:
        PublishingError: as `publish` and `publish_assignments`; nothing is published then.
    """
    contents = [(version, check_version(version)) for version in versions]
    with transaction.atomic():
        before = lock_revisions()
        live = {rule_set.name: rule_set for rule_set in before.rule_sets}
        for version, content in contents:
            if mark_published(version, content, live, by=by):
                live[content.name] = content
        kept = checked_assignments(live) if assignments else before.assignments
        classes = checked_priority_classes(before) if with_priority_classes else None
        return make_revision(before, list(live.values()), kept, by=by, reason=reason, classes=classes)


def roll_back(*, to_number: int, by: By, reason: str) -> Revision | None:
    """Make the next Revision with the content of an older one; None when that content is live.

    The versions' states follow. Rows of Assignments and PriorityClasses follow where they hold what was live until now;
    rows with unpublished edits keep them, so that nothing is lost.

    Raises:
        PublishingError: there is no such Revision.
    """
    with transaction.atomic():
        before = lock_revisions()
        target = load_revision(to_number)
        if target is None:
            raise PublishingError([f"There is no Revision {to_number}."])
        classes = target.priority_classes
        made = make_revision(before, target.rule_sets, target.assignments, by=by, reason=reason, classes=classes)
        if made is not None:
            follow_versions(target)
            follow_assignments(before, target)
            follow_priority_classes(before, target)
        return made
