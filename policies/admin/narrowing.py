"""Filters of a list. Their state is the URL, shown as a form and removable chips. Decisions and AuditEvents use them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from django.http import QueryDict

# The parameters of a page's place in a list; a new filter begins at the first page.
PLACES = ("before", "after")


class Filter(Protocol):
    """A filter of a list: the parameter, its label, and the values that it takes."""

    @property
    def name(self) -> str: ...  # noqa: D102 - said above
    @property
    def title(self) -> str: ...  # noqa: D102
    @property
    def help(self) -> str: ...  # noqa: D102


class Chip(msgspec.Struct, frozen=True):
    """An active filter, and the URL of the list without it."""

    title: str
    text: str
    url: str


class Narrowing(msgspec.Struct, frozen=True, kw_only=True):
    """The form above a list, and its chips.

    Attributes:
        id: of the form.
        label: of the search field.
        faults: of invalid values, by parameter.
        fields: each with its filter, value and choices.
        chips: the active filters.
        summary: of the folded part; empty for a form that is always open.
        given: the values of the times, and of `q`.
        finds: what `q` takes; empty for a list without it.
        hidden: parameters from links, for which there is no field.
    """

    id: str
    label: str
    faults: Mapping[str, str]
    fields: Sequence[Mapping[str, Any]]
    chips: Sequence[Chip]
    given: Mapping[str, str]
    summary: str = ""
    finds: str = ""
    hidden: Sequence[tuple[str, str]] = ()


def fields_of(
    filters: Iterable[Filter], query: QueryDict, choices: Mapping[str, Mapping[str, str]], leaving_out: Collection[str]
) -> list[dict[str, Any]]:
    """Return the fields of a form, for its template."""
    return [
        {"filter": each, "value": query.get(each.name, ""), "choices": list(choices.get(each.name, {}).items())}
        for each in filters
        if each.name not in leaving_out
    ]


def given_of(query: QueryDict) -> dict[str, str]:
    """Return the values of the fields that each form has."""
    return {name: query.get(name, "") for name in ("q", "from", "to")}


def without(query: QueryDict, *names: str) -> QueryDict:
    """Return a query without some parameters."""
    left = query.copy()
    for name in names:
        left.pop(name, None)
    return left


def with_values(query: QueryDict, **values: object) -> str:
    """Return the list's URL with other parameters, without the page's place unless one is given."""
    asked = without(query, *PLACES)
    for name, value in values.items():
        asked[name] = str(value)
    for name in [name for name, value in asked.items() if not value]:
        del asked[name]
    return f"?{asked.urlencode()}"
