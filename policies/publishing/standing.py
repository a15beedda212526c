"""The state of Changes: their edits, the things that somebody else has moved, approvals, and pending reviews. Nothing here writes."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.utils import timezone

from policies.engine import ruleset as engine
from policies.engine.pauses import ends_at
from policies.models import Change, ChangeEdit, ChangeEvent
from policies.publishing import gates, lifecycle
from policies.publishing.actors import may
from policies.publishing.assignments import Orders, orders_apart
from policies.publishing.contents import Edit, ended_with
from policies.publishing.errors import PastError, PublishingError
from policies.publishing.lifecycle import Actor, Need, Standing
from policies.publishing.merging import Merged, merge_rule_sets
from policies.publishing.parts import (
    DECODERS,
    Key,
    Kind,
    Value,
    batches,
    documents_of,
    is_same,
    live_digests,
    order_in,
    orders_at,
)
from policies.publishing.reviewing import needs_of
from policies.publishing.revisions import current_revision, values_of
from policies.publishing.touched import rule_sets_of, rule_sets_touched

_Act = ChangeEvent.Act
_PERMISSIONS = "django.contrib.auth.backends.ModelBackend"

# Acts that make somebody an author.
AUTHORING = (_Act.OPEN, _Act.EDIT, _Act.REBASE)


class Moved(NamedTuple):
    """A thing that a Change touches and somebody else has published meanwhile: the three sides. None where it is absent."""

    kind: str
    name: str
    base: Value | None
    live: Value | None
    mine: Value | None

    @property
    def key(self) -> Key:
        """Kind and name."""
        return self.kind, self.name


# Stands for the order of Assignments among moved things, which have a kind and a name.
ORDER: Final[Key] = ("Assignments", "order")


class Waiting(NamedTuple):
    """Somebody whose review was requested, by whom, and since when it is pending."""

    name: str
    asked_by: str
    since: datetime


def edits_of(change: Change) -> list[Edit]:
    """Return the edits of a Change."""
    return [edit_of(each) for each in change.edits.all()]


def edit_of(row: ChangeEdit) -> Edit:
    """Return the edit of a row.

    Raises:
        PublishingError: a newer Berth wrote it.
    """
    try:
        return Edit(row.kind, row.name, DECODERS[row.kind].decode(row.document) if row.document else None)
    except msgspec.DecodeError as error:
        message = f"{row} can't be read: it was written by a newer version of Berth. Upgrade, or withdraw the Change."
        raise PublishingError([message]) from error


def readable_edits(change: Change) -> tuple[list[Edit], dict[Key, str]]:
    """Return the edits of a Change that can be read, and why each other one can't: it can still be shown, and withdrawn."""
    edits, faults = list[Edit](), dict[Key, str]()
    for row in change.edits.all():
        try:
            edits.append(edit_of(row))
        except PublishingError as error:
            faults[row.key] = " ".join(error.messages)
    return edits, faults


def edits_between(before: engine.Revision, after: engine.Revision) -> list[Edit]:
    """Return the edits that turn one Revision into another; rule sets keep the version numbers that they have there."""
    old, new = values_of(before), values_of(after)
    return [Edit(*key, new.get(key)) for key in old | new if old.get(key) != new.get(key)]


def differing(edits: Iterable[Edit], live: engine.Revision) -> dict[Key, Edit]:
    """Return the edits that differ from the live state."""
    values = values_of(live)
    return {edit.key: edit for edit in edits if not is_same(values.get(edit.key), edit.value)}


def moved_of(change: Change) -> list[Moved]:
    """Return the things that a Change touches and somebody else has published meanwhile, with the three sides of each.

    Raises:
        PublishingError: an edit of them can't be read.
    """
    return _sides_of(_moved_rows(change, current_revision().number))


def readable_moved(change: Change) -> list[Moved]:
    """Return `moved_of` a Change without the edits that can't be read."""
    _, faults = readable_edits(change)
    return _sides_of([row for row in _moved_rows(change, current_revision().number) if row.key not in faults])


