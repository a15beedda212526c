"""Stores many rows at once: COPY on PostgreSQL, bulk inserts elsewhere."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeVar

from django.db import DataError, IntegrityError, connection, models, transaction

from scheduler.decisions.record import UNWATCHED, NewDecision, NewOutcome
from scheduler.ledger.append import Appender
from scheduler.ledger.logs import OUTCOMES
from scheduler.ledger.tree import leaf_hash
from scheduler.models import Checkpoint, Decision, Outcome, PlacedPod

logger = logging.getLogger("berth.decisions")

_NOBODY = ""

# The exclusive upper limit of PostgreSQL's INTEGER.
_INTEGERS = 1 << 31

Row = TypeVar("Row", bound=models.Model | NewDecision | NewOutcome)
Leaf = TypeVar("Leaf", NewDecision, NewOutcome)


class Known(NamedTuple):
    """The stored columns of an Outcome on which new rows depend."""

    pod_uid: str
    kind: str
    node_name: str
    at: datetime
    preemptor_uid: str


class Placed(Protocol):
    """The outcome of a Pod, with what its Decisions show of it."""

    kind: str
    pod_uid: str
    node_name: str
    at: datetime
    best: bool | None


def hold_up_others(now: datetime) -> None:
    """Keep others from storing until this transaction ends."""
    Checkpoint.objects.get_or_create(writer=_NOBODY, defaults={"at": now})
    Checkpoint.objects.select_for_update().get(writer=_NOBODY)


def insert(model: type[models.Model], rows: Sequence[Row]) -> list[tuple[Row, str]]:
    """Insert rows inside the open transaction; return those that the database refuses, each with the database's message.

    Args:
        model: the rows' model.
        rows: instances of the model, or any objects with members of the same names.

    Raises:
        django.db.DatabaseError: the database is unavailable.
    """
    return _insert(model, rows, None)


def insert_leaves(
    model: type[Decision | Outcome], log: str, rows: Sequence[Leaf], leaves: Sequence[bytes], now: datetime
) -> list[tuple[Leaf, str]]:
    """Insert rows and append their leaves to the ledger; return the rows that the database refuses, which get no leaf.

    Args:
        model: the rows' model.
        log: the log of the ledger.
        rows: the rows to insert.
        leaves: their hashes, in the same order.
        now: the begin of the log, if it doesn't exist yet.

    Raises:
        django.db.DatabaseError: the database is unavailable.
        scheduler.ledger.tree.ProofError: the log was damaged; nothing can be appended to it.
    """
    if not rows:
        return []
    appender = Appender(log, now, unlogged=model._default_manager.count)  # noqa: SLF001 - Django's name for it
    refused = _insert(model, rows, appender.size)
    left_out = {id(row) for row, _words in refused}
    appender.append([leaf for row, leaf in zip(rows, leaves, strict=True) if id(row) not in left_out])
    return refused


def _insert(model: type[models.Model], rows: Sequence[Any], first: int | None) -> list[tuple[Any, str]]:
    """Insert rows; return those that the database refuses. If `first` is given, the stored rows get places in the ledger from there on."""
    if first is not None:
        for number, row in enumerate(rows, start=first):
            row.ledger_index = number
    words = _refusal(model, rows)
    if not words:
        return []
    if len(rows) == 1:
        logger.error("a row is refused: %s", words)
        return [(rows[0], words)]
    # Few rows are at fault; they must not block the others.
    middle = len(rows) // 2
    refused = _insert(model, rows[:middle], first)
    return refused + _insert(model, rows[middle:], None if first is None else first + middle - len(refused))


def _refusal(model: type[models.Model], rows: Sequence[Any]) -> str:
    """Insert rows, all or none; return the database's reason for refusing them, "" if it accepts them."""
    try:
        if rows:
            with transaction.atomic():
                _insert_all(model, rows)
    except (DataError, IntegrityError, OverflowError, ValueError) as error:
        return str(error).partition("\n")[0] or type(error).__name__
    return ""


