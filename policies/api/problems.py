"""REST's error responses: problem details (RFC 9457), in the same form for every error."""

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from rest_framework import status
from rest_framework.exceptions import APIException, NotAuthenticated, ValidationError
from rest_framework.response import Response
from rest_framework.views import exception_handler

from policies.api.details import MEDIA_TYPE, problem_of
from policies.engine.errors import MOST_FAULTS, Fault
from policies.publishing import ForbiddenError, OvertakenError, PublishingError

_OF_DOCUMENT = re.compile(r"([a-z0-9-]+): (.+)", re.DOTALL)


class FaultsError(APIException):
    """The request's documents have faults, each with its path."""

    status_code = status.HTTP_422_UNPROCESSABLE_ENTITY
    default_detail = "The document has faults."

    def __init__(self, faults: Iterable[Fault | Mapping[str, Any]], detail: str = "") -> None:
        super().__init__(detail or self.default_detail)
        self.faults = [
            _told(each.path, each.message, each.line) if isinstance(each, Fault) else dict(each) for each in faults
        ]


class UnlookedError(APIException):
    """If-Match is missing, or holds no ETag."""

    status_code = status.HTTP_428_PRECONDITION_REQUIRED
    default_detail = (
        "If-Match is missing, or holds no ETag: send the ETag of the state that you looked at, in double quotes."
    )


class OvertakenProblem(APIException):
    """The state has changed since the caller looked at it."""

    status_code = status.HTTP_412_PRECONDITION_FAILED


class ConflictProblem(APIException):
    """The present state doesn't allow the request."""

    status_code = status.HTTP_409_CONFLICT


class AwayProblem(APIException):
    """A service that the request needs is unavailable."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE


class TooLargeProblem(APIException):
    """The body exceeds DATA_UPLOAD_MAX_MEMORY_SIZE."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_detail = f"The body has more than {settings.DATA_UPLOAD_MAX_MEMORY_SIZE:,} bytes. Send it in several calls."


# Django's message for a missing object.
_UNFOUND = re.compile(r"No (\w+) matches the given query\.")


def problem_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return the response to an error of DRF or a refusal of `publishing`; None for internal errors of Berth."""
    if isinstance(error, PublishingError):
        return _refused(error)
    if isinstance(error, RequestDataTooBig):
        # DRF doesn't handle it, and Django answers 400 without a text.
        error = TooLargeProblem()
    response = exception_handler(error, context)
    if response is None:
        return None
    faults = getattr(error, "faults", [])
    if isinstance(error, ValidationError):
        faults = list(islice(_flat(error.detail), MOST_FAULTS))
        detail = "; ".join(f"{each['path']}: {each['message']}" if each["path"] else each["message"] for each in faults)
    else:
        detail = str(getattr(error, "detail", "") or response.data.get("detail", ""))
    if isinstance(error, NotAuthenticated):
        detail = "Send a token with the header Authorization: Bearer TOKEN. Profile in the admin and manage.py token create make one."
    if unfound := _UNFOUND.fullmatch(detail):
        # The first part of the path is the object's name.
        detail = f"There is no {unfound[1]} {next(iter(context['kwargs'].values()), '')}".rstrip() + "."
    response.data = problem_of(response.status_code, detail, faults)
    response.content_type = MEDIA_TYPE
    return response


def _refused(error: PublishingError) -> Response:
    """Return the response to a refusal: forbidden (403), state changed (412), faults in a document (422), or a conflict (409)."""
    has_faults = any(fault.path for fault in error.faults)
    code: int = status.HTTP_422_UNPROCESSABLE_ENTITY if has_faults else status.HTTP_409_CONFLICT
    if isinstance(error, ForbiddenError):
        code = status.HTTP_403_FORBIDDEN
    elif isinstance(error, OvertakenError):
        code = status.HTTP_412_PRECONDITION_FAILED
    faults = [_told_of_document(each) for each in error.faults]
    # One line for each message: there may be several objects that a token doesn't reach or another repository owns.
    body = problem_of(code, "\n".join(error.messages), faults if has_faults else [])
    return Response(body, status=code, content_type=MEDIA_TYPE)


def _told(path: str, message: str, line: int) -> dict[str, Any]:
    return {"path": path, "message": message} | ({"line": line} if line else {})


def _told_of_document(fault: Fault) -> dict[str, Any]:
    """Return a fault in one of a Change's documents; the path begins with the document's name."""
    found = _OF_DOCUMENT.fullmatch(fault.path)
    document, path = found.groups() if found else ("", fault.path)
    return _told(path, fault.message, fault.line) | ({"file": document} if document else {})


def _flat(detail: Any, path: str = "") -> Iterable[dict[str, Any]]:
    """Iterate over DRF's validation errors, each with its path."""
    if isinstance(detail, dict):
        for name, found in detail.items():
            here = "" if name == "non_field_errors" else str(name)
            yield from _flat(found, f"{path}.{here}".strip("."))
    elif isinstance(detail, list):
        for found in detail:
            yield from _flat(found, path)
    else:
        yield _told(path, str(detail), 0)
