"""The verbs of Changes: the reviewed path by which edits of rule sets, Assignments and PriorityClasses go live.

Each is one transaction of `acts`. A digest over its edits and their bases identifies the result of a Change. Approvals are for
a digest, and are dropped when it changes. Publishing also drops the approvals of other Changes whose bases it replaces.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from policies.engine import ruleset as engine
from policies.engine.pauses import Target
from policies.models import Change, ChangeEvent, GateRun, Revision
from policies.publishing import audit, gates, lifecycle
from policies.publishing.actors import SAME_CLICK, By, actor_of, lock_account, name_of
from policies.publishing.acts import (
    check_before_contents,
    check_reach,
    delete_edits,
    do,
    finish,
    locked,
    note,
    things_of,
    write_edits,
)
from policies.publishing.assignments import Orders, orders_for
from policies.publishing.contents import Edit, check_contents, ended_with, make_live, with_edits
from policies.publishing.errors import ForbiddenError, OvertakenError, PublishingError, check_words
from policies.publishing.owners import NOBODY, Keeper, check_owner_name, check_owners, mark_published
from policies.publishing.parts import Key, Kind, Value, is_same, key_of, live_digests
from policies.publishing.revisions import current_revision, load_revision, lock_revisions, values_of
from policies.publishing.rule_sets import remember_checked
from policies.publishing.shown import check_shown
from policies.publishing.standing import (
    AUTHORING,
    ORDER,
    Moved,
    approvals_given,
    approved_changes_on,
    differing,
    edits_between,
    edits_of,
    merged_of,
    moved_names,
    moved_of,
    open_changes_of,
    orders_of,
    standing_of,
    waiting_for,
)
from policies.sentences import target_in_words
from policies.wording import visible

_Act = ChangeEvent.Act
_LONGEST_TITLE = 200
_NOTHING_CHOSEN: Mapping[Key, Mapping[str, str]] = {}


class TakenBack(NamedTuple):
    """An expired Change, and the bases of its reversal where they differ from what it made, by digest."""

    change: Change
    bases: Mapping[Key, str]


def open_change(
    *,
    title: str,
    edits: Iterable[Edit],
    by: By,
    reason: str = "",
    act: str = "edit",
    keeper: Keeper = NOBODY,
) -> Change:
    """Open a Change with edits; edits that equal the live state are left out.

    Args:
        title: its purpose, in one line.
        edits: the new content of each thing.
        by: who opens it, and becomes its author.
        reason: why, for those who review it.
        act: the act of `lifecycle`.
        keeper: the repository that the edits come from.

    Raises:
        PublishingError: no edit is left, this account may not edit, or another repository keeps one of the things.
    """
    _check_may(act, by)
    live = current_revision()
    wanted = differing(edits, live)
    if not wanted:
        raise PublishingError([f"Nothing would change: Revision {live.number} already has all of it."])
    check_owners(wanted, keeper)
    for edit in wanted.values():
        if isinstance(edit.value, engine.RuleSet):
            remember_checked(edit.value)
    return write_change(title, wanted, live, by=by, reason=reason, keeper=keeper)


def open_already(*, wanted: Mapping[Key, Edit], by: By, keeper: Keeper = NOBODY) -> Change | None:
    """Return this account's open Change with exactly these edits on the live state; None where there is none.

    A pipeline that runs again with the same files needs no second Change. A Change with times of its own doesn't count.

    Raises:
        ForbiddenError: this account may not edit.
    """
    _check_may("edit", by)
    same = Change.objects.filter(
        pk__in=open_changes_of(wanted), publish_at=None, expires_at=None, **keeper._asdict()
    ).prefetch_related("events", "edits")
    for change in same.order_by("pk"):
        # By the account, not by `opened_by`: it may have been renamed since, and another one may have its name.
        is_own = any(event.act == _Act.OPEN and event.who == name_of(by) for event in change.events.all())
        if is_own and {edit.key: edit for edit in edits_of(change)} == wanted and not moved_names(change):
            return change
    return None


def open_once(*, title: str, edit: Edit, by: By, reason: str = "") -> Change:
    """Open a Change with an edit; a form that is sent twice, with the same edit and the same words, opens one.

    Raises:
        PublishingError: as for `open_change`.
    """
    there = open_already(wanted={edit.key: edit}, by=by)
    if there is not None and (there.title, there.reason) == (_title_of(title)[:_LONGEST_TITLE], reason):
        return there
    return open_change(title=title, edits=[edit], by=by, reason=reason)


def begin_change(*, title: str, by: By, reason: str = "") -> Change:
    """Open a Change without edits, for clients that add documents one after the other.

    Raises:
        PublishingError: this account may not edit.
    """
    _check_may("edit", by)
    return write_change(title, {}, current_revision(), by=by, reason=reason)


@transaction.atomic
def begin_once(*, title: str, by: By, reason: str = "") -> Change:
    """Open a Change without edits; a form that is sent twice, with the same words, opens one.

    Raises:
        PublishingError: as for `begin_change`.
    """
    lock_account(by)
    # By name: within a minute no account takes over another's.
    there = Change.objects.filter(
        title=_title_of(title)[:_LONGEST_TITLE],
        reason=reason,
        opened_by=name_of(by),
        state=lifecycle.DRAFT,
        edits=None,
        moved_at__gt=timezone.now() - SAME_CLICK,
    )
    return there.first() or begin_change(title=title, by=by, reason=reason)


def roll_back(*, to_number: int, by: By, reason: str, expected_digest: str = "") -> Revision | None:
    """Make the next Revision with the content of an older one; None when that content is live.

    The states of versions are updated; open Changes keep their edits. `expected_digest` is `digest_of_shown` of the number
    that was live when that person looked.

    Raises:
        PublishingError: there is no such Revision, or approvals are needed: `open_roll_back` makes a Change for them.
    """
    with transaction.atomic():
        lock_revisions()
        change = _open_roll_back(to_number, "publish", by, reason, expected_digest)
        if change is None:
            return None
        made = publish_change(change=change, by=by, reason=reason, expected_digest=change.digest)
        _record_roll_back(to_number, change, made, by, reason)
        return made


def open_roll_back(*, to_number: int, by: By, reason: str, expected_digest: str = "") -> Change | None:
    """Open a Change that goes back to an older Revision, as `roll_back` does at once; None when its content is live."""
    with transaction.atomic():
        change = _open_roll_back(to_number, "edit", by, reason, expected_digest)
        if change is not None:
            _record_roll_back(to_number, change, None, by, reason)
        return change


def _record_roll_back(to_number: int, change: Change, made: Revision | None, by: By, reason: str) -> None:
    audit.record_single(audit.Kind.ROLL_BACK, ("Revision", str(to_number)), change, made, by=by, reason=reason)


def _open_roll_back(to_number: int, act: str, by: By, reason: str, expected_digest: str) -> Change | None:
    _check_may(act, by)
    before = current_revision()
    check_shown(expected_digest, before.number)
    target = former_revision(to_number)
    edits = {edit.key: edit for edit in edits_between(before, target)}
    if not edits:
        return None
    return write_change(
        f"Roll back to Revision {to_number}", edits, before, by=by, reason=reason, rolls_back_to=to_number
    )


def former_revision(number: int) -> engine.Revision:
    """Return a Revision to roll back to.

    Raises:
        PublishingError: there is no such Revision, or a newer Berth wrote it.
    """
    try:
        found = load_revision(number)
    except msgspec.DecodeError as error:
        raise PublishingError([f"Revision {number} can't be read: a newer version of Berth wrote it."]) from error
    if found is None:
        raise PublishingError([f"There is no Revision {number}."])
    return found


def _check_may(act: str, by: By) -> None:
    if said := lifecycle.lack_of_permission(act, actor_of(by)):
        raise ForbiddenError([said])


@transaction.atomic
def write_change(
    title: str,
    edits: Mapping[Key, Edit],
    live: engine.Revision,
    *,
    by: By,
    reason: str,
    rolls_back_to: int | None = None,
    takes_back: TakenBack | None = None,
    keeper: Keeper = NOBODY,
) -> Change:
    """Write a new Change, based on the live state; one that reverses another, based on what that one made."""
    check_words(title, reason)
    expired = takes_back.change if takes_back else None
    number = expired.revision_id if expired and expired.revision_id else live.number
    bases = live_digests(edits, number) | dict(takes_back.bases if takes_back else {})
    change = Change.objects.create(
        title=_title_of(title)[:_LONGEST_TITLE],
        reason=reason,
        base=number,
        digest="",
        rolls_back_to=rolls_back_to,
        expiry_of=expired,
        owner=check_owner_name(keeper.owner),
        takes_over=keeper.takes_over,
        opened_by=name_of(by),
        moved_at=timezone.now(),
    )
    write_edits(change, edits, bases, by=by)
    check_reach(change, by)
    note(change, _Act.OPEN, by, reason, more=things_of(change))
    return change


@transaction.atomic
def edit_change(*, change: Change, edits: Iterable[Edit], by: By, expected_digest: str) -> Change:
    """Add edits to a Change, replacing those of the same things; an edit that equals the live state removes the thing's edit.

    `expected_digest` is the digest that the person looked at, so that somebody else's edit meanwhile isn't lost.
    """
    # Before locking the Change: publishing the same new rule set writes the rule set's row first, then drops this Change's approvals.
    live = lock_revisions()
    with locked(change, "edit", by, expected_digest) as row:
        given = {edit.key: edit for edit in edits}
        wanted = differing(given.values(), live)
        if _holds(row, given, wanted):
            return row
        kept = {each.key: each.base_digest for each in row.edits.all() if each.key in given}
        if not row.edits.filter(kind=Kind.ASSIGNMENT).exists():
            row.base = live.number  # none of its edits depends on an earlier order
        delete_edits(row, given)
        # Their bases stay as they were: what moved has still to be reviewed.
        write_edits(row, wanted, live_digests(wanted, live.number) | kept, by=by)
        finish(row, _Act.EDIT, by, "", more=things_of(row, given))
    return row


def _holds(row: Change, given: Iterable[Key], wanted: Mapping[Key, Edit]) -> bool:
    """Return whether a Change already has exactly these edits: adding them again is no edit."""
    held = {edit.key: edit for edit in edits_of(row)}
    return all(held.get(key) == wanted.get(key) for key in given)


def discard_edits(*, change: Change, keys: Collection[Key], by: By, expected_digest: str) -> Change:
    """Remove the edits of these things from a Change."""
    with locked(change, "edit", by, expected_digest) as row:
        held = sorted(each.key for each in row.edits.all() if each.key in keys)
        if not held:
            raise PublishingError([f"{row} has no such edit any more. Look at it again."])
        delete_edits(row, held)
        finish(row, _Act.EDIT, by, f"discarded {', '.join(f'{kind} {name}' for kind, name in held)}")
    return row


@transaction.atomic
def rebase_change(
    *,
    change: Change,
    by: By,
    expected_digest: str,
    expected_revision: int,
    take_theirs: Collection[Key] = (),
    merge: Mapping[Key, Mapping[str, str]] = _NOTHING_CHOSEN,
) -> Change:
    """Rebase a Change's edits on the live state: for each thing that moved, take the live content, or keep the edit.

    Where nothing has moved, it stays as it is.

    Where both sides moved Assignments, these get the order that this Change wants, or, with ORDER in `take_theirs`, the live
    order. Without the edits that are given up, their order may conflict in a way that nobody was shown: this is refused.

    Args:
        change: which.
        by: who does it.
        expected_digest: the digest that that person looked at.
        expected_revision: the live Revision that it was compared with.
        take_theirs: the moved things whose edit is given up.
        merge: the moved rule sets whose edit is merged with the live content, rule by rule; for each, whose side, mine or
        theirs, is taken for the parts that both sides changed, as `merged_of` names them.

    Raises:
        PublishingError: it may not be rebased, something moved again, no side is chosen for a part that both sides changed, or a
            side is chosen for something that hasn't moved.
    """
    # All that is compared below is of one Revision; before locking the Change, as in `edit_change`.
    live = lock_revisions()
    with locked(change, "rebase", by, expected_digest) as row:
        if expected_revision != live.number:
            raise OvertakenError([f"Revision {live.number} was made since you looked. Look again."])
        moved = moved_of(row)
        _check_has_moved({*take_theirs, *merge}, moved, row)
        shown = orders_of(row)
        if not moved and shown is None:
            return row  # no edit: nobody becomes an author by it, and approvals stay
        orders = orders_of(row, without=take_theirs)
        if orders is not None and shown is None:
            raise PublishingError([_unshown(orders, take_theirs)])
        merged = {each.key: _merged(each, merge[each.key]) for each in moved if each.key in merge}
        # An edit that equals the live state is given up, merged or not.
        given_up = {
            each.key for each in moved if each.key in take_theirs or is_same(each.live, merged.get(each.key, each.mine))
        }
        _move_edits(row, moved, given_up, merged, to=expected_revision, by=by)
        takes_their_order = ORDER in take_theirs
        if takes_their_order or orders is not None:
            _take_order(row, None if takes_their_order else orders, by)
        row.base = expected_revision
        sides = [f"{each.kind} {each.name}: {_side_of(each.key, given_up, merge)}" for each in moved]
        if takes_their_order or orders is not None:
            sides.append(f"order of Assignments: {'theirs' if takes_their_order else 'mine'}")
        finish(row, _Act.REBASE, by, ", ".join(sides), more=things_of(row, {each.key for each in moved}))
    return row


def _move_edits(
    row: Change,
    moved: Sequence[Moved],
    given_up: Collection[Key],
    merged: Mapping[Key, engine.RuleSet],
    *,
    to: int,
    by: By,
) -> None:
    """Delete the edits that are given up, and base the others on a Revision, the merged ones with their merged documents."""
    delete_edits(row, given_up)
    digests = live_digests([each.key for each in moved], to)
    for each in moved:
        if each.key in given_up:
            continue
        value = merged.get(each.key, each.mine)
        fields = {} if value is None or is_same(value, each.mine) else _made_anew(value, by)
        row.edits.filter(kind=each.kind, name=each.name).update(base_digest=digests.get(each.key, ""), **fields)


def _made_anew(value: Value, by: By) -> dict[str, Any]:
    """Return the columns of an edit whose content a rebase made: it is that of whoever rebased, not of who edited it before."""
    return {"document": engine.encode(value).decode(), "author": name_of(by), "edited_at": timezone.now()}


def _check_has_moved(chosen: Collection[Key], moved: Iterable[Moved], row: Change) -> None:
    """Refuse a choice about something that hasn't moved: a typo in a name would keep an edit that was meant to be given up."""
    wrong = {*chosen} - {each.key for each in moved}
    if ORDER in wrong and orders_of(row) is not None:
        wrong.remove(ORDER)
    if wrong:
        named = ", ".join(moved_names(row))
        others = f"what has: {named}" if named else "nothing that the Change touches has"
        raise PublishingError([f"{kind} {name} hasn't moved since; {others}." for kind, name in sorted(wrong)])


