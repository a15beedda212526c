"""`manage.py pause TARGET --reason …`: pause a rule, a rule set, an Assignment or everything."""

from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import CommandParser

from policies import manifests, publishing
from policies.management.command import BerthCommand, NotEmpty, moment_to_come
from policies.models import Change
from policies.origin import system_user


class Command(BerthCommand):
    """Pauses with a new Change, published at once if it needs no approval and need not wait for the gate."""

    help = "Pause rules: everything, Assignment/NAME, RuleSet/NAME, or RuleSet/NAME/RULE. resume ends the Pause."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        add_arguments(parser)
        parser.add_argument(
            "--reason", action=NotEmpty, required=True, help="the reason, stored with the Change and its Revision"
        )
        parser.add_argument(
            "--until",
            action=NotEmpty,
            default="",
            metavar="TIME",
            help="when the Pause ends: 2026-12-31T18:00Z, or 90m, 2h, 3d from now",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Pause, and print the result."""

        def act() -> Change:
            return publishing.pause(
                target=options["target"], by=system_user(), reason=options["reason"], until=_until(options["until"])
            )

        run(self, act, options["output"])


def _until(text: str) -> str:
    """Return a time in the form of a Pause's document, with its zone: UTC where none is given, as in all commands."""
    try:
        return moment_to_come(text).isoformat() if text else ""
    except ArgumentTypeError as error:
        raise publishing.PublishingError([f"--until {error}"]) from error


def add_arguments(parser: CommandParser) -> None:
    """Declare the arguments that pause and resume share."""
    parser.add_argument(
        "target", metavar="TARGET", help="everything, Assignment/NAME, RuleSet/NAME or RuleSet/NAME/RULE"
    )
    parser.add_argument("--output", choices=["text", "json"], default="text")


def run(command: BerthCommand, act: Any, output: str) -> None:
    """Do the act, and print the result.

    Raises:
        CommandError: it was refused.
    """
    try:
        change: Change = act()
    except publishing.PublishingError as error:
        raise command.refused("\n".join(error.messages), output, change=None, revision=None, state=None) from error
    number = change.revision.number if change.revision else None
    if output == "json":
        done = {"ok": True, "change": change.pk, "revision": number, "state": change.state}
        command.stdout.write(manifests.to_json(done))
    elif number is None:
        command.stdout.write(
            f"{change} is in review: {change.title}. It takes effect once {publishing.way_to_live(change)}."
        )
    else:
        command.stdout.write(f"Revision {number} was made by {change}: {change.title}")
