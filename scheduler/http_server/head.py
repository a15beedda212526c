"""Parses a request's head strictly: anything that two parsers could read differently is refused, not guessed.

A head has one accepted form: lines end in CR LF, a field is on one line, there is one Host, which must equal the host of an
absolute target, and the body's length is given once, in digits, or is `chunked`. RFC 9112 lets servers accept more.
tests/unit/http_server compares the accepted heads with h11's.
"""

import re
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

END = b"\r\n\r\n"

_LINE = re.compile(rb"([A-Z]{1,20}) (?:https?://([!-.0-~]+))?(/[!-~]*|\*) HTTP/1\.([01])")
# There is only one way to match any input: if two parts could match the same blanks, a field of 4 KiB would cost 0.1 s.
_FIELD = re.compile(rb"([!#$%&'*+\-.^`|~0-9A-Za-z_]+):([\t -~\x80-\xff]*)")
_LENGTH = re.compile("[0-9]{1,15}")
# The heads of a client's requests differ only in this field. As Go and Python spell it: any other spelling is parsed anew.
_LENGTH_FIELD = re.compile(rb"\r\nContent-Length: ([0-9]{1,15})(?=\r\n|\Z)")
# The number of heads without that field that are cached, and the largest size of each: a flood can't use more memory.
_MOST_HEADS = 64
_MOST_HEAD_BYTES = 1 << 10
# Fields of which another parser could take a second one for another request's, or for another body's.
_ONCE = frozenset({"HTTP_HOST", "CONTENT_LENGTH", "CONTENT_TYPE", "HTTP_TRANSFER_ENCODING", "HTTP_EXPECT"})


class RefusedError(Exception):
    """The server itself answers the request, and closes the connection. The error's text is constant."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class HeadLimits(NamedTuple):
    """How large a head may be, in bytes and in fields."""

    line: int
    fields: int
    field: int

    @property
    def whole(self) -> int:
        """The size of the largest head in bytes, without the empty line at its end."""
        return min(self.line + self.fields * self.field, 1 << 16)


class Head(NamedTuple):
    """A request's head.

    Attributes:
        environ: its content, as WSGI's variables.
        length: of the body in bytes; None if it is chunked.
        keeps_open: whether the client wants to send another request on the connection.
        waits: whether the client waits for `100 Continue` before it sends the body.
    """

    environ: dict[str, Any]
    length: int | None
    keeps_open: bool
    waits: bool


def refuse_unfinished(begun: bytes, limits: HeadLimits) -> None:
    """Refuse an incomplete head that is already too large.

    Raises:
        RefusedError: the head is too large.
    """
    # The end of the line, or of the head, may have arrived except for its last byte.
    if len(begun) >= limits.line + 2 and b"\r\n" not in begun[: limits.line + 2]:
        raise RefusedError(414, "URI Too Long")
    if len(begun) >= limits.whole + len(END):
        raise RefusedError(431, "Request Header Fields Too Large")


def parse(head: bytes, limits: HeadLimits) -> Head:
    """Parse a complete head; `head` is without the empty line at its end.

    Raises:
        RefusedError: the head is too large or malformed.
    """
    found = _LENGTH_FIELD.search(head) if len(head) <= min(limits.whole, _MOST_HEAD_BYTES) else None
    if found is None or head.count(b"\r\n") > limits.fields or len(found[0]) > limits.field:
        return _parse(head, limits)
    try:
        known = _parse_known(head[: found.start()] + head[found.end() :], limits)
    except RefusedError:
        return _parse(head, limits)
    if known.length != 0 or "CONTENT_LENGTH" in known.environ:  # the length is given twice
        return _parse(head, limits)
    said = found[1].decode()
    return Head({**known.environ, "CONTENT_LENGTH": said}, int(said), known.keeps_open, known.waits)


def _parse(head: bytes, limits: HeadLimits) -> Head:
    first, *lines = head.split(b"\r\n")
    if len(first) > limits.line:
        raise RefusedError(414, "URI Too Long")
    is_large = len(head) > limits.whole or len(lines) > limits.fields
    if is_large or len(max(lines, key=len, default=b"")) > limits.field:
        raise RefusedError(431, "Request Header Fields Too Large")
    line = _LINE.fullmatch(first)
    if line is None:
        raise RefusedError(400, "Bad Request")
    method, authority, target, minor = line.groups()
    path, _, query = target.partition(b"?")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method.decode(),
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": query.decode(),
        "SERVER_PROTOCOL": "HTTP/1.1" if minor == b"1" else "HTTP/1.0",
    }
    for text in lines:
        _read_field(text, environ)
    # To parsers that follow RFC 9112, 3.2.2, the target's host is the request's; others read Host.
    host = environ.get("HTTP_HOST", "")
    if authority is not None and authority.decode().lower() != host.lower():
        raise RefusedError(400, "Bad Request")
    return _framed(environ, is_1_1=minor == b"1")


_parse_known = lru_cache(_MOST_HEADS)(_parse)


def _read_field(text: bytes, environ: dict[str, Any]) -> None:
    field = _FIELD.fullmatch(text)
    if field is None:
        raise RefusedError(400, "Bad Request")
    name, value = field[1].decode(), field[2].decode("latin-1").strip(" \t")
    if "_" in name:
        return  # WSGI can't distinguish its name from the one with "-"
    key = name.upper().replace("-", "_")
    if key not in {"CONTENT_LENGTH", "CONTENT_TYPE"}:
        key = f"HTTP_{key}"
    if key in environ:
        if key in _ONCE:
            raise RefusedError(400, "Bad Request")
        value = f"{environ[key]}{'; ' if key == 'HTTP_COOKIE' else ','}{value}"
    environ[key] = value


def _framed(environ: dict[str, Any], *, is_1_1: bool) -> Head:
    """Return the head with the framing of its body and its connection options."""
    said, coding = environ.get("CONTENT_LENGTH", "0"), environ.get("HTTP_TRANSFER_ENCODING")
    if _LENGTH.fullmatch(said) is None or (is_1_1 and "HTTP_HOST" not in environ):
        raise RefusedError(400, "Bad Request")
    if coding is not None:
        if "CONTENT_LENGTH" in environ or not is_1_1:
            raise RefusedError(400, "Bad Request")
        if coding.lower() != "chunked":
            raise RefusedError(501, "Not Implemented")
    expected = environ.get("HTTP_EXPECT", "").lower()
    if expected not in {"", "100-continue"}:
        raise RefusedError(417, "Expectation Failed")
    options = environ.get("HTTP_CONNECTION", "").lower().replace(" ", "").split(",")
    keeps_open = is_1_1 and "close" not in options
    return Head(environ, int(said) if coding is None else None, keeps_open, bool(expected) and is_1_1)
