"""Pages of Decisions over REST: those of the admin's list, without a count."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from policies.api.pagination import KeyPages
from policies.parameters import MAX_LIMIT, SearchError
from scheduler.decisions.search import FILTERS, SPANS, parse_search

_PLACES = (
    OpenApiParameter("span", str, enum=list(SPANS), description="Only the last quarter of an hour, hour, day, …"),
    OpenApiParameter("from", str, description="The start, a day or a time in UTC: 2026-11-22, 2026-11-22T21:30."),
    OpenApiParameter("to", str, description="The end, a day or a time in UTC; a day is included whole."),
    OpenApiParameter("before", str, description="Only Decisions before this position, from `next`."),
    OpenApiParameter("after", str, description="Only Decisions after this position, from `previous`."),
    OpenApiParameter(
        "limit", int, description=f"The most Decisions of a page, from 1; more than {MAX_LIMIT} counts as {MAX_LIMIT}."
    ),
)
# The parameters of a list, for the OpenAPI document.
_PARAMETERS = [
    *(
        OpenApiParameter(
            each.name, int if each.is_number else str, enum=list(each.choices) or None, description=each.help
        )
        for each in FILTERS
    ),
    *_PLACES,
]


class DecisionPages(KeyPages):
    """Pages of Decisions, newest first."""

    parameters = _PARAMETERS
    next_name, previous_name = "before", "after"
    next_help, previous_help = "the URL of older Decisions", "the URL of newer Decisions"

    def find(self, queryset: Any, request: Request) -> tuple[list[Any], object | None, object | None]:
        """Return the requested page.

        Raises:
            ValidationError: a value is invalid.
        """
        del queryset
        try:
            page = parse_search(request.query_params.dict(), timezone.now(), also=["fields"]).page()
        except SearchError as error:
            raise ValidationError(error.faults) from error
        self._looked_until = page.looked_until
        return page.rows, page.older, page.newer

    def more(self) -> dict[str, Any]:
        """Return how far back rows were searched."""
        return {"looked_until": self._looked_until}

    def more_schema(self) -> dict[str, Any]:
        """Return the schema of that member."""
        text = "How far back rows were searched, if no index covers the search; `next` continues it."
        return {"looked_until": {"type": "string", "nullable": True, "format": "date-time", "description": text}}