def _unshown(orders: Orders, given_up: Iterable[Key]) -> str:
    named = ", ".join(f"{kind} {name}" for kind, name in sorted(given_up) if kind == Kind.ASSIGNMENT)
    return (
        f"Without the edit of {named} the numbers of both make an order of Assignments that nobody asked for: {'; '.join(orders.sentences)}. "
        "Discard that edit first, then look again: whose order is taken is asked then."
    )


def _take_order(row: Change, orders: Orders | None, by: By) -> None:
    """Renumber Assignments, so that they have the order that the Change wants; None: the live order."""
    live, edits = current_revision(), edits_of(row)
    held = {edit.name for edit in edits if edit.kind == Kind.ASSIGNMENT}
    now = {each.name: each for each in live.assignments}
    made = {each.name: each for each in with_edits(live, edits).assignments}
    if orders is None:
        numbers = {name: now[name].order for name in held if name in now and name in made}
    else:
        numbers = orders_for(made.values(), orders.wanted)
    moved = {name: msgspec.structs.replace(made[name], order=number) for name, number in numbers.items()}
    delete_edits(row, [(Kind.ASSIGNMENT, name) for name, value in moved.items() if value == now.get(name)])
    for name, value in moved.items():
        if value != made[name]:
            row.edits.filter(kind=Kind.ASSIGNMENT, name=name).update(**_made_anew(value, by))
    more = {edit.key: edit for name, value in moved.items() if name not in held for edit in [Edit.of(value)]}
    write_edits(row, more, live_digests(more, live.number), by=by)


