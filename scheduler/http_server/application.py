"""Django's WSGI application. Its requests are UTF-8, whatever encoding a client names."""

from typing import Any

import django
from django.core.handlers.wsgi import WSGIHandler, WSGIRequest


class Utf8Request(WSGIRequest):
    """A request whose URL and form are read as UTF-8.

    Django would decode them with the codec of Python that Content-Type names as `charset`: `punycode` takes minutes for a form
    within the limits, and `base64` decodes no text, which fails before anything can answer.
    """

    def __init__(self, environ: dict[str, Any]) -> None:
        """Make a request; a Content-Type that can't be read counts as none, because no view could answer Django's error."""
        try:
            super().__init__(environ)
        except ValueError:  # a parameter such as charset*=none''utf-8
            environ["CONTENT_TYPE"] = ""
            super().__init__(environ)

    @property
    def encoding(self) -> None:
        """The encoding that isn't UTF-8: none."""

    @encoding.setter
    def encoding(self, said: str | None) -> None:
        """Ignore the encoding that a client names."""


class Application(WSGIHandler):
    """Django's application, with such requests."""

    request_class = Utf8Request


def make_application() -> Application:
    """Set Django up, and return the application."""
    django.setup(set_prefix=False)
    return Application()
