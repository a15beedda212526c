"""Where BERTH_HISTORY_DATABASE_URL names a replica: whether it can be asked, and looks that do without it while it can't."""

from collections.abc import Callable
from typing import TypeVar

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, connections

from policies.wording import duration

# In place of what isn't known while the replica is away.
HISTORY_AWAY = "not known: the history's database can't be reached"
# A replica that is further behind is named: fewer seconds pass where nobody writes.
_BEHIND_SECONDS = 15.0
# Null where it is no replica: when the last transaction that it has was committed, by the clock of the database itself.
_BEHIND = "SELECT EXTRACT(EPOCH FROM clock_timestamp() - pg_last_xact_replay_timestamp())::float8"
Found = TypeVar("Found")


def is_history_away() -> bool:
    """Whether the replica that pages read from can't be asked; False where there is none of its own."""
    if settings.HISTORY_DATABASE == DEFAULT_DB_ALIAS:
        return False
    connection = connections[settings.HISTORY_DATABASE]
    try:
        connection.ensure_connection()
        return not connection.is_usable()
    except (DatabaseError, InterfaceError):
        return True


def history_behind() -> str:
    """Return how long ago the newest change was made that the replica has, where that is long; empty where there is none or it is away.

    Processes write their heartbeats every few seconds: so where nothing comes, the replica is behind, or Berth is down.
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
    """Return what a look into the history finds; None where its replica is away, for pages that say more than the history.

    Raises:
        django.db.DatabaseError: the database is away, or took too long.
    """
    try:
        return look()
    except (DatabaseError, InterfaceError):
        if is_history_away():
            return None
        raise
