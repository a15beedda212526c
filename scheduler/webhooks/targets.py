"""The addresses to which a webhook may send: public internet addresses, and those in BERTH_WEBHOOK_ALLOW.

A user who may enter a URL must not reach internal services by it: the API server, a cloud's metadata, a database. A name is
resolved once, each of its addresses must be allowed, and the connection goes to a resolved address, so a later change
of the name's addresses has no effect.
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
# The prefix of IPv4 addresses in clusters with only IPv6.
_NAT64 = IPv6Network("64:ff9b::/96")
# Deprecated, so Python treats it as global; networks still use it.
_SITE_LOCAL = IPv6Network("fec0::/10")
# Azure's wire server. The address is a public one, and yet each virtual machine reaches its own host by it
# (learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16).
_AZURE_HOST = IPv4Address("168.63.129.16")


class TargetError(Exception):
    """Nothing may be sent to this target; the message says why."""


class Target(msgspec.Struct, frozen=True):
    """A parsed URL: https or http, host, port, and path."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def host_header(self) -> str:
        """The Host header: the name, whatever the address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def read_url(url: str) -> Target:
    """Parse a URL.

    Raises:
        TargetError: the URL is no webhook's.
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
    """Return the networks in a setting."""
    return [ip_network(text, strict=False) for text in texts]


def refusal(address: Address, allowed: Sequence[Network] = ()) -> str:
    """Return why nothing may be sent to an address; empty if it is allowed."""
    if _is_allowed(address, allowed):
        return ""
    return next((f"{each} is {word}" for each in _meant(address) if (word := _fault(each))), "")


def _is_allowed(address: Address, allowed: Sequence[Network]) -> bool:
    """Return whether a setting includes an address, in any notation."""
    return any(each in network for each in {address, *_meant(address)} for network in allowed)


def _fault(address: Address) -> str:
    """Return the kind of an address to which nothing may be sent; empty for others."""
    checks = (
        (address.is_unspecified, "unspecified"),
        (address.is_loopback, "loopback"),
        (address.is_link_local, "link-local"),
        (address.is_multicast, "multicast"),
        (not address.is_global or address in _SITE_LOCAL, "private"),
        (address.is_reserved, "reserved"),
        (address == _AZURE_HOST, "Azure's host"),
    )
    return next((word for holds, word in checks if holds), "")


def _meant(address: Address) -> list[Address]:
    """Return the addresses that a connection may reach: also the IPv4 address inside an IPv6 one, because a gateway may translate it."""
    if isinstance(address, IPv4Address):
        return [address]
    if address.ipv4_mapped or address in _NAT64:
        return [IPv4Address(int(address) & 0xFFFFFFFF)]
    return [address.sixtofour, address] if address.sixtofour else [address]


def resolve(target: Target, allowed: Sequence[Network]) -> list[str]:
    """Return the addresses to connect to, in the system's order. They are resolved once.

    Raises:
        TargetError: there is none, one of them isn't allowed, or http would be used where only https is allowed.
    """
    found = _addresses(target)
    for address in found:
        if said := refusal(address, allowed):
            message = f"{target.host} isn't a target: {said}; BERTH_WEBHOOK_ALLOW names the networks that may be sent to nevertheless"
            raise TargetError(message)
    if target.scheme != "https" and not all(_is_allowed(address, allowed) for address in found):
        message = "Sent by https:// alone: http:// is for networks that BERTH_WEBHOOK_ALLOW names"
        raise TargetError(message)
    return [str(address) for address in found]


def _addresses(target: Target) -> list[Address]:
    try:
        rows = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        message = f"{target.host} can't be found: {error}"
        raise TargetError(message) from error
    return [ip_address(str(row[4][0]).partition("%")[0]) for row in rows]
