"""Changes: the reviewed path by which edits of rule sets, Assignments and PriorityClasses go live.

Each verb is one transaction, asks `lifecycle` whether it may be done, and adds an event. What a Change makes is named by a
digest over its edits and what was live when they were made: approvals are for a digest, and fall with it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from policies.engine import ruleset as engine
from policies.models import Change, ChangeEdit, ChangeEvent, GateRun, Part, Revision
from policies.publishing import gates, lifecycle
from policies.publishing.actors import By, actor_of, name_of, user_of, via_of
from policies.publishing.contents import Edit, check_contents, is_same, make_live
from policies.publishing.errors import PublishingError
from policies.publishing.lifecycle import Actor, Need, Standing
from policies.publishing.merging import merge_rule_sets
from policies.publishing.parts import DECODERS, Key, Kind, Value, batches, live_digests, sha256
from policies.publishing.reviewing import needs_of, rule_sets_of, rule_sets_under
from policies.publishing.revisions import current_revision, load_revision, lock_revisions, values_of
from policies.publishing.rule_sets import keep_rule_sets, remember_checked
from policies.publishing.shown import check_shown

_Act = ChangeEvent.Act
_PERMISSIONS = "django.contrib.auth.backends.ModelBackend"
_AUTHORING = (_Act.OPEN, _Act.EDIT, _Act.REBASE)


class Moved(NamedTuple):
    """Something that a Change touches and somebody else has published meanwhile: the three sides. None is its absence."""

    kind: str
    name: str
    base: Value | None
    live: Value | None
    mine: Value | None


def open_change(*, title: str, edits: Iterable[Edit], by: By, reason: str = "", authors: Iterable[str] = ()) -> Change:
    """Open a Change with edits; those that make nothing else of what is live are left out.

    Args:
        title: what it is for, in a line.
        edits: what it makes of each thing.
        by: who opens it, and becomes its author.
        reason: why, for those who review it.
        authors: who else wrote these edits.

    Raises:
        PublishingError: nothing is left, or this account may not edit.
    """
    _check_may("edit", by)
    live = current_revision()
    wanted = differing(edits, live)
    if not wanted:
        raise PublishingError([f"Nothing would change: Revision {live.number} holds all of it."])
    for edit in wanted.values():
        if isinstance(edit.value, engine.RuleSet):
            remember_checked(edit.value)
    with transaction.atomic():
        change = write_change(title, wanted, live, by=by, reason=reason)
        for author in sorted({*authors} - {name_of(by)}):
            note(change, _Act.EDIT, author, "", via="")
    return change


def roll_back(*, to_number: int, by: By, reason: str, expected_digest: str = "") -> Revision | None:
    """Make the next Revision with the content of an older one; None when that content is live.

    The versions' states follow; open Changes keep their edits. `expected_digest` is `digest_of_shown` of the number that
    was live when that person looked.

    Raises:
        PublishingError: there is no such Revision, or it takes approvals: `open_roll_back` makes a Change for them.
    """
    with transaction.atomic():
        lock_revisions()
        change = _open_roll_back(to_number, "publish", by, reason, expected_digest)
        if change is None:
            return None
        return publish_change(change=change, by=by, reason=reason, expected_digest=change.digest)


def open_roll_back(*, to_number: int, by: By, reason: str, expected_digest: str = "") -> Change | None:
    """Open a Change that goes back to an older Revision, as `roll_back` does at once; None when its content is live."""
    return _open_roll_back(to_number, "edit", by, reason, expected_digest)


def _open_roll_back(to_number: int, act: str, by: By, reason: str, expected_digest: str) -> Change | None:
    _check_may(act, by)
    before = current_revision()
    check_shown(expected_digest, before.number)
    target = load_revision(to_number)
    if target is None:
        raise PublishingError([f"There is no Revision {to_number}."])
    edits = {edit.key: edit for edit in edits_between(before, target)}
    if not edits:
        return None
    return write_change(
        f"Roll back to Revision {to_number}", edits, before, by=by, reason=reason, rolls_back_to=to_number
    )


def _check_may(act: str, by: By) -> None:
    if said := lifecycle.lack_of_permission(act, actor_of(by)):
        raise PublishingError([said])


@transaction.atomic
def write_change(
    title: str,
    edits: Mapping[Key, Edit],
    live: engine.Revision,
    *,
    by: By,
    reason: str,
    rolls_back_to: int | None = None,
    takes_back: Change | None = None,
) -> Change:
    """Write a new Change, made on what is live; one that takes another back, on what that one made."""
    change = Change.objects.create(
        title=title[:200],
        reason=reason,
        base=live.number,
        digest="",
        rolls_back_to=rolls_back_to,
        expiry_of=takes_back,
        opened_by=name_of(by),
        moved_at=timezone.now(),
    )
    number = takes_back.revision_id if takes_back and takes_back.revision_id else live.number
    _write(change, edits, live_digests(edits, number), by=by)
    note(change, _Act.OPEN, by, reason)
    return change


def edit_change(*, change: Change, edits: Iterable[Edit], by: By, expected_digest: str) -> Change:
    """Add edits to a Change, in place of those of the same things; one that equals what is live takes its edit out.

    `expected_digest` is the digest that was looked at: an edit that somebody else has made meanwhile isn't lost.
    """
    with locked(change, "edit", by, expected_digest) as row:
        live = current_revision()
        given = {edit.key: edit for edit in edits}
        wanted = differing(given.values(), live)
        kept = {(each.kind, each.name): each.base_digest for each in row.edits.all() if each.name in _names(given)}
        _delete(row, given)
        # The base stays where it was: what moved is still to be looked at.
        _write(row, wanted, live_digests(wanted, live.number) | kept, by=by)
        finish(row, _Act.EDIT, by, "")
    return row


def discard_edits(*, change: Change, keys: Collection[Key], by: By, expected_digest: str) -> Change:
    """Take edits out of a Change: of these things it makes nothing any more."""
    with locked(change, "edit", by, expected_digest) as row:
        held = sorted((each.kind, each.name) for each in row.edits.all() if (each.kind, each.name) in keys)
        if not held:
            raise PublishingError([f"{row} holds no such edit any more. Look at it again."])
        _delete(row, held)
        finish(row, _Act.EDIT, by, f"discarded {', '.join(f'{kind} {name}' for kind, name in held)}")
    return row


def rebase_change(
    *,
    change: Change,
    by: By,
    expected_digest: str,
    expected_revision: int,
    take_theirs: Collection[Key] = (),
    merge: Collection[Key] = (),
) -> Change:
    """Put a Change's edits on what is live now: of what moved, take what somebody else made live, or keep the edit.

    Args:
        change: which.
        by: who does it.
        expected_digest: what that person looked at.
        expected_revision: the live Revision that it was compared with.
        take_theirs: of what moved, that whose edit is given up.
        merge: of what moved, rule sets whose edit is put together with what is live, rule by rule.

    Raises:
        PublishingError: it may not be rebased, something moved again, or both sides changed one rule.
    """
    with locked(change, "rebase", by, expected_digest) as row:
        if expected_revision != current_revision().number:
            raise PublishingError([f"Revision {current_revision().number} was made since you looked. Look again."])
        moved = moved_of(row)
        merged = {(each.kind, each.name): _merged(each) for each in moved if (each.kind, each.name) in merge}
        given_up = [
            each
            for each in moved
            if (each.kind, each.name) in take_theirs
            # What would make nothing else of what is live is no edit, be it put together or not.
            or is_same(each.live, merged.get((each.kind, each.name), each.mine))
        ]
        _delete(row, [(each.kind, each.name) for each in given_up])
        digests = live_digests([(each.kind, each.name) for each in moved], expected_revision)
        for each in moved:
            key = (each.kind, each.name)
            fields = {"document": engine.encode(merged[key]).decode()} if key in merged else {}
            row.edits.filter(kind=each.kind, name=each.name).update(base_digest=digests.get(key, ""), **fields)
        how = dict.fromkeys(merged, "both, rule by rule") | {(each.kind, each.name): "theirs" for each in given_up}
        named = ", ".join(f"{each.kind} {each.name}: {how.get((each.kind, each.name), 'mine')}" for each in moved)
        finish(row, _Act.REBASE, by, named)
    return row


def _merged(moved: Moved) -> engine.RuleSet:
    sides = (moved.base, moved.live, moved.mine)
    if not all(isinstance(side, engine.RuleSet) for side in sides):
        raise PublishingError([f"{moved.kind} {moved.name} can't be put together: take theirs, or keep the edit."])
    merged = merge_rule_sets(*sides)  # type: ignore[arg-type] # each was asked
    if merged.conflicts:
        raise PublishingError([f"{moved.name}: {said}; take theirs, or keep the edit." for said in merged.conflicts])
    return merged.rule_set


def submit_change(*, change: Change, by: By, expected_digest: str, text: str = "") -> Change:
    """Send a Change to review, once its documents are right and their tests pass.

    Raises:
        PublishingError: with every fault; or it may not be sent.
    """
    check_contents(edits_of(change), current_revision())
    return _act(change, _Act.SUBMIT, by, expected_digest, text)


def run_gate(*, change: Change, by: By) -> GateRun:
    """Ask for the gate to look at what a Change makes, as soon as a worker takes it up.

    Raises:
        PublishingError: this account may not, or it isn't open.
    """
    with locked(change, "gate", by, "") as row:
        return gates.ask_gate(row, name_of(by))


def gate_of(change: Change) -> gates.Gate:
    """Return how the gate stands to a Change."""
    return gates.gate_of(change, current_revision())


@transaction.atomic
def ask_for_review(*, change: Change, by: By, whom: str, text: str = "") -> Change:
    """Ask somebody by name to review a Change: it waits for that person until they approve, or it leaves review.

    Raises:
        PublishingError: there is no such account, it may not approve this Change, or was asked already.
    """
    with locked(change, "ask", by, "") as row:
        user = User.objects.filter(username=whom, is_active=True).first()
        if user is None:
            raise PublishingError([f"There is no account {whom}."])
        groups = set(user.groups.values_list("name", flat=True))
        if said := lifecycle.refusal_to_be_asked(actor_of(user), groups, standing_of(row)):
            raise PublishingError([said])
        if any(each.name == whom for each in waiting_for(row)):
            raise PublishingError([f"{whom} was asked already, and hasn't approved it yet."])
        note(row, _Act.ASK, by, text, whom=whom)
    return row


def askable(change: Change) -> list[str]:
    """Return who can be asked to review a Change, by name."""
    standing = standing_of(change)
    waiting = {each.name for each in waiting_for(change)}
    able = User.objects.with_perm("policies.approve", backend=_PERMISSIONS).prefetch_related("groups")
    return [
        user.username
        for user in able.order_by("username")
        if user.username not in waiting | standing.approved_by
        and not lifecycle.refusal_to_be_asked(
            Actor(user.username, may_approve=True), {group.name for group in user.groups.all()}, standing
        )
    ]


def comment_on_change(*, change: Change, by: By, text: str) -> Change:
    """Add a comment."""
    return _act(change, _Act.COMMENT, by, "", _needed(text, "A comment needs its text."))


def approve_change(*, change: Change, by: By, expected_digest: str, text: str = "") -> Change:
    """Approve what a Change makes, as it was looked at."""
    return _act(change, _Act.APPROVE, by, expected_digest, text)


def reject_change(*, change: Change, by: By, expected_digest: str, text: str) -> Change:
    """Reject a Change, with a reason."""
    return _act(change, _Act.REJECT, by, expected_digest, _needed(text, "A rejection needs its reason."))


def reopen_change(*, change: Change, by: By, text: str = "") -> Change:
    """Make a draft of a rejected Change."""
    return _act(change, _Act.REOPEN, by, "", text)


def withdraw_change(*, change: Change, by: By, text: str = "") -> Change:
    """Withdraw a Change: it never goes live."""
    return _act(change, _Act.WITHDRAW, by, "", text)


def publish_change(*, change: Change, by: By, expected_digest: str, reason: str = "") -> Revision:
    """Make the next Revision with a Change's edits, and nothing else.

    Args:
        change: which.
        by: who publishes.
        expected_digest: what that person looked at; approvals are for it.
        reason: why, kept with the Revision; the Change's own where none is given.

    Raises:
        PublishingError: it may not be published, what it touches moved, it has faults, or it would change nothing.
    """
    return _publish(change, _Act.PUBLISH, by, expected_digest, reason)


def publish_urgently(*, change: Change, by: By, expected_digest: str, reason: str) -> Revision:
    """Publish a Change without the approvals that it needs, in an emergency. Somebody else approves it afterwards.

    Args and errors as of `publish_change`; the reason is needed.
    """
    return _publish(change, _Act.URGENT, by, expected_digest, _needed(reason, "An emergency needs its reason."))


def _publish(change: Change, act: _Act, by: By, expected_digest: str, reason: str) -> Revision:
    edits = edits_of(change)
    check_contents(edits, current_revision())
    with transaction.atomic():
        before = lock_revisions()
        with locked(change, act, by, expected_digest) as row:
            if edits_of(row) != edits:
                raise PublishingError([f"{row} was edited meanwhile. Look at it again."])
            authors = {(each.kind, each.name): each.author for each in row.edits.all()}
            made = make_live(before, edits, by=by, reason=reason or row.reason or row.title, authors=authors)
            if made is None:
                raise PublishingError([f"{row} would change nothing: all of it is live already. Withdraw it."])
            row.revision = made
            finish(row, act, by, reason)
    return made


def edits_of(change: Change) -> list[Edit]:
    """Return what a Change makes of each thing that it touches."""
    return [edit_of(each) for each in change.edits.all()]


def edits_between(before: engine.Revision, after: engine.Revision) -> list[Edit]:
    """Return the edits that make one Revision of another; rule sets keep the version numbers that they have there."""
    old, new = values_of(before), values_of(after)
    return [Edit(*key, new.get(key)) for key in old | new if old.get(key) != new.get(key)]


def differing(edits: Iterable[Edit], live: engine.Revision) -> dict[Key, Edit]:
    """Return the edits that make something else of what is live."""
    values = values_of(live)
    return {edit.key: edit for edit in edits if not is_same(values.get(edit.key), edit.value)}


def moved_of(change: Change) -> list[Moved]:
    """Return what a Change touches and somebody else has published meanwhile, with the three sides of each."""
    live = current_revision()
    rows = _moved_rows(change, live.number)
    values, bases = values_of(live), _bases(rows)
    keys = [(row.kind, row.name) for row in rows]
    return [Moved(*key, bases[key], values.get(key), edit_of(row).value) for key, row in zip(keys, rows, strict=True)]


def _moved_rows(change: Change, number: int) -> list[ChangeEdit]:
    rows = list(change.edits.all())
    digests = live_digests([(row.kind, row.name) for row in rows], number)
    return [row for row in rows if digests.get((row.kind, row.name), "") != row.base_digest]


def bases_of(change: Change) -> dict[Key, Value | None]:
    """Return what was live of each thing when its edit was made; None where nothing was, or a restored database lacks it."""
    return _bases(list(change.edits.all()))


def _bases(rows: Sequence[ChangeEdit]) -> dict[Key, Value | None]:
    documents = _texts(rows)
    return {
        (row.kind, row.name): DECODERS[row.kind].decode(documents[row.base_digest])
        if row.base_digest in documents
        else None
        for row in rows
    }


def _gate_refusal(change: Change, events: Iterable[ChangeEvent]) -> str:
    """Return why the gate doesn't let a Change be published; empty where it does, and for what can't wait for it.

    That is a Change that goes back to what was live, or that only pauses.
    """
    goes_back = change.rolls_back_to is not None or _is_way_back(change, events)
    if goes_back or change.state not in lifecycle.OPEN or not change.edits.exclude(kind=Kind.PAUSE).exists():
        return ""
    return gate_of(change).refusal


def _texts(rows: Sequence[ChangeEdit]) -> dict[str, str]:
    """Return the documents that edits were made on, by digest; a restored database may lack some."""
    documents: dict[str, str] = {}
    for batch in batches(sorted({row.base_digest for row in rows} - {""})):
        documents.update(Part.objects.filter(digest__in=batch).values_list("digest", "document"))
    return documents


def standing_of(change: Change) -> Standing:
    """Return a Change as `lifecycle` asks for it."""
    events = list(change.events.all())
    moved = _moved_rows(change, current_revision().number) if change.state in lifecycle.OPEN else []
    approvals = _approvals(change, events)
    needs = _needs(change, events)
    authors = {event.by for event in events if event.act in _AUTHORING}
    urgent = next((event for event in events if event.act == _Act.URGENT), None)
    return Standing(
        state=change.state,
        authors=authors,
        approved_by={event.by for event in approvals},
        needed=max((need.approvals for need in needs if not need.group), default=0),
        needs=tuple(
            msgspec.structs.replace(need, members=_members(need.group, approvals)) for need in needs if need.group
        ),
        moved=tuple(f"{row.kind} {row.name}" for row in moved),
        is_empty=not change.edits.exists(),
        urgent_by=urgent.by if urgent else "",
        looked_at_since=urgent is not None
        and any(event.pk > urgent.pk and event.by not in {*authors, urgent.by} for event in approvals),
        gate=_gate_refusal(change, events),
    )


def _approvals(change: Change, events: Sequence[ChangeEvent]) -> list[ChangeEvent]:
    """Return the approvals of what a Change makes now. A rejection ends those before it."""
    rejected = max((event.pk for event in events if event.act == _Act.REJECT), default=0)
    return [
        event for event in events if event.act == _Act.APPROVE and event.digest == change.digest and event.pk > rejected
    ]


def _members(group: str, approvals: Sequence[ChangeEvent]) -> frozenset[str]:
    """Return who of those who approved is in a group by now."""
    users = {event.by_user_id: event.by for event in approvals if event.by_user_id}
    found = User.objects.filter(pk__in=users, groups__name=group).values_list("pk", flat=True)
    return frozenset(users[pk] for pk in found)


def _is_way_back(change: Change, events: Iterable[ChangeEvent]) -> bool:
    """Return whether a Change takes back an expired one, as it was approved with that one: nobody has edited it."""
    return change.expiry_of_id is not None and not any(event.act in (_Act.EDIT, _Act.REBASE) for event in events)


def _needs(change: Change, events: Sequence[ChangeEvent]) -> list[Need]:
    if _is_way_back(change, events):
        return []
    return needs_of(
        _rule_sets_touched(change), rolls_back=change.rolls_back_to is not None, pauses=_only_adds_pauses(change)
    )


def _only_adds_pauses(change: Change) -> bool:
    """Return whether a Change does nothing but take more out of force: no rule decides by it that didn't."""
    rows = list(change.edits.values_list("kind", "document", "base_digest"))
    return bool(rows) and all(kind == Kind.PAUSE and document and not base for kind, document, base in rows)


