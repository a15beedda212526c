"""The origin of a request, for the acts that it does: its door, its address, and its id, which is also in the answer and in log lines."""

from collections.abc import Callable
from functools import partial

from django.http import HttpRequest, HttpResponse

from policies.origin import Door, Origin, address_of, coming_from, request_id_of

HEADER = "X-Request-Id"


class Origins:
    """The first middleware: sets the origin for everything that a request does."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer a request."""
        origin = origin_of(request)
        with coming_from(origin):
            response = self._get_response(request)
        response[HEADER] = origin.request_id
        return response


def origin_of(request: HttpRequest) -> Origin:
    """Return the origin of a request. The user is only known after the session was read."""
    return Origin(
        door=Door.REST if request.path.startswith("/api/") else Door.ADMIN,
        address=claimed_address(request),
        request_id=request_id_of(request.headers.get(HEADER, "")),
        person=partial(_person, request),
    )


def claimed_address(request: HttpRequest) -> str:
    """Return the connection's address and, where a proxy names its client, that name, which is not verified."""
    return address_of(request.META.get("REMOTE_ADDR", ""), request.META.get("HTTP_X_FORWARDED_FOR", ""))


def _person(request: HttpRequest) -> str:
    user = getattr(request, "user", None)
    return user.get_username() if user is not None and user.is_authenticated else ""
