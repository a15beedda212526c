"""Signed notes (C2SP signed-note) and the checkpoints in them (C2SP tlog-checkpoint), with Ed25519. Pure.

Keys are written as Go's golang.org/x/mod/sumdb/note writes them: `PRIVATE+KEY+NAME+ID+BASE64` and `NAME+ID+BASE64`.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Set
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_ED25519 = b"\x01"
_PRIVATE = "PRIVATE+KEY"
_SIGNATURE = "\u2014 "
_ID_BYTES = 4
_SEED_BYTES = 32
_ROOT_BYTES = 32


class NoteError(Exception):
    """A note or a key is invalid. The message says why."""


class Verifier(NamedTuple):
    """A public key and its name."""

    name: str
    public: bytes

    @property
    def id(self) -> bytes:
        """The key ID in signatures."""
        return hashlib.sha256(self.name.encode() + b"\n" + _ED25519 + self.public).digest()[:_ID_BYTES]

    @classmethod
    def parse(cls, text: str) -> "Verifier":
        """Read `NAME+ID+BASE64`.

        Raises:
            NoteError: it is none.
        """
        name, key = _split_key(text)
        found = cls(name, key)
        if text.split("+", 2)[1] != found.id.hex():
            message = f"the public key {text!r} doesn't have the id that it names"
            raise NoteError(message)
        return found

    def __str__(self) -> str:
        return f"{self.name}+{self.id.hex()}+{base64.b64encode(_ED25519 + self.public).decode()}"

    def is_signature(self, text: bytes, signature: bytes) -> bool:
        """Return whether this is the key's signature of a text."""
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, text)
        except (InvalidSignature, ValueError):
            return False
        return True


class Signer:
    """A private key and its name.

    Args:
        name: of the key, and of the ledger whose checkpoints it signs: ASCII without blanks and `+`.
        seed: 32 bytes.
    """

    def __init__(self, name: str, seed: bytes) -> None:
        if not name.isascii() or "+" in name or name.split() != [name]:
            message = f"{name!r} is no name of a key: it must be of ASCII, with neither blanks nor +"
            raise NoteError(message)
        self._seed = seed
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.verifier = Verifier(name, self._key.public_key().public_bytes_raw())

    @classmethod
    def make(cls, name: str) -> "Signer":
        """Make a new key."""
        return cls(name, Ed25519PrivateKey.generate().private_bytes_raw())

    @classmethod
    def parse(cls, text: str) -> "Signer":
        """Read `PRIVATE+KEY+NAME+ID+BASE64`.

        Raises:
            NoteError: it is none.
        """
        start, _, rest = text.strip().partition(f"{_PRIVATE}+")
        if start or not rest:
            message = f"a private key begins with {_PRIVATE}+"
            raise NoteError(message)
        name, seed = _split_key(rest)
        found = cls(name, seed)
        if rest.split("+", 2)[1] != found.verifier.id.hex():
            message = "the private key doesn't have the id that it names"
            raise NoteError(message)
        return found

    def private_text(self) -> str:
        """Return the key in the format of its file."""
        key = base64.b64encode(_ED25519 + self._seed).decode()
        return f"{_PRIVATE}+{self.verifier.name}+{self.verifier.id.hex()}+{key}"

    def sign(self, text: str) -> str:
        """Return a note with this key's signature.

        Raises:
            NoteError: the text doesn't end with a line feed.
        """
        if not text.endswith("\n"):
            message = "the text of a note ends with a line"
            raise NoteError(message)
        signature = base64.b64encode(self.verifier.id + self._key.sign(text.encode())).decode()
        return f"{text}\n{_SIGNATURE}{self.verifier.name} {signature}\n"


def _split_key(text: str) -> tuple[str, bytes]:
    try:
        name, _number, encoded = text.strip().split("+", 2)
        data = base64.b64decode(encoded, validate=True)
    except (ValueError, binascii.Error) as error:
        message = f"a key is NAME+ID+BASE64: {error}"
        raise NoteError(message) from error
    if data[:1] != _ED25519 or len(data) != 1 + _SEED_BYTES:
        message = "the key is no Ed25519 key"
        raise NoteError(message)
    return name, data[1:]


def open_note(note: str, verifiers: Iterable[Verifier]) -> tuple[str, list[Verifier]]:
    """Return the text of a note, and the keys that signed it: at least one.

    Raises:
        NoteError: none of the keys signed it, or a signature with the name of one of them is wrong.
    """
    text, separator, signatures = note.rpartition("\n\n")
    if not separator:
        message = "it is no signed note"
        raise NoteError(message)
    text += "\n"
    known = {(verifier.name, verifier.id): verifier for verifier in verifiers}
    found: list[Verifier] = []
    strangers: list[tuple[str, bytes]] = []
    for name, number, signature in _signatures(signatures):
        verifier = known.get((name, number))
        if verifier is None:
            strangers.append((name, number))
            continue
        if not verifier.is_signature(text.encode(), signature):
            message = f"the signature of {name}+{number.hex()} is wrong"
            raise NoteError(message)
        found.append(verifier)
    if not found:
        raise NoteError(_by_strangers(strangers, {name for name, _number in known}))
    return text, found


def _by_strangers(strangers: Iterable[tuple[str, bytes]], names: Set[str]) -> str:
    """Return a sentence about the unknown keys that signed, and what helps if one of them has a known name."""
    said = ", ".join(f"{name}+{number.hex()}" for name, number in strangers)
    rotated = ". If the key was rotated, give the whole .pub file, with the lines of all keys"
    is_known = any(name in names for name, _number in strangers)
    return f"it is signed by none of the known keys, but by {said}{rotated if is_known else ''}"


def _signatures(text: str) -> Iterable[tuple[str, bytes, bytes]]:
    if not text.endswith("\n"):
        message = "the last signature has no end"
        raise NoteError(message)
    for line in text[:-1].split("\n"):
        name, _, encoded = line.removeprefix(_SIGNATURE).partition(" ")
        data = _decoded(encoded)
        if not line.startswith(_SIGNATURE) or not name or not data:
            message = f"{line!r} is no signature"
            raise NoteError(message)
        yield name, data[:_ID_BYTES], data[_ID_BYTES:]


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return None


class TreeHead(NamedTuple):
    """A checkpoint's content: the log, its number of leaves, and their root. `extensions`: further lines."""

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the text that is signed."""
        return "\n".join([self.origin, str(self.size), base64.b64encode(self.root).decode(), *self.extensions, ""])

    @classmethod
    def parse(cls, text: str) -> "TreeHead":
        """Read the text of a note.

        Raises:
            NoteError: it is no checkpoint.
        """
        origin, size, root, *extensions = [*text.removesuffix("\n").split("\n"), "", ""]
        found = _decoded(root)
        is_number = size.isdecimal() and str(int(size)) == size
        if not text.endswith("\n") or not origin or not is_number or not found or len(found) != _ROOT_BYTES:
            message = "the note is no checkpoint"
            raise NoteError(message)
        return cls(origin, int(size), found, tuple(extensions[:-2]))
