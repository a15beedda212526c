"""Problem details (RFC 9457) as they are written. Loads nothing of REST's framework: every process imports it."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from django.http import HttpResponse, JsonResponse

MEDIA_TYPE = "application/problem+json"


def problem_response(code: int, detail: str) -> HttpResponse:
    """Return the answer to what never reaches a view: an unknown path, a body without its token of the session."""
    return JsonResponse(problem_of(code, detail), status=code, content_type=MEDIA_TYPE)


def problem_of(code: int, detail: str, faults: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Return why something wasn't done, and where it is wrong."""
    title = HTTPStatus(code).phrase
    return {"type": "about:blank", "title": title, "status": code, "detail": detail, "faults": list(faults)}
