"""`migrate`: Django's command, with a --check that prints what is missing: new Pods wait in it, and people read their log."""

import signal
import sys
import time
from typing import Any

from django.core.management import CommandError, CommandParser
from django.core.management.commands import migrate
from django.db import DatabaseError, connection

from controlplane.health import missing_migrations

_LOOK_SECONDS = 2.0
_TELL_SECONDS = 10.0


class Command(migrate.Command):
    """Migrates the database's tables to this version; --check only says whether they are."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare Django's arguments, and how long --check may wait."""
        super().add_arguments(parser)
        parser.add_argument(
            "--wait", type=float, default=0.0, metavar="SECONDS",
            help="with --check: wait up to this many seconds for the migrations; print every 10 s what is missing",
        )  # fmt: skip

    def handle(self, *arguments: Any, **options: Any) -> None:
        """Do as Django does; if --check finds something missing, print it, where Django exits silently with 1."""
        if options["wait"] and not options["check_unapplied"]:
            message = "--wait goes with --check"
            raise CommandError(message)
        if options["check_unapplied"] and not options["app_label"]:
            missing = self._waited(options["wait"]) if options["wait"] else missing_migrations()
            if missing:
                sys.exit(f"manage.py: {missing}")
        super().handle(*arguments, **options)

    def _waited(self, seconds: float) -> str:
        """Return what is still missing after this time; empty, at once, when the tables are complete."""
        # SIGTERM doesn't end the first process of a container (PID 1) unless it has a handler.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        missing = _in_the_way()
        end = time.monotonic() + seconds
        tell_at = 0.0
        while missing and (now := time.monotonic()) < end:
            if now >= tell_at:
                self.stdout.write(f"waiting: {missing}")
                self.stdout.flush()
                tell_at = now + _TELL_SECONDS
            time.sleep(min(_LOOK_SECONDS, end - now))
            missing = _in_the_way()
        return missing


def _in_the_way() -> str:
    """Return the result of `missing_migrations`, or why the database can't be read."""
    try:
        return missing_migrations()
    except DatabaseError as error:
        connection.close()
        return f"the database can't be reached: {str(error).strip().partition(chr(10))[0]}"
