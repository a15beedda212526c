"""The origin of an act: its door, address, request and person. Stored for the current thread."""

import getpass
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum

import msgspec

# The accepted form of a client's request id: it can't forge a log line.
_WELL_FORMED = re.compile(r"[A-Za-z0-9._:@+-]{8,64}")
_MAX_ADDRESS = 200


class Door(StrEnum):
    """The way by which somebody came in."""

    ADMIN = "admin"
    REST = "rest"
    COMMAND = "command"
    BEAT = "beat"
    PROCESS = "process"


def _nobody() -> str:
    return ""


class Origin(msgspec.Struct, frozen=True):
    """The origin of an act.

    Attributes:
        door: the way in; empty where it follows from the actor.
        address: the peer's address, and the client's by a proxy's header.
        request_id: the id that links an act to log lines.
        via: the token or command that acts on somebody's behalf.
        person: returns the user's name, for acts that don't get it as an argument.
    """

    door: str = ""
    address: str = ""
    request_id: str = ""
    via: str = ""
    person: Callable[[], str] = _nobody


_NOWHERE = Origin()
_current: ContextVar[Origin] = ContextVar("origin", default=_NOWHERE)


def current_origin() -> Origin:
    """Return the origin of the current act."""
    return _current.get()


@contextmanager
def coming_from(origin: Origin) -> Iterator[None]:
    """Set the origin for the enclosed block."""
    token = _current.set(origin)
    try:
        yield
    finally:
        _current.reset(token)


def system_user() -> str:
    """Return the name of the account that runs a command."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run with any user id, which may have no name there.
        return f"uid {os.getuid()}"


def request_id_of(said: str) -> str:
    """Return the id of a request: its own header where that is well-formed, else a new one."""
    return said if _WELL_FORMED.fullmatch(said) else secrets.token_hex(16)


def address_of(peer: str, forwarded_for: str) -> str:
    """Return the connection's address and, where there is one, a proxy's header with the client's address, which isn't verified.

    A long header is cut to its end, which the nearest proxy added: a client could otherwise push that part out.
    """
    room = _MAX_ADDRESS - len(f"{peer} for ")
    said = forwarded_for if len(forwarded_for) <= room else f"…{forwarded_for[1 - room :]}"
    return f"{peer} for {said}" if said else peer
