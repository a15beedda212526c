"""Pages of REST's lists: of a bounded size, at a place that a database can count to."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.pagination import BasePagination, LimitOffsetPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import remove_query_param, replace_query_param
from rest_framework.views import APIView

from policies.audit_search import FILTERS, Page, SearchError, parse_search

MAX_LIMIT = 1_000
_MAX_OFFSET = 2**31 - 1
_MAX_DIGITS = 10


class Pages(LimitOffsetPagination):
    """`limit` up to 1,000, more gives 1,000; `offset` up to 2,147,483,647."""

    max_limit = MAX_LIMIT

    def get_limit(self, request: Request) -> int | None:
        """Return how many rows a page has.

        Raises:
            ValidationError: it isn't a number that anybody means.
        """
        _check(request, self.limit_query_param)
        return super().get_limit(request)

    def get_offset(self, request: Request) -> int:
        """Return how many rows come before the page.

        Raises:
            ValidationError: it isn't a number that a database can count to.
        """
        _check(request, self.offset_query_param)
        return super().get_offset(request)


def _check(request: Request, name: str) -> None:
    text: Any = request.query_params.get(name, "0")
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS and int(text) <= _MAX_OFFSET):
        raise ValidationError({name: f"is a whole number from 0 to {_MAX_OFFSET}"})


EVENT_PARAMETERS = [
    *(OpenApiParameter(each.name, str, description=each.help) for each in FILTERS),
    OpenApiParameter("limit", int, description=f"how many, up to {MAX_LIMIT}"),
    OpenApiParameter("before", str, description="only older ones than this event"),
    OpenApiParameter("after", str, description="only newer ones than this event"),
]


class EventPages(BasePagination):
    """Pages that begin behind an AuditEvent, however many are in front of it."""

    def paginate_queryset(self, queryset: Any, request: Request, view: APIView | None = None) -> list[Any]:
        """Return the page that is asked for.

        Raises:
            ValidationError: a parameter isn't known, or its value is none.
        """
        del queryset, view
        sees_addresses = bool(request.user and request.user.has_perm("policies.see_addresses"))
        try:
            search = parse_search(request.query_params.dict(), sees_addresses=sees_addresses, also=["format"])
        except SearchError as error:
            raise ValidationError(error.faults) from error
        self._url = request.build_absolute_uri()
        self._page: Page = search.page()
        return self._page.rows

    def get_paginated_response(self, data: Any) -> Response:
        """Return the rows, and where the next pages are."""
        older, newer = self._link("before", self._page.older), self._link("after", self._page.newer)
        return Response({"next": older, "previous": newer, "results": data})

    def _link(self, name: str, key: UUID | None) -> str | None:
        if key is None:
            return None
        url = remove_query_param(remove_query_param(self._url, "before"), "after")
        return str(replace_query_param(url, name, str(key)))

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Describe it."""
        url = {"type": "string", "nullable": True, "format": "uri"}
        properties = {
            "next": {**url, "description": "older ones"},
            "previous": {**url, "description": "newer ones"},
            "results": schema,
        }
        return {"type": "object", "required": ["results"], "properties": properties}
