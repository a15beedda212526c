"""What Berth's commands have in common."""

from argparse import Action, ArgumentError, ArgumentParser, ArgumentTypeError, Namespace
from datetime import datetime, timedelta
from typing import Any

from django.core.checks import Tags
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from policies.manifests import to_json
from policies.parameters import day_or_moment, start_of

_MOST_SECONDS = 86_400
# The same as of `berth pause --until`.
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}


class BerthCommand(BaseCommand):
    """A command of Berth's. Of Django's checks it runs those of the environment.

    The others look at the code and load every page for it: `manage.py check` and `migrate` run them.
    """

    requires_system_checks = (Tags.security,)

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run the command. An argument with bytes that aren't UTF-8 is refused where a database or JSON would have to hold it.

        Raises:
            CommandError: there is such an argument.
        """
        try:
            return super().execute(*args, **options)
        except UnicodeEncodeError as error:
            if not "\ud800" <= error.object[error.start] <= "\udfff":
                raise
            message = f"{error.object[:60]!a} has bytes that aren't UTF-8: write it again"
            raise CommandError(message, returncode=1) from error

    def refused(self, said: str, output: str, **more: Any) -> CommandError:
        """Return the error that a refusal ends with; where JSON was asked for, it is an object on standard output, too."""
        if output == "json":
            self.stdout.write(to_json({"ok": False, **more, "error": said}))
        return CommandError(said, returncode=1)


class NotEmpty(Action):
    """Stores a value, and refuses an empty one, as from an unset shell variable: it would count as if the option weren't there."""

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option_string: Any = None) -> None:
        """Store it.

        Raises:
            ArgumentError: it is empty.
        """
        if not values:
            message = "is empty, as from an unset shell variable: give it a value, or leave the option out"
            raise ArgumentError(self, message)
        setattr(namespace, self.dest, values)


def moment(text: str) -> datetime:
    """Return the moment that an argument names, in UTC; for a day, its beginning.

    Raises:
        ArgumentTypeError: it is none.
    """
    try:
        found = day_or_moment(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
    return found if isinstance(found, datetime) else start_of(found)


def moment_to_come(text: str) -> datetime:
    """Read the argument that says when something ends or begins: as `moment`, or minutes, hours or days from now, as 90m, 2h, 3d.

    Raises:
        ArgumentTypeError: it is none.
    """
    unit = _UNITS.get(text[-1:])
    if unit is None or not text[:-1].isascii() or not text[:-1].isdigit():
        return _moment_or(text)
    try:
        return timezone.now().replace(microsecond=0) + int(text[:-1]) * unit
    except (ValueError, OverflowError) as error:
        message = f"{text[:40]!r} is too far away"
        raise ArgumentTypeError(message) from error


def _moment_or(text: str) -> datetime:
    try:
        return moment(text)
    except ArgumentTypeError as error:
        message = f"{error}; or 90m, 2h, 3d from now"
        raise ArgumentTypeError(message) from error


def wait_seconds(text: str) -> float:
    """Read the argument that says how long to wait; 0 is not at all.

    Raises:
        ArgumentTypeError: nobody can wait for so long.
    """
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= _MOST_SECONDS:
        message = f"{text!a} isn't a number of seconds from 0 to {_MOST_SECONDS:,}"
        raise ArgumentTypeError(message)
    return found
