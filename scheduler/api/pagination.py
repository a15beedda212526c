"""Pages of Decisions over REST: what the admin's list shows, without a count."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import remove_query_param, replace_query_param
from rest_framework.views import APIView

from scheduler.decisions.search import FILTERS, MAX_LIMIT, SPANS, Key, Page, SearchError, parse_search

_PLACES = (
    OpenApiParameter("span", str, enum=list(SPANS), description="The last quarter of an hour, hour, day, …"),
    OpenApiParameter("from", str, description="A day or a moment, in UTC: 2026-11-22, 2026-11-22T21:30."),
    OpenApiParameter("to", str, description="The same; a day is taken whole."),
    OpenApiParameter("before", str, description="Older ones than this place; see `next`."),
    OpenApiParameter("after", str, description="Newer ones; see `previous`."),
    OpenApiParameter("limit", int, description=f"How many a page has, 1 to {MAX_LIMIT}; more gives {MAX_LIMIT}."),
)
# What a list takes, for the schema.
PARAMETERS = [
    *(
        OpenApiParameter(
            each.name, int if each.is_number else str, enum=list(each.choices) or None, description=each.help
        )
        for each in FILTERS
    ),
    *_PLACES,
]


class DecisionPages(BasePagination):
    """Pages that begin behind a Decision, however many are in front of it."""

    def paginate_queryset(self, queryset: Any, request: Request, view: APIView | None = None) -> list[Any]:
        """Return the page that is asked for.

        Raises:
            ValidationError: a parameter isn't known, or its value is none.
        """
        del queryset, view
        try:
            search = parse_search(request.query_params.dict(), timezone.now(), also=["format"])
        except SearchError as error:
            raise ValidationError(error.faults) from error
        self._url = request.build_absolute_uri()
        self._page: Page = search.page()
        return self._page.rows

    def get_paginated_response(self, data: Any) -> Response:
        """Return the rows, and where the next pages are."""
        page = self._page
        return Response(
            {
                "next": self._link("before", page.older),
                "previous": self._link("after", page.newer),
                "looked_until": page.looked_until,
                "results": data,
            }
        )

    def _link(self, name: str, key: Key | None) -> str | None:
        if key is None:
            return None
        url = remove_query_param(remove_query_param(self._url, "before"), "after")
        return str(replace_query_param(url, name, str(key)))

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Describe it."""
        url = {"type": "string", "nullable": True, "format": "uri"}
        return {
            "type": "object",
            "required": ["results"],
            "properties": {
                "next": {**url, "description": "older ones"},
                "previous": {**url, "description": "newer ones"},
                "looked_until": {
                    "type": "string",
                    "nullable": True,
                    "format": "date-time",
                    "description": "How far rows were looked at that no index leads to; `next` looks further.",
                },
                "results": schema,
            },
        }