def _sides_of(rows: Sequence[ChangeEdit]) -> list[Moved]:
    values, bases = values_of(current_revision()), _bases(rows)
    return [Moved(*row.key, bases[row.key], values.get(row.key), edit_of(row).value) for row in rows]


def merged_of(moved: Moved, chosen: Mapping[str, str] | None = None) -> Merged | None:
    """Return the merge of both sides of a moved thing by `merge_rule_sets`; None where it isn't a rule set on all sides."""
    match moved.base, moved.live, moved.mine:
        case engine.RuleSet() as base, engine.RuleSet() as theirs, engine.RuleSet() as mine:
            return merge_rule_sets(base, theirs, mine, chosen)
        case _:
            return None


def orders_of(change: Change, without: Collection[Key] = ()) -> Orders | None:
    """Return the orders of Assignments that a Change and others since want, where their numbers combined give an order that neither wants.

    `without` are edits that are left out, as if they had been given up.
    """
    live = current_revision()
    rows = [row for row in change.edits.all() if row.kind == Kind.ASSIGNMENT and row.key not in without]
    if not rows or change.base == live.number:
        return None
    edits = {row.name: order_in(row.document) for row in rows}
    return orders_apart(orders_at(change.base), {each.name: each.order for each in live.assignments}, edits)


def endings_of(change: Change) -> list[engine.Pause | engine.Exemption]:
    """Return the Pauses and Exemptions that an open Change ends without naming them, since it removes their targets.

    An edit that can't be read ends none: it can't go live.
    """
    return ended_with(current_revision(), readable_edits(change)[0]) if change.state in lifecycle.OPEN else []


def past_ends(edits: Iterable[Edit]) -> list[str]:
    """Return which Pauses and Exemptions would go live though their end is past, one sentence each: applied files may be old."""
    return [
        f"! {_ended(edit, end)}, which is past: it has nothing out of force"
        for edit, end in _past(edits, timezone.now())
    ]


def _ended_meanwhile(change: Change) -> tuple[str, ...]:
    """Return which Pauses and Exemptions ended while an open Change waited, one sentence each: its purpose is over."""
    return tuple(
        f"{_ended(edit, end)}, while this waited: live, it would have nothing out of force. Give it another end, or take it out."
        for edit, end in ended_by(change, timezone.now())
    )


def ended_by(change: Change, at: datetime) -> list[tuple[Edit, datetime]]:
    """Return which Pauses and Exemptions of an open Change end while it waits until a moment.

    An end that was past when the edit was made is intended, such as in a rollback.
    """
    if change.state not in lifecycle.OPEN or change.rolls_back_to is not None or change.expiry_of_id is not None:
        return []
    rows = {row.key: row for row in change.edits.all() if row.kind in (Kind.PAUSE, Kind.EXEMPTION)}
    try:
        return [(edit, end) for edit, end in _past(map(edit_of, rows.values()), at) if end > rows[edit.key].edited_at]
    except PublishingError:
        return []  # an edit by a newer Berth isn't published anyway


def _past(edits: Iterable[Edit], at: datetime) -> Iterator[tuple[Edit, datetime]]:
    """Iterate over the Pauses and Exemptions whose end is past at a moment."""
    for edit in edits:
        end = ends_at(edit.value.until) if isinstance(edit.value, engine.Pause | engine.Exemption) else None
        if end is not None and end <= at:
            yield edit, end


def _ended(edit: Edit, end: datetime) -> str:
    return f"{edit.kind} {edit.name} ended at {said_at(end)}"


def _moved_rows(change: Change, number: int) -> list[ChangeEdit]:
    rows = list(change.edits.all())
    digests = live_digests([row.key for row in rows], number)
    return [row for row in rows if digests.get(row.key, "") != row.base_digest]


def moved_names(change: Change) -> list[str]:
    """Return the names of the things of a Change that somebody else has moved."""
    named = [f"{row.kind} {row.name}" for row in _moved_rows(change, current_revision().number)]
    return [*named, *(["order of Assignments"] if orders_of(change) else [])]


