"""Whether PostgreSQL holds every text: names and reasons of people are of all of Unicode, and so are Berth's own sentences."""

from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper

# The second keeps bytes as they come, and is what `initdb` takes in a locale of C.
_HOLD_ALL = frozenset({"UTF8", "SQL_ASCII"})
REMEDY = "Make the database anew with ENCODING 'UTF8' TEMPLATE template0, and bring what is in this one there (pg_dump, pg_restore)."


def narrow_encoding(connection: BaseDatabaseWrapper) -> str:
    """Return what is wrong with a database's encoding, in words; nothing where it holds all texts, or can't be asked."""
    if connection.vendor != "postgresql":
        return ""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SHOW server_encoding")
            (name,) = cursor.fetchone()
    except DatabaseError:
        connection.close()
        return ""
    return (
        ""
        if name in _HOLD_ALL
        else f"the database's encoding is {name}, which hasn't all characters: texts with others are refused"
    )
