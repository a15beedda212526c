"""The indexes that a database's query plan uses."""

from django.db import connection


def indexes_of(name: str) -> set[str]:
    """Return the names of an index in plans: on PostgreSQL also that of each partition."""
    if connection.vendor != "postgresql":
        return {name}
    with connection.cursor() as cursor:
        cursor.execute("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = to_regclass(%s)", [name])
        return {name, *(child for (child,) in cursor.fetchall())}