class _Names(msgspec.Struct, rename="camel"):
    rule_set: str = ""
    target: str = ""


def _rule_sets_touched(change: Change) -> set[str]:
    """Return the rule sets that a Change edits, those that its Assignments give or gave, and those that its Pauses are about.

    Reads no more than names.
    """
    rows = list(change.edits.all())
    naming = [row for row in rows if row.kind in (Kind.ASSIGNMENT, Kind.PAUSE, Kind.EXEMPTION)]
    bases = _texts(naming)
    texts = [text for row in naming for text in (row.document, bases.get(row.base_digest, "")) if text]
    named = [msgspec.json.decode(text, type=_Names) for text in texts]
    touched = {each.rule_set for each in named if each.rule_set} | {
        row.name for row in rows if row.kind == Kind.RULE_SET
    }
    if targets := {each.target for each in named if each.target}:
        live = current_revision()
        touched |= {name for target in targets for name in rule_sets_under(target, live)}
    return touched


def needs_review(edits: Iterable[Edit], *, rolls_back: bool = False) -> bool:
    """Return whether edits of what is live need approvals: then a door sends them to review, in place of publishing."""
    revision, wanted = current_revision(), list(edits)
    live = values_of(revision)
    touched = rule_sets_of([*(edit.value for edit in wanted), *(live.get(edit.key) for edit in wanted)], revision)
    pauses = all(isinstance(edit.value, engine.Pause) and edit.key not in live for edit in wanted)
    return bool(needs_of(touched, rolls_back=rolls_back, pauses=pauses))


