"""Encrypts the URLs and secrets of webhooks in the database, with a key that is derived from BERTH_SECRET_KEY."""

import base64

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

# So that the key differs from those that sign sessions and forms, though the secret is the same.
_PURPOSE = b"berth webhooks"


class SealError(Exception):
    """The text can't be decrypted: BERTH_SECRET_KEY has changed since it was encrypted."""


def seal(text: str) -> str:
    """Return a text encrypted."""
    return _fernet().encrypt(text.encode()).decode()


def unseal(sealed: str) -> str:
    """Return an encrypted text decrypted.

    Raises:
        SealError: it was encrypted with another key.
    """
    try:
        return _fernet().decrypt(sealed.encode()).decode()
    except InvalidToken as error:
        message = (
            "its URL and secret can't be read: BERTH_SECRET_KEY was another one when they were kept; enter them again"
        )
        raise SealError(message) from error


def _fernet() -> Fernet:
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE).derive(settings.SECRET_KEY.encode())
    return Fernet(base64.urlsafe_b64encode(derived))
