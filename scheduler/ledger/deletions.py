"""The ledger's account of deletions by retention: AuditEvents, each with a note that lists the leaves, signed by the ledger's key.

So an attacker who can only write rows can't disguise a deletion as pruning. The first signed note takes over all earlier deletions,
once; from then on, only signed notes of deletions count.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

import msgspec
from django.db import transaction

from policies.models import AuditEvent
from policies.models.audit import Kind
from policies.publishing import locks
from policies.publishing.actors import CLOCK
from policies.publishing.audit import more_of, record_event, said_by
from policies.publishing.locks import Lock
from scheduler.ledger.keys import KeyFileError, read_signer
from scheduler.ledger.logs import EVENTS
from scheduler.ledger.note import NoteError, Signer, Verifier, open_note
from scheduler.models import LedgerLeaf, LedgerPruned

KINDS = (Kind.PRUNE, Kind.PRUNE_BEGIN)
# The first word of a note's line about the legal holds that were in force, each as NUMBER:DIGEST.
_HOLDS = "holds"
# In the description of a rule.
_DAYS = re.compile(r"\b(\d{1,5}) days\b")
# A half-open range: from the first number up to but not including the second.
Range = tuple[int, int]


class Deletion(NamedTuple):
    """Leaves whose rows or details a retention rule deleted: from `first` up to but not including `until`.

    Not `is_exact` if rows in the range may have been kept: earlier versions noted one range for a whole run.
    """

    log: str
    what: str
    first: int
    until: int
    rule: str
    at: datetime
    is_exact: bool = True

    @property
    def line(self) -> str:
        """Its line in a note."""
        return f"{self.log} {self.what} {self.first} {self.until} {' '.join(self.rule.split())}\n"

    @property
    def horizon(self) -> datetime:
        """A time before which all deleted rows happened."""
        days = _DAYS.search(self.rule)
        return self.at - timedelta(days=int(days[1]) if days else 0)


class Claim(NamedTuple):
    """A deletion that is claimed and unproved: where it is claimed, in words, and why that doesn't count."""

    where: str
    deletion: Deletion
    why: str = "no key that is trusted signed that"


class Deletions(NamedTuple):
    """Proved deletions, and planted claims of others."""

    found: list[Deletion]
    planted: list[Claim]


def note_deleted(deleted: Sequence[Deletion], holds: Mapping[int, str]) -> None:
    """Note the deletions of the current transaction, of one log and by one rule.

    Args:
        deleted: the deletions.
        holds: the digests of the legal holds that were in force, by their numbers. Without them nobody could tell whether a hold that is
            in force now was hidden meanwhile.

    Raises:
        KeyFileError: earlier notes were signed, and this one can't be. Nothing may be deleted.
    """
    in_force = " ".join([_HOLDS, *(f"{number}:{digest}" for number, digest in holds.items())])
    lines = "".join([f"{in_force}\n", *(each.line for each in deleted)])
    record_event(
        Kind.PRUNE, by=CLOCK, thing=("Ledger", deleted[0].log), reason=deleted[0].rule, more={"note": _signed(lines)}
    )


def holds_noted(event: AuditEvent) -> Mapping[str, str] | None:
    """Return the digests of the legal holds that were in force at a deletion, by their numbers; None if its event doesn't have them."""
    lines = str(more_of(event).get("note", "")).partition("\n\n")[0].splitlines()
    return _holds_in(lines[1]) if len(lines) > 1 else None


# Most deletions have the holds of the one before: hundreds of thousands of them, with a hundred holds each, would take gigabytes.
@lru_cache(maxsize=16)
def _holds_in(line: str) -> Mapping[str, str] | None:
    first, *holds = line.split(" ")
    if first != _HOLDS:
        return None
    return {number: digest for number, _colon, digest in (each.partition(":") for each in holds)}


def begin(signer: Signer) -> None:
    """Sign the deletions so far, once: from now on only signed notes count."""
    if _has_begun():
        return
    with transaction.atomic():
        # An unsigned note of a transaction that is still open would not be taken over, and be called planted later.
        locks.take(Lock.UNSIGNED_NOTES)
        if _has_begun():
            return
        lines = "".join(each.line for each in deletions(()).found)
        record_event(Kind.PRUNE_BEGIN, by=CLOCK, thing=("Ledger", ""), more={"note": _note(signer, lines)})