class Waiting(NamedTuple):
    """Somebody whose review is asked for, by whom, and since when nothing came of it."""

    name: str
    asked_by: str
    since: datetime


def waiting_for(change: Change) -> list[Waiting]:
    """Return whose review a Change waits for, by name; who was asked first comes first."""
    events = list(change.events.all())
    if not any(event.act == _Act.ASK for event in events) or not _may_be_asked_for(change, events):
        return []
    left_out = {event.by for event in _approvals(change, events)}
    left_out |= {event.by for event in events if event.act in _AUTHORING}
    edited_at = max(event.at for event in events if event.act in _AUTHORING)
    approved_at = {event.by: event.at for event in events if event.act == _Act.APPROVE}
    found: dict[str, Waiting] = {}
    for event in events:
        if event.act == _Act.ASK and event.whom not in left_out:
            # Who has approved a former state waits since the edit that dropped it.
            answered = approved_at.get(event.whom, event.at) > event.at
            found.setdefault(event.whom, Waiting(event.whom, event.by, edited_at if answered else event.at))
    return sorted(found.values(), key=lambda each: each.since)


def _may_be_asked_for(change: Change, events: Sequence[ChangeEvent]) -> bool:
    """Return whether a review can be asked for. Asks the database only about what was published in an emergency: lists ask this of each row."""
    return lifecycle.is_possible("ask", change.state) or (
        _was_urgent(events) and lifecycle.may_be_done_now("ask", standing_of(change))
    )


