"""Many rows at once: COPY on PostgreSQL, bulk inserts elsewhere."""

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from django.db import DataError, IntegrityError, connection, models, transaction

from scheduler.models import Checkpoint

logger = logging.getLogger("berth.decisions")

_NOBODY = ""

Row = TypeVar("Row", bound=models.Model)


class Placed(Protocol):
    """Where a Pod ended up."""

    pod_uid: str
    node_name: str
    at: datetime
    best: bool | None


def hold_up_others(now: datetime) -> None:
    """Let nobody else store until this transaction ends."""
    Checkpoint.objects.get_or_create(writer=_NOBODY, defaults={"at": now})
    Checkpoint.objects.select_for_update().get(writer=_NOBODY)


def insert(model: type[Row], rows: Sequence[Row]) -> list[tuple[Row, str]]:
    """Insert rows inside the transaction that there is; give those that the database refuses, each with its words.

    Raises:
        django.db.DatabaseError: the database is away.
    """
    if not rows:
        return []
    try:
        with transaction.atomic():
            _insert_all(model, rows)
    except (DataError, IntegrityError, ValueError):
        # One row is at fault; it must not hold up the others.
        return [(row, words) for row in rows if (words := _insert_one(row))]
    return []


def _insert_one(row: models.Model) -> str:
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except (DataError, IntegrityError, ValueError) as error:
        logger.error("a row is refused: %s", error)  # noqa: TRY400 - the row is at fault
        return str(error)
    return ""


def _insert_all(model: type[Row], rows: Sequence[Row]) -> None:
    if connection.vendor != "postgresql":
        model._default_manager.bulk_create(rows)  # noqa: SLF001 - Django's name for it
        return
    # An id that the database gives out is left out; one that is part of the record isn't.
    fields = [field for field in model._meta.concrete_fields if not isinstance(field, models.AutoField)]  # noqa: SLF001 - documented
    columns = ", ".join(connection.ops.quote_name(str(field.column)) for field in fields)
    table = connection.ops.quote_name(model._meta.db_table)  # noqa: SLF001 - documented
    with (
        connection.wrap_database_errors,
        connection.cursor() as cursor,
        cursor.copy(f"COPY {table} ({columns}) FROM STDIN") as copy,
    ):
        for row in rows:
            copy.write_row([getattr(row, field.attname) for field in fields])


def note_outcomes(outcomes: Iterable[Placed]) -> None:
    """Join the nodes that Pods really got to their Decisions; without a node, that the Pod is gone.

    Whether it was the best one is kept from whoever knew it: of several processes one had answered. A node that was seen is
    never taken back, for a Pod that was bound is gone one day.
    """
    adapt: Any = connection.ops.adapt_datetimefield_value
    rows = [
        (outcome.node_name, adapt(outcome.at), outcome.best, outcome.pod_uid, outcome.node_name) for outcome in outcomes
    ]
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(
                "UPDATE scheduler_decision SET placed_on = %s, placed_at = %s, "
                "placed_best = COALESCE(CAST(%s AS boolean), placed_best) "
                "WHERE pod_uid = %s AND (placed_at IS NULL OR %s <> '')",
                rows,
            )
