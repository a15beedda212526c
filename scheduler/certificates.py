"""Reads X.509 certificates: a peer's names, and when certificates are valid. Works on bytes, touches no file.

A peer's certificate comes from `ssl.SSLSocket.getpeercert()`: verified, and decoded by OpenSSL. Python's ssl says neither what a
peer's certificate is for nor anything of one's own.
"""

import re
import ssl
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SAN_KINDS = frozenset({"DNS", "URI", "email"})


class CertificateError(ValueError):
    """The bytes are no certificate. The message contains none of them."""


class Validity(NamedTuple):
    """The time in which a certificate is valid, with both ends."""

    begins_at: datetime
    ends_at: datetime


def names_in(peer: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of a verified peer: common names and DNS, URI and e-mail alternative names."""
    common = {value for part in peer.get("subject", ()) for kind, value in part if kind == "commonName"}
    alternative = {value for kind, value in peer.get("subjectAltName", ()) if kind in _SAN_KINDS}
    return frozenset(common | alternative)


def peer_expires_at(peer: Mapping[str, Any]) -> float:
    """Return the time, in seconds since 1970, at which a verified peer's certificate expires."""
    return float(ssl.cert_time_to_seconds(peer["notAfter"]))


def is_for_clients(der: bytes) -> bool:
    """Return whether a verified peer's certificate is for clients; OpenSSL accepts one without that extension, too.

    Raises:
        ValueError: its extensions can't be read.
    """
    try:
        extensions = x509.load_der_x509_certificate(der).extensions
    except (x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        message = "the certificate's extensions can't be read"
        raise CertificateError(message) from error
    try:
        usage = extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    except x509.ExtensionNotFound:
        return False
    return ExtendedKeyUsageOID.CLIENT_AUTH in usage.value


def expires_at(pem: bytes) -> float:
    """Return the time, in seconds since 1970, at which the first of the certificates in a PEM file expires.

    Raises:
        CertificateError: there is none, or one can't be read.
    """
    return min(each.ends_at for each in validities(pem)).timestamp()


def validities(pem: bytes) -> list[Validity]:
    """Return when each of the certificates in a PEM file is valid.

    Raises:
        CertificateError: there is none, or one can't be read.
    """
    found = _PEM.findall(pem)
    if not found:
        message = "the file holds no certificate"
        raise CertificateError(message)
    try:
        read = [x509.load_pem_x509_certificate(each) for each in found]
    except ValueError as error:
        message = "the file holds a certificate that can't be read"
        raise CertificateError(message) from error
    return [Validity(each.not_valid_before_utc, each.not_valid_after_utc) for each in read]
