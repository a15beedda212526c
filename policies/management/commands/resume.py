"""`manage.py resume TARGET`: end a Pause."""

from typing import Any

from django.core.management.base import CommandParser

from policies import publishing
from policies.management.command import BerthCommand
from policies.management.commands import pause
from policies.models import Change
from policies.origin import system_user


class Command(BerthCommand):
    """Resumes with a new Change, published at once if it needs no approval and need not wait for the gate."""

    help = (
        "End a Pause, also one whose end has passed: everything, Assignment/NAME, RuleSet/NAME, or RuleSet/NAME/RULE."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        pause.add_arguments(parser)
        parser.add_argument("--reason", default="", help="the reason, stored with the Change and its Revision")

    def handle(self, *args: Any, **options: Any) -> None:
        """Resume, and print the result."""

        def act() -> Change:
            return publishing.resume(target=options["target"], by=system_user(), reason=options["reason"])

        pause.run(self, act, options["output"])
