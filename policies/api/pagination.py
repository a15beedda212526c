"""Keyset pagination of REST's lists: a page starts after a row, and has a bounded size."""

import base64
import binascii
import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError as DjangoValidationError
from django.db.models import Model, Q, QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import remove_query_param, replace_query_param
from rest_framework.views import APIView

from policies.audit_search import FILTERS, parse_search
from policies.parameters import MAX_LIMIT, SearchError

_LIMIT = 100
_MAX_CURSOR = 2_000
_URL = {"type": "string", "nullable": True, "format": "uri"}


class KeyPages(BasePagination):
    """Pages with the keys of the next and the previous page; rows aren't counted.

    Attributes:
        parameters: the URL's parameters.
        next_name, previous_name: the parameters for the keys of the next and the previous page.
    """

    parameters: Sequence[OpenApiParameter] = ()
    next_name = previous_name = "cursor"
    next_help, previous_help = "the URL of the next page", "the URL of the previous page"

    def find(self, queryset: Any, request: Request) -> tuple[list[Any], object | None, object | None]:
        """Return the requested rows, and the keys of the next and the previous page; None if there is no such page."""
        raise NotImplementedError

    def paginate_queryset(self, queryset: Any, request: Request, view: APIView | None = None) -> list[Any]:
        """Return the requested page."""
        self._url = request.build_absolute_uri()
        rows, self._next, self._previous = self.find(queryset, request)
        return rows

    def get_paginated_response(self, data: Any) -> Response:
        """Return the rows, and links to the next and the previous page."""
        return Response({**self.links(), **self.more(), "results": data})

    def links(self) -> dict[str, str | None]:
        """Return links to the next and the previous page."""
        return {
            "next": self._link(self.next_name, self._next),
            "previous": self._link(self.previous_name, self._previous),
        }

    def more(self) -> dict[str, Any]:
        """Return further members of a page."""
        return {}

    def more_schema(self) -> dict[str, Any]:
        """Return the schema of the further members."""
        return {}

    def _link(self, name: str, key: object | None) -> str | None:
        if key is None:
            return None
        url = remove_query_param(remove_query_param(self._url, self.next_name), self.previous_name)
        return str(replace_query_param(url, name, str(key)))

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the schema of a page."""
        properties = {
            "next": {**_URL, "description": self.next_help},
            "previous": {**_URL, "description": self.previous_help},
            **self.more_schema(),
            "results": schema,
        }
        return {"type": "object", "required": [*properties], "properties": properties}


class RowPages(KeyPages):
    """Pages of rows in their model's order, or in the view's."""

    parameters = [
        OpenApiParameter(
            "limit",
            {"type": "integer", "minimum": 1},
            description=f"The most rows of a page; more than {MAX_LIMIT} counts as {MAX_LIMIT}.",
        ),
        OpenApiParameter("cursor", str, description="The page's cursor, from `next` or `previous`."),
    ]

    def find(self, queryset: QuerySet[Any], request: Request) -> tuple[list[Any], object | None, object | None]:
        """Return the rows after a row, or before it, or the first rows."""
        limit, order = _limit_of(request), _order_of(queryset)
        text = request.query_params.get("cursor")
        if text is None:
            rows, behind = _some(queryset, order, limit)
            return rows, self._last(rows, order) if behind else None, None
        way, values = _read_cursor(text, order)
        try:
            if way == "b":
                rows, behind = _some(queryset.filter(_beyond(order, values)), order, limit)
                return rows, self._last(rows, order) if behind else None, self._first(rows, order)
            turned = [name.removeprefix("-") if name.startswith("-") else f"-{name}" for name in order]
            rows, before = _some(queryset.filter(_beyond(turned, values)), turned, limit)
        except (ValueError, TypeError, OverflowError, DjangoValidationError) as error:
            raise _no_cursor() from error
        rows.reverse()
        return rows, self._last(rows, order), self._first(rows, order) if before else None

    @staticmethod
    def _last(rows: Sequence[Model], order: Sequence[str]) -> str | None:
        return _cursor("b", rows[-1], order) if rows else None

    @staticmethod
    def _first(rows: Sequence[Model], order: Sequence[str]) -> str | None:
        return _cursor("f", rows[0], order) if rows else None


def _limit_of(request: Request) -> int:
    text = request.query_params.get("limit", str(_LIMIT))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):  # noqa: PLR2004
        raise ValidationError({"limit": f"must be a whole number from 1; more than {MAX_LIMIT} counts as {MAX_LIMIT}"})
    return min(int(text), MAX_LIMIT)


def _order_of(queryset: QuerySet[Any]) -> list[str]:
    """Return the columns by which rows are ordered, the key last: the order is total."""
    meta = queryset.model._meta  # noqa: SLF001 - Django's public name for it
    order = [str(name) for name in queryset.query.order_by or meta.ordering or ()]
    key = meta.pk.name
    if not {"pk", "-pk", key, f"-{key}"} & set(order):
        order.append("pk")
    return order


def _some(queryset: QuerySet[Any], order: Sequence[str], limit: int) -> tuple[list[Any], bool]:
    found = list(queryset.order_by(*order)[: limit + 1])
    return found[:limit], len(found) > limit


def _beyond(order: Sequence[str], values: Sequence[Any]) -> Q:
    """Return the condition for rows after a position: the first columns equal, the next one greater."""
    found, alike = Q(), Q()
    for name, value in zip(order, values, strict=True):
        plain = name.removeprefix("-")
        found |= alike & Q(**{f"{plain}__{'lt' if name.startswith('-') else 'gt'}": value})
        alike &= Q(**{plain: value})
    return found


def _cursor(way: str, row: Model, order: Sequence[str]) -> str:
    values = [getattr(row, name.removeprefix("-")) for name in order]
    text = json.dumps([way, *values], default=str)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_cursor(text: str, order: Sequence[str]) -> tuple[str, list[Any]]:
    try:
        if len(text) > _MAX_CURSOR:
            raise _no_cursor()
        way, *values = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (ValueError, TypeError, binascii.Error, RecursionError) as error:
        raise _no_cursor() from error
    plain = all(isinstance(value, str | int) and "\0" not in str(value) for value in values)
    # A tuple, not a set: `way` may be a list or an object, which isn't hashable.
    if way not in ("b", "f") or len(values) != len(order) or not plain:
        raise _no_cursor()
    return way, values


def _no_cursor() -> ValidationError:
    return ValidationError({"cursor": "isn't a cursor of this list: use one from `next` or `previous`"})


NAMED_PAGES = [RowPages.parameters[0], OpenApiParameter("cursor", str, description="Return only names after this one.")]


def page_of_named(found: Mapping[str, Any], request: Request, shown: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """Return a page of objects in memory, ordered by name."""
    limit, behind = _limit_of(request), request.query_params.get("cursor", "")
    names = sorted(found)
    start = bisect_right(names, behind)
    page = names[start : start + limit]
    url = request.build_absolute_uri()
    first = str(remove_query_param(url, "cursor"))
    # The page before ends where this one starts; a page of the first names needs no cursor.
    before = str(replace_query_param(url, "cursor", names[start - limit - 1])) if start > limit else first
    return {
        "next": str(replace_query_param(url, "cursor", page[-1])) if start + limit < len(names) else None,
        "previous": before if behind else None,
        "results": [shown(found[name]) for name in page],
    }


class EventPages(KeyPages):
    """Pages of AuditEvents, newest first, with the filters of the admin's list."""

    parameters = [
        *(OpenApiParameter(each.name, str, description=each.help) for each in FILTERS),
        OpenApiParameter(
            "limit", int, description=f"the most events of a page; more than {MAX_LIMIT} counts as {MAX_LIMIT}"
        ),
        OpenApiParameter("before", str, description="only events before this one"),
        OpenApiParameter("after", str, description="only events after this one"),
    ]
    next_name, previous_name = "before", "after"
    next_help, previous_help = "the URL of older events", "the URL of newer events"

    def find(self, queryset: Any, request: Request) -> tuple[list[Any], object | None, object | None]:
        """Return the requested page.

        Raises:
            ValidationError: a value is invalid.
        """
        sees_addresses = bool(request.user and request.user.has_perm("policies.see_addresses"))
        try:
            page = parse_search(request.query_params.dict(), sees_addresses=sees_addresses, also=["fields"]).page()
        except SearchError as error:
            raise ValidationError(error.faults) from error
        return page.rows, page.older, page.newer
