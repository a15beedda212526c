"""Single acts as Changes of their own, such as restoring and archiving; published at once, or sent to review where that is required."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from django.db import transaction

from policies.engine import ruleset as engine
from policies.models import Change, PriorityClassVersion, Revision, RuleSet, RuleSetVersion
from policies.publishing import audit
from policies.publishing.actors import By
from policies.publishing.assignments import in_order, orders_for
from policies.publishing.changes import (
    former_revision,
    open_change,
    open_roll_back,
    publish_change,
    roll_back,
    submit_act,
)
from policies.publishing.contents import Edit
from policies.publishing.errors import OvertakenError, PublishingError
from policies.publishing.history import AssignmentVersion
from policies.publishing.parts import Key, Kind, Value
from policies.publishing.priority_classes import adopted, live_priority_classes, priority_class_content
from policies.publishing.revisions import current_revision, lock_revisions
from policies.publishing.rule_sets import check_version
from policies.publishing.shown import check_shown, digest_of_shown
from policies.publishing.standing import edits_between, needs_review

# What can be made live again.
Version = RuleSetVersion | PriorityClassVersion | AssignmentVersion


class _Act(NamedTuple):
    """A single act: the Change that it opened, and what its AuditEvent names."""

    kind: audit.Kind
    thing: Key
    change: Change
    more: Mapping[str, Any] = {}

    def publish(self, by: By, reason: str) -> Revision:
        """Publish the Change."""
        made = publish_change(change=self.change, by=by, reason=reason, expected_digest=self.change.digest)
        self._record(made, by, reason)
        return made

    def send_to_review(self, by: By, reason: str) -> Change:
        """Send the Change to review instead."""
        self._record(None, by, reason)
        return submit_act(change=self.change, by=by)

    def _record(self, made: Revision | None, by: By, reason: str) -> None:
        audit.record_single(self.kind, self.thing, self.change, made, by=by, reason=reason, more=self.more)


@transaction.atomic
def go_back(*, version: Version, by: By, reason: str, expected_digest: str = "") -> Revision:
    """Make an older version of one rule set, Assignment or PriorityClass live again.

    Raises:
        PublishingError: it is live already, or needs approvals: `propose_going_back` asks for them.
    """
    return _going_back(version, by, reason, expected_digest).publish(by, reason)


@transaction.atomic
def propose_going_back(*, version: Version, by: By, reason: str, expected_digest: str = "") -> Change:
    """Send to review a Change that makes an older version of a rule set, an Assignment or a PriorityClass live again."""
    return _going_back(version, by, reason, expected_digest).send_to_review(by, reason)


def _going_back(version: Version, by: By, reason: str, expected_digest: str) -> _Act:
    check_shown(expected_digest, lock_revisions().number)
    edit = Edit.of(content_of_version(version))
    change = open_change(title=f"Go back to {version}: {_first_line(reason)}", edits=[edit], by=by, reason=reason)
    return _Act(audit.Kind.GO_BACK, edit.key, change, {"version": version.number})


def content_of_version(version: Version) -> Value:
    """Return the content of an older version.

    Raises:
        PublishingError: it is no longer valid, with every fault, or can't be read.
    """
    if isinstance(version, RuleSetVersion):
        return check_version(version)
    if isinstance(version, AssignmentVersion):
        return version.value
    return priority_class_content(version)


@transaction.atomic
def adopt(*, names: Sequence[str], by: By, reason: str, expected_digest: str = "") -> Revision:
    """Make PriorityClasses live as the cluster has them: both classes made by others and classes changed by others.

    Args:
        names: the names of the classes.
        by: who does it.
        reason: why, in that person's words.
        expected_digest: `digest_of_shown` of the documents that person looked at.

    Raises:
        PublishingError: one was removed or changed in the cluster, or approvals are needed: `propose_adoption` asks for them.
    """
    return _adopting(names, by, reason, expected_digest).publish(by, reason)


@transaction.atomic
def propose_adoption(*, names: Sequence[str], by: By, reason: str, expected_digest: str = "") -> Change:
    """Send to review a Change that makes PriorityClasses live as the cluster has them."""
    return _adopting(names, by, reason, expected_digest).send_to_review(by, reason)


def _adopting(names: Sequence[str], by: By, reason: str, expected_digest: str) -> _Act:
    lock_revisions()  # the live state stays as the person saw it until this is published
    live = live_priority_classes()
    wanted = [adopted(name, live.get(name)) for name in names]
    check_shown(expected_digest, wanted, [live.get(name) for name in names])
    only = names[0] if len(names) == 1 else ""
    title = f"Take over {only or f'{len(names)} PriorityClasses'}: {_first_line(reason)}"
    change = open_change(title=title, edits=[Edit.of(each) for each in wanted], by=by, reason=reason)
    return _Act(audit.Kind.ADOPT, (Kind.PRIORITY_CLASS, only), change, {"names": list(names)})


@transaction.atomic
def archive(*, rule_set: RuleSet, by: By, reason: str, expected_digest: str = "") -> Revision:
    """Remove a rule set from the live state and from the lists; its versions stay, and `go_back` restores it.

    Raises:
        PublishingError: an Assignment names it, or approvals are needed: `propose_archiving` asks for them.
    """
    return _archiving(rule_set, by, reason, expected_digest).publish(by, reason)


@transaction.atomic
def propose_archiving(*, rule_set: RuleSet, by: By, reason: str, expected_digest: str = "") -> Change:
    """Send to review a Change that archives a rule set."""
    return _archiving(rule_set, by, reason, expected_digest).send_to_review(by, reason)


def _archiving(rule_set: RuleSet, by: By, reason: str, expected_digest: str) -> _Act:
    check_shown(expected_digest, lock_revisions().number)
    edit = Edit(Kind.RULE_SET, rule_set.name, None)
    change = open_change(title=f"Archive {rule_set}: {_first_line(reason)}", edits=[edit], by=by, reason=reason)
    return _Act(audit.Kind.ARCHIVE, edit.key, change)


def reorder(*, names: Sequence[str], by: By, reason: str = "", expected_digest: str = "") -> Change:
    """Open a Change that reorders the live Assignments; as few as possible get another number.

    Args:
        names: all live Assignments, in the wanted order.
        by: who does it.
        reason: why, for those who review it.
        expected_digest: `digest_of_order` when that person looked.

    Raises:
        PublishingError: somebody else has published other Assignments since, nothing would change, or this account may not edit.
    """
    with transaction.atomic():
        live = lock_revisions()
        check_shown(expected_digest, _order_of(live))
        if sorted(names) != sorted(each.name for each in live.assignments):
            raise PublishingError(["These aren't all live Assignments: reload the page."])
        orders = orders_for(live.assignments, names)
        moved = [each for each in live.assignments if each.name in orders]
        edits = [Edit.of(msgspec.structs.replace(each, order=orders[each.name])) for each in moved]
        return open_change(title="Change the order of Assignments", edits=edits, by=by, reason=reason)


def digest_of_order() -> str:
    """Return the digest of the order of the live Assignments."""
    return digest_of_shown(_order_of(current_revision()))


def _order_of(live: engine.Revision) -> list[tuple[int, str]]:
    return [(each.order, each.name) for each in in_order(live.assignments)]


def propose_roll_back(*, to_number: int, by: By, reason: str, expected_digest: str = "") -> Change:
    """Send to review a Change that makes an older Revision's content live again."""
    with transaction.atomic():
        change = open_roll_back(to_number=to_number, by=by, reason=reason, expected_digest=expected_digest)
        if change is None:
            raise PublishingError([f"The live state already equals Revision {to_number}."])
        return submit_act(change=change, by=by)


def bring_back(*, to_number: int, by: By, reason: str, looked_at: Collection[str] = ()) -> Change | None:
    """Make an older Revision's content live at once if that needs no approval, else send it to review; None when it is live.

    Args:
        to_number: the number of the older Revision.
        by: who does it.
        reason: why.
        looked_at: digests of Revisions, of which one has to be live; none to compare nothing.

    Raises:
        OvertakenError: another Revision is live.
        PublishingError: there is no such Revision, it can't be read, or this account may not do it.
    """
    with transaction.atomic():
        live, target = lock_revisions(), former_revision(to_number)
        if looked_at and not Revision.objects.filter(number=live.number, digest__in=looked_at).exists():
            raise OvertakenError([f"Revision {live.number} is live now: look at it, then roll back."])
        if needs_review(edits_between(live, target), rolls_back=True):
            change = open_roll_back(to_number=to_number, by=by, reason=reason)
            return submit_act(change=change, by=by) if change else None
        made = roll_back(to_number=to_number, by=by, reason=reason)
        return Change.objects.get(revision=made.number) if made else None


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""