def waits_for_approval_afterwards(change: Change) -> bool:
    """Return whether a Change was published in an emergency and isn't approved yet."""
    return _was_urgent(change.events.all()) and standing_of(change).waits_for_approval_afterwards


def _was_urgent(events: Iterable[ChangeEvent]) -> bool:
    return any(event.act == _Act.URGENT for event in events)


def changes_waiting_for(name: str) -> list[tuple[Change, Waiting]]:
    """Return the Changes whose review somebody was asked for and hasn't given yet, the longest wait first."""
    states = [lifecycle.IN_REVIEW, lifecycle.PUBLISHED]
    asked = Change.objects.filter(state__in=states, events__act=_Act.ASK, events__whom=name).distinct()
    asked = asked.prefetch_related("events")
    found = [(change, each) for change in asked for each in waiting_for(change) if each.name == name]
    return sorted(found, key=lambda pair: pair[1].since)


def unapproved_changes() -> list[int]:
    """Return the numbers of Changes that were published in an emergency, and aren't approved yet."""
    urgent = Change.objects.filter(state=lifecycle.PUBLISHED, events__act=_Act.URGENT)
    return [change.pk for change in urgent if standing_of(change).waits_for_approval_afterwards]


def open_changes_of(keys: Collection[Key]) -> Mapping[int, list[Key]]:
    """Return the open Changes that touch these things, each with which of them."""
    found: dict[int, list[Key]] = {}
    open_edits = ChangeEdit.objects.filter(change__state__in=lifecycle.OPEN)
    for batch in batches(sorted({name for _, name in keys})):
        for number, kind, name in open_edits.filter(name__in=batch).values_list("change", "kind", "name"):
            if (kind, name) in keys:
                found.setdefault(number, []).append((kind, name))
    return found