def _merged(moved: Moved, chosen: Mapping[str, str]) -> engine.RuleSet:
    both, merged = merged_of(moved), merged_of(moved, chosen)
    if both is None or merged is None:
        raise PublishingError([f"{moved.kind} {moved.name} can't be merged: take theirs, or keep the edit."])
    faults = [f"{moved.name}: {part} wasn't changed on both sides." for part in chosen if part not in both.conflicts]
    faults += [
        f"{moved.name}: {said}; choose a side for {part}, take all of theirs, or keep the edit."
        for part, said in merged.conflicts.items()
    ]
    if faults:
        raise PublishingError(faults)
    return merged.rule_set


def _side_of(key: Key, given_up: Collection[Key], merge: Mapping[Key, Mapping[str, str]]) -> str:
    """Return whose side was taken for a thing, or how both were merged, in words for the Change's history."""
    if key in given_up:
        return "theirs"
    if key not in merge:
        return "mine"
    return visible(f"both, rule by rule{''.join(f', {side} of {part}' for part, side in sorted(merge[key].items()))}")


def submit_change(*, change: Change, by: By, expected_digest: str, text: str = "") -> Change:
    """Send a Change to review, if its documents are valid and their tests pass. The text is its reason, if it has none.

    Raises:
        PublishingError: with every fault, or because it may not be sent.
    """
    check_before_contents(Change.objects.get(pk=change.pk), _Act.SUBMIT, by)
    check_contents(edits_of(change), current_revision())
    with locked(change, _Act.SUBMIT, by, expected_digest) as row:
        # Otherwise reviewers and the Revision would be shown no reason.
        row.reason = row.reason or text
        finish(row, _Act.SUBMIT, by, text)
    return row


