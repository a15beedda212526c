"""The rows behind the ledger's leaves: for each log the rows, their exact bytes, and whether the columns match these.

A log needs a Source and its name in `scheduler.ledger.logs`; verification and export go through all of them.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import msgspec
from django.db import connection, models
from django.utils import timezone

from policies.models import AuditEvent
from policies.publishing.audit import is_as_written
from scheduler.decisions.divergence import Divergence
from scheduler.decisions.facts import Facts, facts_in
from scheduler.decisions.reading import exact_bytes
from scheduler.decisions.record import AS_JSON, AS_RECORD, UNREADABLE, Head, Outcome, read_outcome, record_of, split
from scheduler.ledger.credible import overdue
from scheduler.ledger.events import LATEST, key_in_row, time_of_row
from scheduler.ledger.logs import DECISIONS, EVENTS, OUTCOMES
from scheduler.models import Decision, LedgerLeaf
from scheduler.models import Outcome as OutcomeRow

_MOST_ROWS = 500


class Found(msgspec.Struct):
    """A row as it was found.

    Attributes:
        leaf: the index of its leaf.
        naming: returns its name for people; rarely called.
        exact: the bytes that its writer had on disk; None if its details were pruned.
        fault: a description of a column that doesn't match these bytes; empty if all match.
        writer: its writer, if writers number their rows.
        number: its number among this writer's rows.
    """

    leaf: int
    naming: Callable[[], str]
    exact: bytes | None
    fault: str = ""
    writer: str = ""
    number: int = 0

    @property
    def row(self) -> str:
        """What people call it."""
        return self.naming()


class Newest(NamedTuple):
    """A row without a leaf: its name for people, and its own time."""

    row: str
    at: datetime


class Source(Protocol):
    """The rows behind a log's leaves."""

    log: str

    def rows(self, first: int, until: int) -> Iterator[Found]:
        """Iterate over the rows of these leaves, by their index."""
        ...

    def outermost(self) -> tuple[int | None, int | None]:
        """Return the lowest and the highest index that a row names."""
        ...

    def unlogged(self) -> int:
        """Return how many rows have no leaf."""
        ...

    def newest_unlogged(self) -> Newest | None:
        """Return the newest of them."""
        ...


class _Rows:
    """Rows that name their leaf in a column of their own."""

    log: str
    _model: type[models.Model]
    _columns: Sequence[str]

    def rows(self, first: int, until: int) -> Iterator[Found]:
        """Iterate over the rows of these leaves, by their index. Read without Django's models, which take most of the time."""
        quoted = ", ".join(map(connection.ops.quote_name, self._columns))
        table = connection.ops.quote_name(self._model._meta.db_table)  # noqa: SLF001 - documented
        sql = f"SELECT {quoted} FROM {table} WHERE ledger_index >= %s AND ledger_index < %s ORDER BY ledger_index"  # noqa: S608 - names of ours
        with connection.cursor() as cursor:
            cursor.execute(sql, [first, until])
            while rows := cursor.fetchmany(_MOST_ROWS):
                yield from map(self._found, rows)

    def _found(self, row: Sequence[Any]) -> Found:
        raise NotImplementedError

    def outermost(self) -> tuple[int | None, int | None]:
        """Return the lowest and the highest index that a row names."""
        return _outermost(self._model._default_manager.all(), "ledger_index")  # noqa: SLF001 - Django's name for it

    def unlogged(self) -> int:
        """Return how many rows have no leaf."""
        return self._model._default_manager.filter(ledger_index=None).count()  # noqa: SLF001 - Django's name for it

    def newest_unlogged(self) -> Newest | None:
        """Return the newest of them."""
        newest: Any = self._model._default_manager.filter(ledger_index=None).order_by("-at").first()  # noqa: SLF001
        return Newest(f"{newest.pk} ({newest})", newest.at) if newest is not None else None


def _outermost(rows: models.QuerySet[Any], column: str) -> tuple[int | None, int | None]:
    found = rows.aggregate(first=models.Min(column), last=models.Max(column))
    return found["first"], found["last"]


class _Decisions(_Rows):
    log = DECISIONS
    _model = Decision
    _heads = Head.__struct_fields__
    _facts = Facts.__struct_fields__
    _columns = (*_heads, *_facts, "process", "ledger_index", "body")

    def _found(self, row: Sequence[Any]) -> Found:
        columns = dict(zip(self._columns, row, strict=True))
        stored, index = bytes(columns["body"]), int(columns["ledger_index"])
        name = partial(_name_of_decision, columns)
        # Version 0.1.0 numbered its Decisions, too, but had no Checkpoints to say how far they are stored.
        writer, number = "" if stored[:1] == AS_JSON else str(columns["process"]), int(columns["sequence"])
        if not stored:
            return Found(index, name, None, "", writer, number)
        try:
            exact, fault = self._exact(columns, stored)
        except UNREADABLE as error:
            return Found(index, name, b"", f"its body can't be read: {error}", writer, number)
        return Found(index, name, exact, fault, writer, number)

    def _exact(self, columns: dict[str, Any], stored: bytes) -> tuple[bytes, str]:
        is_record = stored[:1] == AS_RECORD
        exact = record_of(stored) if is_record else exact_bytes(Decision(**_as_django(columns) | {"body": stored}))
        head, body = split(exact)
        return exact, _difference(columns, head, body)


