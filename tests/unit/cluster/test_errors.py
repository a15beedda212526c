"""Which exception an answer of the API server becomes."""

import msgspec
import pytest

from scheduler.cluster import errors
from tests.unit.cluster.kubernetes_json import status_json


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        pytest.param(400, errors.APIInvalidError, id="a bad request stays wrong"),
        pytest.param(401, errors.APIForbiddenError, id="an unknown caller is forbidden"),
        pytest.param(403, errors.APIForbiddenError, id="a caller without the right is forbidden"),
        pytest.param(404, errors.APINotFoundError, id="a missing object is not found"),
        pytest.param(409, errors.APIConflictError, id="a conflict is one"),
        pytest.param(410, errors.APIGoneError, id="an old version is gone"),
        pytest.param(422, errors.APIInvalidError, id="an invalid object stays invalid"),
        pytest.param(429, errors.APIUnavailableError, id="too many requests may be tried later"),
        pytest.param(500, errors.APIUnavailableError, id="an internal error may be tried later"),
        pytest.param(503, errors.APIUnavailableError, id="an unavailable server may be tried later"),
        pytest.param(302, errors.APIUnavailableError, id="a redirect is no answer of Kubernetes"),
    ],
)
def test_answer_becomes_the_exception_of_its_class(status: int, kind: type[errors.APIError]) -> None:
    """The class follows the HTTP status, and the words follow the Status object."""
    body = msgspec.json.encode(status_json(status, "SomeReason"))
    error = errors.error_of_answer(status=status, body=body, retry_after=None, context="GET /x")
    assert type(error) is kind
    assert error.status == status
    assert error.reason == "SomeReason"
    assert str(error) == f"GET /x: {status} SomeReason: because SomeReason"


def test_answer_carries_what_the_server_asks_for_when_it_is_overloaded() -> None:
    """The Status' own seconds go before the header's."""
    body = msgspec.json.encode(status_json(429, "TooManyRequests", retryAfterSeconds=7))
    assert errors.error_of_answer(status=429, body=body, retry_after="1", context="").retry_after_seconds == 7.0
    assert errors.error_of_answer(status=429, body=b"", retry_after="3", context="").retry_after_seconds == 3.0
    date = "Wed, 21 Oct 2026 07:28:00 GMT"
    assert errors.error_of_answer(status=429, body=b"", retry_after=date, context="").retry_after_seconds is None


def test_answer_of_something_that_is_not_kubernetes_keeps_a_short_text() -> None:
    """A proxy's page doesn't fill the log."""
    error = errors.error_of_answer(status=502, body=b"<html>" + b"x" * 5000, retry_after=None, context="GET /x")
    assert isinstance(error, errors.APIUnavailableError)
    assert "<html>" in str(error)
    assert len(str(error)) < 300


def test_answer_in_bytes_is_without_what_no_database_stores() -> None:
    """Errors are stored, and PostgreSQL refuses a NUL in a text."""
    error = errors.error_of_answer(status=502, body=b"<\x8b\0\0page", retry_after=None, context="GET /x")
    assert str(error) == "GET /x: 502 : <\ufffdpage"


def test_answer_tells_the_causes() -> None:
    """A 504 for a version in the future is told from one for an overloaded server."""
    body = msgspec.json.encode(
        status_json(504, "Timeout", causes=[{"reason": "ResourceVersionTooLarge", "field": "x"}])
    )
    error = errors.error_of_answer(status=504, body=body, retry_after=None, context="")
    assert error.causes == (errors.RESOURCE_VERSION_TOO_LARGE,)
    assert error.fields == ("x",)


@pytest.mark.parametrize("body", [b'{"message":"caf\xe9"}', b"[" * 5000, b'{"details":' * 5000])
def test_a_refusal_that_no_reader_takes_is_its_beginning(body: bytes) -> None:
    """What stands before the API server may answer in another encoding."""
    error = errors.error_of_answer(status=502, body=body, retry_after=None, context="GET /x")
    assert isinstance(error, errors.APIUnavailableError)
    assert str(error) == f"GET /x: 502 : {body[:200].decode(errors='replace')}"
