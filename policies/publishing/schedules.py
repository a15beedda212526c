"""Scheduled publishing and expiry of Changes: set by people, carried out once by the clock.

The clock uses the same verbs as people, so nothing goes live that a person couldn't publish. A Change that is refused is held
back with the reason, and tried again once somebody sets another time. Lateness is no reason to refuse: times missed in an
outage are caught up.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby

import msgspec
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import QuerySet

from policies.engine import ruleset as engine
from policies.engine.pauses import ends_at
from policies.models import AuditEvent, Change, ChangeEvent, GateRun, RevisionPart
from policies.origin import Door, coming_from, current_origin
from policies.publishing import audit, lifecycle
from policies.publishing.actors import CLOCK, By
from policies.publishing.acts import finish, locked
from policies.publishing.changes import TakenBack, publish_change, run_gate, write_change
from policies.publishing.contents import Edit, missing_target, with_edits
from policies.publishing.errors import OvertakenError, PublishingError
from policies.publishing.parts import Key, live_digests
from policies.publishing.revisions import current_revision, load_revision, lock_revisions, values_of
from policies.publishing.standing import (
    AUTHORING,
    check_ahead,
    differing,
    ended_by,
    gate_of,
    open_changes_of,
    said_at,
    standing_of,
)
from policies.wording import counted, visible

_Act = ChangeEvent.Act

# A Change that is later than this is reported as late: a few ticks of the clock.
_LATE_AFTER = timedelta(seconds=60)
# How long a due Change waits for one run of the gate, and how long further runs are requested because others publish; then it
# is held back, with the reason.
_GATE_TAKES_AT_MOST = timedelta(minutes=10)
# A Change that an internal error keeps from going live is retried this long; then it is held back, with the reason.
_TRIED_AT_MOST = timedelta(minutes=10)

# Errors that all due Changes meet at once.
_DATABASE_IS_AWAY = (OperationalError, InterfaceError)
_logger = logging.getLogger(__name__)


def schedule_change(
    *,
    change: Change,
    by: By,
    publish_at: datetime | None,
    expected_digest: str,
    expected_at: datetime | msgspec.UnsetType | None = msgspec.UNSET,
) -> Change:
    """Schedule a Change, with the content that the person looked at, to go live at a time; an edit cancels this. None removes the time.

    Approvals may still be missing; if they are missing at that time, the Change is held back.

    Args:
        change: the Change.
        by: who schedules it.
        publish_at: the time.
        expected_digest: the Change's digest when that person looked.
        expected_at: its time when that person looked, which isn't part of the digest; UNSET compares nothing.

    Raises:
        OvertakenError: somebody else gave it another content or another time.
        PublishingError: the time is past or after its expiry, another scheduled Change touches the same things, or this account
            may not publish.
    """
    with transaction.atomic():
        lock_revisions()  # so that two Changes of the same things aren't scheduled concurrently
        with locked(change, "schedule", by, expected_digest) as row:
            if expected_at is not msgspec.UNSET and row.publish_at != expected_at:
                if _is_so(row, publish_at):
                    return row  # a form that is sent twice sets it once
                raise OvertakenError([_rescheduled(row)])
            if publish_at is not None:
                _check_publish_at(row, publish_at)
            row.publish_at = publish_at
            when = f"to go live at {said_at(publish_at)}" if publish_at else "at no time: somebody has to publish it"
            finish(row, _Act.SCHEDULE, by, when)
    return row


def _is_so(row: Change, publish_at: datetime | None) -> bool:
    """Return whether a Change goes live at this time already, or at none."""
    return row.publish_at == publish_at and (publish_at is None or (not row.held and holds_schedule(row)))


def _rescheduled(row: Change) -> str:
    now = f"goes live at {said_at(row.publish_at)}" if row.publish_at else "isn't scheduled"
    return f"Somebody changed the time of {row} since you looked at it: it {now} now. Look at it again."


def _check_publish_at(row: Change, publish_at: datetime) -> None:
    check_ahead(publish_at, "It would go live")
    if row.expires_at is not None and publish_at >= row.expires_at:
        raise PublishingError([f"It would go live after it goes back, at {said_at(row.expires_at)}."])
    said = [_in_the_way(other, keys) for other, keys in _scheduled_on_the_same(row)]
    if said := said or [*_taken_back_before(row, publish_at), *_ended_before(row, publish_at)]:
        raise PublishingError(said)


def _ended_before(row: Change, publish_at: datetime) -> Iterator[str]:
    """Iterate over the Pauses and Exemptions of a Change that end before it goes live: it would certainly be held back."""
    for edit, end in ended_by(row, publish_at):
        yield (
            f"{edit.kind} {edit.name} ends at {said_at(end)}: live after that, it would have nothing out of force. Set a time before "
            "that, give it another end, or take it out."
        )


def _taken_back_before(row: Change, publish_at: datetime) -> Iterator[str]:
    """Iterate over the bases of a Change that expire before it goes live: it would certainly be held back."""
    keys = {each.key for each in row.edits.all()}
    expiring = Change.objects.filter(state=lifecycle.PUBLISHED, expires_at__lte=publish_at, expired_at=None)
    for other in expiring.order_by("pk").prefetch_related("edits"):
        named = [
            f"{kind} {name}"
            for kind, name in sorted(keys & {each.key for each in other.edits.all()})
            if _holder((kind, name)) == other
        ]
        if named and other.expires_at:
            yield (
                f"{other} goes back at {said_at(other.expires_at)}, and {', '.join(named)} with it: this was made on that, and would be held back. "
                f"Set a time before that; or set it once {other} is back and this one is rebased."
            )


def _scheduled_on_the_same(row: Change) -> list[tuple[Change, Sequence[Key]]]:
    """Return the other scheduled Changes that touch the same things: the base of whichever goes live second would be gone."""
    found = open_changes_of({each.key for each in row.edits.all()})
    others = scheduled_changes().filter(pk__in=[number for number in found if number != row.pk])
    return [(other, found[other.pk]) for other in others if holds_schedule(other)]


def _in_the_way(other: Change, keys: Sequence[Key]) -> str:
    named = ", ".join(f"{kind} {name}" for kind, name in sorted(keys))
    at = said_at(other.publish_at) if other.publish_at else "its time"
    return (
        f"{other} goes live at {at} and touches {named} too: whichever of the two is second would be held back, because it was "
        f"made on what isn't live by then. Put the edits into one Change; or set this time once {other} is live and this one is rebased; or take the "
        f"time of {other} back."
    )


def set_expiry(*, change: Change, by: By, expires_at: datetime | None, expected_digest: str) -> Change:
    """Set the time at which the things of a Change return to their content before it; None keeps the Change for good.

    The expiry is part of the approved content: whoever sets it becomes an author, and approvals for another time are dropped.

    Raises:
        PublishingError: the time is past, or before the Change goes live, or this account may not edit it.
    """
    with locked(change, "edit", by, expected_digest) as row:
        if expires_at == row.expires_at:
            return row  # no edit: nobody becomes an author by it, and approvals stay
        if expires_at is not None:
            check_ahead(expires_at, "It would go back")
            if row.publish_at is not None and expires_at <= row.publish_at and holds_schedule(row):
                raise PublishingError([f"It would go back before it goes live, at {said_at(row.publish_at)}."])
        row.expires_at = expires_at
        finish(row, _Act.EDIT, by, f"goes back at {said_at(expires_at)}" if expires_at else "doesn't go back by itself")
    return row


def holds_schedule(change: Change) -> bool:
    """Return whether nobody has edited a Change since it was scheduled, be it undone later: else the clock doesn't publish it."""
    armed = _armed(change.pk)
    return armed is not None and _edited_since(change, armed) is None


