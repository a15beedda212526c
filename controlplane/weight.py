"""What answers weigh on the wire."""

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware

# These are packed already: another packing makes them larger.
_PACKED = ("font/", "image/png", "image/jpeg", "application/zip", "application/gzip")


class Gzip(GZipMiddleware):
    """Middleware: packs what browsers and tools take packed.

    Django adds a random number of bytes to each answer and masks CSRF tokens anew each time, so that its length says nothing about
    a secret in it (BREACH).
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Pack an answer, unless it is packed."""
        if response.get("Content-Type", "").startswith(_PACKED):
            return response
        return super().process_response(request, response)