def submit_act(*, change: Change, by: By) -> Change:
    """Send the Change of a single act to review, unless another Change in review makes the same.

    Called within the transaction of the act, which a refusal rolls back.

    Raises:
        PublishingError: another Change in review makes the same; or as for `submit_change`.
    """
    same = Change.objects.filter(digest=change.digest, state__in=[lifecycle.IN_REVIEW, lifecycle.APPROVED])
    if other := same.first():
        message = (
            f"{other} of {other.opened_by} has the same result and is already in review: approve or publish that one."
        )
        raise PublishingError([message])
    return submit_change(change=change, by=by, expected_digest=change.digest)


def run_gate(*, change: Change, by: By) -> GateRun:
    """Request a run of the gate for a Change; a worker takes it up.

    Raises:
        PublishingError: this account may not request it, or the Change isn't open.
    """
    with locked(change, "gate", by, "") as row:
        gates.record_asking(row, by)
        return gates.ask_gate(row, name_of(by))


def ask_for_review(*, change: Change, by: By, whom: str, text: str = "") -> Change:
    """Ask somebody by name to review a Change: it waits for that person until they approve, or it leaves review.

    Raises:
        PublishingError: there is no such account, it may not approve this Change, or it was asked already.
    """
    with locked(change, "ask", by, "") as row:
        check_words(whom)  # before the query, which can't contain every text
        user = User.objects.filter(username=whom, is_active=True).first()
        if user is None:
            raise PublishingError([f"There is no account {whom}."])
        groups = set(user.groups.values_list("name", flat=True))
        standing = standing_of(row)
        if said := lifecycle.refusal_to_be_asked(actor_of(user), groups, standing, asking=name_of(by)):
            raise PublishingError([said])
        if whom in standing.approved_by:
            raise PublishingError([f"{whom} has approved its current result."])
        if any(each.name == whom for each in waiting_for(row)):
            raise PublishingError([f"{whom} was asked already, and hasn't approved it yet."])
        note(row, _Act.ASK, by, text, whom=user, before=row.digest)
    return row


