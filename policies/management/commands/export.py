"""`manage.py export [--kind KIND] [NAME…]`: write the live state as documents that `apply` reads."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from policies import publishing
from policies.management.command import BerthCommand
from policies.origin import system_user


class Command(BerthCommand):
    """Writes YAML, the same bytes for the same state. Assignments are sorted by order, PriorityClasses by value, others by name."""

    help = "Write what is live (or what a Change makes of it, with --change) as YAML to standard output: rule sets, Assignments, PriorityClasses, Pauses and Exemptions."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        parser.add_argument("names", nargs="*", metavar="NAME", help="export only these; default: everything")
        parser.add_argument(
            "--kind",
            choices=["RuleSet", "Assignment", "PriorityClass", "Pause", "Exemption"],
            help="export only this kind",
        )
        parser.add_argument(
            "--change", metavar="N", type=int, help="export what this Change would make live, not what is live now"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the documents, separated by ---."""
        try:
            text = publishing.export(
                by=system_user(), kind=options["kind"] or "", names=options["names"], change=options["change"]
            )
        except publishing.PublishingError as error:
            raise CommandError("\n".join(error.messages)) from error
        self.stdout.write(text, ending="")
