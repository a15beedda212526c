"""The key that signs the ledger's checkpoints: a file outside the database, and next to it all public keys, old and new.

`FILE` has the private key, `FILE.pub` one public key per line, the newest last. Verification needs only the second file.
"""

import secrets
from collections.abc import Sequence
from pathlib import Path

from django.conf import settings

from scheduler.ledger.note import NoteError, Signer, Verifier

NAME = "berth"
_OTHERS = 0o007
_OWNERS = 0o600


class KeyFileError(Exception):
    """The key can't be used. The message says why, and what helps."""


def key_path() -> Path | None:
    """Return the key's path; None if none is set."""
    if settings.BERTH.ledger_key_file:
        return Path(settings.BERTH.ledger_key_file)
    return Path(settings.BERTH.state_dir) / "ledger_key" if settings.BERTH.local else None


def read_signer() -> Signer:
    """Return the signing key; with the local default, it is made on first use.

    Raises:
        KeyFileError: there is no key, or it can't be used.
    """
    path = key_path()
    if path is None:
        message = (
            "checkpoints aren't signed: set BERTH_LEDGER_KEY_FILE (make the file by `manage.py ledger new-key FILE`)"
        )
        raise KeyFileError(message)
    if settings.BERTH.local and not settings.BERTH.ledger_key_file and not path.exists():
        make_key(path, NAME)
    return _read(path)


def _read(path: Path) -> Signer:
    try:
        # Read first: a directory, which a container's mount makes where no file is, is open to everybody too.
        text = path.read_text(encoding="ascii")
        if path.stat().st_mode & _OTHERS:
            message = f"{path} can be read by everybody on this machine: chmod 600 {path}"
            raise KeyFileError(message)
        return Signer.parse(text)
    except (OSError, UnicodeDecodeError, NoteError) as error:
        message = f"{path} can't be used as the ledger's key: {error}"
        raise KeyFileError(message) from error


def make_key(path: Path, name: str) -> Verifier:
    """Make a key if there is none yet, and note its public key; concurrent processes agree on one key.

    Raises:
        KeyFileError: the key can't be written, or the name isn't valid for a key.
    """
    try:
        signer = Signer.make(name)
    except NoteError as error:
        raise KeyFileError(str(error)) from error
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = _written(path, signer)
        try:
            path.hardlink_to(fresh)
        except FileExistsError:
            signer = _read(path)  # another process was first; its key is the one
        finally:
            fresh.unlink()
    except OSError as error:
        message = f"{path} can't be written: {error}"
        raise KeyFileError(message) from error
    _note_public(path, signer.verifier)
    return signer.verifier


def rotate(path: Path) -> Verifier:
    """Replace the key by a new one. The old public key is kept: its signatures can be verified for ever.

    Raises:
        KeyFileError: there is no key, or it can't be written.
    """
    old = _read(path).verifier
    signer = Signer.make(old.name)
    _note_public(path, old)
    _note_public(path, signer.verifier)
    try:
        _written(path, signer).replace(path)
    except OSError as error:
        message = f"{path} can't be written: {error}"
        raise KeyFileError(message) from error
    return signer.verifier


def _written(path: Path, signer: Signer) -> Path:
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    fresh.touch(mode=_OWNERS)
    fresh.write_text(f"{signer.private_text()}\n", encoding="ascii")
    return fresh


def public_path(path: Path) -> Path:
    """Return the path of the public keys that belong to a key's file."""
    return path.with_name(f"{path.name}.pub")


def _note_public(path: Path, verifier: Verifier) -> None:
    public = public_path(path)
    try:
        if not public.exists() or verifier not in read_public(public):
            # A file that was edited by hand may lack the last line feed.
            between = "\n" if public.exists() and not public.read_bytes().endswith(b"\n") else ""
            with public.open("a", encoding="ascii") as file:
                file.write(f"{between}{verifier}\n")
    except OSError as error:
        message = f"{public} can't be written: {error}"
        raise KeyFileError(message) from error


def read_public(path: Path) -> list[Verifier]:
    """Return the public keys in a file, one per line; lines that begin with # are ignored.

    Raises:
        KeyFileError: the file can't be read.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="ascii").splitlines()]
        return [Verifier.parse(line) for line in lines if line and not line.startswith("#")]
    except (OSError, UnicodeDecodeError, NoteError) as error:
        message = f"{path} can't be read as public keys of the ledger: {error}"
        raise KeyFileError(message) from error


def known_verifiers() -> list[Verifier]:
    """Return the public keys that belong to the key's file; none if no key is set or made yet.

    Raises:
        KeyFileError: the public keys can't be read.
    """
    path = key_path()
    if path is None:
        return []
    try:
        found = read_public(public_path(path)) if public_path(path).exists() else []
        is_there = path.exists()
    except OSError as error:  # its folder is closed to this account
        message = f"{path} and its public keys can't be looked for: {error}"
        raise KeyFileError(message) from error
    own = _own_verifier(path, found) if is_there else None
    return found if own is None or own in found else [*found, own]


def _own_verifier(path: Path, public: Sequence[Verifier]) -> Verifier | None:
    """Return the key's own public key; None where only its owner can read the file, and the public keys are beside it."""
    try:
        return _read(path).verifier
    except KeyFileError as error:
        if public and isinstance(error.__cause__, PermissionError):
            return None
        raise
