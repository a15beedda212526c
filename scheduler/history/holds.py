"""Legal holds: records that must not be pruned until the hold is lifted."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from policies.engine.documents import is_namespace, is_subdomain
from policies.models.audit import digest_of
from policies.publishing import SAME_CLICK, AuditKind, fault_of_words, record_event
from policies.publishing.actors import By, lock_account, name_of
from policies.publishing.audit import more_of
from scheduler.ledger.credible import credible
from scheduler.ledger.deletions import holds_noted
from scheduler.ledger.events import LATEST
from scheduler.models import LegalHold

_SELECTION = ("pod_namespace", "pod_name", "pod_uid", "from_at", "until_at")


class HoldError(Exception):
    """A hold can't be made or lifted; the message says why."""


def make_hold(
    *,
    by: By,
    now: datetime,
    reason: str,
    pod_namespace: str = "",
    pod_name: str = "",
    pod_uid: str = "",
    from_at: datetime | None = None,
    until_at: datetime | None = None,
) -> LegalHold:
    """Hold the records of these Pods, in this time. A form that is sent twice makes one hold.

    Raises:
        HoldError: the hold selects nothing, or only what can't exist, or has no reason.
    """
    if said := _fault_of_hold(reason, (pod_namespace, pod_name, pod_uid), (from_at, until_at)):
        raise HoldError(said)
    wanted = LegalHold(
        reason=reason.strip(), pod_namespace=pod_namespace, pod_name=pod_name, pod_uid=pod_uid,
        from_at=from_at, until_at=until_at, made_by=name_of(by), made_at=now,
    )  # fmt: skip
    with transaction.atomic():
        lock_account(by)
        return _just_made(wanted) or _made(wanted, by)


def _just_made(wanted: LegalHold) -> LegalHold | None:
    """Return the same hold of the same person, if it was made a moment ago."""
    same = {name: getattr(wanted, name) for name in ("reason", *_SELECTION, "made_by")}
    since = wanted.made_at - SAME_CLICK
    return LegalHold.objects.filter(**same, lifted_at=None, made_at__gt=since).first()


def _made(made: LegalHold, by: By) -> LegalHold:
    made.save()
    holds = in_words(made)
    digests = ("", digest_of(holds))
    record_event(
        AuditKind.HOLD_MAKE,
        by=by,
        thing=_thing(made),
        digests=digests,
        reason=made.reason,
        more={"holds": holds, "row": _columns(made)},
    )
    return made


def _fault_of_hold(reason: str, pod: tuple[str, str, str], time: tuple[datetime | None, datetime | None]) -> str:
    """Return why a hold of these Pods, by namespace, name and UID, in this time can't be made; empty if it can."""
    (namespace, name, uid), (begin, end) = pod, time
    words = fault_of_words(reason, *pod)
    faults = (
        (not reason.strip(), "Give a reason: whoever lifts the hold needs to know it."),
        (words, words),
        (name and not namespace, "A Pod's name needs its namespace."),
        # No record has such a name: the hold would look like one, and everything would be pruned.
        (
            namespace and not is_namespace(namespace),
            f"{namespace} can't be a namespace: write a-z, 0-9 and dashes, at most 63.",
        ),
        (
            name and not is_subdomain(name),
            f"{name} can't be a Pod's name: write a-z, 0-9, dashes and dots, at most 253.",
        ),
        (not (namespace or uid or begin or end), "Give a namespace, a Pod, or a time."),
        (begin and end and end <= begin, "The time ends before it begins."),
    )
    return next((said for is_wrong, said in faults if is_wrong), "")


