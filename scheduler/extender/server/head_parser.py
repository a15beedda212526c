"""Reading a request's head: by gunicorn's parser, unless the same head was read by it on this connection before.

kube-scheduler's heads differ in nothing but the body's length, and gunicorn's parser, in Python, takes longer for one than
deciding takes on a small cluster.
"""

import re
import time
from typing import Any

from gunicorn import SERVER
from gunicorn.http.body import Body, LengthReader
from gunicorn.http.parser import RequestParser
from gunicorn.util import http_date

_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\nContent-Length: (0|[1-9][0-9]{0,9})\r\n")
# Different heads of one connection; kube-scheduler has one for each verb.
_MOST_KNOWN = 8


class KnownRequest:
    """What is read of a gunicorn request once its environ is made. Only requests that leave the connection open are known."""

    method = "POST"

    def __init__(self, unreader: Any, length: int) -> None:
        self.unreader = unreader
        self.body = Body(LengthReader(unreader, length))

    def should_close(self) -> bool:
        """Return whether the client asks for the connection's end."""
        return False

    @property
    def is_read(self) -> bool:
        """Whether nothing is left of the body."""
        return not self.body.reader.length


class PlainResponse:
    """The response to a known request.

    Attributes:
        chunked: whether the application said no length; the worker, which has the whole body, says it then.
    """

    def __init__(self, request: KnownRequest) -> None:
        self.req = request
        self.headers: list[tuple[str, str]] = []
        self.chunked = False
        self._status = ""
        self._is_last = False

    def start_response(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> None:
        """Take the status and the fields, which the views make of constants and numbers alone (PEP 3333)."""
        del exc_info
        self._status, self.headers = status, headers
        self.chunked = all(name != "Content-Length" for name, _ in headers)

    def force_close(self) -> None:
        """Make it the connection's last."""
        self._is_last = True

    def should_close(self) -> bool:
        """Return whether it is the connection's last."""
        return self._is_last

    def default_headers(self) -> list[str]:
        """Return the status line, and the fields that every answer has."""
        connection = "close" if self._is_last else "keep-alive"
        return [f"HTTP/1.1 {self._status}\r\nServer: {SERVER}\r\nDate: {_date()}\r\nConnection: {connection}\r\n"]


_last_date = (0, "")


def _date() -> str:
    """Return the time as HTTP writes it, which is made once a second."""
    global _last_date  # noqa: PLW0603 - one value, replaced as a whole
    now = int(time.time())
    second, text = _last_date
    if second != now:
        text = http_date(now)
        _last_date = (now, text)
    return text


class HeadParser(RequestParser):  # type: ignore[misc]  # gunicorn has no types
    """Parses the heads of one connection.

    Attributes:
        environ: the WSGI environ of the request that was read last, when its head was known: without its body and length.
    """

    mesg: Any

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.environ: dict[str, Any] | None = None
        self._known: dict[bytes, dict[str, Any]] = {}
        self._key = b""

    def __next__(self) -> Any:
        """Return the next request.

        Raises:
            StopIteration, gunicorn.http.errors.ParseException, OSError: as gunicorn's own.
        """
        self.environ, self._key = None, b""
        if self.mesg and (self.mesg.should_close() or not self.finish_body()):
            raise StopIteration
        came = self.unreader.read()
        end = came.find(_END) + len(_END)
        length = _LENGTH.search(came, 0, end) if end >= len(_END) else None
        if length is None:
            self.unreader.unread(came)
            return super().__next__()
        # A head that gunicorn has taken has one length: what is left without its digits tells heads apart.
        self._key = came[: length.start(1)] + came[length.end(1) : end]
        known = self._known.get(self._key)
        if known is None:
            self.unreader.unread(came)
            return super().__next__()
        self.unreader.unread(came[end:])
        self.environ = known
        self.mesg = KnownRequest(self.unreader, int(length[1]))
        self.req_count += 1
        return self.mesg

    def finish_body(self, **limits: Any) -> bool:
        """Read what is left of the body; False where that can't be done. Arguments as gunicorn's."""
        if isinstance(self.mesg, KnownRequest) and self.mesg.is_read:
            return True
        return bool(super().finish_body(**limits))

    def remember(self, environ: dict[str, Any]) -> None:
        """Keep the head of the request that was read last, with what was made of it."""
        is_plain = (
            self.mesg.method == "POST"
            and isinstance(self.mesg.body.reader, LengthReader)
            and not (
                self.mesg.should_close() or self.mesg._expected_100_continue  # noqa: SLF001 - nothing else tells
            )
        )
        if self._key and is_plain and len(self._known) < _MOST_KNOWN:
            kept = dict(environ)
            kept.pop("wsgi.early_hints", None)  # it is the first request's
            self._known[self._key] = kept
