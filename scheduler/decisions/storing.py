"""Many rows at once: COPY on PostgreSQL, bulk inserts elsewhere."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeVar

from django.db import DataError, IntegrityError, connection, models, transaction

from scheduler.decisions.record import NewDecision, NewOutcome
from scheduler.ledger.append import Appender
from scheduler.ledger.logs import OUTCOMES
from scheduler.ledger.tree import leaf_hash
from scheduler.models import Checkpoint, Decision, Outcome, PlacedPod

logger = logging.getLogger("berth.decisions")

_NOBODY = ""

# What an INTEGER of PostgreSQL stays below.
_INTEGERS = 1 << 31

Row = TypeVar("Row", bound=models.Model | NewDecision | NewOutcome)
Leaf = TypeVar("Leaf", NewDecision, NewOutcome)


class Known(NamedTuple):
    """What is stored of an Outcome, as far as new rows depend on it."""

    pod_uid: str
    kind: str
    node_name: str
    at: datetime
    preemptor_uid: str


class Placed(Protocol):
    """What became of a Pod, as far as its Decisions show it."""

    kind: str
    pod_uid: str
    node_name: str
    at: datetime
    best: bool | None


def hold_up_others(now: datetime) -> None:
    """Let nobody else store until this transaction ends."""
    Checkpoint.objects.get_or_create(writer=_NOBODY, defaults={"at": now})
    Checkpoint.objects.select_for_update().get(writer=_NOBODY)


def insert(model: type[models.Model], rows: Sequence[Row]) -> list[tuple[Row, str]]:
    """Insert rows inside the transaction that there is; return those that the database refuses, each with its words.

    Args:
        model: of the rows.
        rows: of the model itself, or anything with members of the same names.

    Raises:
        django.db.DatabaseError: the database is away.
    """
    return _insert(model, rows, None)


def insert_leaves(
    model: type[Decision | Outcome], log: str, rows: Sequence[Leaf], leaves: Sequence[bytes], now: datetime
) -> list[tuple[Leaf, str]]:
    """Insert rows and append their leaves to the ledger; return the rows that the database refuses, which get no leaf.

    Args:
        model: of the rows.
        log: which log of the ledger.
        rows: what to insert.
        leaves: the hash of each, beside `rows`.
        now: when a log begins that isn't there yet.

    Raises:
        django.db.DatabaseError: the database is away.
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
    """Insert rows; return those that the database refuses. Where the first has a place in the ledger, those stored follow it."""
    if first is not None:
        for number, row in enumerate(rows, start=first):
            row.ledger_index = number
    words = _refusal(model, rows)
    if not words:
        return []
    if len(rows) == 1:
        logger.error("a row is refused: %s", words)
        return [(rows[0], words)]
    # Few are at fault; they must not hold up the others.
    middle = len(rows) // 2
    refused = _insert(model, rows[:middle], first)
    return refused + _insert(model, rows[middle:], None if first is None else first + middle - len(refused))


def _refusal(model: type[models.Model], rows: Sequence[Any]) -> str:
    """Insert rows, all or none; return why the database refuses them, "" where it doesn't."""
    try:
        if rows:
            with transaction.atomic():
                _insert_all(model, rows)
    except (DataError, IntegrityError, OverflowError, ValueError) as error:
        return str(error).partition("\n")[0] or type(error).__name__
    return ""


def _insert_all(model: type[models.Model], rows: Sequence[Any]) -> None:
    # An id that the database gives out is left out; one that is part of the record isn't.
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
                if not -_INTEGERS <= row[at] < _INTEGERS:  # psycopg would cut it off
                    message = f"{row[at]} is no integer of PostgreSQL"
                    raise OverflowError(message)
            copy.write_row(row)