def lift_hold(*, number: int, by: By, now: datetime, reason: str) -> LegalHold:
    """Lift a hold: its records are pruned by the usual retention again. The hold's row stays.

    Raises:
        HoldError: there is no such active hold, or no reason.
    """
    if not reason.strip():
        message = "Give a reason for lifting the hold."
        raise HoldError(message)
    if said := fault_of_words(reason):
        raise HoldError(said)
    with transaction.atomic():
        rows = LegalHold.objects.filter(pk=number, lifted_at=None)
        if not rows.update(lifted_by=name_of(by), lifted_at=now, lift_reason=reason.strip()):
            message = f"Legal hold {number} doesn't exist, or was lifted already."
            raise HoldError(message)
        lifted = LegalHold.objects.get(pk=number)
        held = in_words(lifted)
        digests = (digest_of(held), "")
        record_event(
            AuditKind.HOLD_LIFT,
            by=by,
            thing=_thing(lifted),
            digests=digests,
            reason=reason.strip(),
            more={"held": held, "lifted_at": _time(lifted.lifted_at)},
        )
    return lifted


def _thing(hold: LegalHold) -> tuple[str, str]:
    return "LegalHold", str(hold.pk)


def _columns(hold: LegalHold) -> dict[str, str]:
    """Return a hold's selection and its exact time. Its description omits the time, and is ambiguous for some names."""
    names = {name: getattr(hold, name) for name in ("pod_namespace", "pod_name", "pod_uid")}
    return names | {name: _time(getattr(hold, name)) for name in ("from_at", "until_at", "made_at")}


def digest_of_hold(hold: LegalHold) -> str:
    """Return the digest of a hold's selection and exact time."""
    return digest_of(_columns(hold))


def _time(at: datetime | None) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}" if at else ""


def in_words(hold: LegalHold) -> str:
    """Return a hold's selection, in words."""
    said = []
    if hold.pod_name:
        said.append(f"Pod {hold.pod_namespace}/{hold.pod_name}")
    elif hold.pod_namespace:
        said.append(f"namespace {hold.pod_namespace}")
    if hold.pod_uid:
        said.append(f"UID {hold.pod_uid}")
    if hold.from_at:
        said.append(f"from {hold.from_at:%Y-%m-%d %H:%M} UTC")
    if hold.until_at:
        said.append(f"until {hold.until_at:%Y-%m-%d %H:%M} UTC")
    return ", ".join(said)


def active_holds() -> list[LegalHold]:
    """Return the holds that nobody has lifted."""
    return list(LegalHold.objects.filter(lifted_at=None).order_by("pk"))


def held(holds: Sequence[LegalHold]) -> Q | None:
    """Return the condition for held rows of a table with `at` and a Pod's columns; None if no hold is active."""
    found: Q | None = None
    for hold in holds:
        found = held_by(hold) if found is None else found | held_by(hold)
    return found


def held_by(hold: LegalHold) -> Q:
    """Return the condition for the rows of one hold, active or lifted."""
    equal = {name: getattr(hold, name) for name in ("pod_namespace", "pod_name", "pod_uid") if getattr(hold, name)}
    wanted = Q(**equal)
    if hold.from_at:
        wanted &= Q(at__gte=hold.from_at)
    if hold.until_at:
        wanted &= Q(at__lt=hold.until_at)
    return wanted


class _Lifting(NamedTuple):
    """The lifting of a hold in an AuditEvent: who did it, why, and when; events of earlier versions have no time.

    `noted_at` is the event's own time.
    """

    by: str
    reason: str
    at: str
    noted_at: datetime


class _Noted(NamedTuple):
    """A hold in AuditEvents: its selection, as digest and columns, its reason, who made it, and who lifted it.

    Events of earlier versions have no columns. `noted_at` is the time of the event of its making.
    """

    digest: str
    columns: dict[str, str]
    reason: str
    made_by: str
    noted_at: datetime
    lifting: _Lifting | None = None

    def must_be_in_force(self, at: datetime) -> bool:
        """Return whether the hold was in force for certain: clocks differ, and transactions take their time."""
        return self.noted_at + LATEST < at and (self.lifting is None or at < self.lifting.noted_at - LATEST)


