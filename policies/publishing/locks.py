"""PostgreSQL's advisory locks, which others wait for until the transaction ends.

On SQLite nothing is needed: a transaction begins IMMEDIATE there, so it excludes all other writers already.
"""

from enum import IntEnum

from django.db import connection


class Lock(IntEnum):
    """The locks, each by its number in the database: the letters of "berth", and a digit.

    During an update, processes of two versions run side by side: a number never changes, and none is used again.
    """

    REVISIONS = 0x6265727468
    UNSIGNED_NOTES = 0x62657274681
    VERIFICATIONS = 0x62657274682
    SETTINGS = 0x62657274683
    SUPERUSERS = 0x62657274684
    CANARIES = 0x62657274685


def take(lock: Lock) -> None:
    """Wait until nobody else has a lock, and take it."""
    _take("pg_advisory_xact_lock", lock)


def share(lock: Lock) -> None:
    """Wait until nobody has taken a lock, and share it with others who share it."""
    _take("pg_advisory_xact_lock_shared", lock)


def _take(function: str, lock: Lock) -> None:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {function}(%s)", [lock.value])
