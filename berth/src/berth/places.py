"""The server's address and the token, from arguments, environment, `berth login`'s file or a kubeconfig's context."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from berth.errors import CommandError

_LOOPBACK = {"127.0.0.1", "localhost", "::1"}
# The name of the extension of a kubeconfig's context that has Berth's address.
EXTENSION = "berth.io/server"
_OTHERS = 0o077


@dataclass(frozen=True)
class Place:
    """A server and its token; without a token, only calls that need none are possible."""

    server: str
    token: str = field(default="", repr=False)  # a traceback may show a Place
    certificates: str = ""


def find_place(server: str, *, from_kubeconfig: bool, context: str) -> Place:
    """Return the server from the argument, BERTH_SERVER, the kubeconfig or `berth login`.

    Raises:
        CommandError: no server is named, or its token would be sent unencrypted.
    """
    server = server or (_server_of_context(context) if from_kubeconfig else "") or os.environ.get("BERTH_SERVER", "")
    token, is_kept = _token_of_environment(), _is_kept()
    # A pipeline that names both may have the home of another account: what is stored there isn't needed.
    kept = read_kept() if is_kept or not (server and token) else {}
    server = check_server(server or str(kept.get("server", "")))
    same = server == kept.get("server")
    certificates = os.environ.get("BERTH_CA_FILE", "") or (str(kept.get("certificates", "")) if same else "")
    token = token or (str(kept.get("token", "")) if same else "")
    return Place(server, token, certificates)


def check_server(server: str) -> str:
    """Return a server's address without REST's path, a slash at its end, or white space around it, as files may have.

    Raises:
        CommandError: it isn't a URL, or no token may be sent to it.
    """
    server = server.strip()
    if not server:
        message = "No server is named: set BERTH_SERVER, use --server URL, or run `berth login URL` once."
        raise CommandError(message)
    try:
        parts = urlsplit(server)
        host, _ = parts.hostname, parts.port
        (host or "").encode("idna")
    except ValueError as error:
        message = f"{server} isn't a URL: write it as https://berth.example.org."
        raise CommandError(message) from error
    if parts.scheme not in {"http", "https"} or not host or parts.username or parts.query or parts.fragment:
        message = f"{server} isn't a URL: write it as https://berth.example.org."
        raise CommandError(message)
    if parts.scheme == "http" and host not in _LOOPBACK and not os.environ.get("BERTH_ALLOW_HTTP"):
        message = (
            f"{server} has no TLS: the token would be sent unencrypted. Use https://, or set "
            "BERTH_ALLOW_HTTP=1 if the network is trusted."
        )
        raise CommandError(message)
    # The prefix of REST's URLs, which many people copy.
    return server.rstrip("/").removesuffix("/api/v1").rstrip("/")


def is_this_machine(server: str) -> bool:
    """Return whether a checked address is this machine's."""
    return urlsplit(server).hostname in _LOOPBACK


def proxy_of(server: str) -> str | None:
    """Return the proxy that the environment names for a checked address; None for none."""
    from urllib.request import getproxies

    proxies = getproxies()
    # To this machine, a proxy would get the token unencrypted, and would call its own machine.
    if is_this_machine(server) or any(_names(each.strip(), server) for each in proxies.get("no", "").split(",")):
        return None
    found = proxies.get(urlsplit(server).scheme) or proxies.get("all")
    return f"http://{found}" if found and "://" not in found else found


def _names(entry: str, server: str) -> bool:
    """Return whether an entry of NO_PROXY names a server: *, its host or a domain, with or without a port, or a network."""
    from ipaddress import ip_address, ip_network

    parts = urlsplit(server)
    try:
        return ip_address(parts.hostname or "") in ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        name = entry.lower().removeprefix("*").removeprefix(".")
        hosts = (parts.hostname or "", parts.netloc.lower())
        return entry == "*" or (bool(name) and any(f".{host}".endswith(f".{name}") for host in hosts))


def _token_of_environment() -> str:
    """Return the token of BERTH_TOKEN, or of the file that BERTH_TOKEN_FILE names.

    Raises:
        CommandError: the file can't be read.
    """
    path = os.environ.get("BERTH_TOKEN_FILE", "")
    if token := os.environ.get("BERTH_TOKEN", "").strip():
        return token
    try:
        return Path(path).read_text(encoding="utf-8").strip() if path else ""
    except (OSError, UnicodeDecodeError) as error:
        message = f"BERTH_TOKEN_FILE can't be read: {error}."
        raise CommandError(message) from error