def _insert_all(model: type[models.Model], rows: Sequence[Any]) -> None:
    # Ids that the database generates are omitted; an id that is part of the record isn't.
    fields = [field for field in model._meta.concrete_fields if not isinstance(field, models.AutoField)]  # noqa: SLF001 - documented
    values = attrgetter(*(field.attname for field in fields))
    if connection.vendor != "postgresql":
        names = [field.attname for field in fields]
        made = [model(**dict(zip(names, values(row), strict=True))) for row in rows]
        model._default_manager.bulk_create(made)  # noqa: SLF001 - Django's name for it
        return
    columns = ", ".join(connection.ops.quote_name(str(field.column)) for field in fields)
    table = connection.ops.quote_name(model._meta.db_table)  # noqa: SLF001 - documented
    types = [str(field.db_type(connection)) for field in fields]
    short = [at for at, name in enumerate(types) if name == "integer"]
    with (
        connection.wrap_database_errors,
        connection.cursor() as cursor,
        # As text it takes both sides twice as long.
        cursor.copy(f"COPY {table} ({columns}) FROM STDIN (FORMAT BINARY)") as copy,
    ):
        copy.set_types(types)
        for row in map(values, rows):
            for at in short:
                if not -_INTEGERS <= row[at] < _INTEGERS:  # psycopg would truncate it
                    message = f"{row[at]} is no integer of PostgreSQL"
                    raise OverflowError(message)
            copy.write_row(row)


def store_outcomes(rows: Sequence[NewOutcome], known: Mapping[str, Sequence[Known]]) -> list[tuple[NewOutcome, str]]:
    """Store outcomes of Pods; the caller has called `hold_up_others`. Of several reports of one event, the first record is kept.

    A record with the preemptor is kept beside one without: only the process that chose the victim knows the preemptor.
    A record of an end that nobody watched is dropped where another record has the end.

    Args:
        rows: the outcomes to store.
        known: the stored outcomes of their Pods, see `known_outcomes`.

    Returns:
        The rows that the database refuses, each with the database's message.
    """
    first: dict[tuple[str, str], NewOutcome] = {}
    for row in _without_unwatched(rows, known):
        key = (row.pod_uid, row.kind)
        if key not in first or (row.preemptor_uid and not first[key].preemptor_uid):
            first[key] = row
    named: dict[tuple[str, str], bool] = {}
    for uid, _ in first:
        for there in known.get(uid, ()):
            named[uid, there.kind] = named.get((uid, there.kind), False) or bool(there.preemptor_uid)
    new = [row for key, row in first.items() if key not in named or (row.preemptor_uid and not named[key])]
    refused = insert_leaves(Outcome, OUTCOMES, new, [leaf_hash(row.body) for row in new], datetime.now(UTC))
    faulty = {id(row) for row, _ in refused}
    new = [row for row in new if id(row) not in faulty]
    _note_placed_pods(new, known)
    return refused


def _without_unwatched(rows: Sequence[NewOutcome], known: Mapping[str, Sequence[Known]]) -> list[NewOutcome]:
    """Leave out records of ends that nobody watched, for Pods whose end is in another record."""
    unwatched = {id(row) for row in rows if row.kind == Outcome.Kind.GONE or row.reason == UNWATCHED}
    ended = {row.pod_uid for row in rows if row.kind != Outcome.Kind.BOUND and id(row) not in unwatched}
    ended |= {uid for uid, there in known.items() if any(each.kind != Outcome.Kind.BOUND for each in there)}
    return [row for row in rows if id(row) not in unwatched or row.pod_uid not in ended]


class _Placed(NamedTuple):
    """A row of PlacedPod."""

    uid: str
    namespace: str
    name: str
    node_name: str
    bound_at: datetime


def _note_placed_pods(new: Sequence[NewOutcome], known: Mapping[str, Sequence[Known]]) -> None:
    """Keep a row for each Pod that is on a node and hasn't ended. An end may arrive before the binding, from another writer."""
    bound = {row.pod_uid: row for row in new if row.kind == Outcome.Kind.BOUND}
    ended = {row.pod_uid for row in new if row.kind != Outcome.Kind.BOUND}
    if ended:
        PlacedPod.objects.filter(uid__in=ended).delete()
    ended |= {uid for uid in bound if any(each.kind != Outcome.Kind.BOUND for each in known.get(uid, ()))}
    rows = [
        _Placed(uid, row.pod_namespace, row.pod_name, row.node_name, row.at)
        for uid, row in bound.items()
        if uid not in ended
    ]
    if _refusal(PlacedPod, rows):  # one exists already
        PlacedPod.objects.bulk_create([PlacedPod(**row._asdict()) for row in rows], ignore_conflicts=True)


def _askable(texts: Iterable[str]) -> set[str]:
    """Return the texts that a PostgreSQL query may contain: no row holds a zero byte, and a query with one would fail every time."""
    return {text for text in texts if "\0" not in text}


