"""Whether a pooler in front of PostgreSQL lends one session to several clients (PgBouncer's transaction mode).

Berth sets limits of its sessions and reads long results by cursors of theirs. Where another client gets the session in between, cursors
are missing or somebody else's, and limits end statements that have none: it fails now and then, and never where it is looked for.
"""

from typing import NamedTuple
from uuid import uuid4

from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper


class Fault(NamedTuple):
    """What is wrong, and what to do."""

    says: str
    remedy: str


POOLED = Fault(
    "the pooler before PostgreSQL lends one session to several clients, and Berth's cursors and limits are of its session",
    "Let it pool by session (PgBouncer: pool_mode=session for this database), or name PostgreSQL itself in BERTH_DATABASE_URL.",
)
# Where others are busy, they may get the session in between without anything to be seen of it.
_LOOKS = 5


def shares_sessions(connection: BaseDatabaseWrapper) -> bool:
    """Return whether another connection gets what was set of this one's session. Without a pooler it costs one query.

    Raises:
        django.db.DatabaseError: the database can't be asked.
    """
    if connection.vendor != "postgresql":
        return False
    # A pooler gives each client a process id of its own, as it ends queries for it.
    if _asked(connection, "SELECT pg_backend_pid()") == connection.connection.info.backend_pid:
        return False
    other = connection.copy()
    try:
        return any(_is_seen(connection, other) for _ in range(_LOOKS))
    finally:
        other.close()


def is_shared(connection: BaseDatabaseWrapper) -> bool:
    """Return what `shares_sessions` returns; False while the database can't be asked, which others say."""
    try:
        return shares_sessions(connection)
    except DatabaseError:
        connection.close()
        return False


def _is_seen(connection: BaseDatabaseWrapper, other: BaseDatabaseWrapper) -> bool:
    mark = str(uuid4())
    _asked(connection, "SELECT set_config('berth.session', %s, false)", mark)
    return (
        _asked(other, "SELECT current_setting('berth.session', true)") == mark
        or _asked(connection, "SELECT current_setting('berth.session', true)") != mark
    )


def _asked(connection: BaseDatabaseWrapper, query: str, *params: str) -> object:
    with connection.cursor() as cursor:
        cursor.execute(query, params or None)
        return cursor.fetchone()[0]
