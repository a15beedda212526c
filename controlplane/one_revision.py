"""Read-only pages see the same Revision, and the same edits of Changes, throughout."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from policies import publishing

_SAFE = {"GET", "HEAD"}


class OneRevision:
    """Middleware: the live Revision and each edit are read once for each page, so a page doesn't mix two of them."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer a request."""
        if request.method not in _SAFE:
            return self._get_response(request)
        with publishing.one_revision():
            return self._get_response(request)