def held_changes() -> QuerySet[Change]:
    """Return the Changes that didn't go live, or expire, at their time, and need somebody to act."""
    return Change.objects.filter(state__in=lifecycle.OPEN).exclude(held="")


def scheduled_changes() -> QuerySet[Change]:
    """Return the scheduled Changes, the next one first."""
    due = Change.objects.filter(state__in=lifecycle.OPEN, publish_at__isnull=False, held="")
    return due.order_by("publish_at", "pk")


def publish_due(*, now: datetime) -> list[str]:
    """Do all that is due, each once, even with concurrent callers.

    Returns:
        What was done or held back, one sentence each.
    """
    with coming_from(msgspec.structs.replace(current_origin(), door=Door.BEAT, via=CLOCK)):
        return _do_due(now)


def _do_due(now: datetime) -> list[str]:
    expired = Change.objects.filter(state=lifecycle.PUBLISHED, expires_at__lte=now, expired_at=None)
    # In the order in which it would have been done on time. Changes that expire together do so newest first: they may depend on older ones.
    ends = [(at, False, -made, number) for at, made, number in expired.values_list("expires_at", "revision", "pk")]
    begins = [(at, True, 0, number) for at, number in _due(now).values_list("publish_at", "pk")]
    tick = _Tick(now)
    for (_, begins_then), group in groupby(sorted([*ends, *begins]), key=lambda each: each[:2]):
        numbers = [number for *_, number in group]
        if begins_then:
            tick.go_live(numbers)
        else:
            tick.take_back(numbers)
    if tick.faults:
        for said in tick.said:
            _logger.info("%s", said)
        message = "some Changes that were due failed; the others were handled on time"
        raise ExceptionGroup(message, tick.faults)
    return tick.said


