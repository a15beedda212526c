"""Checks that PostgreSQL can store every text: names and reasons may contain any Unicode character, as do Berth's own sentences."""

from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper

# SQL_ASCII stores bytes unchanged, and is the default of `initdb` in the C locale.
_HOLD_ALL = frozenset({"UTF8", "SQL_ASCII"})
REMEDY = "Make the database anew with ENCODING 'UTF8' TEMPLATE template0, and bring what is in this one there (pg_dump, pg_restore)."


def narrow_encoding(connection: BaseDatabaseWrapper) -> str:
    """Return what is wrong with a database's encoding, in words; empty if it can store all texts, or can't be queried."""
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
