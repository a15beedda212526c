"""The user's account and server: login, logout, whoami, status."""

import getpass
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from berth.answer import Answer, table
from berth.errors import CommandError
from berth.places import Place, check_server, forget, keep
from berth.server import Server


def login(given: Namespace) -> Answer:
    """Check a server and a token, and store them for later commands.

    The token comes from standard input or the keyboard, never from an argument, which others see in the list of processes.
    """
    server = check_server(given.url or os.environ.get("BERTH_SERVER", ""))
    token = _given_token(server)
    certificates = given.ca_file or os.environ.get("BERTH_CA_FILE", "")
    # Absolute: later commands may run in other folders.
    place = Place(server, token, str(Path(certificates).absolute()) if certificates else "")
    asked = Server(place)
    with asked.reading():
        found = asked.get("/whoami")
        name = who(found)
    path = keep(place)
    return Answer(
        {"server": server, "kept": str(path), **found}, [f"{server} knows you as {name}.", f"Stored in {path}."]
    )


def _given_token(server: str) -> str:
    """Return the token from the keyboard or standard input.

    Raises:
        CommandError: there is none, or it isn't text.
    """
    try:
        token = (getpass.getpass(f"Token for {server}: ") if sys.stdin.isatty() else sys.stdin.readline()).strip()
    except UnicodeDecodeError as error:
        message = "The token on standard input isn't UTF-8."
        raise CommandError(message) from error
    if not token:
        message = "No token was given: create one in the admin under Tokens, or with `manage.py token create`."
        raise CommandError(message)
    return token


def logout(given: Namespace) -> Answer:
    """Delete the stored server and token. The token stays valid: revoke it in the admin."""
    del given
    said = "Server and token are deleted here. Revoke the token in the admin if nobody else uses it."
    is_deleted = forget()
    return Answer({"deleted": is_deleted}, [said if is_deleted else "No server and token were stored."])


def whoami(server: Server, given: Namespace) -> Answer:
    """Return the caller's account, and its permissions."""
    del given
    found = server.get("/whoami")
    lines = [f"{server.place.server} knows you as {who(found)}."]
    if found.get("token"):
        lines.append(f"  with the {found['token']}, scopes {', '.join(found['scopes']) or 'none'}")
    lines.append(f"  roles: {', '.join(found.get('roles', ())) or 'none'}")
    may = [name.replace("_", " ") for name, allowed in found.get("may", {}).items() if allowed]
    lines.append(f"  it may: {', '.join(may) or 'nothing'}")
    if found.get("token") and "read" not in found["scopes"]:
        lines.append("  ! The token lacks the scope read, which each call needs: create another token.")
    return Answer({"server": server.place.server, **found}, lines)


def who(found: dict[str, Any]) -> str:
    """Return an account's name."""
    return str(found["account"] or "nobody")


def status(server: Server, given: Namespace) -> Answer:
    """Return the live Revision, the processes that serve it, waiting work and lost records."""
    del given
    found = server.get("/status")
    return Answer(found, list(_status_lines(found)))


def _status_lines(found: dict[str, Any]) -> Iterator[str]:
    live = found["revision"]
    by = f", made by {live['made_by']}" if live.get("made_by") else ""
    yield f"Revision {live['number']} is live{by}."
    rows = [
        (each["role"], each["host"], each["revision"], "silent" if each["is_silent"] else "serves")
        for each in found["processes"]
    ]
    if rows:
        yield from table(("PROCESS", "HOST", "REVISION", "STATE"), rows)
    else:
        yield "! No process serves it."
    pending = found["pending"]
    if pending["fault"]:
        yield f"? Pending Pods can't be read from the cluster: {pending['fault']}"
    else:
        yield f"Pending Pods: {pending['pods']}"
    yield f"Open Changes: {found['open_changes']}"
    if found["paused"]:
        yield f"! Paused: {', '.join(found['paused'])}"
    if found["lost_decisions"]:
        yield f"✗ Lost Decisions: {found['lost_decisions']}"
