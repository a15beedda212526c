"""`manage.py importpolicy FILE`: a classic scheduler Policy as a RuleSet document. Needs no database."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from policies import checking, manifests
from policies.engine.errors import RuleSetError
from policies.engine.validation import document_of


class Command(BaseCommand):
    """Prints the rule set as YAML, ready for `lint` and `apply`."""

    help = "Turn a classic scheduler Policy (JSON or YAML, kind Policy) into a RuleSet document on standard output."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("file", metavar="FILE", type=Path)
        parser.add_argument("--name", default="imported", help="name of the rule set (imported)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Read, import, write."""
        del args
        located = read_only_document(options["file"])
        try:
            rule_set = checking.import_policy(located.document, name=options["name"])
        except RuleSetError as error:
            message = "\n".join(located.describe(fault) for fault in error.faults)
            raise CommandError(message, returncode=1) from error
        self.stdout.write(manifests.to_yaml(document_of(rule_set)), ending="")
        if not rule_set.spec.filters and not rule_set.spec.scores:
            self.stderr.write(
                "No rules: this Policy names none. What it says of extenders: doctor configuration --from-policy"
            )


def read_only_document(path: Path) -> manifests.Located:
    """Read the one document of a file besides Assignments.

    Raises:
        CommandError: there is none, or more than one, or the file can't be read.
    """
    try:
        found = checking.read_documents(path.read_text(encoding="utf-8"), str(path))
    except RuleSetError as error:
        raise CommandError("\n".join(fault.message for fault in error.faults), returncode=1) from error
    except (OSError, UnicodeDecodeError) as error:
        message = f"{path}:1: can't be read: {error}"
        raise CommandError(message, returncode=1) from error
    found = [each for each in found if not _is_assignment(each.document)]
    if len(found) != 1:
        message = f"{path}:1: holds {len(found)} documents; one is wanted"
        raise CommandError(message, returncode=1)
    return found[0]


def _is_assignment(document: object) -> bool:
    return isinstance(document, dict) and document.get("kind") == "Assignment"
