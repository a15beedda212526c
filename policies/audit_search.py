"""The filters of AuditEvents, and pages of results: one definition for the pages, REST and the command.

Nothing is counted: a page holds the events before an event (`before`) or after one (`after`), newest first. Ids sort by time.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

import msgspec
from django.db.models import Q

from policies.models import AuditEvent, ChangeEdit, ChangeEvent
from policies.models.audit import Kind, first_id_at
from policies.origin import Door
from policies.parameters import (
    SearchError,
    check_order,
    column_is,
    day_or_moment,
    number_is,
    one_of,
    page_limit,
    read_parameters,
    start_of,
    whole_number,
)


class Filter(msgspec.Struct, frozen=True):
    """One filter of events: its parameter, its label, its accepted values, and its condition on rows."""

    name: str
    title: str
    help: str
    condition: Callable[[str], Q]


class Page(msgspec.Struct, frozen=True):
    """Events found, newest first, and the ids where the adjacent pages begin; None where no page is known."""

    rows: list[AuditEvent]
    older: UUID | None
    newer: UUID | None


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """A search: the values of filters as in URLs, and the position of the page."""

    values: dict[str, str] = {}
    before: UUID | None = None
    after: UUID | None = None
    limit: int = 50

    def page(self) -> Page:
        """Run the search."""
        found = AuditEvent.objects.filter(*(BY_NAME[name].condition(value) for name, value in self.values.items()))
        if self.after is None:
            found = found.filter(pk__lt=self.before) if self.before else found
            rows = list(found.order_by("-pk")[: self.limit + 1])
            has_more, rows = len(rows) > self.limit, rows[: self.limit]
            return Page(rows, rows[-1].pk if has_more else None, rows[0].pk if rows and self.before else None)
        rows = list(found.filter(pk__gt=self.after).order_by("pk")[: self.limit + 1])
        has_more, rows = len(rows) > self.limit, rows[: self.limit][::-1]
        return Page(rows, rows[-1].pk if rows else None, rows[0].pk if has_more else None)


def parse_search(given: Mapping[str, str], *, sees_addresses: bool, also: Iterable[str] = ()) -> Search:
    """Read the parameters of a URL. Empty ones are ignored, since browsers send empty fields, too.

    Args:
        given: parameters.
        sees_addresses: whether the user may see people's addresses.
        also: parameters that belong to other code.

    Raises:
        SearchError: parameters are unknown, or values are invalid; all of them are named.
    """
    readers = {**{name: each.condition for name, each in BY_NAME.items()}, **_PLACES}
    found, faults = read_parameters(given, readers, what="events", also=also)
    if "address" in found and not sees_addresses:
        faults["address"] = "may be asked for by who may see addresses: an Auditor may"
    if "before" in found and "after" in found:
        faults["after"] = "a page is before an event or after one, not both"
    if "from" in found and "to" in found:
        check_order(_moment(given["from"], ends=False), _moment(given["to"], ends=True), faults)
    if faults:
        raise SearchError(faults)
    values = {name: given[name] for name in found if name in BY_NAME}
    return Search(values=values, **{name: value for name, value in found.items() if name in _PLACES})


def _key(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        message = f"{text[:60]!r} is no event: take it from the link of a page"
        raise ValueError(message) from error


def _door(text: str) -> Q:
    return Q(door=one_of(list(Door), text))


def _kind(text: str) -> Q:
    """Filter by kind; with a dot at the end, by all kinds with this prefix."""
    if text.endswith(".") and any(kind.startswith(text) for kind in _KINDS):
        return Q(kind__startswith=text)
    return Q(kind=one_of(_KINDS, text))


def _thing(text: str) -> Q:
    """Filter by thing: acts on the thing itself, and on Changes that edit it."""
    kind, slash, name = text.partition("/")
    if not slash:
        message = f"{text[:40]!r} is no thing: write its kind and its name, such as RuleSet/web or Account/ann"
        raise ValueError(message)
    if kind == "Change" and name.isdigit():
        return Q(change=whole_number(name))
    changes = ChangeEdit.objects.filter(kind=kind, name=name).values("change")
    return Q(thing_kind=kind, thing_name=name) | Q(change__in=changes)


def _since(text: str) -> Q:
    return Q(pk__gte=first_id_at(_moment(text, ends=False)))


def _until(text: str) -> Q:
    return Q(pk__lt=first_id_at(_moment(text, ends=True)))


def _moment(text: str, *, ends: bool) -> datetime:
    """Read a time, or a day, of which the beginning or the end counts."""
    found = day_or_moment(text)
    return found if isinstance(found, datetime) else start_of(found) + timedelta(days=ends)


FILTERS: Final = (
    Filter("kind", "What", "A kind, such as change.publish; change. for all events about Changes", _kind),
    Filter("by", "Who", "The account's name, or the name of a command's user", partial(column_is, "by")),
    Filter("via", "Through", "A token's name, the schedule, the provider", partial(column_is, "via")),
    Filter("door", "Interface", "admin, rest, command, beat or process", _door),
    Filter("thing", "Object", "The object's kind and name: RuleSet/web, Account/ann, Revision/7", _thing),
    Filter("change", "Change", "The Change's number", partial(number_is, "change")),
    Filter("revision", "Revision", "The number of the Revision that was made", partial(number_is, "revision")),
    Filter("request", "Request", "The request's ID, as in the response and the log", partial(column_is, "request_id")),
    Filter("address", "Address", "The address, exactly as shown", partial(column_is, "address")),
    Filter("from", "From", "The start: a day or a time, UTC", _since),
    Filter("to", "To", "The end: a day, which is included whole, or a time; UTC", _until),
)
BY_NAME: Final = {each.name: each for each in FILTERS}
_KINDS: Final = sorted([*map(str, Kind), *(f"change.{act}" for act in ChangeEvent.Act)])
_PLACES: Final[Mapping[str, Callable[[str], Any]]] = {
    "before": _key,
    "after": _key,
    "limit": partial(page_limit, "events"),
}
