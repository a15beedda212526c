"""Texts: cutting an export into its documents without changing a byte of them, and names of files that can be sent."""

import re
from collections.abc import Iterator

from berth.errors import CommandError

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def documents_of(text: str) -> Iterator[tuple[str, str, str]]:
    """Iterate over kind, name and text of each document of an export.

    Raises:
        CommandError: one has no kind or name that a file can be called by.
    """
    import yaml

    for part in re.split(r"^---\n", text, flags=re.MULTILINE):
        if not part.strip():
            continue
        # As texts alone: a time or an `off` in it is of no interest here.
        found = yaml.load(part, Loader=yaml.CBaseLoader)  # noqa: S506 - makes nothing but texts, lists and objects
        kind, name = str(found.get("kind", "")), str((found.get("metadata") or {}).get("name", ""))
        if not kind.isalpha() or not _NAME.fullmatch(name):
            message = f"The server sent a document {kind}/{name} that no file can be called after."
            raise CommandError(message)
        yield kind, name, part


def printable(name: str) -> str:
    """Return a file's name with what isn't printed as its number: it may have any bytes, also such as are no text."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in name)
