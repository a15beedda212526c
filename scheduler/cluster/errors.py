"""Errors between Berth and the API server, by HTTP status class.

The client library's own exceptions never leave `scheduler.cluster`: they are chained as the cause.
Source of Status and its reasons: k8s.io/apimachinery v0.36.3 pkg/apis/meta/v1/types.go.
"""

from http import HTTPStatus

import msgspec

# The cause in a 504 to a resourceVersion that the server hasn't reached, as after etcd was restored.
RESOURCE_VERSION_TOO_LARGE = "ResourceVersionTooLarge"

# The API server's words where an admission webhook denies the request (k8s.io/apiserver v0.36.3
# pkg/admission/plugin/webhook/errors/statuserror.go). The webhook chooses the status; it is 400 if it chooses none.
DENIED_BY_WEBHOOK = "denied the request"

LONGEST_PLAIN_MESSAGE = 200
# The longest Retry-After that is honoured. kube-apiserver v1.36.3 asks for 32 s at most (flowcontrol's dropped_requests_tracker.go);
# a proxy before it may ask for days, or for more than a thread can wait.
LONGEST_ASKED_SECONDS = 60.0


class APIError(Exception):
    """The API server refused, failed or couldn't be reached.

    Attributes:
        status: HTTP status; None when no answer came.
        reason: Kubernetes' reason ("AlreadyExists"); "" when there is none.
        causes: the reasons of `details.causes`.
        fields: the fields of `details.causes` ("metadata.uid").
        retry_after_seconds: the server's Retry-After; None without one.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        reason: str = "",
        causes: tuple[str, ...] = (),
        fields: tuple[str, ...] = (),
        retry_after_seconds: float | None = None,
    ) -> None:
        # It may quote anything that answered, such as a compressed page; it is stored, and PostgreSQL rejects a NUL.
        super().__init__(message.replace("\0", ""))
        self.status = status
        self.reason = reason
        self.causes = causes
        self.fields = fields
        self.retry_after_seconds = retry_after_seconds

    @property
    def is_denial(self) -> bool:
        """Whether an admission webhook denied the request, with any status. Nothing was done then."""
        return DENIED_BY_WEBHOOK in str(self)

    @property
    def is_unauthenticated(self) -> bool:
        """Whether the API server refused the credentials: a token ran out, or can't be checked. Nothing was done, nothing forbidden."""
        return self.status == HTTPStatus.UNAUTHORIZED and not self.is_denial


class APIConfigurationError(APIError):
    """There is no usable kubeconfig, or no in-cluster configuration."""


class APIInvalidError(APIError):
    """400, 422 and other 4xx: the request itself is invalid; repeating it doesn't help."""


class APIForbiddenError(APIError):
    """401 and 403: the client isn't authenticated, or isn't authorized to do this."""


class APINotFoundError(APIError):
    """404: the object (or the whole resource) doesn't exist."""


class APIConflictError(APIError):
    """409: the object exists already (`reason` AlreadyExists), changed meanwhile, or has another UID."""


class APIGoneError(APIError):
    """410: the resourceVersion or continue token is too old. List again."""


class APIUnavailableError(APIError):
    """Connection errors, 429 and 5xx: worth retrying later.

    `status` is None when the connection failed. The request may have been carried out anyway.
    """


class APIUnreadableError(APIError):
    """A complete line of a watch isn't an event; the same watch would return it again."""


class APITimeoutError(APIUnavailableError):
    """The server sent nothing within the timeout."""


class StatusCause(msgspec.Struct, frozen=True):
    """One of `details.causes`."""

    reason: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, rename="camel", frozen=True):
    """The part of StatusDetails that Berth reads."""

    causes: list[StatusCause] | None = None
    retry_after_seconds: int = 0


class StatusObject(msgspec.Struct, frozen=True):
    """Kubernetes' `Status`: the body of an error response, and the object of an ERROR event."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


_KINDS: dict[int, type[APIError]] = {
    HTTPStatus.UNAUTHORIZED: APIForbiddenError,
    HTTPStatus.FORBIDDEN: APIForbiddenError,
    HTTPStatus.NOT_FOUND: APINotFoundError,
    HTTPStatus.CONFLICT: APIConflictError,
    HTTPStatus.GONE: APIGoneError,
    HTTPStatus.TOO_MANY_REQUESTS: APIUnavailableError,
}


def error_of_status(status: StatusObject, *, context: str, retry_after_seconds: float | None = None) -> APIError:
    """Return the exception for a Status.

    Args:
        status: `code` is the HTTP status.
        context: the request; the beginning of the message.
        retry_after_seconds: from the Retry-After header; the Status' own value takes precedence.
    """
    if status.details and status.details.retry_after_seconds > 0:
        retry_after_seconds = float(status.details.retry_after_seconds)
    kind = _KINDS.get(status.code)
    if kind is None:
        refused = HTTPStatus.BAD_REQUEST <= status.code < HTTPStatus.INTERNAL_SERVER_ERROR
        kind = APIInvalidError if refused else APIUnavailableError
    causes = (status.details.causes if status.details else None) or ()
    return kind(
        f"{context}: {status.code} {status.reason}: {status.message}",
        status=status.code,
        reason=status.reason,
        causes=tuple(cause.reason for cause in causes),
        fields=tuple(cause.field for cause in causes),
        retry_after_seconds=retry_after_seconds,
    )


def error_of_answer(*, status: int, body: bytes, retry_after: str | None, context: str) -> APIError:
    """Return the exception for an HTTP answer of 300 and above, whether its body is a Status or not.

    Args:
        status: HTTP status.
        body: its body.
        retry_after: the Retry-After header. Seconds are read, dates are ignored.
        context: the request; the beginning of the message.
    """
    try:
        answer = msgspec.structs.replace(msgspec.json.decode(body, type=StatusObject), code=status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = body[:LONGEST_PLAIN_MESSAGE].decode(errors="replace").strip()
        answer = StatusObject(message=text, code=status)
    return error_of_status(answer, context=context, retry_after_seconds=seconds_of(retry_after))


def seconds_of(retry_after: str | None) -> float | None:
    """Return the seconds of a Retry-After header; None if there is none, or it is a date."""
    return float(retry_after) if retry_after is not None and retry_after.isdecimal() else None
