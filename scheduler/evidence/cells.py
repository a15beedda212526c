"""Finds unreadable cells of the database: an infinite time, or, on SQLite, a word in a number's column.

Verification calls this only after reading has failed, because it scans every table that verification reads.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import DataError, connection, models

from policies.models import AuditEvent, Change, ChangeEdit, ChangeEvent, Part, Revision, RevisionPart
from scheduler.ledger.tree import ProofError
from scheduler.models import (
    Checkpoint,
    DeadLetter,
    Decision,
    DecisionGap,
    LedgerCheckpoint,
    LedgerHead,
    LedgerLeaf,
    LedgerPruned,
    LedgerTile,
    LegalHold,
    Outcome,
)

# The exceptions of reading rows with values that their columns can't hold.
UNREADABLE_CELLS = (
    ArithmeticError, AttributeError, DataError, LookupError, ProofError, TypeError, ValidationError, ValueError,
)  # fmt: skip
_TABLES: Iterable[type[models.Model]] = (
    LedgerHead, LedgerCheckpoint, LedgerTile, LedgerLeaf, LedgerPruned, LegalHold, DecisionGap, DeadLetter, Checkpoint, Decision, Outcome,
    AuditEvent, Revision, RevisionPart, Part, Change, ChangeEdit, ChangeEvent,
)  # fmt: skip
# PostgreSQL's range of times is larger than Python's.
_NO_TIME = "{column} < '0001-01-02Z' OR {column} >= '9999-12-31Z'"
_MOST_SHOWN = 40


def unreadable_cells(most: int) -> list[str]:
    """Return descriptions of unreadable cells, at most this many.

    Raises:
        django.db.DatabaseError: the database is unavailable.
    """
    found = (words for model in _TABLES for field in _stored(model) for words in _of_column(model, field))
    return list(islice(found, most))


def _stored(model: type[models.Model]) -> list[Any]:
    return list(model._meta.concrete_fields)  # noqa: SLF001 - documented


def _of_column(model: type[models.Model], field: Any) -> Iterator[str]:
    is_time = isinstance(field, models.DateTimeField)
    if connection.vendor == "postgresql" and not is_time:
        return  # it takes nothing else
    quote = connection.ops.quote_name
    key, column, table = map(quote, (model._meta.pk.column, field.column, model._meta.db_table))  # noqa: SLF001 - documented
    wanted = _NO_TIME.format(column=column) if connection.vendor == "postgresql" else f"{column} IS NOT NULL"
    shown = f"CAST({column} AS text)" if is_time else column
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT CAST({key} AS text), {shown} FROM {table} WHERE {wanted}")  # noqa: S608 - names of ours
        while rows := cursor.fetchmany(500):
            for row, value in rows:
                if connection.vendor == "postgresql" or not _holds(field, value):
                    yield f"{model.__name__} {row}: its column {field.column} holds {str(value)[:_MOST_SHOWN]!r}, which can't be read"


def _holds(field: Any, value: Any) -> bool:
    """Return whether a value is valid for a column: SQLite accepts any value."""
    kind = field.target_field if field.is_relation else field
    reads = next((reads for of, reads in _READS if isinstance(kind, of)), lambda found: isinstance(found, str))
    try:
        return bool(reads(value))
    except (TypeError, ValueError):
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, int)


def _is_time(value: Any) -> bool:
    return bool(datetime.fromisoformat(value))


def _is_id(value: Any) -> bool:
    return bool(UUID(value))


# What reads a kind of column; all others hold text.
_READS: tuple[tuple[type[Any], Callable[[Any], bool]], ...] = (
    (models.DateTimeField, _is_time),
    (models.UUIDField, _is_id),
    (models.BinaryField, lambda value: isinstance(value, bytes)),
    (models.IntegerField, _is_number),
    (models.BooleanField, _is_number),
)
