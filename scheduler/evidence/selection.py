"""What an archive of evidence is about: a period, a Pod or a Change, and the rows of each log that belong to it."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import msgspec
from django.db.models import Q, QuerySet

from policies.models import AuditEvent, Change
from policies.publishing import audit, fault_of_words
from scheduler.decisions.reading import exact_bytes
from scheduler.decisions.record import Head, read_outcome, split
from scheduler.decisions.record import Outcome as OutcomeRecord
from scheduler.ledger import deletions, losses
from scheduler.ledger.events import key_in_row
from scheduler.ledger.logs import DECISIONS, EVENTS, OUTCOMES
from scheduler.models import Decision, LedgerLeaf
from scheduler.models import Outcome as OutcomeRow

# How many rows are read at once.
CHUNK = 500
# A leaf's index, its record, its fields if it has no record, and the fields of the columns by which rows are selected.
_Row = tuple[int, bytes, Mapping[str, Any], Mapping[str, Any]]
_POD = ("pod_namespace", "pod_name", "pod_uid")

# The members of a record, by its log, in the order of the tables.
COLUMNS: Mapping[str, Sequence[str]] = {
    DECISIONS: tuple(name for name in Head.__struct_fields__ if name not in {"names_number", "chain", "position"}),
    OUTCOMES: OutcomeRecord.__struct_fields__,
    EVENTS: (
        *("id", "at", "kind", "by", "via", "door", "address", "thingKind", "thingName", "change", "revision"),
        *("before", "after", "reason", "requestId"),
    ),
}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """The selection to export: a period, with all its records, or those of one Pod or one Change. Empty members select all.

    Attributes:
        first: the start of the period.
        until: its end, exclusive.
        pod_namespace: of the Pod.
        pod_name: of the Pod.
        pod_uid: of the Pod.
        change: the number of the Change; its Decisions are those made by its Revision.
    """

    first: datetime | None = None
    until: datetime | None = None
    pod_namespace: str = ""
    pod_name: str = ""
    pod_uid: str = ""
    change: int | None = None

    def words(self) -> str:
        """Return the selection in words."""
        parts = [
            f"from {self.first:%Y-%m-%d %H:%M:%S} UTC" if self.first else "",
            f"until {self.until:%Y-%m-%d %H:%M:%S} UTC" if self.until else "",
            self._pods_in_words(),
            f"Pod UID {self.pod_uid}" if self.pod_uid else "",
            f"Change {self.change}" if self.change is not None else "",
        ]
        return ", ".join(filter(None, parts)) or "everything"

    def _pods_in_words(self) -> str:
        if self.pod_namespace and self.pod_name:
            return f"Pod {self.pod_namespace}/{self.pod_name}"
        if self.pod_name:
            return f"Pods named {self.pod_name}"
        return f"namespace {self.pod_namespace}" if self.pod_namespace else ""

    def times(self) -> Q:
        """Return the condition for rows of the period."""
        found = Q(at__gte=self.first) if self.first else Q()
        return found & Q(at__lt=self.until) if self.until else found

    def pods(self) -> Q:
        """Return the condition for rows of the Pod."""
        fields = {"pod_namespace": self.pod_namespace, "pod_name": self.pod_name, "pod_uid": self.pod_uid}
        return Q(**{name: value for name, value in fields.items() if value})


def fault_of(case: Case, now: datetime) -> str:
    """Return why a case can't select anything; empty if it can."""
    if case.first and case.until and case.until <= case.first:
        return "The time ends before it begins."
    if case.first and case.first > now:
        return f"The time begins in the future: it is {now:%Y-%m-%d %H:%M:%S} UTC now."
    if "/" in case.pod_namespace + case.pod_name:
        return "Names of Pods and namespaces have no “/”: give the namespace and the Pod's name separately."
    # The event of the export keeps these for good, on pages and in terminals.
    if said := fault_of_words(case.pod_namespace, case.pod_name, case.pod_uid):
        return said
    if case.change is not None and not Change.objects.filter(pk=case.change).exists():
        return f"There is no Change {case.change}."
    return ""


