"""Appends to the logs of the ledger, in the transaction that stores the rows: so no row is without its leaf.

The head's row is locked first, so that only one transaction at a time appends to a log, and its numbers have no gap.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial, reduce
from operator import or_
from typing import Any

from django.db import models, transaction

from scheduler.ledger.logs import DECISIONS, EVENTS, OUTCOMES
from scheduler.ledger.tree import EMPTY_ROOT, HASH_BYTES, TILE_WIDTH, Edge, ProofError, Tile, widths
from scheduler.models import Decision, LedgerHead, LedgerLeaf, LedgerTile, Outcome

RESTORE = "Restore the whole database from a backup, not this table alone"
# The logs whose rows name their leaf themselves.
_LOGGED: dict[str, type[models.Model]] = {DECISIONS: Decision, OUTCOMES: Outcome}
# By log, its size after this process's last append. Only another size needs a look at the log's rows: of other workers, or of a restore.
_sizes_left: dict[str, int] = {}


class Appender:
    """One log, locked until the transaction ends.

    Args:
        log: its name.
        now: the start time of the log, if it doesn't exist yet.
        unlogged: counts the rows that exist already at that time.

    Raises:
        django.db.DatabaseError: the database is unavailable.
        scheduler.ledger.tree.ProofError: the log's last tiles are missing, or its tiles or rows have more leaves than the log.
    """

    def __init__(self, log: str, now: datetime, unlogged: Callable[[], int] = lambda: 0) -> None:
        self._log, self._now = log, now
        if not LedgerHead.objects.filter(log=log).exists():
            defaults = {"root": EMPTY_ROOT, "began_at": now, "unlogged": unlogged()}
            LedgerHead.objects.get_or_create(log=log, defaults=defaults)
        self._head = LedgerHead.objects.select_for_update().get(log=log)
        self._edge = read_edge(log, self._head.size)
        if _sizes_left.get(log) != self._head.size:
            check_no_row_is_beyond(log, last_leaf_of_rows(log), self._head.size)

    @property
    def size(self) -> int:
        """The index of the next leaf."""
        return self._edge.size

    def append(self, hashes: Sequence[bytes]) -> int:
        """Append hashes of leaves; return the index of the first."""
        first = self._edge.size
        if hashes:
            _write(self._log, self._edge.append(b"".join(hashes)))
            # A log begins with its first stored row, not with rows that were refused: it is signed from then on.
            self._head.began_at = self._head.began_at if first else self._now
            self._head.size, self._head.root = self._edge.size, self._edge.root()
            self._head.save(update_fields=["size", "root", "began_at"])
        transaction.on_commit(partial(_sizes_left.__setitem__, self._log, self._edge.size))
        return first


def read_edge(log: str, size: int) -> Edge:
    """Return the right edge of a log's tree at its size.

    Raises:
        scheduler.ledger.tree.ProofError: a tile of the edge is missing, or there are leaves beyond the size.
    """
    wanted = list(widths(size))
    places = [models.Q(level=level, number=number) for level, number, _width in wanted]
    rows = LedgerTile.objects.filter(reduce(or_, places), log=log) if places else LedgerTile.objects.none()
    found = {row.level: bytes(row.hashes) for row in rows}
    tiles = [found.get(level, b"") for level in range(wanted[-1][0] + 1 if wanted else 0)]
    first_beyond = (size + TILE_WIDTH - 1) // TILE_WIDTH
    beyond = LedgerTile.objects.filter(log=log, level=0, number__gte=first_beyond)
    if any(len(tiles[level]) > width * HASH_BYTES for level, _number, width in wanted) or beyond.exists():
        message = (
            f"the log {log} has {size} leaves by its row in scheduler_ledgerhead, which is older than its tiles: "
            f"an append would write over their hashes. {RESTORE}"
        )
        raise ProofError(message)
    return Edge(size, tiles)


def last_leaf_of_rows(log: str) -> int:
    """Return the last leaf that a Decision or an outcome claims; -1 if there is none, or the log is of neither."""
    model: Any = _LOGGED.get(log)
    last = model and model.objects.aggregate(last=models.Max("ledger_index"))["last"]
    return -1 if last is None else int(last)


def check_no_row_is_beyond(log: str, last: int, size: int) -> None:
    """Check that the ledger's tables aren't older than the rows of a log: an append would give numbers of leaves a second time.

    Args:
        log: its name.
        last: the last leaf that a row claims.
        size: the size of the log, read after `last`: both grow together.

    Raises:
        ProofError: they are, or a row was changed.
    """
    if last >= size:
        table = _LOGGED[log]._meta.db_table  # noqa: SLF001 - documented
        message = (
            f"a row of {table} claims leaf {last}, and the log {log} has only {size}: the ledger's tables are older than "
            "the row, or it was changed. Restore the whole database from a backup, not some of its tables"
        )
        raise ProofError(message)


def last_leaf_row() -> int:
    """Return the last leaf of the log of events that a row of `LedgerLeaf` has; -1 if there is none."""
    rows = LedgerLeaf.objects.filter(log=EVENTS).order_by("-index")
    last = rows.values_list("index", flat=True).first()
    return -1 if last is None else last


def check_last_leaf_row(last: int, *, before: int, after: int) -> None:
    """Check that the rows of `LedgerLeaf` end with the log of events: otherwise an append would log events a second time, or fail.

    Args:
        last: the last leaf that a row has.
        before: the size of the log, read before `last`: both grow together.
        after: its size, read after it.

    Raises:
        ProofError: the table is older or newer than the log.
    """
    if last >= after:
        message = (
            f"a row of scheduler_ledgerleaf claims leaf {last}, and the log {EVENTS} has only {after}: the table is newer than "
            f"scheduler_ledgerhead, or was changed. {RESTORE}; or, if verify names nothing else, delete its rows from leaf {after} on"
        )
        raise ProofError(message)
    if last < before - 1:
        message = (
            f"leaf {before - 1} of the log {EVENTS} has no row in scheduler_ledgerleaf: the table is older than "
            f"scheduler_ledgerhead, or was changed. {RESTORE}"
        )
        raise ProofError(message)


def _write(log: str, tiles: Sequence[Tile]) -> None:
    rows = [LedgerTile(log=log, level=tile.level, number=tile.number, hashes=tile.hashes) for tile in tiles]
    LedgerTile.objects.bulk_create(
        rows, update_conflicts=True, update_fields=["hashes"], unique_fields=["log", "level", "number"]
    )
