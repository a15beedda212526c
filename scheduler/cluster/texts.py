"""Converts texts that an object's author can choose to what a database can store and index. Pure."""

from datetime import MAXYEAR, MINYEAR, datetime

import msgspec

# The longest name in Kubernetes.
NAME_CHARACTERS = 253


def stored(text: str, longest: int | None = NAME_CHARACTERS) -> str:
    """Return a text as a database can store it: without NUL, which PostgreSQL rejects; cut for an index, unless `longest` is None."""
    return text.replace("\0", "")[:longest]


def moment(text: str) -> datetime | None:
    """Return a time from an object; None if there is none, or its year is out of datetime's range.

    kube-apiserver v1.36.3 accepts 9999-12-31T23:59:59-12:00 and returns it with the year 10000. The first and the last year are
    left out as well: in another time zone, the time would fall into the year before or after.
    """
    try:
        found = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return None
    return found if MINYEAR < found.year < MAXYEAR else None
