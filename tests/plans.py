"""What a database's plan says: which indexes it goes by."""

from django.db import connection


def indexes_of(name: str) -> set[str]:
    """Return the names that an index has in plans: on PostgreSQL that of each partition too."""
    if connection.vendor != "postgresql":
        return {name}
    with connection.cursor() as cursor:
        cursor.execute("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = to_regclass(%s)", [name])
        return {name, *(child for (child,) in cursor.fetchall())}
