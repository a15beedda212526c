"""Files that commands are given: YAML or JSON, read within the bounds of all documents."""

from collections.abc import Sequence
from pathlib import Path

from django.core.management.base import CommandError

from policies import checking
from policies.engine.errors import RuleSetError
from policies.manifests import Located


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


def only_document(found: Sequence[Located], path: Path) -> Located:
    """Return the one document that was found in a file.

    Raises:
        CommandError: there is none, or more than one.
    """
    if len(found) != 1:
        message = f"{path}:1: holds {len(found)} documents; one is wanted"
        raise CommandError(message, returncode=1)
    return found[0]
