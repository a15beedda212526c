"""Reading a request's head: by gunicorn's parser, unless the same head was read by it on this connection before.

kube-scheduler's heads differ in nothing but the body's length, and gunicorn's parser, in Python, takes longer for one than
deciding takes on a small cluster.
"""

import copy
import re
from typing import Any

from gunicorn.http.body import Body, LengthReader
from gunicorn.http.parser import RequestParser

_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\nContent-Length: (0|[1-9][0-9]{0,9})\r\n")
_MOST_KNOWN = 8
"""Different heads of one connection; kube-scheduler has one for each verb."""


class HeadParser(RequestParser):  # type: ignore[misc]  # gunicorn has no types
    """Parses the heads of one connection.

    Attributes:
        environ: the WSGI environ of the request that was read last, when its head was known: without its body and length.
    """

    mesg: Any

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.environ: dict[str, Any] | None = None
        self._known: dict[bytes, tuple[Any, dict[str, Any]]] = {}
        self._key = b""

    def __next__(self) -> Any:
        """Give the next request.

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
        request, self.environ = known
        self.mesg = copy.copy(request)
        self.mesg.body = Body(LengthReader(self.unreader, int(length[1])))
        self.req_count += 1
        return self.mesg

    def remember(self, environ: dict[str, Any]) -> None:
        """Keep the head of the request that was read last, with what was made of it."""
        is_plain = isinstance(self.mesg.body.reader, LengthReader) and not (
            self.mesg.should_close() or self.mesg._expected_100_continue  # noqa: SLF001 - nothing else tells
        )
        if self._key and is_plain and len(self._known) < _MOST_KNOWN:
            self._known[self._key] = (self.mesg, dict(environ))
