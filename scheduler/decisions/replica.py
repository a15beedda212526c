"""The history's replica (BERTH_HISTORY_DATABASE_URL): whether it is reachable, and queries that tolerate its absence."""

from collections.abc import Callable
from typing import TypeVar

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, connections

from policies.wording import duration

# The text in place of unknown values while the replica is unavailable.
HISTORY_AWAY = "not known: the history's database can't be reached"
# A larger replication lag is reported: a smaller one can occur when nobody writes.
_BEHIND_SECONDS = 15.0
# The time since the commit of the last replayed transaction, by the database's own clock. Null if it is no replica.
_BEHIND = "SELECT EXTRACT(EPOCH FROM clock_timestamp() - pg_last_xact_replay_timestamp())::float8"
Found = TypeVar("Found")


def is_history_away() -> bool:
    """Return whether the replica that pages read from is unreachable; False if there is no separate replica."""
    if settings.HISTORY_DATABASE == DEFAULT_DB_ALIAS:
        return False
    connection = connections[settings.HISTORY_DATABASE]
    try:
        connection.ensure_connection()
        return not connection.is_usable()
    except (DatabaseError, InterfaceError):
        return True


def history_behind() -> str:
    """Return the age of the replica's newest change if it is large; empty if there is no replica or it is unavailable.

    Processes write their heartbeats every few seconds: so if nothing arrives, the replica lags behind, or Berth is down.
    """
    seconds = _seconds_behind()
    return duration(seconds) if seconds > _BEHIND_SECONDS else ""


def _seconds_behind() -> float:
    if settings.HISTORY_DATABASE == DEFAULT_DB_ALIAS:
        return 0.0
    connection = connections[settings.HISTORY_DATABASE]
    if connection.vendor != "postgresql":
        return 0.0
    try:
        with connection.cursor() as cursor:
            cursor.execute(_BEHIND)
            return cursor.fetchone()[0] or 0.0
    except (DatabaseError, InterfaceError):
        return 0.0


def unless_away(look: Callable[[], Found]) -> Found | None:
    """Return the result of a query of the history; None if its replica is unavailable, for pages that show more than the history.

    Raises:
        django.db.DatabaseError: the database is unavailable, or took too long.
    """
    try:
        return look()
    except (DatabaseError, InterfaceError):
        if is_history_away():
            return None
        raise
