"""`manage.py exportpolicy FILE`: convert a rule set to a classic scheduler Policy if possible. Needs no database."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from policies import checking, manifests
from policies.classic import export_policy
from policies.engine.errors import RuleSetError
from policies.management.commands.importpolicy import read_only_document


class Command(BaseCommand):
    """Prints the Policy as JSON."""

    help = "Convert a RuleSet document to a classic scheduler Policy on standard output; exit 1 if a Policy can't express a rule."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the file."""
        parser.add_argument("file", metavar="FILE", type=Path, help="a file with one RuleSet")

    def handle(self, *args: Any, **options: Any) -> None:
        """Read, export, write."""
        located = read_only_document(options["file"])
        try:
            policy = export_policy(checking.read_rule_set(located.document))
        except RuleSetError as error:
            message = "\n".join(located.describe(fault) for fault in error.faults)
            raise CommandError(message, returncode=1) from error
        self.stdout.write(manifests.to_json(policy))