def faults_of_holds() -> list[str]:
    """Compare holds with the AuditEvents of their making and lifting, whose own bytes the log of events proves.

    Returns:
        The differences, in words: after a hold was removed or changed, records that it should keep can be pruned.

    Raises:
        django.db.DatabaseError: the database is unavailable.
    """
    before = _noted()
    deletions = list(_deletions())
    rows = {str(row.pk): row for row in LegalHold.objects.order_by("pk").iterator()}
    # Read once more: holds may have been made and lifted since.
    noted = _noted()
    faults = []
    for number, row in rows.items():
        said = noted.get(number)
        if said is None:
            faults.append(f"legal hold {number} was planted: no AuditEvent says that it was made")
        elif not _is_as_made(row, said):
            faults.append(f"legal hold {number} is not what was noted when {said.made_by} made it: it was changed")
        elif row.lifted_at is not None and said.lifting is None:
            faults.append(f"legal hold {number} was lifted, and no AuditEvent says by whom")
        elif row.lifted_at is None and number in before and before[number].lifting is not None:
            faults.append(f"legal hold {number} is in force, and an AuditEvent says that it was lifted")
        elif row.lifted_at is None and (row.lifted_by or row.lift_reason):
            faults.append(f"legal hold {number} is in force, and says who lifted it or why: it was changed")
        elif said.lifting is not None and row.lifted_at is not None and not _is_as_lifted(row, said.lifting):
            faults.append(f"legal hold {number} is not what was noted when {said.lifting.by} lifted it: it was changed")
    faults += [
        f"legal hold {number} was removed: an AuditEvent says that {said.made_by} made it: {said.reason}"
        for number, said in before.items()
        if number not in rows
    ]
    return [*faults, *_faults_of_hidden(noted, deletions)]


class _Deletion(NamedTuple):
    """A deletion by retention: its event, that event's time, and the digests of the holds that were in force, by number."""

    event: UUID
    at: datetime
    holds: Mapping[str, str]


def _deletions() -> Iterator[_Deletion]:
    """Iterate over the deletions by retention whose events have the holds that were in force."""
    events = credible(timezone.now()).filter(kind=AuditKind.PRUNE).order_by("pk")
    for event in events.iterator():
        holds = holds_noted(event)
        if holds is not None:
            yield _Deletion(event.pk, event.at, holds)


def _faults_of_hidden(noted: Mapping[str, _Noted], deletions: Sequence[_Deletion]) -> Iterator[str]:
    """Iterate over holds that retention didn't see, or saw changed, while they were in force by their events."""
    for number, said in noted.items():
        digest = digest_of(said.columns) if said.columns else None
        blind = [
            each
            for each in deletions
            if said.must_be_in_force(each.at)
            and (number not in each.holds or (digest is not None and each.holds[number] != digest))
        ]
        if blind:
            others = f" and {len(blind) - 1} more say" if len(blind) > 1 else " says"
            yield (
                f"legal hold {number} was in force, and not as {said.made_by} made it when retention deleted rows or details, as "
                f"AuditEvent {blind[0].event}{others}: it was hidden or changed meanwhile"
            )


def _noted() -> dict[str, _Noted]:
    found: dict[str, _Noted] = {}
    liftings: dict[str, _Lifting] = {}
    # Ids of events follow their processes' clocks: an event of lifting may sort before the one of making.
    events = credible(timezone.now()).filter(kind__in=(AuditKind.HOLD_MAKE, AuditKind.HOLD_LIFT)).order_by("pk")
    for event in events.iterator():
        number = event.thing_name
        if event.kind == AuditKind.HOLD_MAKE:
            found[number] = _Noted(event.after, more_of(event).get("row", {}), event.reason, event.by, event.at)
        else:
            liftings[number] = _Lifting(event.by, event.reason, more_of(event).get("lifted_at", ""), event.at)
    return {number: said._replace(lifting=liftings.get(number)) for number, said in found.items()}


def _is_as_made(row: LegalHold, said: _Noted) -> bool:
    made = (digest_of(in_words(row)), row.reason, row.made_by)
    return made == (said.digest, said.reason, said.made_by) and said.columns in ({}, _columns(row))


def _is_as_lifted(row: LegalHold, said: _Lifting) -> bool:
    return (row.lifted_by, row.lift_reason) == (said.by, said.reason) and said.at in ("", _time(row.lifted_at))