def _kept_path() -> Path:
    """Return the path of the file in which `berth login` stores server and token.

    Raises:
        CommandError: this account has no home.
    """
    try:
        home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    except RuntimeError as error:
        message = "This account has no home for server and token: set HOME or XDG_CONFIG_HOME, or BERTH_SERVER and BERTH_TOKEN."
        raise CommandError(message) from error
    return Path(home) / "berth" / "config.json"


def _is_kept() -> bool:
    """Return whether this account has a file of `berth login` that it can read."""
    try:
        return os.access(_kept_path(), os.R_OK)
    except CommandError:
        return False


def read_kept() -> dict[str, Any]:
    """Return the stored server and token; empty where nobody logged in.

    Raises:
        CommandError: the file can't be read, or others can read it.
    """
    import json

    path = _kept_path()
    try:
        if path.stat().st_mode & _OTHERS and sys.platform != "win32":
            message = f"{path} holds a token and can be read by others: chmod 600 {path}."
            raise CommandError(message)
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        message = f"{path} can't be read: {error}. Delete the file, then run `berth login URL`."
        raise CommandError(message) from error
    return found if isinstance(found, dict) else {}


def keep(place: Place) -> Path:
    """Write server and token to a file that only this account can read; returns its path."""
    import json

    path = _kept_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Write a temporary file and rename it, so that it never has the wrong permissions or half of its contents.
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
        stream.write(json.dumps({"server": place.server, "token": place.token, "certificates": place.certificates}))
    beside.replace(path)
    return path


def forget() -> bool:
    """Remove the stored server and token; returns whether there were any."""
    try:
        _kept_path().unlink()
    except FileNotFoundError:
        return False
    return True


def _server_of_context(wanted: str) -> str:
    """Return the server that a kubeconfig's context names in its extension berth.io/server.

    With several files, the first current-context counts, and the first context of that name, as in kubectl.

    Raises:
        CommandError: there is no such file, context or extension.
    """
    name = wanted
    contexts: dict[str, tuple[Path, dict[str, Any]]] = {}
    for path, found in _kubeconfigs():
        with _reading(path):
            name = name or str(found.get("current-context") or "")
            for each in found.get("contexts") or ():
                contexts.setdefault(each.get("name"), (path, each))
    if name not in contexts:
        missing = f"no context {name}" if name else "no current context"
        message = f"The kubeconfig has {missing}: see `kubectl config get-contexts`, or use --server URL."
        raise CommandError(message)
    path, context = contexts[name]
    with _reading(path):
        return _extension_of(context, name)


def _kubeconfigs() -> Iterator[tuple[Path, Any]]:
    """Yield the files that KUBECONFIG names, with their contents; missing files are skipped.

    Raises:
        CommandError: a file can't be read.
    """
    import yaml

    for path in [Path(each) for each in (os.environ.get("KUBECONFIG") or "~/.kube/config").split(os.pathsep) if each]:
        try:
            found = yaml.safe_load(path.expanduser().read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        # RuntimeError: ~ stands for a home that isn't known.
        except (OSError, ValueError, RuntimeError, yaml.YAMLError) as error:
            message = f"{path} can't be read as a kubeconfig: {error}"
            raise CommandError(message) from error
        yield path, found or {}


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raise CommandError for values of the wrong type in a kubeconfig.

    Raises:
        CommandError: a value has the wrong type.
    """
    try:
        yield
    except (AttributeError, TypeError) as error:
        message = f"{path} can't be read as a kubeconfig: a value in it has the wrong type"
        raise CommandError(message) from error


def _extension_of(context: dict[str, Any], name: str) -> str:
    for each in (context.get("context") or {}).get("extensions") or ():
        extension = each.get("extension")
        if each.get("name") == EXTENSION and isinstance(extension, dict) and extension.get("server"):
            return str(extension["server"])
    message = f"The context {name} doesn't say where Berth is: give it the extension {EXTENSION} with a server, or use --server URL."
    raise CommandError(message)
