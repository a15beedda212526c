"""Reads an extender's address: host, port and secrets, without calling it."""

import re
from itertools import pairwise
from urllib.parse import SplitResult, unquote, urlsplit

from scheduler.http_server.hosts import is_this_machine

# The default port of Berth's extender.
BERTHS_PORT = 8010

_DEFAULT_PORTS = {"http": 80, "https": 443}
_SECRET_NAME = re.compile(r"(?i)(token|secret|passw|pwd|api-?_?key|auth|signature|credential|bearer|access_?key)")
_NAMED_SECRET = 8
# Letters and digits of this length without a separator aren't a word that people use in addresses.
_RANDOM = re.compile("[A-Za-z0-9+=~]{16,}")


def split(url: str) -> SplitResult | None:
    """Return a URL's parts; None if it is invalid."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts


def target(url: str) -> tuple[str, int]:
    """Return a URL's host and port; ("", 0) if it has none. All names of loopback count as one host."""
    parts = split(url)
    if parts is None or not parts.hostname:
        return "", 0
    host = "loopback" if is_loopback(parts.hostname) else parts.hostname.rstrip(".").lower()
    return host, parts.port or _DEFAULT_PORTS.get(parts.scheme.lower(), 0)


def is_loopback(host: str) -> bool:
    """Return whether a host is the machine itself."""
    return host.lower() == "localhost" or is_this_machine(host)


def secret_in(url: str) -> str:
    """Return the part of a URL that looks like a secret: "user name", "path", "query"; else ""."""
    parts = split(url)
    if parts is None:
        return "user name" if "@" in url else ""
    if parts.username or parts.password:
        return "user name"
    if any(_SECRET_NAME.search(pair.partition("=")[0]) or _looks_random(pair) for pair in parts.query.split("&")):
        return "query"
    segments = unquote(parts.path).split("/")
    named = any(_SECRET_NAME.fullmatch(before) and len(after) >= _NAMED_SECRET for before, after in pairwise(segments))
    return "path" if named or any(map(_looks_random, segments)) else ""


def _looks_random(text: str) -> bool:
    runs = _RANDOM.findall(text.rpartition("=")[2])
    return any(re.search("[0-9]", run) and re.search("[A-Za-z]", run) for run in runs)


def without_secrets(url: str) -> str:
    """Return a URL for display: without user name and password, and without path and query if these may contain a secret."""
    parts = split(url)
    if parts is None:
        return "(not a URL)"
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    hidden = secret_in(url) in {"path", "query"}
    rest = "/…" if hidden else parts.path + (f"?{parts.query}" if parts.query else "")
    return f"{parts.scheme}://{host}{port}{rest}" if parts.scheme and host else f"{host}{port}{rest}"