class _Tick:
    """One tick of the clock: an error in one Change doesn't delay others.

    Attributes:
        said: what was done or held back, one sentence each.
        faults: internal errors. The Changes concerned are tried again at the next tick.
    """

    def __init__(self, now: datetime) -> None:
        self._now = now
        # Whether a Change that was due by the present moment waits for the gate: one that is refused may depend on it.
        self._some_wait = False
        self.said: list[str] = []
        self.faults: list[Exception] = []

    def go_live(self, numbers: Sequence[int]) -> None:
        """Publish the Changes due at one moment. A refused one is tried again after the others, since it may depend on one of them.

        For the same reason it isn't held back while one that was due by then waits for the gate.
        """
        refused: dict[int, Sequence[str]] = {}
        for number in numbers:
            try:
                said = _go_live(number, self._now)
                self._some_wait |= said is None
                self._note(said or "")
            except PublishingError as error:
                refused[number] = error.messages
            except _DATABASE_IS_AWAY:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and others have their times
                self._note(self._put_off(number, error))
        if 0 < len(refused) < len(numbers):
            self.go_live(list(refused))
            return
        if self._some_wait:
            return
        for number, messages in refused.items():
            self._note(_hold(number, self._now, messages))

    def take_back(self, numbers: Iterable[int]) -> None:
        """Take back the Changes that expire at one moment, one after the other: a later one may restore the content of an earlier one."""
        for number in numbers:
            try:
                self._note(_take_back(number, self._now))
            except _DATABASE_IS_AWAY:
                raise
            except Exception as error:  # noqa: BLE001 - the same
                self.faults.append(error)
            self.go_live(list(_due(self._now).filter(expiry_of=number).values_list("pk", flat=True)))

    def _put_off(self, number: int, fault: Exception) -> str:
        """Leave a Change to the next tick, or hold it back if it was retried for long enough."""
        self.faults.append(fault)
        due = Change.objects.get(pk=number).publish_at
        if due is None or self._now - due <= _TRIED_AT_MOST:
            return ""
        said = f"a fault of Berth's own ({type(fault).__name__}) kept it from that; the log of the worker that runs the clock has it."
        return _hold(number, self._now, [said])

    def _note(self, said: str) -> None:
        self.said += [said] if said else []


def _due(now: datetime) -> QuerySet[Change]:
    return scheduled_changes().filter(publish_at__lte=now)


def _go_live(number: int, now: datetime) -> str | None:
    """Publish a Change whose time has come; return the outcome, empty if there was nothing to do, None while it waits for the gate.

    Raises:
        PublishingError: it can't be published.
    """
    armed = _armed(number)  # read before the Change: `publish_change` then notices each time that is set in between
    change = Change.objects.get(pk=number)
    due = change.publish_at
    # Somebody may have given it a later time while the clock published others.
    if due is None or due > now or armed is None or change.held:
        return ""
    if _waits_for_gate(change, due, now):
        return None
    by = _who_armed(armed)
    if edit := _edited_since(change, armed):
        raise OvertakenError([f"{change} changed since its time was set: {edit.by} edited it. Look at it again."])
    reason = f"{change.reason or change.title} (scheduled by {armed.by} for {said_at(due)}{_late(due, now)})"
    made = publish_change(change=change, by=by, expected_digest=armed.digest, reason=reason, armed=armed)
    return f"{change} made {made}{_late(due, now)}"