def describe_change(
    *,
    change: Change,
    by: By,
    expected_digest: str,
    title: str | None = None,
    reason: str | None = None,
    expected_reason: str | None = None,
) -> Change:
    """Change the title or the reason of a Change; None keeps the old text. Its edits and approvals stay.

    `expected_reason` is the reason that the person looked at, so that somebody else's isn't replaced; None compares nothing.
    """
    with locked(change, "edit", by, expected_digest) as row:
        if expected_reason not in {None, row.reason}:
            raise PublishingError([f"{row} has got a reason since you looked. Look at it again."])
        check_words(*(text for text in (title, reason) if text))
        called = row.title if title is None else _title_of(title)
        if len(called) > _LONGEST_TITLE:
            raise PublishingError([f"A title has {_LONGEST_TITLE} characters at most; this one has {len(called)}."])
        wanted = {"title": called, "reason": row.reason if reason is None else reason}
        was = {name: getattr(row, name) for name, text in wanted.items() if text != getattr(row, name)}
        if was:
            Change.objects.filter(pk=row.pk).update(**wanted)
            row.title, row.reason = wanted["title"], wanted["reason"]
            said = "; ".join(f"{name} was: {text or 'empty'}" for name, text in was.items())
            note(row, _Act.DESCRIBE, by, said, before=row.digest)
    return row


