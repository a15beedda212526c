"""Django's backend for SQLite, but a process may write while it iterates over rows that it reads.

SQLite refuses to write on a connection with an open query once another process has written: "database is locked", at once and not after
the time-out, because the query began before that. Django reads the rows of `QuerySet.iterator` from an open query.
"""

from django.db.backends.sqlite3 import base, features


class DatabaseFeatures(features.DatabaseFeatures):
    """What SQLite can do."""

    @property
    def can_use_chunked_reads(self) -> bool:  # type: ignore[override] # an attribute of Django's class
        """Whether the rows of an iterator are fetched as they are needed; otherwise all at once, into memory.

        A transaction has the lock for writing from its start, so nobody else writes in between.
        """
        return self.connection.in_atomic_block


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection."""

    features_class = DatabaseFeatures