def _waits_for_gate(change: Change, due: datetime, now: datetime) -> bool:
    """Return whether a due Change waits for the gate; a run is requested where the last one is too old to publish by."""
    gate = gate_of(change)
    if not gate.needs_run or not standing_of(change, gate).gate:
        return False
    if gate.run is not None and gate.run.is_under_way:
        return now - gate.run.asked_at < _GATE_TAKES_AT_MOST
    if gate.run is not None and gate.run.state == GateRun.State.FAILED and gate.run.asked_at >= due:
        return False
    asked_at = _gate_asked_at(change, due)
    if asked_at is not None and now - asked_at >= _GATE_TAKES_AT_MOST:
        return False  # others publish more often than the gate ends, or it is run by another version of Berth
    run_gate(change=change, by=CLOCK)
    return True


def _gate_asked_at(change: Change, due: datetime) -> datetime | None:
    """Return when the clock first requested the gate for a due Change: at that time, or at the end of an outage. None if it didn't yet."""
    events = AuditEvent.objects.filter(change=change.pk, kind=audit.Kind.GATE_ASK, by=CLOCK, at__gte=due)
    return events.order_by("pk").values_list("at", flat=True).first()


@transaction.atomic
def _hold(number: int, now: datetime, messages: Sequence[str]) -> str:
    """Record why a Change wasn't published at its time, if it is still waiting: another call may have published it."""
    row = Change.objects.select_for_update().get(pk=number)
    due = row.publish_at
    if row.state not in lifecycle.OPEN or row.held or due is None or due > now:
        return ""
    said = visible(" ".join(messages))  # they quote documents, and there is nobody to report a fault of the text to
    row.held = f"It was to go live at {said_at(due)}, and did not: {said}"
    finish(row, _Act.HOLD, CLOCK, said)
    return f"{row} is held back: {said}"


@transaction.atomic
def _take_back(number: int, now: datetime) -> str:
    """Open the Change that takes an expired one back, due at once; later changes by others aren't overwritten."""
    before = lock_revisions()
    row = Change.objects.select_for_update().get(pk=number)
    if row.state != lifecycle.PUBLISHED or row.expired_at is not None or row.expires_at is None:
        return ""
    due, row.expired_at = row.expires_at, now
    left = {key: over for each in row.edits.all() if (over := _over(row, key := each.key))}
    edits, unrestorable = _edits_back(row, left, now)
    said = "".join(f"; {kind} {name} is left to {over}" for (kind, name), over in sorted(left.items()))
    said += "".join(f"; {kind} {name} doesn't come back: {why}" for (kind, name), why in sorted(unrestorable.items()))
    if not edits:
        finish(row, _Act.EXPIRE, CLOCK, f"nothing: what was live before it is live again{said}")
        return f"{row} has nothing to take back{said}"
    reason = f"{row} was to go back at {said_at(due)}"
    title = visible(f"Take back {row}: {row.title}")  # the title may be from before titles were checked
    touched = [each.key for each in row.edits.all() if each.key in edits]
    takes_back = TakenBack(row, _bases_of_others(row, touched, now))
    change = write_change(title, edits, before, by=CLOCK, reason=reason, takes_back=takes_back)
    # Published by the next step; after an error in between, by the next tick.
    change.publish_at = due
    finish(change, _Act.SCHEDULE, CLOCK, "to go live at once")
    finish(row, _Act.EXPIRE, CLOCK, f"what it made, by {change}{_late(due, now)}{said}")
    return f"{row} is taken back by {change}{said}"


def _edits_back(change: Change, left: Collection[Key], now: datetime) -> tuple[dict[Key, Edit], dict[Key, str]]:
    """Return the edits that restore the content before a Change of each thing that it touched, except for those given.

    Also returns the Pauses and Exemptions that can't come back because their targets are gone, each with the reason.
    """
    live = current_revision()
    back = _before(change, [edit.key for edit in change.edits.all() if edit.key not in left], now)
    after = with_edits(live, back)
    gone = {
        edit.key: why
        for edit in back
        if isinstance(edit.value, engine.Pause | engine.Exemption) and (why := missing_target(edit.value.target, after))
    }
    suspended = _suspended_again(change, live, after, now)
    return differing([*(edit for edit in back if edit.key not in gone), *suspended], live), gone


def _before(change: Change, keys: Iterable[Key], now: datetime) -> list[Edit]:
    """Return the edits that give things the content that they had before a Change, without what has expired."""
    former = {key: _former(change, key, now) for key in keys}
    values = {number: values_of(found) for number in set(former.values()) if (found := load_revision(number))}
    return [Edit(*key, values.get(number, {}).get(key)) for key, number in former.items()]


