"""Texts of the cluster that whoever made an object could choose, as a database stores and indexes them. Pure."""

from datetime import MAXYEAR, MINYEAR, datetime

import msgspec

# As Kubernetes' own names have at most.
NAME_CHARACTERS = 253


def stored(text: str, longest: int = NAME_CHARACTERS) -> str:
    """Return what a database stores of a text: PostgreSQL takes no NUL, which the API server does, and an index none of any length."""
    return text.replace("\0", "")[:longest]


def moment(text: str) -> datetime | None:
    """Return a time that an object gives; None where it gives none, or one of a year that no time here has.

    kube-apiserver v1.36.3 takes 9999-12-31T23:59:59-12:00 and gives it as of the year 10000. The first year and the last are left out
    as well: in another time zone they would be of the years beside them.
    """
    try:
        found = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return None
    return found if MINYEAR < found.year < MAXYEAR else None
