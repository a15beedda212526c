"""When chains of Snapshots and lists of node names were last used: updated as records are stored, so that pruning needs no search."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import connection

from scheduler.decisions.record import NewDecision
from scheduler.models import Decision, JournalUse, NodeNames, SnapshotPart

_Key = tuple[str, str, int]

_NOTE = (
    "INSERT INTO scheduler_journaluse (writer, kind, number, last_at, least_names, most_names) VALUES (%s, %s, %s, %s, %s, %s) "
    "ON CONFLICT (writer, kind, number) DO UPDATE SET "
    "last_at = CASE WHEN excluded.last_at > scheduler_journaluse.last_at "
    "THEN excluded.last_at ELSE scheduler_journaluse.last_at END, "
    "least_names = CASE WHEN scheduler_journaluse.least_names = 0 "
    "OR (excluded.least_names > 0 AND excluded.least_names < scheduler_journaluse.least_names) "
    "THEN excluded.least_names ELSE scheduler_journaluse.least_names END, "
    "most_names = CASE WHEN excluded.most_names > scheduler_journaluse.most_names "
    "THEN excluded.most_names ELSE scheduler_journaluse.most_names END"
)


def note_journal_uses(
    decisions: Iterable[Decision | NewDecision],
    parts: Iterable[SnapshotPart],
    names: Iterable[NodeNames],
    now: datetime,
) -> None:
    """Note the chains and names that these Decisions refer to, and new ones that will be referred to.

    Raises:
        django.db.DatabaseError: the database is unavailable.
    """
    last: dict[_Key, datetime] = {(row.writer, JournalUse.Kind.CHAIN, row.chain): now for row in parts}
    last |= {(row.writer, JournalUse.Kind.NAMES, row.number): now for row in names}
    between: dict[_Key, tuple[int, int]] = {}
    for row in decisions:
        # The writer's clock or this machine's may be ahead: the later time counts.
        at = max(row.at, now)
        if row.chain:
            key = (row.process, JournalUse.Kind.CHAIN, row.chain)
            last[key] = max(at, last.get(key, at))
            if row.names_number:
                least, most = between.get(key, (row.names_number, row.names_number))
                between[key] = min(row.names_number, least), max(row.names_number, most)
        if row.names_number:
            key = (row.process, JournalUse.Kind.NAMES, row.names_number)
            last[key] = max(at, last.get(key, at))
    adapt: Any = connection.ops.adapt_datetimefield_value
    if last:
        with connection.cursor() as cursor:
            cursor.executemany(
                _NOTE, [(*key, adapt(at), *between.get(key, (0, 0))) for key, at in sorted(last.items())]
            )
