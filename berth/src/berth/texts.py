"""Splitting an export into its documents without changing a byte, and printable names of files."""

import re
from collections.abc import Iterator

from berth.errors import CommandError

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def documents_of(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield kind, name and text of each document of an export.

    Raises:
        CommandError: a document has no kind, or no name that a file can have.
    """
    import yaml

    for part in re.split(r"^---\n", text, flags=re.MULTILINE):
        if not part.strip():
            continue
        # All values as texts: types such as times and booleans don't matter here.
        found = yaml.load(part, Loader=yaml.CBaseLoader)  # noqa: S506 - makes nothing but texts, lists and objects
        kind, name = str(found.get("kind", "")), str((found.get("metadata") or {}).get("name", ""))
        if not kind.isalpha() or not _NAME.fullmatch(name):
            message = f"The server sent a document {kind}/{name} whose name can't be a file name."
            raise CommandError(message)
        yield kind, name, part


def printable(name: str) -> str:
    """Return a file's name with unprintable characters as their numbers: it may have any bytes, even invalid UTF-8."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in name)
