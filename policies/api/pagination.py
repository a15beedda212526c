"""Pages of REST's lists: of a bounded size, at a place that a database can count to."""

from typing import Any

from rest_framework.exceptions import ValidationError
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.request import Request

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
