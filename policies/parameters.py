"""Reads the parameters of a search, in URLs and commands, alike for AuditEvents and Decisions."""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, date, datetime, time
from typing import Any, Final

from django.db.models import Q
from django.utils.dateparse import parse_date, parse_datetime

MAX_LIMIT: Final = 1_000
_LONGEST = 500
_LARGEST = 2**31 - 1


class SearchError(ValueError):
    """The search is invalid: messages by parameter."""

    def __init__(self, faults: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {message}" for name, message in faults.items()))
        self.faults = dict(faults)


def read_parameters(
    given: Mapping[str, str], readers: Mapping[str, Callable[[str], Any]], *, what: str, also: Iterable[str] = ()
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the value of each valid parameter of a search, and the faults of the others. Empty ones are ignored.

    Args:
        given: parameters.
        readers: the reader of each; raises ValueError, with a message, for an invalid value.
        what: the things that are searched.
        also: parameters that belong to other code.
    """
    found, faults, theirs = dict[str, Any](), dict[str, str](), frozenset(also)
    for name, text in given.items():
        if name in theirs or not text:
            continue
        if name not in readers:
            faults[name] = f"isn't a filter of {what}; there are {', '.join(readers)}"
        elif len(text) > _LONGEST or "\0" in text:
            faults[name] = f"is longer than {_LONGEST} characters, or holds a NUL"
        else:
            try:
                found[name] = readers[name](text)
            except ValueError as error:
                faults[name] = str(error)
    return found, faults


def column_is(column: str, text: str) -> Q:
    """Filter by the value of a column."""
    return Q(**{column: text})


def number_is(column: str, text: str) -> Q:
    """Filter by a number.

    Raises:
        ValueError: it is none.
    """
    return Q(**{column: whole_number(text)})


def whole_number(text: str, largest: int = _LARGEST) -> int:
    """Read a number.

    Raises:
        ValueError: it is none, or too large.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(largest)) and int(text) <= largest):
        message = f"{text[:40]!r} is not a whole number from 0 to {largest}"
        raise ValueError(message)
    return int(text)


def page_limit(what: str, text: str) -> int:
    """Read the number of rows on a page: at least one; larger numbers count as MAX_LIMIT.

    Raises:
        ValueError: it is no number, or none.
    """
    if not (found := whole_number(text)):
        message = f"a page has 1 or more {what}; more than {MAX_LIMIT} gives {MAX_LIMIT}"
        raise ValueError(message)
    return min(found, MAX_LIMIT)


def one_of(choices: Collection[str], text: str) -> str:
    """Read one of some words.

    Raises:
        ValueError: it is none of them.
    """
    if text not in choices:
        message = f"{text[:40]!r} is none of {', '.join(choices)}"
        raise ValueError(message)
    return text


def day_or_moment(text: str) -> date:
    """Read a day, or a time; UTC where there is no zone.

    Raises:
        ValueError: it is neither.
    """
    try:
        if (day := parse_date(text)) is not None and day < date.max:
            return day
        # An unencoded + arrives as a space.
        found = parse_datetime(text.replace(" ", "+") if "T" in text else text)
        if found is not None:
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        pass  # said below
    message = f"{text[:40]!r} is neither a day nor a time: 2026-11-22, or 2026-11-22T21:30, in UTC"
    raise ValueError(message)


def check_order(since: datetime | None, until: datetime | None, faults: dict[str, str]) -> None:
    """Add a fault where a period ends before it begins: the empty result would look like an answer."""
    if since is not None and until is not None and until <= since:
        faults["to"] = "ends before it begins: from is later"


def start_of(day: date) -> datetime:
    """Return when a day begins, in UTC."""
    return datetime.combine(day, time(), UTC)
