"""Checks whether a pooler in front of PostgreSQL shares a session among several clients (PgBouncer's transaction mode).

Berth sets limits in its sessions and reads long results by cursors in them. If another client gets the session in between, cursors
are missing or belong to others, and limits stop statements of others: faults that occur rarely, and never when somebody tests for them.
"""

from typing import NamedTuple
from uuid import uuid4

from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper


class Fault(NamedTuple):
    """A fault and its remedy."""

    says: str
    remedy: str


POOLED = Fault(
    "the pooler in front of PostgreSQL shares one session among several clients, but Berth's cursors and limits need a session of their own",
    "Use session pooling (PgBouncer: pool_mode=session for this database), or connect directly to PostgreSQL in BERTH_DATABASE_URL.",
)
# On a busy pooler other clients may get the session in between, which hides the sharing; so several attempts are made.
_LOOKS = 5


def shares_sessions(connection: BaseDatabaseWrapper) -> bool:
    """Return whether another connection sees the settings of this one's session. Without a pooler it costs one query.

    Raises:
        django.db.DatabaseError: the database can't be queried.
    """
    if connection.vendor != "postgresql":
        return False
    # A pooler gives each client a process id of its own, for cancelling its queries.
    if _asked(connection, "SELECT pg_backend_pid()") == connection.connection.info.backend_pid:
        return False
    other = connection.copy()
    try:
        return any(_is_seen(connection, other) for _ in range(_LOOKS))
    finally:
        other.close()


def is_shared(connection: BaseDatabaseWrapper) -> bool:
    """Return the result of `shares_sessions`; False if the database can't be queried, which other parts report."""
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
