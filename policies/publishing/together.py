"""What changes rule sets, Assignments and PriorityClasses in one Revision: publishing them together, and rolling back."""

from collections.abc import Sequence

from django.db import transaction
from django.db.models import prefetch_related_objects

from policies.engine import ruleset as engine
from policies.models import Revision, RuleSetVersion
from policies.publishing.assignments import follow_assignments, with_assignments
from policies.publishing.errors import PublishingError
from policies.publishing.priority_classes import follow_priority_classes, with_priority_classes
from policies.publishing.revisions import By, load_revision, lock_revisions, make_revision
from policies.publishing.rule_sets import check_version, follow_versions, mark_published
from policies.publishing.shown import check_shown


def publish_together(
    *,
    versions: Sequence[RuleSetVersion],
    by: By,
    reason: str,
    assignments: Sequence[engine.Assignment] = (),
    priority_classes: Sequence[engine.PriorityClass] = (),
) -> Revision | None:
    """Publish several drafts, Assignments and PriorityClasses in one Revision. Everything else stays as it is live.

    Args:
        versions: the drafts, as they were read: one that was saved since is refused.
        by: who publishes.
        reason: why, in that person's words.
        assignments: those that go live, whatever is in the other rows.
        priority_classes: likewise.

    Returns:
        The new Revision, or None when all of it is live already.

    Raises:
        PublishingError: as `publish` and `publish_assignments`; nothing is published then.
    """
    prefetch_related_objects(list(versions), "rule_set", "rules")
    contents = [(version, check_version(version, expected_digest=version.digest)) for version in versions]
    with transaction.atomic():
        before = lock_revisions()
        live = {rule_set.name: rule_set for rule_set in before.rule_sets}
        live |= mark_published(contents, live, by=by)
        kept = with_assignments(before, assignments, published=live)
        classes = with_priority_classes(before, priority_classes)
        return make_revision(before, list(live.values()), kept, by=by, reason=reason, classes=classes)


def roll_back(*, to_number: int, by: By, reason: str, expected_digest: str = "") -> Revision | None:
    """Make the next Revision with the content of an older one; None when that content is live.

    The versions' states follow. Rows of Assignments and PriorityClasses follow where they hold what was live until now;
    rows with unpublished edits keep them, so that nothing is lost. `expected_digest` is `digest_of_shown` of the number
    that was live when that person looked.

    Raises:
        PublishingError: there is no such Revision.
    """
    with transaction.atomic():
        before = lock_revisions()
        check_shown(expected_digest, before.number)
        target = load_revision(to_number)
        if target is None:
            raise PublishingError([f"There is no Revision {to_number}."])
        classes = target.priority_classes
        made = make_revision(before, target.rule_sets, target.assignments, by=by, reason=reason, classes=classes)
        if made is not None:
            follow_versions(target)
            follow_assignments(before, target, by=by)
            follow_priority_classes(before, target, by=by)
        return made
