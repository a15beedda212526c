"""What the forms hold, as Changes that are sent to review: a draft, the rows that differ from what is live, a withdrawal."""

from collections.abc import Iterable, Sequence

import msgspec
from django.db import transaction

from policies.engine import ruleset as engine
from policies.models import (
    Assignment,
    Change,
    PriorityClass,
    PriorityClassVersion,
    Revision,
    RuleSet,
    RuleSetVersion,
)
from policies.publishing.actors import By
from policies.publishing.assignments import checked_assignments
from policies.publishing.changes import open_change, open_roll_back, publish_change, submit_change
from policies.publishing.contents import Edit
from policies.publishing.errors import PublishingError
from policies.publishing.history import AssignmentVersion
from policies.publishing.parts import Kind, Value
from policies.publishing.priority_classes import adopted, checked_priority_classes, live_priority_classes
from policies.publishing.revisions import current_revision
from policies.publishing.rule_sets import check_version
from policies.publishing.shown import check_shown


def propose_draft(*, version: RuleSetVersion, by: By, reason: str, expected_digest: str = "") -> Change:
    """Send a draft to review. It stays a draft, and becomes the published version with its Change.

    Raises:
        PublishingError: faults in it, or it isn't what was looked at.
    """
    content = check_version(version, expected_digest=expected_digest)
    edits = [Edit.of(msgspec.structs.replace(content, version=0))]
    return _propose(f"{version}: {_first_line(reason)}", edits, by, reason, [version.author])


def propose_assignments(*, by: By, reason: str, expected_digest: str = "") -> Change:
    """Send the Assignments to review, as their rows are now."""
    live = current_revision()
    wanted = checked_assignments({each.name for each in live.rule_sets})
    check_shown(expected_digest, live.assignments, wanted)
    rows = dict(Assignment.objects.values_list("name", "author"))
    edits = _edits(Kind.ASSIGNMENT, live.assignments, wanted)
    authors = [rows[edit.name] for edit in edits if edit.name in rows]
    return _propose(f"Assignments: {_first_line(reason)}", edits, by, reason, authors)


def propose_priority_classes(*, by: By, reason: str, expected_digest: str = "") -> Change:
    """Send the PriorityClasses to review, as their rows are now."""
    live = current_revision()
    wanted = checked_priority_classes(live)
    check_shown(expected_digest, live.priority_classes, wanted)
    rows = dict(PriorityClass.objects.values_list("name", "author"))
    new = [each if each in live.priority_classes else msgspec.structs.replace(each, version=0) for each in wanted]
    edits = _edits(Kind.PRIORITY_CLASS, live.priority_classes, new)
    authors = [rows[edit.name] for edit in edits if edit.name in rows]
    return _propose(f"PriorityClasses: {_first_line(reason)}", edits, by, reason, authors)


def go_back(
    *,
    version: RuleSetVersion | PriorityClassVersion | AssignmentVersion,
    by: By,
    reason: str,
    expected_digest: str = "",
) -> Revision:
    """Make an older version of a rule set, an Assignment or a PriorityClass live again, and nothing else with it.

    Raises:
        PublishingError: it is live already, or takes approvals: `propose_going_back` asks for them.
    """
    with transaction.atomic():
        change = _going_back(version, by, reason, expected_digest)
        return publish_change(change=change, by=by, reason=reason, expected_digest=change.digest)


def propose_going_back(
    *,
    version: RuleSetVersion | PriorityClassVersion | AssignmentVersion,
    by: By,
    reason: str,
    expected_digest: str = "",
) -> Change:
    """Send it to review that an older version of a rule set, an Assignment or a PriorityClass is live again."""
    with transaction.atomic():
        change = _going_back(version, by, reason, expected_digest)
        return submit_change(change=change, by=by, expected_digest=change.digest)


def _going_back(
    version: RuleSetVersion | PriorityClassVersion | AssignmentVersion, by: By, reason: str, expected_digest: str
) -> Change:
    if isinstance(version, RuleSetVersion) and version.is_draft:
        raise PublishingError([f"{version} is a draft; publish it."])
    check_shown(expected_digest, current_revision().number)
    edits = [Edit.of(_content_of(version))]
    return open_change(title=f"Go back to {version}: {_first_line(reason)}", edits=edits, by=by, reason=reason)


def _content_of(version: RuleSetVersion | PriorityClassVersion | AssignmentVersion) -> Value:
    if isinstance(version, RuleSetVersion):
        return check_version(version)
    if isinstance(version, AssignmentVersion):
        return version.value
    return engine.decode_priority_class(version.document.encode())


def adopt(*, names: Sequence[str], by: By, reason: str, expected_digest: str = "") -> Revision:
    """Make PriorityClasses live as the cluster has them: those of others are taken over, those that others changed are theirs.

    Args:
        names: which.
        by: who does it.
        reason: why, in that person's words.
        expected_digest: `digest_of_shown` of the documents that person looked at.

    Raises:
        PublishingError: the cluster has one no more or another, or it takes approvals: `propose_adoption` asks for them.
    """
    with transaction.atomic():
        change = _adopting(names, by, reason, expected_digest)
        return publish_change(change=change, by=by, reason=reason, expected_digest=change.digest)


def propose_adoption(*, names: Sequence[str], by: By, reason: str, expected_digest: str = "") -> Change:
    """Send it to review that PriorityClasses are live as the cluster has them."""
    with transaction.atomic():
        change = _adopting(names, by, reason, expected_digest)
        return submit_change(change=change, by=by, expected_digest=change.digest)


def _adopting(names: Sequence[str], by: By, reason: str, expected_digest: str) -> Change:
    live = live_priority_classes()
    wanted = [adopted(name, live.get(name)) for name in names]
    check_shown(expected_digest, wanted)
    what = names[0] if len(names) == 1 else f"{len(names)} PriorityClasses"
    edits = [Edit.of(each) for each in wanted]
    return open_change(title=f"Take over {what}: {_first_line(reason)}", edits=edits, by=by, reason=reason)


def propose_withdrawal(*, rule_set: RuleSet, by: By, reason: str, expected_digest: str = "") -> Change:
    """Send it to review that a rule set leaves what is live."""
    check_shown(expected_digest, current_revision().number)
    return _propose(f"Withdraw {rule_set}", [Edit(Kind.RULE_SET, rule_set.name, None)], by, reason, [])


def propose_roll_back(*, to_number: int, by: By, reason: str, expected_digest: str = "") -> Change:
    """Send it to review that an older Revision's content is live again."""
    with transaction.atomic():
        change = open_roll_back(to_number=to_number, by=by, reason=reason, expected_digest=expected_digest)
        if change is None:
            raise PublishingError([f"What is live has the content of Revision {to_number}."])
        return submit_change(change=change, by=by, expected_digest=change.digest)


@transaction.atomic
def _propose(title: str, edits: Iterable[Edit], by: By, reason: str, authors: Iterable[str]) -> Change:
    named = [author for author in authors if author]
    change = open_change(title=title, edits=edits, by=by, reason=reason, authors=named)
    return submit_change(change=change, by=by, expected_digest=change.digest)


def _edits(kind: str, live: Iterable[Value], wanted: Iterable[Value]) -> list[Edit]:
    was = {each.name: each for each in live}
    now = {each.name: each for each in wanted}
    return [Edit(kind, name, now.get(name)) for name in was | now if was.get(name) != now.get(name)]


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""
