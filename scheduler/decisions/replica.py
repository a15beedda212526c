"""Where BERTH_HISTORY_DATABASE_URL names a replica: whether it can be asked, and looks that do without it while it can't."""

from collections.abc import Callable
from typing import TypeVar

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, connections

# In place of what isn't known while the replica is away.
HISTORY_AWAY = "not known: the history's database can't be reached"
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
