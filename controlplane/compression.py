"""The middleware that compresses answers."""

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware

# These types are compressed already: compressing them again makes them larger.
_COMPRESSED = ("font/", "image/png", "image/jpeg", "application/zip", "application/gzip")
# Streamed with a Content-Length. Compressed, its length wouldn't be known before its end, so it would have to be buffered whole.
_PIECEMEAL = ("application/x-tar",)


class Gzip(GZipMiddleware):
    """Middleware: compresses answers for clients that accept gzip.

    Django adds a random number of bytes to each answer and masks CSRF tokens anew each time, so that an answer's length reveals
    nothing about a secret in it (BREACH).
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Compress an answer, unless its type is compressed already, or it is streamed."""
        if response.get("Content-Type", "").startswith((*_COMPRESSED, *_PIECEMEAL)):
            return response
        return super().process_response(request, response)
