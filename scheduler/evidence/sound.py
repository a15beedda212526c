"""Verifies stretches of a log without faults: several times as fast as the search for faults, and in several processes.

A stretch is sound if each leaf has one row, the row matches its record, and the records' hashes match the tiles. Any other stretch is
left to `scheduler.evidence.verify`, which reads it again and reports the fault. PostgreSQL only.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple

import django
import psycopg
from django.db import DataError, connection
from msgspec.structs import astuple

from scheduler.decisions.divergence import Divergence
from scheduler.decisions.facts import Facts, facts_in
from scheduler.decisions.record import (
    UNREADABLE,
    Head,
    Outcome,
    encode_columns,
    parts_of,
    read_outcome,
    record_of,
    split,
)
from scheduler.ledger.logs import DECISIONS, OUTCOMES
from scheduler.ledger.tree import HASH_BYTES, TILE_WIDTH, leaf_hash
from scheduler.models import LedgerTile

# Starting a process takes as long as half of these rows.
_ROWS_FOR_A_PROCESS = 50_000

Span = tuple[int, int]
_Row = tuple[Any, ...]


class Stretch(NamedTuple):
    """Leaves without faults.

    Attributes:
        hashes: the leaves' hashes, concatenated.
        numbers: of each writer that numbers its rows, the first number, the one that comes next, and the leaf of the last one.
    """

    hashes: bytes
    numbers: dict[str, tuple[int, int, int]]


class _DoubtError(Exception):
    """Something may be wrong with the stretch."""


_HEADS = len(Head.__struct_fields__)
_PROCESS = _HEADS + len(Facts.__struct_fields__)
_SEQUENCE, _DIVERGENCE = map(Head.__struct_fields__.index, ("sequence", "divergence"))
_OUTCOMES = [name for name in Outcome.__struct_fields__ if name != "best"]
_BEST = Outcome.__struct_fields__.index("best")


def _exact_of_decision(row: _Row) -> bytes:
    exact = record_of(row[-1])
    head, body = parts_of(exact)
    # Writing the columns anew takes a third of reading the record's; who wrote them otherwise is an older version, or a shadow.
    if head != encode_columns(row[:_HEADS]) and not _is_head_of(row, exact):
        raise _DoubtError
    if row[_HEADS:_PROCESS] != astuple(facts_in(body)):
        raise _DoubtError
    return exact


def _is_head_of(row: _Row, exact: bytes) -> bool:
    head = split(exact)[0]
    if head.divergence == Divergence.OPEN:
        head.divergence = row[_DIVERGENCE]  # settled once the Pod has its node
    return bool(row[:_HEADS] == astuple(head))


def _exact_of_outcome(row: _Row) -> bytes:
    exact: bytes = row[-1]
    said = astuple(read_outcome(exact))
    if row[:-2] != said[:_BEST] + said[_BEST + 1 :]:
        raise _DoubtError
    return exact


# Of each log the table, its columns but for the leaf's index and the body, and what returns the bytes that a row's writer had on disk.
_READERS: dict[str, tuple[str, Sequence[str], Callable[[_Row], bytes]]] = {
    DECISIONS: (
        "scheduler_decision",
        [*Head.__struct_fields__, *Facts.__struct_fields__, "process"],
        _exact_of_decision,
    ),
    OUTCOMES: ("scheduler_outcome", _OUTCOMES, _exact_of_outcome),
}
# As records have them: making a UUID takes longer than reading all the other columns.
_AS_TEXT = {"id": "id::text", "decision": "coalesce(decision::text, '')"}


def read_stretch(log: str, span: Span) -> Stretch | None:
    """Return a stretch of a log, from one leaf to before another; None where something may be wrong with it.

    Raises:
        django.db.DatabaseError: the database is away.
    """
    if connection.vendor != "postgresql" or log not in _READERS:
        return None
    first, until = span
    _table, _columns, exact_of = _READERS[log]
    hashes = []
    numbers: dict[str, tuple[int, int, int]] = {}
    try:
        for index, row in enumerate(_rows(log, span), start=first):
            if row[-2] != index:
                return None
            hashes.append(leaf_hash(exact_of(row)))
            if log == DECISIONS:
                number = row[_SEQUENCE]
                began, following, _last = numbers.get(row[_PROCESS], (number, number, 0))
                if number != following:
                    return None
                numbers[row[_PROCESS]] = began, number + 1, index
    except (_DoubtError, DataError, *UNREADABLE):
        return None
    found = b"".join(hashes)
    return Stretch(found, numbers) if len(hashes) == until - first and found == _logged(log, span) else None


def _rows(log: str, span: Span) -> list[_Row]:
    table, columns, _exact_of = _READERS[log]
    chosen = ", ".join(_AS_TEXT.get(column, column) for column in columns)
    sql = f"SELECT {chosen}, ledger_index, body FROM {table} WHERE ledger_index >= %s AND ledger_index < %s ORDER BY ledger_index"  # noqa: S608 - names of ours
    connection.ensure_connection()
    # Django's own cursor reads text, which takes three times as long.
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        return cursor.execute(sql, span, binary=True).fetchall()


def _logged(log: str, span: Span) -> bytes:
    """Return the hashes that the tiles have of these leaves."""
    first, until = span
    tiles = LedgerTile.objects.filter(
        log=log, level=0, number__gte=first // TILE_WIDTH, number__lt=-(-until // TILE_WIDTH)
    )
    hashes = b"".join(map(bytes, tiles.order_by("number").values_list("hashes", flat=True)))
    return hashes[first % TILE_WIDTH * HASH_BYTES :][: (until - first) * HASH_BYTES]


# Iterates over the stretches of a log's spans, in their order.
ReadStretches = Callable[[str, Sequence[Span]], Iterable[Stretch | None]]


def read_here(log: str, spans: Sequence[Span]) -> Iterator[Stretch | None]:
    """Iterate over stretches, read by this process one after the other."""
    return map(partial(read_stretch, log), spans)


@contextmanager
def read_apart(processes: int, rows: int) -> Iterator[ReadStretches]:
    """Start so many processes at most that read stretches, as far as there are rows enough for them."""
    worth = min(processes, rows // _ROWS_FOR_A_PROCESS)
    if worth <= 1 or connection.vendor != "postgresql":
        yield read_here
        return
    # Not by fork: nobody may share a connection to the database.
    pool = ProcessPoolExecutor(worth, mp_context=get_context("spawn"), initializer=django.setup)
    read = partial(_read_in, connection.settings_dict["NAME"])
    try:
        yield lambda log, spans: pool.map(partial(read, log), spans)
    finally:
        pool.shutdown(cancel_futures=True)


def _read_in(database: str, log: str, span: Span) -> Stretch | None:
    connection.settings_dict["NAME"] = database
    return read_stretch(log, span)