@contextmanager
def locked(change: Change, act: str, by: By, expected_digest: str) -> Iterator[Change]:
    """Hold a Change's row, as it is now, while an act is done that `lifecycle` allows."""
    with transaction.atomic():
        row = Change.objects.select_for_update().get(pk=change.pk)
        if expected_digest and expected_digest != row.digest:
            last = row.events.filter(act__in=_AUTHORING).last()
            who = last.by if last else "somebody"
            raise PublishingError([f"{row} changed since you looked at it: {who} edited it. Look at it again."])
        if said := lifecycle.refusal(act, actor_of(by), standing_of(row)):
            raise PublishingError([said])
        yield row


def _act(change: Change, act: _Act, by: By, expected_digest: str, text: str) -> Change:
    with locked(change, act, by, expected_digest) as row:
        finish(row, act, by, text)
    return row


def finish(row: Change, act: _Act, by: By, text: str) -> None:
    """Note an act, and write the state that it leads to."""
    if act in _AUTHORING:
        row.digest, row.rolls_back_to = _digest(row), None  # edited, it is no roll-back any more
    if act in (_Act.REJECT, _Act.WITHDRAW):
        row.publish_at = None
    if act in (_Act.SCHEDULE, _Act.PUBLISH, _Act.URGENT, _Act.REJECT, _Act.WITHDRAW):
        row.held = ""  # an edit or approval isn't enough: somebody sets a time again, or publishes
    note(row, act, by, text)
    state = lifecycle.state_after(act, standing_of(row))
    if state != row.state:
        row.state, row.moved_at = state, timezone.now()
    row.save(update_fields=_WRITTEN)
    if row.state not in lifecycle.OPEN:
        gates.cancel_gate(row)
    elif act in {_Act.SUBMIT, *_AUTHORING} and row.state != lifecycle.DRAFT:
        gates.ask_gate(row, name_of(by))