def said_of(log: str, record: bytes) -> dict[str, Any]:
    """Return a record's content as JSON. `berth-verify` decodes the same bytes to the same content."""
    if log == EVENTS:
        found: dict[str, Any] = msgspec.json.decode(record)
        return found
    read = split(record)[0] if log == DECISIONS else read_outcome(record)
    said = msgspec.structs.asdict(read)
    return said | {"at": _time(said["at"])}


def _chosen_by(row: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names} | {"at": _time(row.at)}


def _decisions(case: Case, _revisions: Collection[int]) -> Iterator[_Row]:
    found = case.times() & case.pods()
    if case.change is not None:
        found &= Q(revision__in=Change.objects.filter(pk=case.change).values("revision"))
    for row in _logged(Decision.objects.filter(found)):
        if bytes(row.body):
            yield row.ledger_index, _exact(row), {}, _chosen_by(row, *_POD, "revision")
        else:
            yield row.ledger_index, b"", _columns_of(row), {}


def _exact(row: Decision) -> bytes:
    """Return a Decision's record; the stored bytes if it is damaged."""
    try:
        return exact_bytes(row)
    except ValueError:
        return bytes(row.body)


def _columns_of(row: Decision) -> dict[str, Any]:
    return {name: getattr(row, name) for name in COLUMNS[DECISIONS]} | {"id": str(row.pk), "at": _time(row.at)}


def _time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def _outcomes(case: Case, _revisions: Collection[int]) -> Iterator[_Row]:
    if case.change is not None:
        return
    for row in _logged(OutcomeRow.objects.filter(case.times() & case.pods())):
        yield row.ledger_index, bytes(row.body), {}, _chosen_by(row, *_POD)


def _meanwhile(case: Case) -> Q:
    """Return the condition for events of a period, or of a Change in it."""
    found = case.times()
    if case.change is not None:
        found &= Q(change=case.change) | Q(kind=audit.Kind.EXPORT)
    return found


def changes_of(case: Case, revisions: Collection[int]) -> QuerySet[Change]:
    """Return the Changes behind these Revisions and those made in the period, and the Change of the case."""
    made = AuditEvent.objects.filter(_meanwhile(case), revision__isnull=False).values_list("revision", flat=True)
    return Change.objects.filter(Q(revision__in={*revisions, *made}) | Q(pk=case.change))


def _events(case: Case, revisions: Collection[int]) -> Iterator[_Row]:
    """Iterate over the events of a period, or of a Change in it, and over those about deletions or losses.

    For a Pod's case: all events of the period, and the events, of any time, of the Changes behind the Revisions
    that decided or were made in the period.
    """
    found = _meanwhile(case)
    if found:  # else all of them
        named = changes_of(case, revisions)
        found |= Q(kind__in=(*deletions.KINDS, *losses.KINDS)) | Q(change__in=list(named.values_list("pk", flat=True)))
    leaves = LedgerLeaf.objects.filter(log=EVENTS).order_by("index").values_list("index", "row")
    rest = leaves.iterator(chunk_size=CHUNK)
    while batch := list(islice(rest, CHUNK)):
        yield from _events_of(batch, found)


def _events_of(batch: Sequence[tuple[int, str]], found: Q) -> Iterator[_Row]:
    keys = [(index, key) for index, row in batch if (key := key_in_row(row)) is not None]
    found_rows = AuditEvent.objects.filter(found).in_bulk([key for _index, key in keys])
    for index, key in keys:
        if key in found_rows:
            row = found_rows[key]
            columns = _chosen_by(row, "kind", "change", "revision") | {"at": msgspec.to_builtins(row.at)}
            yield index, bytes(row.body), {}, columns


def _logged(rows: QuerySet[Any]) -> Iterator[Any]:
    """Iterate over rows in the order of their leaves.

    The cursor reads only leaf indexes: outside a transaction, PostgreSQL first writes a cursor's whole result to a temporary file.
    """
    places = rows.exclude(ledger_index=None).order_by("ledger_index").values_list("ledger_index", flat=True)
    found = places.iterator(chunk_size=CHUNK)
    while batch := list(islice(found, CHUNK)):
        yield from rows.filter(ledger_index__in=batch).order_by("ledger_index")


RECORDS = {DECISIONS: _decisions, OUTCOMES: _outcomes, EVENTS: _events}
