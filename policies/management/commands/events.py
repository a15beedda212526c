"""`manage.py events [--since TIME]`: who did what, the newest first."""

from typing import Any
from uuid import UUID

import msgspec
from django.core.management.base import CommandError, CommandParser

from policies import publishing
from policies.audit_search import BY_NAME, parse_search
from policies.audit_words import how_of, sentence_of
from policies.management.command import BerthCommand, NotEmpty
from policies.models import AuditEvent
from policies.parameters import MAX_LIMIT, SearchError

# Options whose name differs from the URL's filter: `from` is a keyword of Python.
_NAMES = {"since": "from", "until": "to"}
_FILTERS = tuple(name for name in BY_NAME if name not in _NAMES.values())


class Command(BerthCommand):
    """Writes AuditEvents, one on each line; as JSON, one document on each line."""

    help = "Print AuditEvents, newest first, one per line; with --output json, one JSON document per line."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        for name, help_text in (
            ("since", "a day or a time (UTC): from then on"),
            ("until", "a day or a time (UTC): up to then"),
        ):
            parser.add_argument(f"--{name}", action=NotEmpty, default="", metavar="TIME", help=help_text)
        for name in _FILTERS:
            parser.add_argument(f"--{name}", action=NotEmpty, default="", help=BY_NAME[name].help)
        parser.add_argument("--limit", type=int, default=0, help="the most events to print; 0, the default, prints all")
        parser.add_argument("--output", choices=["text", "json"], default="text")

    def handle(self, *args: Any, **options: Any) -> None:
        """Read page by page, and write.

        Raises:
            CommandError: a filter's value is invalid.
        """
        if options["limit"] < 0:
            message = f"--limit: must be 0 (all) or more, not {options['limit']}"
            raise CommandError(message, returncode=1)
        given = {name: options[name] for name in _FILTERS}
        given |= {name: options[option] for option, name in _NAMES.items()}
        try:
            search = parse_search(given, sees_addresses=True)
        except SearchError as error:
            raise CommandError(_by_option(error), returncode=1) from error
        left = options["limit"] or None
        place: UUID | None = None
        while left is None or left > 0:
            page = msgspec.structs.replace(search, before=place, limit=min(left or MAX_LIMIT, MAX_LIMIT)).page()
            for row in page.rows:
                self.stdout.write(_as_json(row) if options["output"] == "json" else _as_text(row))
            left = left - len(page.rows) if left is not None else None
            if (place := page.older) is None:
                return


def _by_option(error: SearchError) -> str:
    """Return the faults, each with its option."""
    options = {name: option for option, name in _NAMES.items()}
    return "\n".join(f"--{options.get(name, name)}: {message}" for name, message in error.faults.items())


def _as_text(row: AuditEvent) -> str:
    reason = f": {' '.join(row.reason.split())}" if row.reason else ""
    return f"{row.at:%Y-%m-%d %H:%M:%S} {sentence_of(row, publishing.more_of(row))}, {how_of(row)}{reason}"


def _as_json(row: AuditEvent) -> str:
    said = msgspec.to_builtins(_said(row))
    return msgspec.json.encode({"ok": publishing.is_as_written(row), **said}).decode()


def _said(row: AuditEvent) -> publishing.Said:
    """Return an event's record; where that can't be read, what the columns say: a damaged event hides no older one."""
    try:
        return publishing.said_by(row)
    except msgspec.DecodeError:
        columns = {name: getattr(row, name) for name in publishing.Said.__struct_fields__ if hasattr(row, name)}
        return publishing.Said(**columns | {"id": str(row.pk)})
