"""The URL prefix of static files: it changes when any of them changes."""

from collections.abc import Iterable
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path

# Packages whose static files pages load besides Berth's own.
_PACKAGES = ("django", "django-unfold")


def digest_of_statics(folders: Iterable[Path]) -> str:
    """Return a short digest of the names and contents of the files in some folders, and of the versions of packages with static files."""
    found = blake2b(digest_size=6)
    for package in _PACKAGES:
        found.update(f"{package} {version(package)}\n".encode())
    for folder in folders:
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            content = path.read_bytes()
            found.update(f"{path.relative_to(folder)} {len(content)}\n".encode() + content)
    return found.hexdigest()
