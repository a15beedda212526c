"""Where a request comes from, for what it does: its door, its address, its id, which is in the answer and in lines of logs, too."""

from collections.abc import Callable
from functools import partial

from django.http import HttpRequest, HttpResponse

from policies.origin import Door, Origin, address_of, coming_from, request_id_of

HEADER = "X-Request-Id"


class Origins:
    """Middleware, the first: lets everything that a request does come from there."""

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
    """Return where a request comes from. Who asks is known once somebody has looked at its session."""
    return Origin(
        door=Door.REST if request.path.startswith("/api/") else Door.ADMIN,
        address=address_of(request.META.get("REMOTE_ADDR", ""), request.META.get("HTTP_X_FORWARDED_FOR", "")),
        request_id=request_id_of(request.headers.get(HEADER, "")),
        person=partial(_person, request),
    )


def _person(request: HttpRequest) -> str:
    user = getattr(request, "user", None)
    return user.get_username() if user is not None and user.is_authenticated else ""
