"""Files that commands are given: YAML or JSON, read within the bounds of all documents."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from django.core.management.base import CommandError

from policies import checking
from policies.engine.errors import RuleSetError
from policies.manifests import Located
from policies.wording import visible

# The same as of the command `berth`.
_NOT_DOCUMENTS = {".git", "node_modules", ".venv"}
_ENDINGS = {".yaml", ".yml", ".json"}
# What a file may hold beside the rules that a command asks it for.
_BESIDE_RULES = ("Assignment", "PriorityClass", "Pause", "Exemption")
_EMPTY_LIST = "{apiVersion: v1, kind: List, items: []}"


class FileText(NamedTuple):
    """A file's name, printable, and its text, or why it can't be read."""

    name: str
    text: str
    fault: str = ""


def texts_of(names: Iterable[str]) -> Iterator[FileText]:
    """Yield each file; for a folder, all YAML and JSON files in it, in the order of their paths; - is standard input."""
    for name in names:
        if name != "-" and os.path.isdir(name):  # noqa: PTH112 - no error where it can't be asked
            yield from _in_folder(name)
        else:
            yield _read(name)


def _read(name: str) -> FileText:
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return FileText(visible(name), "", str(error))
    if "\0" in text:
        return FileText(visible(name), "", "it has null characters, as UTF-16 has; save it as UTF-8")
    return FileText(visible(name), text)


def _in_folder(name: str) -> Iterator[FileText]:
    paths: list[str] = []
    unread: list[OSError] = []
    seen = {os.path.realpath(name)}
    for folder, folders, files in os.walk(name, onerror=unread.append, followlinks=True):
        # The kubelet keeps a mounted ConfigMap's files in folders that begin with two dots, and makes symlinks to them.
        kept = [each for each in sorted(folders) if each not in _NOT_DOCUMENTS and not each.startswith("..")]
        folders[:] = [each for each in kept if _is_new(Path(folder, each), seen)]
        paths += [path for each in files if _is_document(path := str(Path(folder, each)))]
    # With --prune, documents that weren't read would be removed.
    yield from (FileText(visible(str(error.filename)), "", str(error)) for error in unread)
    if not (paths or unread):
        said = f"if it should hold nothing, put a file there with {_EMPTY_LIST}"
        yield FileText(visible(name), "", f"there is no YAML or JSON file in this folder: {said}")
    yield from map(_read, sorted(paths))


def _is_new(folder: Path, seen: set[str]) -> bool:
    """Return whether a folder wasn't read yet, by any path: symlinks may form a loop."""
    real = os.path.realpath(folder)
    is_new = real not in seen
    seen.add(real)
    return is_new


def _is_document(path: str) -> bool:
    """Return whether a path is a file of documents. So is a dangling symlink: with --prune its documents would be removed."""
    return Path(path).suffix.lower() in _ENDINGS and (os.path.isfile(path) or not os.path.exists(path))  # noqa: PTH110,PTH113 - no error where it can't be asked


def documents_of(path: Path) -> list[Located]:
    """Read the documents of a file.

    Raises:
        CommandError: it can't be read; the message has the place.
    """
    try:
        return checking.read_documents(path.read_text(encoding="utf-8"), str(path))
    except RuleSetError as error:
        raise CommandError("\n".join(fault.message for fault in error.faults), returncode=1) from error
    except (OSError, UnicodeDecodeError) as error:
        message = f"{path}:1: can't be read: {error}"
        raise CommandError(message, returncode=1) from error


def is_beside_rules(document: object) -> bool:
    """Return whether a document is of another kind than rules, such as an Assignment."""
    return isinstance(document, dict) and document.get("kind") in _BESIDE_RULES


def only_document(found: Sequence[Located], path: Path) -> Located:
    """Return the one document that was found in a file.

    Raises:
        CommandError: there is none, or more than one.
    """
    if len(found) != 1:
        message = f"{path}:1: holds {len(found)} documents; one is wanted"
        raise CommandError(message, returncode=1)
    return found[0]
