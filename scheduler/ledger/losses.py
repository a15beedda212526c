"""The ledger's account of lost and unreadable records: AuditEvents list each permanent gap and each dead letter.

The event is written in the transaction that stores the row, so that neither can be changed, planted or removed without a trace.
The first checkpoint takes over rows that are older than such notes.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from django.db import models, transaction
from django.utils import timezone

from policies.models import AuditEvent
from policies.models.audit import Kind
from policies.publishing.actors import CLOCK
from policies.publishing.audit import record_event
from policies.publishing.revisions import lock_revisions
from scheduler.ledger.credible import credible
from scheduler.models import DeadLetter, DecisionGap

KINDS = (Kind.LOSS, Kind.LOSS_BEGIN)
_TABLES: Mapping[str, type[DecisionGap | DeadLetter]] = {"DecisionGap": DecisionGap, "DeadLetter": DeadLetter}
_COLUMNS = {
    "DecisionGap": ("process", "first", "last", "reason", "at"),
    "DeadLetter": ("writer", "segment", "offset", "sequence", "kind", "reason", "data", "at"),
}
_CHUNK = 500
# Rows that one event notes at most: some 25 kB.
_ROWS_IN_EVENT = 100
# A row as JSON: the same for the same row.
Noted = str


class Losses(msgspec.Struct, frozen=True):
    """The number of rows that match their notes, the number that are older than notes, and descriptions of faults."""

    proved: int
    older: int
    faults: list[str]


def note_losses(rows: Iterable[DecisionGap | DeadLetter]) -> None:
    """Note the permanent rows that the current transaction has stored, grouped by writer."""
    of_writers: dict[tuple[str, str], list[DecisionGap | DeadLetter]] = {}
    for row in rows:
        of_writers.setdefault((type(row).__name__, _writer_of(row)), []).append(row)
    for (table, writer), all_of_it in of_writers.items():
        for start in range(0, len(all_of_it), _ROWS_IN_EVENT):
            noted = all_of_it[start : start + _ROWS_IN_EVENT]
            said: dict[str, Any]
            if len(noted) == 1:
                name, said = str(noted[0]), {"row": said_of(noted[0])}
            else:
                firsts, lasts = zip(*map(_numbers_of, noted), strict=True)
                name = f"{writer or 'nobody'}: {len(noted)} from {min(firsts)} to {max(lasts)}"
                said = {"rows": list(map(said_of, noted))}
            record_event(Kind.LOSS, by=CLOCK, thing=(table, name), reason=_reasons(noted), more=said)


def _writer_of(row: DecisionGap | DeadLetter) -> str:
    return row.process if isinstance(row, DecisionGap) else row.writer


def _numbers_of(row: DecisionGap | DeadLetter) -> tuple[int, int]:
    return (row.first, row.last) if isinstance(row, DecisionGap) else (row.sequence, row.sequence)


def _reasons(rows: Sequence[DecisionGap | DeadLetter]) -> str:
    """Return the reason of rows; if there are several, the first one, and that there are others."""
    others = len({row.reason for row in rows}) - 1
    return f"{rows[0].reason}; and {others} more {'reason' if others == 1 else 'reasons'}" if others else rows[0].reason


def begin() -> None:
    """Note, once, the rows that have no note yet: from now on each has one."""
    if _has_begun():
        return
    with transaction.atomic():
        lock_revisions()  # two processes may both be first: a row noted twice would be reported as missing once
        if _has_begun():
            return
        # In this order: a row that is stored meanwhile brings its note.
        stored = [said for _row, said in _stored()]
        noted, _ = _noted(AuditEvent.objects.all())
        older = [said for said in stored if _text(said) not in noted]
        record_event(Kind.LOSS_BEGIN, by=CLOCK, thing=("Ledger", ""), more={"rows": older})


def _has_begun() -> bool:
    return AuditEvent.objects.filter(kind=Kind.LOSS_BEGIN).exists()


def said_of(row: DecisionGap | DeadLetter) -> dict[str, Any]:
    """Return a row as in a note: its columns; for a dead letter's bytes, their digest."""
    table = type(row).__name__
    said = {name: getattr(row, name) for name in _COLUMNS[table]}
    if "data" in said:
        said["data"] = hashlib.sha256(bytes(said["data"])).hexdigest()
    return {"table": table, **said, "at": f"{row.at:%Y-%m-%dT%H:%M:%S.%fZ}"}


def compare() -> Losses:
    """Compare the rows with their notes, whose own bytes the log of events proves.

    Raises:
        django.db.DatabaseError: the database is unavailable.
    """
    before, _ = _noted(credible(timezone.now()))
    rows = list(_stored())
    # Read once more: newer notes may be about rows that have been stored meanwhile.
    noted, has_begun = _noted(credible(timezone.now()))
    left, faults, proved, older = Counter(noted), list[str](), 0, 0
    for name, said in rows:
        text = _text(said)
        if left[text]:
            left[text] -= 1
            proved += 1
        elif has_begun:
            faults.append(f"{name} is not what was noted when it was lost: it was changed, or planted")
        else:
            older += 1
    there = Counter(_text(said) for _name, said in rows)
    for text, number in before.items():
        if there[text] < number:
            said = msgspec.json.decode(text)
            faults.append(f"a row of {said['table']} was changed or removed: it was noted as {_words(said)}")
    return Losses(proved, older, faults)


def _stored() -> Iterable[tuple[str, dict[str, Any]]]:
    for table, model in _TABLES.items():
        rows: models.QuerySet[Any] = model._default_manager.order_by("pk")  # noqa: SLF001 - documented
        if model is DecisionGap:
            rows = rows.filter(may_return=False)
        for row in rows.iterator(chunk_size=_CHUNK):
            yield f"row {row.pk} of {table} ({row})", said_of(row)


def rows_in(said: Any) -> Sequence[dict[str, Any]]:
    """Return the rows in an event's note; none if the event is about something else, or was tampered with."""
    rows: Sequence[dict[str, Any]] = ()
    try:
        if said["kind"] == Kind.LOSS:
            more = said["more"]
            rows = more["rows"] if "rows" in more else [more["row"]]
        elif said["kind"] == Kind.LOSS_BEGIN:
            rows = said["more"]["rows"]
        return [row for row in rows if row.keys() == {"table", *_COLUMNS[row["table"]]}]
    except (KeyError, TypeError, AttributeError):
        return ()  # verifying the log of events reports it


def _noted(events: models.QuerySet[AuditEvent]) -> tuple[Counter[Noted], bool]:
    """Return the rows that events note, and whether older rows have been noted."""
    found: Counter[Noted] = Counter()
    has_begun = False
    for event in events.filter(kind__in=KINDS).order_by("pk").iterator(chunk_size=_CHUNK):
        has_begun = has_begun or event.kind == Kind.LOSS_BEGIN
        try:
            found.update(map(_text, rows_in(msgspec.json.decode(bytes(event.body)))))
        except (msgspec.DecodeError, RecursionError):
            continue  # verifying the log of events reports it
    return found, has_begun


def _text(said: Mapping[str, Any]) -> Noted:
    return msgspec.json.encode(said, order="deterministic").decode()


def _words(said: Mapping[str, Any]) -> str:
    if said["table"] == "DecisionGap":
        return f"{said['process']}: {said['first']} to {said['last']}, {said['reason']}"
    return f"record {said['sequence']} of {said['writer'] or 'nobody'}, {said['reason']}"