def bases_of(change: Change) -> dict[Key, Value | None]:
    """Return the live content of each thing when its edit was made.

    None where there was none, where a restored database lacks it, and where a newer Berth wrote it: then it isn't live any more.
    """
    return _bases(list(change.edits.all()))


def _bases(rows: Sequence[ChangeEdit], read: Mapping[str, str] | None = None) -> dict[Key, Value | None]:
    documents = documents_of({row.base_digest for row in rows} - {""}) if read is None else read
    return {row.key: _base(row.kind, documents.get(row.base_digest, "")) for row in rows}


def _base(kind: str, document: str) -> Value | None:
    try:
        return DECODERS[kind].decode(document) if document else None
    except msgspec.DecodeError:
        return None  # an edit of it can't be published before a rebase, which reads the live content


def gate_of(change: Change) -> gates.Gate:
    """Return the state of the gate for a Change."""
    return gates.gate_of(change, current_revision())


def standing_of(change: Change, gate: gates.Gate | None = None) -> Standing:
    """Return the state of a Change for `lifecycle`; `gate` is the state of the gate, if that is known already."""
    events = list(change.events.all())
    moved = moved_names(change) if change.state in lifecycle.OPEN else []
    given = approvals_given(change, events)
    lapsed = _lapsed(change, events, given)
    approvals = [event for event in given if event not in lapsed]
    approved_by = {event.who for event in approvals}
    needs = _needs(change, events)
    authors = {event.who for event in events if event.act in AUTHORING}
    urgent_by = next((event.who for event in events if event.act == _Act.URGENT), "")
    return Standing(
        state=change.state,
        authors=authors,
        approved_by=approved_by,
        lapsed=tuple(
            f"The approval of {name} doesn't count any more: {why}."
            for name, why in sorted({event.who: why for event, why in (lapsed | _overtaken(events)).items()}.items())
            if name not in approved_by
        ),
        needed=max((need.approvals for need in needs if not need.group), default=0),
        needs=tuple(_with_members(need, approvals, authors, urgent_by) for need in needs if need.group),
        moved=tuple(moved),
        is_empty=not change.edits.exists(),
        urgent_by=urgent_by,
        approved_afterwards=change.approved_afterwards_at is not None,
        gate=_gate_refusal(change, events, gate),
        expired=_expired(change),
        ended=_ended_meanwhile(change),
    )


def _expired(change: Change) -> str:
    """Return the expiry of a Change that is still open, if it is past."""
    at = change.expires_at
    return said_at(at) if at is not None and at <= timezone.now() and change.state in lifecycle.OPEN else ""