def store_outcomes(rows: Sequence[NewOutcome], known: Mapping[str, Sequence[Known]]) -> list[tuple[NewOutcome, str]]:
    """Store what became of Pods; called by who holds up others. Of several who saw the same, the first one's record is kept.

    A record that says for whom a Pod was preempted is kept beside one that doesn't: only who chose the victim knows.

    Args:
        rows: what to store.
        known: what is stored about their Pods, see `known_outcomes`.

    Returns:
        Those that the database refuses, each with its words.
    """
    first: dict[tuple[str, str], NewOutcome] = {}
    for row in rows:
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


class _Placed(NamedTuple):
    """A row of PlacedPod."""

    uid: str
    namespace: str
    name: str
    node_name: str
    bound_at: datetime


def _note_placed_pods(new: Sequence[NewOutcome], known: Mapping[str, Sequence[Known]]) -> None:
    """Keep which Pods are on a node and haven't ended. An end may come before the binding, from another writer."""
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
    if _refusal(PlacedPod, rows):  # one is there already
        PlacedPod.objects.bulk_create([PlacedPod(**row._asdict()) for row in rows], ignore_conflicts=True)


def _askable(texts: Iterable[str]) -> set[str]:
    """Return what PostgreSQL can be asked for: no row holds a zero byte, and a question with one would be refused for ever."""
    return {text for text in texts if "\0" not in text}


def known_outcomes(pod_uids: Iterable[str]) -> dict[str, list[Known]]:
    """Return what is stored of what became of Pods."""
    found: dict[str, list[Known]] = {}
    rows = Outcome.objects.filter(pod_uid__in=_askable(pod_uids)).order_by()
    for row in map(Known._make, rows.values_list(*Known._fields)):
        found.setdefault(row.pod_uid, []).append(row)
    return found


def place_in(known: Iterable[Known]) -> Known | None:
    """Return what says most of where a Pod ended up: that it was bound above all."""
    place: Known | None = None
    for row in known:
        if place is None or row.kind == Outcome.Kind.BOUND or (row.node_name and not place.node_name):
            place = row
    return place


_SET = "placed_on = {node}, placed_at = {at}, placed_best = COALESCE({best}, placed_best)"
# What is so already isn't written again: each row is in many indexes.
_BOUND = (
    "(placed_on <> {node} OR {at_is} IS NULL OR {at_is} <> {at} "
    "OR ({best} IS NOT NULL AND (placed_best IS NULL OR placed_best <> {best})))"
)
# Who saw the end of a Pod saw its node too; when it was bound is known better by who saw that.
_ENDED = "placed_on = '' AND ({at_is} IS NULL OR {node} <> '')"
_NAMES = {"node": "seen.node", "at": "seen.at", "best": "seen.best", "at_is": "placed_at"}
# PostgreSQL plans a statement for all partitions each time; so it gets all rows in one.
_MANY = (
    "UPDATE scheduler_decision SET {set} FROM unnest(%s::text[], %s::timestamptz[], %s::boolean[], %s::text[]) "
    "AS seen(node, at, best, uid) WHERE pod_uid = seen.uid AND {where}"
)


class _Seen(NamedTuple):
    """What a statement joins to the Decisions of a Pod."""

    node_name: str
    at: datetime
    best: bool | None
    uid: str


def places_of(outcomes: Iterable[Placed]) -> dict[str, _Seen]:
    """Return by Pod what several who saw it on a node say together: the last one's node and moment, and who knows, the best."""
    places: dict[str, _Seen] = {}
    for seen in (_seen(outcome) for outcome in outcomes if _is_place(outcome)):
        known = places.get(seen.uid)
        places[seen.uid] = seen._replace(best=known.best) if known and seen.best is None else seen
    return places


def note_outcomes(outcomes: Sequence[Placed]) -> None:
    """Join the nodes that Pods really got to their Decisions; without a node, that the Pod is gone.

    What several saw of one Pod is joined at once: on PostgreSQL each statement that changes a row writes it anew.

    Whether it was the best one is kept from whoever knew it: of several processes one had answered. A node that was seen is
    never taken back, for a Pod that was bound is gone one day.
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
    """Iterate over rows in their order, by parts in which no Pod comes twice: one statement joins one row of each."""
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
