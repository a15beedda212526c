"""`manage.py backtest CHANGE_OR_RULESET`: decide recorded Decisions again by a Change's rules, and report the differences."""

import csv
import sys
from argparse import SUPPRESS
from time import monotonic
from typing import Any

import msgspec
from django.core.management.base import CommandParser

from policies.management.command import BerthCommand, moment
from policies.manifests import to_json
from policies.origin import system_user
from scheduler.backtest.results import Result
from scheduler.backtest.runs import (
    LONGEST_SECONDS,
    SILENT,
    BacktestError,
    Span,
    Worker,
    cancel_backtest,
    lines_of,
    progress_of,
    result_of,
    start_backtest,
    target_of,
)
from scheduler.backtest.table import HEADINGS, cells_of
from scheduler.models import Backtest


class Command(BerthCommand):
    """Runs a backtest in this process, beside the workers that take part in it."""

    help = "Evaluate recorded Decisions again by the rules that a Change would make live, and print which Pods would get another answer."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        chosen = parser.add_mutually_exclusive_group(required=True)
        chosen.add_argument(
            "named",
            nargs="?",
            metavar="CHANGE_OR_RULESET",
            help="a Change's number, or a rule set that an open Change edits",
        )
        chosen.add_argument("--resume", type=int, metavar="N", help="continue backtest N")
        chosen.add_argument("--cancel", type=int, metavar="N", help="cancel backtest N")
        # The option with which a worker starts a process that takes part in any requested backtest.
        chosen.add_argument("--take-part", action="store_true", help=SUPPRESS)
        parser.add_argument("--from", dest="since", type=moment, help="Decisions from this time on (UTC)")
        parser.add_argument("--until", type=moment, help="Decisions before this time (UTC)")
        parser.add_argument(
            "--namespace", action="append", default=[], help="Decisions about Pods in this namespace; may be repeated"
        )
        parser.add_argument(
            "--rule-set", action="append", default=[], help="Decisions by this rule set; may be repeated"
        )
        parser.add_argument("--queue", action="store_true", help="leave the backtest to the workers, and don't wait")
        parser.add_argument("--output", choices=["text", "json", "csv"], default="text")

    def handle(self, *args: Any, **options: Any) -> None:
        """Request a backtest, take part, report."""
        del args
        if options["take_part"]:
            Worker().work(until=monotonic() + LONGEST_SECONDS)
            return
        try:
            self._run(options)
        except BacktestError as error:
            raise self.refused(str(error), options["output"]) from error

    def _run(self, options: dict[str, Any]) -> None:
        if options["cancel"] is not None:
            row = _backtest(options["cancel"])
            done = cancel_backtest(backtest=row, by=system_user())
            self._say(row, f"{row} is cancelled." if done else f"{row} had ended.", options["output"])
            return
        row = _backtest(options["resume"]) if options["resume"] is not None else _start(options)
        if options["queue"]:
            self._say(row, f"Workers run {row}; its page shows the progress.", options["output"])
            return
        Worker(row.pk, self._say_progress).work()
        row.refresh_from_db()
        result = result_of(row)
        if result is None:
            message = row.fault or (
                f"{row} is {row.state}: other processes work on the rest. `--resume {row.pk}` shows the result, and takes over "
                f"the work of a process that was killed {SILENT.seconds} s ago or earlier."
            )
            raise BacktestError(message)
        self._write(row, result, options["output"])

    def _say(self, row: Backtest, said: str, output: str) -> None:
        row.refresh_from_db()
        found = {"ok": True, "backtest": row.pk, "state": row.state, "says": [said]}
        self.stdout.write(to_json(found) if output == "json" else said)

    def _say_progress(self, row: Backtest) -> None:
        row.refresh_from_db()
        self.stderr.write(f"{row}: {progress_of(row):,} of {row.total:,} Decisions")

    def _write(self, row: Backtest, result: Result, output: str) -> None:
        match output:
            case "json":
                self.stdout.write(to_json({"ok": True, **msgspec.to_builtins(result), "says": result.sentences}))
            case "csv":
                writer = csv.writer(self.stdout)
                writer.writerow(HEADINGS)
                writer.writerows(map(cells_of, lines_of(row)))
            case _:
                self.stdout.write("\n".join(f"{says}." for says in result.sentences))
                self.stdout.write("\n".join(f"    {line.sentence}" for line in result.pods))
                if result.more:
                    self.stdout.write(f"    and {result.more:,} more (`--output csv` has them all)")


def _backtest(number: int) -> Backtest:
    row = Backtest.objects.filter(pk=number).first()
    if row is None:
        message = f"There is no backtest {number}."
        raise BacktestError(message)
    return row


def _start(options: dict[str, Any]) -> Backtest:
    change, rule_set = target_of(options["named"])
    span = Span(
        since=options["since"],
        until=options["until"],
        namespaces=options["namespace"],
        rule_sets=options["rule_set"],
    )
    row = start_backtest(change=change, rule_set=rule_set, by=system_user(), span=span)
    sys.stderr.write(f"{row}\n")
    return row
