"""Pages of Decisions over REST: what the admin's list shows, without a count."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from policies.api.pagination import KeyPages
from policies.parameters import MAX_LIMIT, SearchError
from scheduler.decisions.search import FILTERS, SPANS, parse_search

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


class DecisionPages(KeyPages):
    """Pages of Decisions, newest first."""

    parameters = PARAMETERS
    next_name, previous_name = "before", "after"
    next_help, previous_help = "older ones", "newer ones"

    def find(self, queryset: Any, request: Request) -> tuple[list[Any], object | None, object | None]:
        """Return the page that is asked for.

        Raises:
            ValidationError: a value is none.
        """
        del queryset
        try:
            page = parse_search(request.query_params.dict(), timezone.now(), also=["fields"]).page()
        except SearchError as error:
            raise ValidationError(error.faults) from error
        self._looked_until = page.looked_until
        return page.rows, page.older, page.newer

    def more(self) -> dict[str, Any]:
        """Return how far rows were looked at."""
        return {"looked_until": self._looked_until}

    def more_schema(self) -> dict[str, Any]:
        """Describe it."""
        text = "How far rows were looked at that no index leads to; `next` looks further."
        return {"looked_until": {"type": "string", "nullable": True, "format": "date-time", "description": text}}
