"""Django's WSGI application. Its requests are UTF-8, whatever encoding a client names."""

import codecs
import encodings
import encodings.aliases
import pkgutil
from io import BytesIO
from typing import Any

import django
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler, WSGIRequest
from django.http.multipartparser import MultiPartParserError

# The semicolons in the head of a form's field: a browser sends one. Files, with two, are refused anyway.
_MOST_SEMICOLONS = 4
# Django reads no longer head of a field (MAX_TOTAL_HEADER_SIZE).
_MOST_HEAD_BYTES = 1024


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

    def parse_file_upload(self, META: Any, post_data: Any) -> Any:  # noqa: N803 - Django's name
        """Return the fields of a form in parts. Django limits their values, but neither the form nor the heads of its fields.

        Raises:
            MultiPartParserError: the form is larger than others may be, or has such a head as no browser sends.
        """
        if int(META.get("CONTENT_LENGTH") or 0) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            message = "The form is too large."
            raise MultiPartParserError(message)
        form = post_data.read()
        if _is_costly(form, (self.content_params or {}).get("boundary", "")):
            message = "The form has too many parts, or a part whose head has many parameters."
            raise MultiPartParserError(message)
        return super().parse_file_upload(META, BytesIO(form))


def _is_costly(form: bytes, boundary: str) -> bool:
    """Return whether reading the heads of a form's parts would take long: Django reads each line with a semicolon as a header of a mail.

    It limits the number of fields and files, but not of parts that are neither.
    """
    # A boundary that can't be encoded is refused by Django's parser.
    separator = f"--{boundary}".encode(errors="replace")
    # One before each field, one behind the last.
    if form.count(separator) > settings.DATA_UPLOAD_MAX_NUMBER_FIELDS + 1:
        return True
    for part in form.split(separator):
        end = part.find(b"\r\n\r\n", 0, _MOST_HEAD_BYTES)
        if end >= 0 and part.count(b";", 0, end) > _MOST_SEMICOLONS:
            return True
    return False


class Application(WSGIHandler):
    """Django's application, with such requests."""

    request_class = Utf8Request


def keep_no_codec_names() -> None:
    """Look for codecs only by the names that Python has. It keeps each other name for good, and a client may name one in each request."""
    own = {*encodings.aliases.aliases, *(module.name for module in pkgutil.iter_modules(encodings.__path__))}

    def search(name: str) -> codecs.CodecInfo | None:
        return encodings.search_function(name) if name in own else None

    codecs.unregister(encodings.search_function)
    codecs.register(search)


def make_application() -> Application:
    """Set Django up, and return the application."""
    keep_no_codec_names()
    django.setup(set_prefix=False)
    return Application()
