"""When certificates end. Reads just that from the DER, as the standard library has no public way to. Pure.

Source: RFC 5280 section 4.1 (Certificate, TBSCertificate, Validity), X.690 (DER).
"""

import base64
import binascii
import re
from datetime import UTC, datetime

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x30, 0x17, 0x18, 0xA0
_LONG_FORM = 0x80
_CENTURY_TURN = 50
"""Two-digit years from here on are of the last century (RFC 5280 section 4.1.2.5.1)."""


class CertificateError(ValueError):
    """The text holds no certificate that can be read."""


def ends_at(pem: str) -> datetime:
    """Give when the first of the certificates in a PEM text to end does so.

    Raises:
        CertificateError: there is none, or one can't be read.
    """
    blocks = _PEM.findall(pem)
    if not blocks:
        message = "there is no certificate in it"
        raise CertificateError(message)
    try:
        return min(_not_after(base64.b64decode("".join(block.split()), validate=True)) for block in blocks)
    except (binascii.Error, IndexError, ValueError) as error:
        message = "a certificate in it can't be read"
        raise CertificateError(message) from error


def _not_after(der: bytes) -> datetime:
    certificate, _ = _take(der, 0, _SEQUENCE)
    body, _ = _take(certificate, 0, _SEQUENCE)
    at = _skip(body, 0) if body[0] == _VERSION else 0
    for _ in range(3):  # serial number, signature algorithm, issuer
        at = _skip(body, at)
    validity, _ = _take(body, at, _SEQUENCE)
    at = _skip(validity, 0)
    return _time(validity[at], *_take(validity, at, validity[at])[:1])


def _take(data: bytes, at: int, tag: int) -> tuple[bytes, int]:
    """Give the content of the element at a place, which must have the tag, and the place behind it."""
    if data[at] != tag:
        message = f"tag {data[at]:#x} in place of {tag:#x}"
        raise ValueError(message)
    length, start = data[at + 1], at + 2
    if length & _LONG_FORM:
        count = length & ~_LONG_FORM
        length, start = int.from_bytes(data[start : start + count], "big"), start + count
    if start + length > len(data):
        message = "an element is longer than what holds it"
        raise ValueError(message)
    return data[start : start + length], start + length


def _skip(data: bytes, at: int) -> int:
    return _take(data, at, data[at])[1]


def _time(tag: int, content: bytes) -> datetime:
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        century = "19" if int(text[:2]) >= _CENTURY_TURN else "20"
        text = century + text
    elif tag != _GENERALIZED_TIME:
        message = f"tag {tag:#x} is no time"
        raise ValueError(message)
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