def said_at(at: datetime) -> str:
    """Return a time in its stored form."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def check_ahead(at: datetime, what: str) -> None:
    """Check that a time which somebody sets is in the future; `what` names the event at that time.

    Raises:
        PastError: it is past.
    """
    now = timezone.now()
    if at <= now:
        raise PastError([f"{what} at {said_at(at)}, which is past: it is {said_at(now)} now."])


def _gate_refusal(change: Change, events: Iterable[ChangeEvent], gate: gates.Gate | None) -> str:
    """Return why the gate blocks publishing of a Change; empty where it doesn't, and for Changes that can't wait for it."""
    if change.state not in lifecycle.OPEN or not can_wait_for_gate(change, events):
        return ""
    return (gate or gate_of(change)).refusal


def can_wait_for_gate(change: Change, events: Iterable[ChangeEvent], read: Mapping[str, str] | None = None) -> bool:
    """Return whether the gate may keep an open Change from being published: not one that restores formerly live content, or only pauses.

    Resuming waits: the gate examines what comes into force. `read` is as in `only_tightens_pauses`.
    """
    goes_back = change.rolls_back_to is not None or is_way_back(change, events)
    return not goes_back and bool(change.edits.all()) and not only_tightens_pauses(change, read)


def approvals_given(change: Change, events: Sequence[ChangeEvent]) -> list[ChangeEvent]:
    """Return the approvals of the current content. An edit, a rebase, a rejection, a moved base or an emergency ends earlier ones."""
    ended = max((event.pk for event in events if event.act in ChangeEvent.ENDS_APPROVALS), default=0)
    return [
        event for event in events if event.act == _Act.APPROVE and event.digest == change.digest and event.pk > ended
    ]


def _lapsed(change: Change, events: Iterable[ChangeEvent], given: Iterable[ChangeEvent]) -> dict[ChangeEvent, str]:
    """Return the approvals of people who may not approve now, each with the reason.

    A published Change stays approved; one that was published in an emergency, once it is approved afterwards.
    """
    is_approved_afterwards = change.approved_afterwards_at is not None
    if change.state not in lifecycle.OPEN and (is_approved_afterwards or not _was_urgent(events)):
        return {}
    return {event: why for event in given if (why := _why_not(event.by_user))}


def _overtaken(events: Sequence[ChangeEvent]) -> dict[ChangeEvent, str]:
    """Return the approvals that would count if nobody had moved the Change's base since; each with who moved it."""
    found: dict[ChangeEvent, str] = {}
    given: list[ChangeEvent] = []
    for event in events:
        if event.act == _Act.APPROVE:
            given.append(event)
        elif event.act == _Act.OVERTAKE:
            found |= dict.fromkeys(given, event.text)
        elif event.act in ChangeEvent.ENDS_APPROVALS:
            found, given = {}, []
    return found


def _why_not(user: User | None) -> str:
    """Return why an account may not approve; None is one that was deleted."""
    if user is None:
        return "the account is gone"
    if not user.is_active:
        return "the account is inactive"
    return "" if may(user, "policies.approve") else "that account may not approve Changes now"


def _with_members(need: Need, approvals: Sequence[ChangeEvent], authors: Collection[str], urgent_by: str) -> Need:
    """Return a need with the approvers in its group and how many people may approve; without any, whether the group still exists.

    The approval of those who edited the Change, or published it in an emergency, can't count.
    """
    members = _members(need.group, approvals)
    is_gone = not members and not Group.objects.filter(name=need.group).exists()
    names = set(_able_of(need.group).values_list("username", flat=True))
    able = names.difference(authors, [urgent_by])
    who = "those who edited or published it" if urgent_by else "those who edited it"
    left_out = who if len(able) < len(names) else ""
    return msgspec.structs.replace(need, members=members, is_gone=is_gone, able=len(able), left_out=left_out)


def number_able(group: str) -> int:
    """Return how many people of a group may approve."""
    return _able_of(group).count()


def _able_of(group: str) -> QuerySet[User]:
    return _able_to_approve().filter(groups__name=group)


def _members(group: str, approvals: Sequence[ChangeEvent]) -> frozenset[str]:
    users = {event.by_user_id: event.who for event in approvals if event.by_user_id}
    found = User.objects.filter(pk__in=users, groups__name=group).values_list("pk", flat=True)
    return frozenset(users[pk] for pk in found)


def is_way_back(change: Change, events: Iterable[ChangeEvent]) -> bool:
    """Return whether a Change takes back an expired one and was approved with it: nobody has edited or rejected it."""
    return change.expiry_of_id is not None and not any(event.act in ChangeEvent.ENDS_APPROVALS for event in events)


def _needs(change: Change, events: Sequence[ChangeEvent]) -> list[Need]:
    if is_way_back(change, events):
        return []
    return needs_of(
        rule_sets_touched(change, current_revision()),
        rolls_back=change.rolls_back_to is not None,
        pauses=only_tightens_pauses(change),
    )


