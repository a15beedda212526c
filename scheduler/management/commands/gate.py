"""`manage.py gate CHANGE`: run the gate of a Change in this process, and report its findings."""

import math
import sys
from argparse import SUPPRESS
from typing import Any

import msgspec
from django.core.management.base import CommandParser

from policies import publishing
from policies.management.command import BerthCommand
from policies.manifests import to_json
from policies.models import Change, GateRun
from policies.origin import system_user
from policies.publishing import PublishingError
from scheduler.gate.runs import carry_out
from scheduler.gate.words import lines_of
from scheduler.serving.memory import shorten_pauses


class Command(BerthCommand):
    """Runs the gate as a worker does, for when there is no worker, or the cluster is too large for one."""

    help = "Run the gate of a Change, and print its findings. Exit 1 if they block publishing, or the gate failed."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        chosen = parser.add_mutually_exclusive_group(required=True)
        chosen.add_argument("change", nargs="?", type=int, metavar="CHANGE", help="the Change's number")
        # The argument with which a worker starts the process for a run: the row's key and the number of the attempt.
        chosen.add_argument("--taken", help=SUPPRESS)
        parser.add_argument("--queue", action="store_true", help="let a worker run the gate, and don't wait")
        parser.add_argument("--output", choices=["text", "json"], default="text")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the gate, report its findings."""
        del args
        if options["taken"]:
            _carry_out_taken(options["taken"])
            return
        try:
            self._run(options)
        except PublishingError as error:
            raise self.refused(" ".join(error.messages), options["output"], results=[]) from error

    def _run(self, options: dict[str, Any]) -> None:
        change = Change.objects.filter(pk=options["change"]).first()
        if change is None:
            raise PublishingError([f"There is no Change {options['change']}."])
        if options["queue"]:
            run = publishing.run_gate(change=change, by=system_user())
            said = f"A worker runs the gate of {change}; its page shows the progress."
            found = {"ok": True, "state": run.state, "says": [said]}
            self.stdout.write(to_json(found) if options["output"] == "json" else said)
            return
        run = _run_here(change)
        gate = publishing.gate_of(change)
        results = publishing.results_of(run)
        refusal = publishing.blocked(results, gate.levels) or run.fault
        if options["output"] == "json":
            found = {"ok": not refusal, "error": refusal, "results": msgspec.to_builtins(results)}
            self.stdout.write(to_json(found))
        else:
            self.stdout.write("\n".join([*lines_of(results, gate.levels), *filter(None, [refusal])]))
        if refusal:
            sys.exit(1)


def _run_here(change: Change) -> GateRun:
    run = publishing.take_gate(publishing.run_gate(change=change, by=system_user()).pk)
    if run is None:
        raise PublishingError([f"A worker runs the gate of {change} already; its page shows the progress."])
    carry_out(run, deciding_seconds=math.inf)
    run.refresh_from_db()
    return run


def _carry_out_taken(taken: str) -> None:
    # Otherwise the garbage collector would scan all Pods again and again while they are read, for a third of the time.
    shorten_pauses()
    number, _, attempt = taken.partition(".")
    run = GateRun.objects.filter(pk=number, attempts=attempt, state=GateRun.State.RUNNING).first()
    if run is not None:
        carry_out(run)
