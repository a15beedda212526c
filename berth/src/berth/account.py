"""Who asks, and whom: login, logout, whoami, status."""

import getpass
import os
import sys
from argparse import Namespace
from typing import Any

from berth.answer import Answer, table
from berth.errors import CommandError
from berth.places import Place, check_server, forget, keep
from berth.server import Server


def login(given: Namespace) -> Answer:
    """Keep a server and a token for the commands to come, once both are tried.

    The token comes from standard input or the keyboard, never from an argument: others see those in the list of processes.
    """
    server = check_server(given.url or os.environ.get("BERTH_SERVER", ""))
    token = (getpass.getpass(f"Token for {server}: ") if sys.stdin.isatty() else sys.stdin.readline()).strip()
    if not token:
        message = "No token was given: make one in the admin under Tokens, or by `manage.py token create`."
        raise CommandError(message)
    place = Place(server, token, given.ca_file)
    found = Server(place).get("/whoami")
    path = keep(place)
    return Answer(
        {"server": server, "kept": str(path), **found}, [f"{server} knows you as {who(found)}.", f"Kept in {path}."]
    )


def logout(given: Namespace) -> Answer:
    """Forget server and token. The token stays valid: revoke it in the admin."""
    del given
    said = "Server and token are forgotten. Revoke the token in the admin if nobody else uses it."
    return Answer({}, [said if forget() else "Nothing was kept."])


def whoami(server: Server, given: Namespace) -> Answer:
    """Return who the server takes this for, and what that may do."""
    del given
    found = server.get("/whoami")
    lines = [f"{server.place.server} knows you as {who(found)}."]
    token = found.get("token")
    if isinstance(token, dict):
        lines += [f"  {name}: {_said(value)}" for name, value in token.items() if value not in (None, "", [])]
    if found.get("scopes"):
        lines.append(f"It may: {', '.join(found['scopes'])}")
    return Answer({"server": server.place.server, **found}, lines)


def who(found: dict[str, Any]) -> str:
    """Return an account's name, of whatever shape the answer is."""
    account = found.get("account") or found.get("user") or found.get("username") or "somebody"
    return str(account.get("username") or account.get("name") if isinstance(account, dict) else account)


def _said(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def status(server: Server, given: Namespace) -> Answer:
    """Return what is live, which processes serve it, what waits and what was lost."""
    del given
    found = server.get("/status")
    return Answer(found, list(_status_lines(found)), ok=bool(found.get("ok", True)))


def _status_lines(found: dict[str, Any]) -> list[str]:
    live = found.get("revision")
    number = live.get("number") if isinstance(live, dict) else live
    lines = [f"Revision {number} is live."]
    rows = [
        (each.get("name", ""), each.get("kind", ""), each.get("revision", ""), _said(each.get("state", "")))
        for each in found.get("processes", ())
    ]
    if rows:
        lines += table(("PROCESS", "KIND", "REVISION", "STATE"), rows)
    for name, value in found.items():
        if name not in {"ok", "revision", "processes"}:
            lines.append(f"{name.replace('_', ' ')}: {_counts(value)}")
    return lines


def _counts(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_counts(each)}" for name, each in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(_counts, value)) or "none"
    return str(value)