def only_tightens_pauses(change: Change, read: Mapping[str, str] | None = None) -> bool:
    """Return whether a Change only takes more out of force, or for longer: no rule comes into force by it.

    `read` holds the documents of base Pauses, by digest, if they were read before.
    """
    rows = list(change.edits.all())
    if {row.kind for row in rows} != {Kind.PAUSE}:
        return False
    bases = _bases(rows, read)
    try:
        return all(_tightens(bases.get(edit.key), edit.value) for edit in edits_of(change))
    except PublishingError:
        return False  # an edit by a newer Berth is reviewed like any other


def _tightens(before: Value | None, after: Value | None) -> bool:
    """Return whether paused things stay paused, at least as long as before."""
    match before, after:
        case None, engine.Pause():
            return True
        case engine.Pause(), engine.Pause() if before.target == after.target:
            was, end = ends_at(before.until), ends_at(after.until)
            return end is None or (was is not None and was <= end)
        case _:
            return False


def needs_review(edits: Iterable[Edit], *, rolls_back: bool = False) -> bool:
    """Return whether edits of the live state need approvals: then callers send them to review instead of publishing them."""
    revision, wanted = current_revision(), list(edits)
    touched = rule_sets_of(wanted, revision)
    return bool(needs_of(touched, rolls_back=rolls_back, pauses=_only_tighten_pauses(wanted, revision)))


def needs_gate(edits: Iterable[Edit]) -> bool:
    """Return whether edits of the live state need a run of the gate first: then callers send them to review, too."""
    return settings.BERTH.gate_required and not _only_tighten_pauses(edits, current_revision())


def _only_tighten_pauses(edits: Iterable[Edit], revision: engine.Revision) -> bool:
    """Return whether edits of the live state only take more out of force, or for longer."""
    live = values_of(revision)
    return all(_tightens(live.get(edit.key), edit.value) for edit in edits)


def way_to_live(change: Change) -> str:
    """Return what has to happen before a Change in review goes live, as words that follow `once`."""
    is_short = bool(standing_of(change).missing)
    return "it is approved and published" if is_short else "the gate has run and it is published"


def _able_to_approve() -> QuerySet[User]:
    """Return the accounts that may approve now."""
    return User.objects.with_perm("policies.approve", backend=_PERMISSIONS)


def able_among(accounts: Collection[int]) -> set[int]:
    """Return which of these accounts, by their keys, may approve now."""
    return set(_able_to_approve().filter(pk__in=accounts).values_list("pk", flat=True)) if accounts else set()


def reviewers_among(changes: Iterable[Change]) -> set[int]:
    """Return the accounts, by their keys, whose review was requested and who may approve now: one query for any number of Changes."""
    events = (event for change in changes for event in change.events.all())
    asked = {event.whom_user_id for event in events if event.act == _Act.ASK and event.whom_user_id is not None}
    return able_among(asked)


def waiting_for(change: Change, reviewers: Collection[int] | None = None) -> list[Waiting]:
    """Return the people whose review a Change waits for, by name, in the order in which they were asked.

    People who may no longer approve are left out: otherwise the Change would seem to wait for somebody who can't act.

    Args:
        change: the Change.
        reviewers: `reviewers_among` several Changes; queried for this one alone when not given.
    """
    events = list(change.events.all())
    left_out = {event.who for event in approvals_given(change, events)}
    left_out |= {event.who for event in events if event.act in (*AUTHORING, _Act.URGENT)}
    asked = [event for event in events if event.act == _Act.ASK and event.asked not in left_out]
    if not asked or not _may_be_asked_for(change, events):
        return []
    able = reviewers_among([change]) if reviewers is None else reviewers
    asked = [event for event in asked if event.whom_user_id in able]
    if not asked:
        return []
    dropped_at = max(event.at for event in events if event.act in (_Act.OPEN, *ChangeEvent.ENDS_APPROVALS))
    approved_at = {event.who: event.at for event in events if event.act == _Act.APPROVE}
    found: dict[str, Waiting] = {}
    for event in asked:
        # Former approvers are waited for since their approval was dropped: by an edit, a moved base, a rejection, an emergency.
        answered = approved_at.get(event.asked, event.at) > event.at
        found.setdefault(event.asked, Waiting(event.asked, event.who, dropped_at if answered else event.at))
    return sorted(found.values(), key=lambda each: each.since)