def _title_of(text: str) -> str:
    """Return a title as one line: further lines could look like other Changes in a list."""
    line = " ".join(text.split())
    if not line:
        raise PublishingError(["A Change needs its title."])
    return line


def comment_on_change(*, change: Change, by: By, text: str) -> Change:
    """Add a comment. The same comment again within a moment, as from a form that is sent twice, adds nothing."""
    said = _needed(text, "A comment needs its text.")
    with locked(change, _Act.COMMENT, by, "") as row:
        if not _has_just_said(row, by, said):
            finish(row, _Act.COMMENT, by, said)
    return row


def _has_just_said(row: Change, by: By, text: str) -> bool:
    last = row.events.last()
    if last is None or (last.act, last.who, last.text) != (_Act.COMMENT, name_of(by), text):
        return False
    return timezone.now() - last.at < SAME_CLICK


@transaction.atomic
def approve_change(*, change: Change, by: By, expected_digest: str, text: str = "") -> Change:
    """Approve a Change, as the person looked at it."""
    # A concurrent publishing sees this approval and drops it, or this sees the publishing and is refused.
    lock_revisions()
    return do(change, _Act.APPROVE, by, expected_digest, text)


def reject_change(*, change: Change, by: By, expected_digest: str, text: str) -> Change:
    """Reject a Change, with a reason."""
    return do(change, _Act.REJECT, by, expected_digest, _needed(text, "A rejection needs its reason."))


def reopen_change(*, change: Change, by: By, expected_digest: str = "", text: str = "") -> Change:
    """Make a rejected Change a draft again."""
    return do(change, _Act.REOPEN, by, expected_digest, text)


def withdraw_change(*, change: Change, by: By, expected_digest: str = "", text: str = "") -> Change:
    """Withdraw a Change: it never goes live. `expected_digest` is of the edits that the person looked at: unseen edits aren't given up."""
    return do(change, _Act.WITHDRAW, by, expected_digest, text)