def known_outcomes(pod_uids: Iterable[str]) -> dict[str, list[Known]]:
    """Return the stored outcomes of Pods."""
    found: dict[str, list[Known]] = {}
    rows = Outcome.objects.filter(pod_uid__in=_askable(pod_uids)).order_by()
    for row in map(Known._make, rows.values_list(*Known._fields)):
        found.setdefault(row.pod_uid, []).append(row)
    return found


def place_in(known: Iterable[Known]) -> Known | None:
    """Return the outcome that says most about a Pod's node: its binding, if there is one."""
    place: Known | None = None
    for row in known:
        if place is None or row.kind == Outcome.Kind.BOUND or (row.node_name and not place.node_name):
            place = row
    return place


_SET = "placed_on = {node}, placed_at = {at}, placed_best = COALESCE({best}, placed_best)"
# Rows that already have the values aren't updated: each row is in many indexes.
_BOUND = (
    "(placed_on <> {node} OR {at_is} IS NULL OR {at_is} <> {at} "
    "OR ({best} IS NOT NULL AND (placed_best IS NULL OR placed_best <> {best})))"
)
# A report of a Pod's end has its node, too; the time of binding is more exact in a report of the binding.
_ENDED = "placed_on = '' AND ({at_is} IS NULL OR {node} <> '')"
_NAMES = {"node": "seen.node", "at": "seen.at", "best": "seen.best", "at_is": "placed_at"}
# PostgreSQL plans a statement for all partitions each time, so one statement gets all rows.
_MANY = (
    "UPDATE scheduler_decision SET {set} FROM unnest(%s::text[], %s::timestamptz[], %s::boolean[], %s::text[]) "
    "AS seen(node, at, best, uid) WHERE pod_uid = seen.uid AND {where}"
)


class _Seen(NamedTuple):
    """The values that a statement writes to the Decisions of a Pod."""

    node_name: str
    at: datetime
    best: bool | None
    uid: str


def places_of(outcomes: Iterable[Placed]) -> dict[str, _Seen]:
    """Return by Pod the values of all reports of its binding: the last one's node and time, and `best` from any report that knows it."""
    places: dict[str, _Seen] = {}
    for seen in (_seen(outcome) for outcome in outcomes if _is_place(outcome)):
        known = places.get(seen.uid)
        places[seen.uid] = seen._replace(best=known.best) if known and seen.best is None else seen
    return places


def note_outcomes(outcomes: Sequence[Placed]) -> None:
    """Write the nodes that Pods really got to their Decisions; for a Pod without a node, that it is gone.

    All reports of one Pod's binding are written at once: on PostgreSQL each update of a row writes a new version of it.

    Whether the node was the best one is kept from the process that knew it: only one of several had answered. A node, once
    written, is never removed, because every bound Pod is gone one day.
    """
    places = places_of(outcomes)
    if places:
        _join(_BOUND, list(places.values()))
    rest = (_seen(outcome) for outcome in outcomes if not _is_place(outcome))
    for each in _each_pod_once(rest):
        _join(_ENDED, each)


def _is_place(outcome: Placed) -> bool:
    return outcome.kind == Outcome.Kind.BOUND and outcome.node_name != ""


def _seen(outcome: Placed) -> _Seen:
    return _Seen(outcome.node_name, outcome.at, outcome.best, outcome.pod_uid)


def _each_pod_once(rows: Iterable[_Seen]) -> Iterator[list[_Seen]]:
    """Iterate over rows in their order, in parts with at most one row per Pod, because one statement can write only one row of each."""
    part: dict[str, _Seen] = {}
    for row in rows:
        if row.uid in part:
            yield list(part.values())
            part = {}
        part[row.uid] = row
    if part:
        yield list(part.values())


def _join(where: str, rows: Sequence[_Seen]) -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            statement = _MANY.format(set=_SET.format(**_NAMES), where=where.format(**_NAMES))
            cursor.execute(statement, [list(column) for column in zip(*rows, strict=True)])
            return
        adapt: Any = connection.ops.adapt_datetimefield_value
        names = {"node": "%(node)s", "at": "%(at)s", "best": "%(best)s", "at_is": "placed_at"}
        statement = f"UPDATE scheduler_decision SET {_SET} WHERE pod_uid = %(uid)s AND {where}".format(**names)  # noqa: S608 - constants
        for node, at, best, uid in rows:
            cursor.execute(statement, {"node": node, "at": adapt(at), "best": best, "uid": uid})
