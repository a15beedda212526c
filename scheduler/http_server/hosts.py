"""Checks whether the Host header of a probe can be a web page's.

A page can read another server's answers only if its own name was made to resolve there (DNS rebinding). Its browser then
sends that name, which is in the public DNS. Kubelets and Prometheus send the name of a Pod or a Service, or an address.
"""

import ipaddress
import re
import socket
from collections.abc import Sequence
from functools import lru_cache

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^\s\[\]:,@/]+?)\.?(:[0-9]{1,5})?")
_MAX_HOST = 260
# Domains that the public DNS doesn't have: of Services, of a local network (RFC 6762), of private use (ICANN 2024).
_PRIVATE = (".svc", ".local", ".internal")

NOT_OURS = b"the Host header names another server than this\n"


def name_of(host: str) -> str:
    """Return the name or address of a Host header, without its port; "" if there is none, or the header has anything else."""
    found = _HOST.fullmatch(host) if len(host) <= _MAX_HOST else None
    return found["name"].strip("[]").lower() if found else ""


def may_probe(host: str | None, known: Sequence[str] = ()) -> bool:
    """Return whether probes are answered under this Host header.

    They are if it is missing, because browsers always send one, or if it is an address, a name without a dot or in a
    private domain, this machine's own name or one of `known`.
    """
    if host is None:
        return True
    name = name_of(host)
    if name in {socket.gethostname().lower(), *(each.strip("[]").lower() for each in known)}:
        return True
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return bool(name) and ("." not in name or name.endswith(_PRIVATE))


@lru_cache(maxsize=1024)
def is_this_machine(address: str) -> bool:
    """Return whether a text is a loopback address, also an IPv4-mapped one. False for a text that is no address."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    # Python's `is_loopback` covers mapped addresses from 3.13 on.
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback
