"""Signs deliveries: HMAC-SHA256 over the time and the bytes, as Stripe does it. Pure."""

import hashlib
import hmac
from typing import Final

HEADER: Final = "Berth-Signature"


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """Return the header's value: the time of signing, in Unix time, and the HMAC over `TIMESTAMP.BODY` in hex."""
    mac = hmac.new(secret.encode(), b"%d.%b" % (timestamp, body), hashlib.sha256)
    return f"t={timestamp},v1={mac.hexdigest()}"
