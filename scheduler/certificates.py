"""Reads X.509 certificates: a peer's names, and expiry. Works on bytes, touches no file.

A peer's certificate comes from `ssl.SSLSocket.getpeercert()`: verified, and decoded by OpenSSL. The certificates of files are
parsed here, because Python's ssl doesn't decode a certificate of one's own.
"""

import re
import ssl
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SAN_KINDS = frozenset({"DNS", "URI", "email"})
_SEQUENCE, _VERSION, _EXTENSIONS, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0xA3, 0x17, 0x18
# RFC 5280 4.2.1.12: extendedKeyUsage, and clientAuth in it.
_EXTENDED_KEY_USAGE, _CLIENT_AUTH = bytes.fromhex("551d25"), bytes.fromhex("2b06010505070302")
_LONG_LENGTH = 0x80
_TIME_FORMATS = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}
# RFC 5280 4.1.2.5.1: two digits of a year mean 1950 to 2049.
_LAST_YEAR_OF_UTC_TIME = 2049


class CertificateError(ValueError):
    """The bytes are no certificate. The message contains none of them."""


def names_in(peer: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of a verified peer: common names and DNS, URI and e-mail alternative names."""
    common = {value for part in peer.get("subject", ()) for kind, value in part if kind == "commonName"}
    alternative = {value for kind, value in peer.get("subjectAltName", ()) if kind in _SAN_KINDS}
    return frozenset(common | alternative)


def peer_expires_at(peer: Mapping[str, Any]) -> float:
    """Return the time, in seconds since 1970, at which a verified peer's certificate expires."""
    return float(ssl.cert_time_to_seconds(peer["notAfter"]))


def is_for_clients(der: bytes) -> bool:
    """Return whether a verified peer's certificate is for clients; OpenSSL accepts one without that extension, too."""
    (_, certificate), *_ = _elements(der)
    (_, to_be_signed), *_ = _elements(certificate)
    for kind, content in _elements(to_be_signed):
        if kind == _EXTENSIONS:
            ((_, extensions),) = _elements(content)
            for _, extension in _elements(extensions):
                (_, name), *_, (_, value) = _elements(extension)
                if name == _EXTENDED_KEY_USAGE:
                    ((_, purposes),) = _elements(value)
                    return any(purpose == _CLIENT_AUTH for _, purpose in _elements(purposes))
    return False


def expires_at(pem: bytes) -> float:
    """Return the time, in seconds since 1970, at which the first of the certificates in a PEM file expires.

    Raises:
        CertificateError: there is none, or one can't be read.
    """
    certificates = _PEM.findall(pem)
    if not certificates:
        message = "the file holds no certificate"
        raise CertificateError(message)
    try:
        return min(_not_after(ssl.PEM_cert_to_DER_cert(found.decode("ascii"))) for found in certificates)
    except (ValueError, IndexError) as error:
        message = "the file holds a certificate that can't be read"
        raise CertificateError(message) from error


def _not_after(der: bytes) -> float:
    """Return TBSCertificate.validity.notAfter (RFC 5280 4.1)."""
    (_, certificate), *_ = _elements(der)
    (_, to_be_signed), *_ = _elements(certificate)
    fields = [found for found in _elements(to_be_signed) if found[0] != _VERSION]
    _serial, _signature, _issuer, (kind, validity), *_ = fields
    if kind != _SEQUENCE:
        raise ValueError(kind)
    _not_before, (kind, text) = _elements(validity)
    at = datetime.strptime(text.decode("ascii"), _TIME_FORMATS[kind]).replace(tzinfo=UTC)
    if kind == _UTC_TIME and at.year > _LAST_YEAR_OF_UTC_TIME:
        at = at.replace(year=at.year - 100)
    return at.timestamp()


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Iterate over tag and content of each consecutive element in `der`."""
    at = 0
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if length >= _LONG_LENGTH:
            octets = length - _LONG_LENGTH
            length, at = int.from_bytes(der[at : at + octets], "big"), at + octets
        if at + length > len(der):
            raise ValueError(length)
        yield tag, der[at : at + length]
        at += length
