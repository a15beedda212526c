"""Makes one request to a webhook: to an address that was resolved and allowed before, within one deadline, without redirects.

A library's HTTP client would resolve the name again, follow redirects, use the environment's proxy, or apply its time-out to
each read; so this module connects to the addresses itself.
"""

import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from operator import eq
from typing import Final
from urllib.parse import unquote

import h11
import msgspec

from scheduler.webhooks.targets import Target

# The most bytes of an answer that are kept.
MAX_HEAD: Final = 500
# The most bytes that are read: enough to find a repeated URL in full.
_MAX_READ: Final = 3_000
_MAX_HEADERS: Final = 16_384
_CHUNK: Final = 4_096
_SUCCESS, _REDIRECT, _REFUSED = 200, 300, 400
# A part of a URL that may be a secret: too long for a word.
_WORD: Final = 8
_PIECE = re.compile(rf"[^/?&=]{{{_WORD},}}")


class Answer(msgspec.Struct, frozen=True):
    """The result of a request: a status and the beginning of the answer, or why there is no answer.

    `again_seconds` is the receiver's Retry-After; 0 without one, or if it is a date.
    """

    status: int | None
    said: str
    again_seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether the receiver accepted it."""
        return self.status is not None and _SUCCESS <= self.status < _REDIRECT

    @property
    def why(self) -> str:
        """The reason of a failure, with the status, because many receivers refuse without a message."""
        if self.status is None:
            return self.said
        return f"it answered {self.status}" + (f": {self.said}" if self.said else "")


def post(
    target: Target,
    addresses: Sequence[str],
    body: bytes,
    headers: Mapping[str, str],
    *,
    seconds: float,
    ca_file: str = "",
    clock: Callable[[], float] = time.monotonic,
) -> Answer:
    """Send a body to a target at the first of its addresses that can be connected to.

    `ca_file` has CAs that are trusted beside the system's.
    """
    deadline = clock() + seconds

    def left() -> float:
        rest = deadline - clock()
        if rest <= 0:
            raise TimeoutError
        return rest

    try:
        with _connected(target, addresses, left, ca_file) as connection:
            response, said = _ask(connection, _request(target, body, headers), left)
            return Answer(response.status_code, _without_url(said, target)[:MAX_HEAD], _again_seconds(response))
    except TimeoutError:
        return Answer(None, f"no answer within {seconds:g} s")
    except ssl.SSLCertVerificationError as error:
        return Answer(None, f"its certificate isn't valid: {error.verify_message}")
    except OSError as error:
        return Answer(None, f"can't be reached: {error.strerror or error}")
    except h11.ProtocolError as error:
        # After the colon come the receiver's own bytes, which may repeat the URL.
        return Answer(None, f"its answer isn't HTTP: {str(error).partition(':')[0]}")
    except ValueError as error:
        return Answer(None, f"can't be asked: {error}")  # a name that is invalid in certificates


def _connected(target: Target, addresses: Sequence[str], left: Callable[[], float], ca_file: str) -> socket.socket:
    context = _context(ca_file) if target.scheme == "https" else None
    plain = _reached(target, addresses, left)
    if context is None:
        return plain
    try:
        # A handshake would have as long again as connecting had.
        plain.settimeout(left())
        # The certificate must be for the name, whatever the address. The dot that ends a complete name is in no certificate.
        return context.wrap_socket(plain, server_hostname=target.host.removesuffix("."))
    except OSError:
        plain.close()
        raise


def _reached(target: Target, addresses: Sequence[str], left: Callable[[], float]) -> socket.socket:
    """Connect to the first address that can be reached.

    Of a name's several, some may be away, or of a network without a route.
    """
    faults: list[OSError] = []
    for address in addresses:
        try:
            # Half of the time that is left, so that one that doesn't answer leaves some to the next.
            seconds = left() if address == addresses[-1] else left() / 2
            return socket.create_connection((address, target.port), timeout=seconds)
        except OSError as fault:
            faults.append(fault)
    # A refusal says more than silence. The system puts those without a route behind the others, whose faults say more.
    raise next((fault for fault in faults if isinstance(fault, ConnectionError)), faults[0])


def _context(ca_file: str) -> ssl.SSLContext:
    made = ssl.create_default_context()
    if ca_file:
        try:
            made.load_verify_locations(ca_file)
        except OSError as error:
            message = f"BERTH_WEBHOOK_CA_FILE can't be read: {error.strerror or error}"
            raise ValueError(message) from error
    return made


def _request(target: Target, body: bytes, headers: Mapping[str, str]) -> tuple[h11.Request, bytes]:
    fields = {"Host": target.host_header, **headers, "Content-Length": str(len(body)), "Connection": "close"}
    return h11.Request(method="POST", target=target.path, headers=list(fields.items())), body


def _without_url(said: str, target: Target) -> str:
    """Return a receiver's text without parts of the URL, which may be a secret: errors and redirects quote it."""
    for piece in sorted(_secrets_of(target.path), key=len, reverse=True):
        said = _without(said, piece)
    return said


def _without(said: str, piece: str) -> str:
    """Return a text without a piece, nor its beginning where the receiver or the end of the reading cut it off."""
    shown = ""
    while (at := said.find(piece[:_WORD])) >= 0:
        shown += said[:at] + "…"
        said = said[at + len([*takewhile(bool, map(eq, said[at:], piece))]) :]
    return shown + said


def _secrets_of(path: str) -> Iterator[str]:
    for text in (path, unquote(path)):
        yield from _PIECE.findall(text)


def _again_seconds(response: h11.Response) -> float:
    asked = dict(response.headers).get(b"retry-after", b"")
    return float(asked) if asked.isdigit() else 0.0


def _ask(
    connection: socket.socket, request: tuple[h11.Request, bytes], left: Callable[[], float]
) -> tuple[h11.Response, str]:
    head, body = request
    protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEADERS)
    pieces = [protocol.send(head), protocol.send(h11.Data(data=body)), protocol.send(h11.EndOfMessage())]
    connection.settimeout(left())
    connection.sendall(b"".join(filter(None, pieces)))
    response = _response(connection, protocol, left)
    said = _beginning(connection, protocol, left).decode(errors="replace")
    if _REDIRECT <= response.status_code < _REFUSED:
        where = dict(response.headers).get(b"location", b"").decode(errors="replace")
        said = f"it redirects, which isn't followed: enter the final URL. It leads to {where or 'nowhere'}"
    return response, said.replace("\0", "")


def _response(connection: socket.socket, protocol: h11.Connection, left: Callable[[], float]) -> h11.Response:
    while not isinstance(event := _next(connection, protocol, left), h11.Response):
        continue  # an informational one, such as 100 or 103
    return event


def _beginning(connection: socket.socket, protocol: h11.Connection, left: Callable[[], float]) -> bytes:
    """Return the beginning of the answer. The status is known by now: a failure from here on only shortens the text."""
    said = b""
    try:
        while len(said) < _MAX_READ and isinstance(event := _next(connection, protocol, left), h11.Data):
            said += event.data
    except (OSError, h11.ProtocolError):
        return said
    return said


def _next(connection: socket.socket, protocol: h11.Connection, left: Callable[[], float]) -> object:
    while (event := protocol.next_event()) is h11.NEED_DATA:
        connection.settimeout(left())
        received = connection.recv(_CHUNK)
        if not received and protocol.their_state is h11.SEND_RESPONSE:
            message = "the connection was closed without an answer"
            raise ConnectionResetError(message)
        protocol.receive_data(received)
    return event