def publish_change(
    *, change: Change, by: By, expected_digest: str, reason: str = "", armed: ChangeEvent | None = None
) -> Revision:
    """Make the next Revision with exactly a Change's edits.

    Args:
        change: which.
        by: who publishes.
        expected_digest: the digest that that person looked at; approvals are for it.
        reason: why, stored with the Revision; the Change's own reason where none is given.
        armed: for the clock, the act that set the time.

    Raises:
        PublishingError: it may not be published, something that it touches moved, it has faults, it would change nothing, or its
            time doesn't stand any more.
    """
    return _publish(change, _Act.PUBLISH, by, expected_digest, reason, armed)


def publish_urgently(*, change: Change, by: By, expected_digest: str, reason: str) -> Revision:
    """Publish a Change without the approvals that it needs, in an emergency. Somebody else approves it afterwards.

    Args and errors as for `publish_change`; the reason is required.
    """
    return _publish(change, _Act.URGENT, by, expected_digest, _needed(reason, "An emergency needs its reason."))


def _publish(
    change: Change, act: _Act, by: By, expected_digest: str, reason: str, armed: ChangeEvent | None = None
) -> Revision:
    check_before_contents(Change.objects.get(pk=change.pk), act, by)
    edits = edits_of(change)
    check_contents(edits, current_revision())
    with transaction.atomic():
        before = lock_revisions()
        with locked(change, act, by, expected_digest) as row:
            if edits_of(row) != edits:
                raise PublishingError([f"{row} was edited meanwhile. Look at it again."])
            if armed is not None:
                _check_armed(row, armed)
            authors = {each.key: each.author for each in row.edits.all()}
            # Edits that others added, or that others merged or renumbered by a rebase, don't belong to the repository that opened it.
            brought = {key for key, author in authors.items() if author == row.opened_by}
            check_owners(brought, Keeper(row.owner, row.takes_over))
            ended = ended_with(before, edits)
            made = make_live(before, edits, by=by, reason=reason or row.reason or row.title, authors=authors)
            if made is None:
                raise PublishingError([f"{row} would change nothing: all of it is live already. Withdraw it."])
            row.revision = made
            finish(row, act, by, reason, before=before.digest, more=things_of(row))
            mark_published(row, [*edits, *(Edit(*key_of(each), None) for each in ended)], brought, by)
            _record_ended(ended, row, made, by)
            _drop_overtaken(row, before, by)
    return made


def _check_armed(row: Change, armed: ChangeEvent) -> None:
    """Refuse if the time was taken back or set anew since the clock read it, which is before the check of the documents."""
    last = row.events.filter(pk__gt=armed.pk, act__in=(_Act.SCHEDULE, _Act.HOLD, *AUTHORING)).last()
    if last is not None:
        raise OvertakenError([f"{row} changed since its time was set, by {last.by}. Look at it again."])


def _drop_overtaken(made_by: Change, before: engine.Revision, by: By) -> None:
    """Drop the approvals of Changes whose base a publishing moved. They stay dropped even if the base is moved back later.

    Called under the lock of Revisions, as approving is.
    """
    old, new = values_of(before), values_of(current_revision())
    changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    for row in Change.objects.select_for_update().filter(pk__in=approved_changes_on(changed)).order_by("pk"):
        moved = moved_names(row) if approvals_given(row, list(row.events.all())) else []
        if moved:
            finish(row, _Act.OVERTAKE, by, f"{made_by} moved {', '.join(moved)}")


def _record_ended(ended: Iterable[engine.Pause | engine.Exemption], row: Change, made: Revision, by: By) -> None:
    """Record that Pauses and Exemptions ended together with their targets."""
    for each in ended:
        about = Target.parse(each.target)
        kind = audit.Kind.RESUME if isinstance(each, engine.Pause) else audit.Kind.EXEMPTION_END
        more = {"target": each.target, "name": each.name}
        reason = f"{target_in_words(each.target)} is gone"
        audit.record_single(kind, (about.kind, about.name), row, made, by=by, reason=reason, more=more)


def _needed(text: str, message: str) -> str:
    if not text.strip():
        raise PublishingError([message])
    return text
