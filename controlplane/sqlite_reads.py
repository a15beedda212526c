"""Lets a process write to SQLite while it iterates over rows that it reads.

SQLite refuses to write on a connection with an open query once another process has written ("database is locked", at once and not after
its time-out), because the query began before that. Django fetches the rows of `QuerySet.iterator` from an open query.
"""

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created


def read_to_the_end(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Let a new connection to SQLite fetch all rows of a query at once. PostgreSQL reads from a cursor of the server, and is left alone."""
    if connection.vendor == "sqlite":
        connection.features.can_use_chunked_reads = False


def watch_connections() -> None:
    """Let each connection that this process makes read so."""
    connection_created.connect(read_to_the_end, dispatch_uid="sqlite_reads")