def _may_be_asked_for(change: Change, events: Sequence[ChangeEvent]) -> bool:
    """Return whether a review can be requested.

    Queries the database only for approved Changes and for emergencies, since lists call this for each row.
    """
    if lifecycle.is_possible("ask", change.state):
        return True
    is_asked = change.state == lifecycle.APPROVED or _was_urgent(events)
    return is_asked and lifecycle.may_be_done_now("ask", standing_of(change))


def waits_for_approval_afterwards(change: Change) -> bool:
    """Return whether a Change was published in an emergency and isn't approved yet."""
    return _was_urgent(change.events.all()) and standing_of(change).waits_for_approval_afterwards


def _was_urgent(events: Iterable[ChangeEvent]) -> bool:
    return any(event.act == _Act.URGENT for event in events)


def changes_waiting_for(name: str) -> list[tuple[Change, Waiting]]:
    """Return the Changes that somebody was asked to review and hasn't yet, the longest wait first.

    Changes with moved things are left out: they wait for an author to rebase them, and can't be approved until then.
    """
    states = [lifecycle.IN_REVIEW, lifecycle.APPROVED, lifecycle.PUBLISHED]
    numbers = ChangeEvent.objects.filter(act=_Act.ASK, whom_user__username=name).values("change")
    asked = Change.objects.filter(pk__in=numbers, state__in=states).prefetch_related("events")
    reviewers = reviewers_among(asked)
    found = [(change, each) for change in asked for each in waiting_for(change, reviewers) if each.name == name]
    found = [(change, each) for change, each in found if change.state not in lifecycle.OPEN or not moved_names(change)]
    return sorted(found, key=lambda pair: pair[1].since)


def unapproved_changes() -> list[int]:
    """Return the numbers of Changes that were published in an emergency, and aren't approved yet."""
    urgent = Change.objects.filter(state=lifecycle.PUBLISHED, events__act=_Act.URGENT)
    return [change.pk for change in urgent if standing_of(change).waits_for_approval_afterwards]


def askable(change: Change, *, asking: str) -> list[str]:
    """Return the people whom `asking` can ask to review a Change, by name."""
    standing = standing_of(change)
    waiting = {each.name for each in waiting_for(change)}
    able = _able_to_approve().prefetch_related("groups")
    return [
        user.username
        for user in able.order_by("username")
        if user.username not in waiting | standing.approved_by
        and not lifecycle.refusal_to_be_asked(
            Actor(user.username, may_approve=True),
            {group.name for group in user.groups.all()},
            standing,
            asking=asking,
        )
    ]


def approved_changes_on(keys: Collection[Key]) -> list[int]:
    """Return the numbers of the open Changes that anybody has approved and that are based on these things.

    A Change with an Assignment is based on the order of all Assignments.
    """
    approved = ChangeEvent.objects.filter(act=_Act.APPROVE, change__state__in=lifecycle.OPEN)
    candidates = set(approved.order_by().values_list("change", flat=True))
    if not candidates:
        return []
    found = candidates & open_changes_of(keys).keys()
    if any(kind == Kind.ASSIGNMENT for kind, _ in keys):
        ordering = ChangeEdit.objects.filter(kind=Kind.ASSIGNMENT, change__in=candidates)
        found |= set(ordering.order_by().values_list("change", flat=True))
    return sorted(found)


def open_changes_of(keys: Collection[Key]) -> Mapping[int, list[Key]]:
    """Return the open Changes that touch these things, each with the things that it touches."""
    found: dict[int, list[Key]] = {}
    open_edits = ChangeEdit.objects.filter(change__state__in=lifecycle.OPEN)
    for batch in batches(sorted({name for _, name in keys})):
        for number, kind, name in open_edits.filter(name__in=batch).values_list("change", "kind", "name"):
            if (kind, name) in keys:
                found.setdefault(number, []).append((kind, name))
    return found
