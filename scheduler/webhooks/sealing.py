"""URLs and secrets of webhooks as the database keeps them: encrypted with a key that follows from BERTH_SECRET_KEY."""

import base64

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

# Another key than those that sign sessions and forms, from the same secret.
_PURPOSE = b"berth webhooks"


class SealError(Exception):
    """It can't be read: BERTH_SECRET_KEY is another one than when it was kept."""


def seal(text: str) -> str:
    """Return a text as it is kept."""
    return _fernet().encrypt(text.encode()).decode()


def unseal(sealed: str) -> str:
    """Return a text that was kept.

    Raises:
        SealError: it was kept under another key.
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