def deletions(verifiers: Sequence[Verifier]) -> Deletions:
    """Return the deletions that these keys signed; without keys, and before anything was signed, all deletions that are noted.

    Raises:
        django.db.DatabaseError: the database is unavailable.
    """
    signed: list[Deletion] = []
    others: list[Claim] = []
    beginnings: dict[str, list[Deletion]] = {}
    for event in AuditEvent.objects.filter(kind__in=KINDS).order_by("pk").iterator():
        found, is_signed = _said(event, verifiers)
        if not is_signed:
            others += (Claim(f"AuditEvent {event.pk}", each) for each in found)
        elif event.kind == Kind.PRUNE_BEGIN:
            beginnings[str(event.pk)] = found
        else:
            signed += found
    for row in LedgerPruned.objects.order_by("pk").iterator():
        old = Deletion(row.log, row.what, row.first, row.until, row.rule, row.at, is_exact=False)
        others.append(Claim(f"row {row.pk} of LedgerPruned", old))
    if not beginnings:
        return Deletions([*signed, *(each.deletion for each in others)], [])
    first = _first_logged(beginnings)
    signed += beginnings.pop(first)
    others += _second_beginnings(beginnings, first)
    covered = {key: merged_ranges(_ranges(signed, *key)) for key in {(each.log, each.what) for each in signed}}
    planted = [
        claim
        for claim in others
        if not any(
            a <= claim.deletion.first and claim.deletion.until <= b
            for a, b in covered.get((claim.deletion.log, claim.deletion.what), ())
        )
    ]
    return Deletions(signed, planted)


def _first_logged(events: Collection[str]) -> str:
    """Return the one of these events that has the first leaf: neither clocks nor who can write rows can change that order."""
    if len(events) == 1:
        return next(iter(events))
    leaves = LedgerLeaf.objects.filter(log=EVENTS, row__in=list(events)).order_by("index")
    return leaves.values_list("row", flat=True).first() or min(events)


def _second_beginnings(beginnings: Mapping[str, Sequence[Deletion]], first: str) -> Iterator[Claim]:
    """Iterate over what was taken over once more: whoever hid the first event for a minute had a worker sign what he planted."""
    why = f"deletions of before they were signed had been taken over already, by AuditEvent {first}"
    for event, found in beginnings.items():
        yield from (Claim(f"AuditEvent {event}", each, why) for each in found)


def merged_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Return the same numbers in as few ranges as possible, in order."""
    merged: list[Range] = []
    for first, until in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], until))
        else:
            merged.append((first, until))
    return merged


def _ranges(deleted: Iterable[Deletion], log: str, what: str) -> Iterator[Range]:
    return ((each.first, each.until) for each in deleted if (each.log, each.what) == (log, what))


def _has_begun() -> bool:
    return AuditEvent.objects.filter(kind=Kind.PRUNE_BEGIN).exists()


def _signed(lines: str) -> str:
    try:
        return _note(read_signer(), lines)
    except KeyFileError:
        locks.share(Lock.UNSIGNED_NOTES)
        if _has_begun():
            raise
        return f"unsigned\n{lines}"


def _note(signer: Signer, lines: str) -> str:
    return signer.sign(f"{_origin(signer.verifier)}\n{lines}")


def _origin(verifier: Verifier) -> str:
    return f"{verifier.name}/deleted"


def _said(event: AuditEvent, verifiers: Sequence[Verifier]) -> tuple[list[Deletion], bool]:
    """Return the deletions in an event, and whether one of the keys signed them."""
    try:
        note = str(said_by(event).more.get("note", ""))
    except msgspec.DecodeError:
        return [], False
    text, is_signed = note.partition("\n\n")[0], False
    try:
        text, by = open_note(note, verifiers)
        is_signed = text.partition("\n")[0] in map(_origin, by)
    except NoteError:
        pass  # signed by none of the keys
    # Deletions that were taken over may come from earlier versions.
    read = (_read(line, event.at, is_exact=event.kind == Kind.PRUNE) for line in text.splitlines()[1:])
    return [each for each in read if each is not None], is_signed


def _read(line: str, at: datetime, *, is_exact: bool) -> Deletion | None:
    try:
        log, what, first, until, rule = line.split(" ", 4)
        return Deletion(log, what, int(first), int(until), rule, at, is_exact)
    except ValueError:
        return None