def _name_of_decision(columns: dict[str, Any]) -> str:
    pod = f"{columns['pod_namespace']}/{columns['pod_name']}"
    return f"Decision {UUID(str(columns['id']))} ({columns['verb']} of {pod})"


def _difference(columns: dict[str, Any], head: Head, body: bytes) -> str:
    """Return the column that doesn't match the record; empty if all match."""
    said = msgspec.structs.asdict(head)
    if said["divergence"] == Divergence.OPEN:
        said["divergence"] = columns["divergence"]  # settled once the Pod has its node
    said |= msgspec.structs.asdict(facts_in(body))
    # Databases differ in how they keep ids and times.
    columns["id"], columns["at"] = _id(columns["id"]), _time(columns["at"])
    if said.items() <= columns.items():
        return ""
    name = next(name for name, value in said.items() if columns[name] != value)
    return f"its column {name} says {columns[name]!r}, and the record {said[name]!r}"


def _id(found: Any) -> str:
    text = str(found)
    return text if "-" in text else f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _time(found: Any) -> datetime:
    at = datetime.fromisoformat(found) if isinstance(found, str) else found
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _as_django(columns: dict[str, Any]) -> dict[str, Any]:
    return columns | {"id": UUID(str(columns["id"])), "at": _time(columns["at"])}


class _Outcomes(_Rows):
    log = OUTCOMES
    _model = OutcomeRow
    _names = tuple(name for name in Outcome.__struct_fields__ if name != "best")
    _columns = (*_names, "id", "ledger_index", "body")

    def _found(self, row: Sequence[Any]) -> Found:
        columns = dict(zip(self._columns, row, strict=True))
        index, body = int(columns["ledger_index"]), bytes(columns["body"])
        name = partial(_name_of_outcome, columns)
        try:
            said = read_outcome(body)
        except UNREADABLE as error:
            return Found(index, name, body, f"its body can't be read: {error}")
        fields = {each: getattr(said, each) for each in self._names}
        columns["decision"] = str(UUID(str(columns["decision"]))) if columns["decision"] else ""
        columns["at"] = _time(columns["at"])
        differing = [each for each in self._names if columns[each] != fields[each]]
        fault = (
            differing
            and f"its column {differing[0]} says {columns[differing[0]]!r}, and the record {fields[differing[0]]!r}"
        )
        return Found(index, name, body, fault or "")


def _name_of_outcome(columns: dict[str, Any]) -> str:
    return f"outcome {columns['id']} ({columns['pod_namespace']}/{columns['pod_name']} {columns['kind']})"


class _Events:
    """AuditEvents: they never change, so a separate table has each one's leaf."""

    log = EVENTS

    def rows(self, first: int, until: int) -> Iterator[Found]:
        """Iterate over the rows of these leaves, by their index."""
        leaves = LedgerLeaf.objects.filter(log=EVENTS, index__gte=first, index__lt=until).order_by("index")
        for start in range(first, until, _MOST_ROWS):
            batch = list(leaves.filter(index__gte=start, index__lt=start + _MOST_ROWS).values_list("index", "row"))
            named = AuditEvent.objects.filter(pk__in=[row for _index, row in batch if key_in_row(row)])
            events = {str(each.pk): each for each in named}
            for index, row in batch:
                if row in events:
                    yield _found_event(index, events[row])

    def outermost(self) -> tuple[int | None, int | None]:
        """Return the lowest and the highest index that a row names."""
        return _outermost(LedgerLeaf.objects.filter(log=EVENTS), "index")

    def unlogged(self) -> int:
        """Return how many events have no leaf, though there was time."""
        return self._unlogged().count()

    def newest_unlogged(self) -> Newest | None:
        """Return the newest of them."""
        newest = self._unlogged().first()
        return Newest(f"{newest.pk} ({newest})", newest.at) if newest is not None else None

    @staticmethod
    def _unlogged() -> models.QuerySet[AuditEvent]:
        return overdue(timezone.now())


def _found_event(index: int, row: AuditEvent) -> Found:
    fault = "" if is_as_written(row) else "its columns say something else than its body"
    made_at = time_of_row(str(row.pk))
    if not fault and (made_at is None or abs(made_at - row.at) > LATEST):
        fault = f"its id was made at {made_at or 'a time that no calendar has'}, and it says {row.at}"
    return Found(index, lambda: f"AuditEvent {row.pk} ({row})", bytes(row.body), fault)


# The Sources' constructors; each run makes its own, because a Source caches what it reads with.
SOURCES: Sequence[Callable[[], Source]] = (_Decisions, _Outcomes, _Events)
