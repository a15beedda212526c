"""`manage.py plan FILE…`: show what `apply --publish` would change, here and in the cluster, and change nothing."""

import sys
from collections.abc import Mapping
from typing import Any

import msgspec
from django.core.management.base import CommandError, CommandParser

from policies import publishing
from policies.management.command import BerthCommand
from policies.manifests import to_json
from policies.origin import system_user
from policies.wording import counted
from scheduler.applying import Planned, plan_documents
from scheduler.gate.words import lines_of
from scheduler.management.commands.apply import add_keeper, read
from scheduler.priority_classes.plan import SENT

_WOULD_CHANGE = 2


class Command(BerthCommand):
    """Publishes in a transaction that is rolled back, so the output is exactly what publishing would do."""

    help = (
        "Say what `apply --publish` of these documents would change, here and in the cluster; nothing is changed. "
        "Exit 2 when anything would, 0 when nothing would, 1 for faults."
    )

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Return the parser of the arguments. Usage errors exit with 1, because 2 means that something would change."""
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.exit = lambda status=0, message=None: CommandParser.exit(parser, min(status, 1), message)  # type: ignore[method-assign]
        return parser

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        parser.add_argument(
            "files", nargs="+", metavar="FILE", help="a file of documents, a folder of them, or - for standard input"
        )
        parser.add_argument("--prune", metavar="SCOPE", action="append", default=[], help="as in apply")
        add_keeper(parser)
        parser.add_argument(
            "--gate", action="store_true", help="run the gate: documents, tests, Pods; without it no test runs"
        )
        parser.add_argument("--no-cluster", action="store_true", help="don't ask the API server about PriorityClasses")
        parser.add_argument("--output", choices=["text", "json"], default="text")

    def handle(self, *args: Any, **options: Any) -> None:
        """Plan the changes, write them."""
        try:
            documents = read(options, "planned")
            planned = plan_documents(
                documents, by=system_user(), gate=options["gate"], asks_cluster=not options["no_cluster"]
            )
        except (CommandError, publishing.PublishingError) as error:
            if options["output"] == "json":
                self.stdout.write(to_json(msgspec.to_builtins(Planned(ok=False, error=str(error)))))
            message = f"Refused: {error}"
            raise CommandError(message) from error
        self.stdout.write(to_json(msgspec.to_builtins(planned)) if options["output"] == "json" else _text(planned))
        if planned.blocked:
            raise CommandError(planned.blocked)
        if planned.would_change:
            sys.exit(_WOULD_CHANGE)


def _text(planned: Planned) -> str:
    if planned.revision:
        lines = [f"Revision {planned.revision} would be made:", *(f"  {line}" for line in planned.changes)]
    else:
        lines = ["Nothing would be published: all of it is live."]
    lines += [f"! {line}" for line in (*planned.notes, *planned.drift, *planned.beside)]
    if planned.cluster:
        lines += ["In the cluster:", *(f"  {_line(told)}" for told in planned.cluster)]
    if planned.users:
        lines += ["Pods that keep their present priority:", *(f"  {_user(each)}" for each in planned.users)]
    if planned.forecast:
        lines.append(f"On {planned.forecast.nodes} nodes, of {planned.forecast.pods} Pods:")
    elif planned.gate:
        lines.append("The gate:")
    lines += [f"  {line}" for line in lines_of(planned.gate, planned.levels)]
    if planned.error:
        lines.append(f"The cluster can't be asked about PriorityClasses: {planned.error}")
    return "\n".join(lines)


def _user(user: Mapping[str, Any]) -> str:
    return f"{user['priority_class']}: {counted(user['pods'], 'Pod')} of {user['kind']} {user['namespace']}/{user['name']} with {user['priority']:,}"


def _line(told: dict[str, str]) -> str:
    word = told["act"] if told["act"] in SENT else f"left, {told['act']}"
    return f"PriorityClass {told['name']}: {word}" + (f". {told['message']}" if "message" in told else "")