def _suspended_again(change: Change, live: engine.Revision, after: engine.Revision, now: datetime) -> list[Edit]:
    """Return the edits that restore the Pauses and Exemptions that ended as a Change removed their targets.

    Left out are those whose target is live already, since it has been in force since it was restored; those whose target stays
    missing; and those whose name is in use again.
    """
    made = change.revision_id or 0
    before, then = load_revision(made - 1), load_revision(made)
    if before is None or then is None:
        return []
    ended = values_of(before).keys() - values_of(then).keys() - {each.key for each in change.edits.all()}
    return [
        edit
        for edit in _before(change, sorted(ended - values_of(live).keys()), now)
        if isinstance(edit.value, engine.Pause | engine.Exemption)
        and missing_target(edit.value.target, live)
        and not missing_target(edit.value.target, after)
        and ((end := ends_at(edit.value.until)) is None or end > now)
    ]


def _former(change: Change, key: Key, now: datetime) -> int:
    """Return the last Revision before a Change with the content of a thing to restore: content that has expired isn't restored."""
    before: Change | None = change
    number = 0
    while before is not None:
        number = (before.revision_id or 1) - 1
        # Not the maker: a reversal or a rollback that brought expired content back doesn't expire itself.
        holder = _holder(key, number)
        before = holder if holder and holder.expires_at is not None and holder.expires_at <= now else None
    return number


def _bases_of_others(change: Change, edits: Collection[Key], now: datetime) -> Mapping[Key, str]:
    """Return the former content, by digest, of things that have the content of a Change, but that somebody else has published since.

    The reversal is based on this content, so that its base counts as moved: whoever published the same content for good, or removed
    a thing and restored it, didn't ask for this expiry.
    """
    made, live = (live_digests(edits, number) for number in (change.revision_id or 0, current_revision().number))
    others = [key for key in edits if made.get(key) == live.get(key) and _holder(key) != change]
    return {key: live_digests([key], _former(change, key, now)).get(key, "") for key in others}


def _holder(key: Key, number: int | None = None) -> Change | None:
    """Return the Change whose content of a thing is live, or was in a Revision.

    For a reversal or a rollback that is the Change whose content it restored.
    """
    maker = _maker(key, number)
    while maker is not None:
        expired = maker.expiry_of
        if expired is not None and expired.expired_at is not None:
            restored = _former(expired, key, expired.expired_at)
        elif maker.rolls_back_to is not None:
            restored = maker.rolls_back_to
        else:
            break
        if live_digests([key], maker.revision_id or 0) != live_digests([key], restored):
            break  # somebody edited it before it went live: the content is its own
        maker = _maker(key, restored)
    return maker


def _over(change: Change, key: Key) -> Change | None:
    """Return the later Change over this one that itself expires later, and so determines this thing until then; None where none does."""
    holder = _holder(key)
    is_later = holder is not None and (holder.revision_id or 0) > (change.revision_id or 0)
    return holder if holder and is_later and holder.expires_at is not None and holder.expired_at is None else None


def _maker(key: Key, number: int | None) -> Change | None:
    """Return the Change that made the content of a thing, live or in a Revision; None where there is none."""
    rows = RevisionPart.objects.filter(kind=key[0], name=key[1]).values_list("since", "until")
    moved = [each for row in rows for each in row if each is not None and (number is None or each <= number)]
    return Change.objects.filter(revision=max(moved)).first() if moved else None


def _armed(number: int) -> ChangeEvent | None:
    return ChangeEvent.objects.filter(change=number, act=_Act.SCHEDULE).select_related("by_user").last()


def _edited_since(change: Change, armed: ChangeEvent) -> ChangeEvent | None:
    return change.events.filter(pk__gt=armed.pk, act__in=AUTHORING).last()


def _who_armed(armed: ChangeEvent) -> By:
    """Return who set the time: that account publishes, with its present permissions."""
    if armed.by_user is not None:
        if not armed.by_user.is_active:
            raise PublishingError(
                [f"The account {armed.who}, who set its time, is inactive; somebody else has to set it again."]
            )
        return armed.by_user
    if armed.via in ("command", "schedule"):
        return armed.by
    raise PublishingError([f"The account {armed.by}, who set its time, is gone; somebody else has to set it again."])


def _late(due: datetime, now: datetime) -> str:
    if now - due <= _LATE_AFTER:
        return ""
    minutes = int((now - due).total_seconds() // 60)
    return f", late by {counted(minutes, 'minute')}"
