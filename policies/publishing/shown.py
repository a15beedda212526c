"""A digest of what a person looked at before publishing: exactly that must go live."""

import hashlib

import msgspec

from policies.publishing.errors import OvertakenError


def digest_of_shown(*shown: object) -> str:
    """Return the SHA-256, in hex, of the content that a page shows: engine values, before and after."""
    return hashlib.sha256(msgspec.json.encode(shown, order="sorted")).hexdigest()


def check_shown(expected_digest: str, *now: object) -> None:
    """Compare what a person looked at with the present content, under the lock; without a digest nothing is compared.

    Raises:
        OvertakenError: it moved.
    """
    if expected_digest and expected_digest != digest_of_shown(*now):
        message = "Somebody was faster: this changed since you looked at it. Look at the changes again, then confirm."
        raise OvertakenError([message])
