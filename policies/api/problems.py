"""What REST answers where it can't do what is asked: problem details (RFC 9457), for every error alike."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from rest_framework import status
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.response import Response
from rest_framework.views import exception_handler

from policies.api.details import MEDIA_TYPE, problem_of
from policies.engine.errors import Fault
from policies.publishing import ForbiddenError, OvertakenError, PublishingError

_OF_DOCUMENT = re.compile(r"([a-z0-9-]+): (.+)", re.DOTALL)


class FaultsError(APIException):
    """What was sent has faults; each says where."""

    status_code = status.HTTP_422_UNPROCESSABLE_ENTITY
    default_detail = "What was sent has faults."

    def __init__(self, faults: Iterable[Fault | Mapping[str, Any]], detail: str = "") -> None:
        super().__init__(detail or self.default_detail)
        self.faults = [
            _told(each.path, each.message, each.line) if isinstance(each, Fault) else dict(each) for each in faults
        ]


class UnlookedError(APIException):
    """Nobody said what they looked at before."""

    status_code = status.HTTP_428_PRECONDITION_REQUIRED
    default_detail = "Say what you looked at: If-Match with the ETag of the last answer about it, in its double quotes."


class OvertakenProblem(APIException):
    """What was looked at is another by now."""

    status_code = status.HTTP_412_PRECONDITION_FAILED


class ConflictProblem(APIException):
    """As things stand it can't be done."""

    status_code = status.HTTP_409_CONFLICT


class AwayProblem(APIException):
    """What has to be asked for it is away."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE


class TooLargeProblem(APIException):
    """The body has more bytes than any form may have."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_detail = f"The body has more than {settings.DATA_UPLOAD_MAX_MEMORY_SIZE:,} bytes. Send it in several calls."


# Django's words for an object that isn't there.
_UNFOUND = re.compile(r"No (\w+) matches the given query\.")


def problem_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return the answer to an error: DRF's own, and refusals of `publishing`; None for faults of Berth's own."""
    if isinstance(error, PublishingError):
        return _refused(error)
    if isinstance(error, RequestDataTooBig):
        # Django's own, which DRF leaves to it: a 400 without a word.
        error = TooLargeProblem()
    response = exception_handler(error, context)
    if response is None:
        return None
    faults = getattr(error, "faults", [])
    if isinstance(error, ValidationError):
        faults = list(_flat(error.detail))
        detail = "; ".join(f"{each['path']}: {each['message']}" if each["path"] else each["message"] for each in faults)
    else:
        detail = str(getattr(error, "detail", "") or response.data.get("detail", ""))
    if unfound := _UNFOUND.fullmatch(detail):
        # What a path names first is what it is of.
        detail = f"There is no {unfound[1]} {next(iter(context['kwargs'].values()), '')}".rstrip() + "."
    response.data = problem_of(response.status_code, detail, faults)
    response.content_type = MEDIA_TYPE
    return response


def _refused(error: PublishingError) -> Response:
    """Return the answer to a refusal: may not (403), moved (412), faults in a document (422), or not as it stands (409)."""
    has_faults = any(fault.path for fault in error.faults)
    code: int = status.HTTP_422_UNPROCESSABLE_ENTITY if has_faults else status.HTTP_409_CONFLICT
    if isinstance(error, ForbiddenError):
        code = status.HTTP_403_FORBIDDEN
    elif isinstance(error, OvertakenError):
        code = status.HTTP_412_PRECONDITION_FAILED
    faults = [_told_of_document(each) for each in error.faults]
    # A line each: of many things that a token doesn't reach, or another repository keeps, each is told.
    body = problem_of(code, "\n".join(error.messages), faults if has_faults else [])
    return Response(body, status=code, content_type=MEDIA_TYPE)


def _told(path: str, message: str, line: int) -> dict[str, Any]:
    return {"path": path, "message": message} | ({"line": line} if line else {})


def _told_of_document(fault: Fault) -> dict[str, Any]:
    """Return a fault of one of the documents of a Change: which one stands before its path."""
    found = _OF_DOCUMENT.fullmatch(fault.path)
    document, path = found.groups() if found else ("", fault.path)
    return _told(path, fault.message, fault.line) | ({"file": document} if document else {})


def _flat(detail: Any, path: str = "") -> Iterable[dict[str, Any]]:
    """Iterate over what DRF found wrong, each with its path."""
    if isinstance(detail, dict):
        for name, found in detail.items():
            here = "" if name == "non_field_errors" else str(name)
            yield from _flat(found, f"{path}.{here}".strip("."))
    elif isinstance(detail, list):
        for found in detail:
            yield from _flat(found, path)
    else:
        yield _told(path, str(detail), 0)
