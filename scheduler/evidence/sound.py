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

# Starting a process takes as long as reading half this many rows.
_ROWS_FOR_A_PROCESS = 50_000

Span = tuple[int, int]
_Row = tuple[Any, ...]


class Stretch(NamedTuple):
    """Leaves without faults.

    Attributes:
        hashes: the leaves' hashes, concatenated.
        numbers: for each writer that numbers its rows, the first number, the next number, and the leaf of the last one.
    """

    hashes: bytes
    numbers: dict[str, tuple[int, int, int]]


class _DoubtError(Exception):
    """The stretch may have a fault."""


_HEADS = len(Head.__struct_fields__)
_PROCESS = _HEADS + len(Facts.__struct_fields__)
_SEQUENCE, _DIVERGENCE = map(Head.__struct_fields__.index, ("sequence", "divergence"))
_OUTCOMES = [name for name in Outcome.__struct_fields__ if name != "best"]
_BEST = Outcome.__struct_fields__.index("best")


def _exact_of_decision(row: _Row) -> bytes:
    exact = record_of(row[-1])
    head, body = parts_of(exact)
    # Encoding the columns takes a third of the time of decoding the record's; they differ for records of older versions and for shadows.
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


# For each log the table, its columns without the leaf's index and the body, and a function that returns the bytes that a row's writer
# had on disk.
_READERS: dict[str, tuple[str, Sequence[str], Callable[[_Row], bytes]]] = {
    DECISIONS: (
        "scheduler_decision",
        [*Head.__struct_fields__, *Facts.__struct_fields__, "process"],
        _exact_of_decision,
    ),
    OUTCOMES: ("scheduler_outcome", _OUTCOMES, _exact_of_outcome),
}
# As text, as in records: making a UUID takes longer than reading all the other columns.
_AS_TEXT = {"id": "id::text", "decision": "coalesce(decision::text, '')"}


def read_stretch(log: str, span: Span) -> Stretch | None:
    """Return a stretch of a log; `span` excludes its end. None if it may have a fault.

    Raises:
        django.db.DatabaseError: the database is unavailable.
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
    """Return these leaves' hashes from the tiles; nothing if a tile holds more than it can, which the slice would hide."""
    first, until = span
    tiles = LedgerTile.objects.filter(
        log=log, level=0, number__gte=first // TILE_WIDTH, number__lt=-(-until // TILE_WIDTH)
    )
    found = [bytes(hashes) for hashes in tiles.order_by("number").values_list("hashes", flat=True)]
    if any(len(hashes) > TILE_WIDTH * HASH_BYTES for hashes in found):
        return b""
    hashes = b"".join(found)
    return hashes[first % TILE_WIDTH * HASH_BYTES :][: (until - first) * HASH_BYTES]


# Iterates over the stretches of a log's spans, in their order.
ReadStretches = Callable[[str, Sequence[Span]], Iterable[Stretch | None]]


def read_here(log: str, spans: Sequence[Span]) -> Iterator[Stretch | None]:
    """Iterate over stretches, read one after the other by this process."""
    return map(partial(read_stretch, log), spans)


@contextmanager
def read_apart(processes: int, rows: int) -> Iterator[ReadStretches]:
    """Start at most this many processes that read stretches, and no more than are worth it for the number of rows."""
    worth = min(processes, rows // _ROWS_FOR_A_PROCESS)
    if worth <= 1 or connection.vendor != "postgresql":
        yield read_here
        return
    # Not by fork: processes can't share a database connection.
    pool = ProcessPoolExecutor(worth, mp_context=get_context("spawn"), initializer=django.setup)
    read = partial(_read_in, connection.settings_dict["NAME"])
    try:
        yield lambda log, spans: pool.map(partial(read, log), spans)
    finally:
        pool.shutdown(cancel_futures=True)


def _read_in(database: str, log: str, span: Span) -> Stretch | None:
    connection.settings_dict["NAME"] = database
    return read_stretch(log, span)
