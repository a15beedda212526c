"""What narrows a list: its state is the URL, shown as a form, and as chips that can be taken away. For Decisions and AuditEvents alike."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from django.http import QueryDict

# Where a page of a list begins: what narrows it anew begins at its head.
PLACES = ("before", "after")


class Filter(Protocol):
    """One way to narrow a list: the parameter, as people call it, and what it takes."""

    @property
    def name(self) -> str: ...  # noqa: D102 - said above
    @property
    def title(self) -> str: ...  # noqa: D102
    @property
    def help(self) -> str: ...  # noqa: D102


class Chip(msgspec.Struct, frozen=True):
    """A filter that is active, and the list without it."""

    title: str
    text: str
    url: str


class Narrowing(msgspec.Struct, frozen=True, kw_only=True):
    """The form above a list, and its chips.

    Attributes:
        id: of the form.
        label: what is looked for.
        faults: what can't be looked for, by parameter.
        fields: each with its filter, value and choices.
        chips: what is active.
        summary: of what folds; it stands open where it is empty.
        given: the values of the times, and of `q`.
        finds: what `q` takes; empty for a list without it.
        hidden: what links brought, and no field shows.
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
    """Return the fields of a form, as its template takes them."""
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
    """Return the list with other parameters; a place of a page is only kept where one is given."""
    asked = without(query, *PLACES)
    for name, value in values.items():
        asked[name] = str(value)
    for name in [name for name, value in asked.items() if not value]:
        del asked[name]
    return f"?{asked.urlencode()}"
