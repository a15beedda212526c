"""Where an act comes from: by which door, from which address, in which request, and whose it is. Kept for the thread that acts."""

import getpass
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum

import msgspec

# What somebody else's request id may be: nothing that could forge a line of a log.
_WELL_FORMED = re.compile(r"[A-Za-z0-9._:@+-]{8,64}")
_MAX_ADDRESS = 200


class Door(StrEnum):
    """By which way somebody came in."""

    ADMIN = "admin"
    REST = "rest"
    COMMAND = "command"
    BEAT = "beat"
    PROCESS = "process"


def _nobody() -> str:
    return ""


class Origin(msgspec.Struct, frozen=True):
    """Where an act comes from.

    Attributes:
        door: by which way; empty where that follows from who acts.
        address: the peer's, and what a proxy says of whom it asks for.
        request_id: what ties an act to lines of logs.
        via: what acts on somebody's behalf.
        person: gives the name of whoever asks, for acts that aren't told who does them.
    """

    door: str = ""
    address: str = ""
    request_id: str = ""
    via: str = ""
    person: Callable[[], str] = _nobody


_NOWHERE = Origin()
_current: ContextVar[Origin] = ContextVar("origin", default=_NOWHERE)


def current_origin() -> Origin:
    """Return where what happens now comes from."""
    return _current.get()


@contextmanager
def coming_from(origin: Origin) -> Iterator[None]:
    """Let what is done within come from there."""
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
        # A container may run by any number, which has no name there.
        return f"uid {os.getuid()}"


def request_id_of(said: str) -> str:
    """Return the id of a request: what it says of itself where that is well-formed, else a new one."""
    return said if _WELL_FORMED.fullmatch(said) else secrets.token_hex(16)


def address_of(peer: str, forwarded_for: str) -> str:
    """Return the connection's address and, where a proxy says for whom it asks, what it says: it may be anybody's word.

    Of a long one its end, which is what the nearest proxy added: what a client sent in front of that could push it out.
    """
    room = _MAX_ADDRESS - len(f"{peer} for ")
    said = forwarded_for if len(forwarded_for) <= room else f"…{forwarded_for[1 - room :]}"
    return f"{peer} for {said}" if said else peer
