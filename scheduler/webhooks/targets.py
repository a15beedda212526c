"""Where a webhook may send to: addresses that anybody in the internet reaches, and those that BERTH_WEBHOOK_ALLOW names.

Whoever may enter a URL must not reach what stands beside Berth by it: the API server, a cloud's metadata, a database. A name is
looked up once, each address that it has must be allowed, and the connection is made to that address, so that a name
that leads elsewhere a moment later leads nowhere.
"""

import re
import socket
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

import msgspec

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_PORTS = {"https": 443, "http": 80}
_MAX_URL = 2_000
_PLAIN = re.compile(r"[\x21-\x7e]+")
# How the internet's IPv4 addresses are written where a cluster has IPv6 alone.
_NAT64 = IPv6Network("64:ff9b::/96")
# Deprecated, so Python calls it global; networks have it all the same.
_SITE_LOCAL = IPv6Network("fec0::/10")


class TargetError(Exception):
    """Nothing may be sent there; the message says why."""


class Target(msgspec.Struct, frozen=True):
    """A URL that was read: https or http, a host, its port, and what is asked for there."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def host_header(self) -> str:
        """The header Host: by name, whatever address is asked."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def read_url(url: str) -> Target:
    """Read a URL.

    Raises:
        TargetError: it isn't one of a webhook.
    """
    if len(url) > _MAX_URL or not _PLAIN.fullmatch(url):
        message = f"A URL is at most {_MAX_URL} plain characters, without spaces."
        raise TargetError(message)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        message = f"That isn't a URL: {error}."
        raise TargetError(message) from error
    if parts.scheme not in _PORTS or not host:
        message = "A webhook's URL begins with https:// and names a host."
        raise TargetError(message)
    if parts.username is not None or parts.password is not None:
        message = "Leave user and password out of the URL: what is sent is signed."
        raise TargetError(message)
    path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    return Target(parts.scheme, host, _PORTS[parts.scheme] if port is None else port, path)


def networks_of(texts: Iterable[str]) -> list[Network]:
    """Return the networks that a setting names."""
    return [ip_network(text, strict=False) for text in texts]


def refusal(address: Address, allowed: Sequence[Network] = ()) -> str:
    """Return why nothing is sent to an address; empty where it may be."""
    if is_allowed(address, allowed):
        return ""
    return next((f"{each} is {word}" for each in _meant(address) if (word := _fault(each))), "")


def is_allowed(address: Address, allowed: Sequence[Network]) -> bool:
    """Return whether a setting names an address, however it is written."""
    return any(each in network for each in {address, *_meant(address)} for network in allowed)


def _fault(address: Address) -> str:
    """Return of which kind an address is that nothing is sent to; empty for others."""
    checks = (
        (address.is_unspecified, "unspecified"),
        (address.is_loopback, "loopback"),
        (address.is_link_local, "link-local"),
        (address.is_multicast, "multicast"),
        (not address.is_global or address in _SITE_LOCAL, "private"),
        (address.is_reserved, "reserved"),
    )
    return next((word for holds, word in checks if holds), "")


def _meant(address: Address) -> list[Address]:
    """Return what is connected to: an IPv4 address that an IPv6 one stands for, too, for some gateway may make that of it."""
    if isinstance(address, IPv4Address):
        return [address]
    if address.ipv4_mapped or address in _NAT64:
        return [IPv4Address(int(address) & 0xFFFFFFFF)]
    return [address.sixtofour, address] if address.sixtofour else [address]


def resolve(target: Target, allowed: Sequence[Network]) -> str:
    """Return the address to connect to. It is asked for once.

    Raises:
        TargetError: there is none, one of them isn't allowed, or it would be sent in clear to where that isn't.
    """
    found = _addresses(target)
    for address in found:
        if said := refusal(address, allowed):
            message = f"{target.host} isn't a target: {said}; BERTH_WEBHOOK_ALLOW names the networks that may be sent to nevertheless"
            raise TargetError(message)
    if target.scheme != "https" and not all(is_allowed(address, allowed) for address in found):
        message = "Sent by https:// alone: http:// is for networks that BERTH_WEBHOOK_ALLOW names"
        raise TargetError(message)
    return str(found[0])


def _addresses(target: Target) -> list[Address]:
    try:
        rows = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        message = f"{target.host} can't be found: {error}"
        raise TargetError(message) from error
    return [ip_address(str(row[4][0]).partition("%")[0]) for row in rows]
