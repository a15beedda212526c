"""Problem details (RFC 9457). Imports nothing of Django REST framework, because every process imports this module."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from django.http import HttpResponse, JsonResponse

from policies.engine.errors import MOST_FAULTS

MEDIA_TYPE = "application/problem+json"


def problem_response(code: int, detail: str) -> HttpResponse:
    """Return the response to a request that reaches no view: an unknown path, a missing CSRF token."""
    return JsonResponse(problem_of(code, detail), status=code, content_type=MEDIA_TYPE)


def problem_of(code: int, detail: str, faults: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Return the problem details: why the request failed, and the first of its faults."""
    title = HTTPStatus(code).phrase
    return {
        "type": "about:blank",
        "title": title,
        "status": code,
        "detail": detail,
        "faults": list(faults[:MOST_FAULTS]),
    }
