"""Requests that don't follow redirects: the request that follows one would be a GET, without the body."""

import urllib.request
from typing import Any


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Raises a redirect as the HTTPError that it is."""

    def redirect_request(self, *_args: Any, **_options: Any) -> None:
        """Return None, so that no request follows."""