# What acts change of a Change's row.
_WRITTEN = (
    "digest",
    "state",
    "moved_at",
    "revision",
    "rolls_back_to",
    "publish_at",
    "held",
    "expires_at",
    "expired_at",
)


def note(change: Change, act: _Act, by: By, text: str, *, whom: str = "", via: str | None = None) -> None:
    """Write down what was done with a Change."""
    if not change.digest:
        change.digest = _digest(change)
        change.save(update_fields=["digest"])
    ChangeEvent.objects.create(
        change=change,
        act=act,
        by=name_of(by),
        by_user=user_of(by),
        via=via_of(by) if via is None else via,
        whom=whom,
        at=timezone.now(),
        text=text,
        digest=change.digest,
    )


def _digest(change: Change) -> str:
    """Return what names the result: each edit's content, what it was made on, and when all of it goes back."""
    named: list[object] = [
        (edit.kind, edit.name, sha256(edit.document.encode()), edit.base_digest)
        for edit in change.edits.order_by("kind", "name")
    ]
    if change.expires_at is not None:
        named.append(("expires", change.expires_at.astimezone(UTC)))
    return sha256(msgspec.json.encode(named))


def _write(change: Change, edits: Mapping[Key, Edit], bases: Mapping[Key, str], *, by: By) -> None:
    now = timezone.now()
    keep_rule_sets(edit.value for edit in edits.values() if isinstance(edit.value, engine.RuleSet))
    ChangeEdit.objects.bulk_create(
        ChangeEdit(
            change=change,
            kind=edit.kind,
            name=edit.name,
            document="" if edit.value is None else engine.encode(edit.value).decode(),
            base_digest=bases.get(key, ""),
            author=name_of(by),
            edited_at=now,
        )
        for key, edit in sorted(edits.items())
    )


def _delete(change: Change, keys: Iterable[Key]) -> None:
    for kind in Kind:
        for batch in batches([name for of_kind, name in keys if of_kind == kind]):
            change.edits.filter(kind=kind, name__in=batch).delete()


def edit_of(row: ChangeEdit) -> Edit:
    """Return what a row makes of its thing.

    Raises:
        PublishingError: a newer Berth wrote it.
    """
    try:
        return Edit(row.kind, row.name, DECODERS[row.kind].decode(row.document) if row.document else None)
    except msgspec.DecodeError as error:
        message = f"{row} can't be read: a newer Berth wrote it. Upgrade, or withdraw the Change."
        raise PublishingError([message]) from error


def _names(keys: Iterable[Key]) -> set[str]:
    return {name for _, name in keys}


def _needed(text: str, message: str) -> str:
    if not text.strip():
        raise PublishingError([message])
    return text
