"""`manage.py scenario FILE --pods N`: where N Pods would land, by the live rules and by those of a Change."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import msgspec
from django.core.management.base import CommandError

from policies.management.command import BerthCommand
from policies.management.files import documents_of, only_document
from policies.manifests import to_json
from policies.wording import percentage
from scheduler.cluster.client import connect
from scheduler.scenario import (
    NOT_MODELLED,
    Scenario,
    ScenarioError,
    Template,
    live_snapshot,
    recorded_snapshot,
    rules_of,
    template_of,
    template_of_deployment,
    work_out,
)


class Command(BerthCommand):
    """Places Pods one after another as Berth's own scheduler would, and writes where they land. Changes nothing."""

    help = "Print where N Pods of a template would be placed, how many fit, and what prevents the next one; changes nothing."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        chosen = parser.add_mutually_exclusive_group(required=True)
        chosen.add_argument("file", nargs="?", metavar="FILE", help="the manifest of a Pod, a Deployment or the like")
        chosen.add_argument(
            "--deployment", metavar="NAMESPACE/NAME", help="a Deployment in the cluster, scaled to N Pods"
        )
        parser.add_argument("--pods", type=int, required=True, metavar="N", help="the number of Pods")
        parser.add_argument(
            "--change", type=int, metavar="N", help="also evaluate the rules that this Change would make live"
        )
        parser.add_argument("--decision", metavar="ID", help="use the Snapshot of this Decision, not the live cluster")
        parser.add_argument("--output", choices=["text", "json"], default="text")

    def handle(self, *args: Any, **options: Any) -> None:
        """Find template, rules and Snapshot, place the Pods, write."""
        del args
        try:
            found = _found(options)
        except ScenarioError as error:
            raise self.refused(str(error), options["output"]) from error
        if options["output"] == "json":
            self.stdout.write(to_json({"ok": True, **msgspec.to_builtins(found), "says": found.sentences}))
        else:
            self.stdout.write("\n".join(_lines(found)))


def _found(options: dict[str, Any]) -> Scenario:
    template = (
        template_of_deployment(connect(), options["deployment"]) if options["deployment"] else _read(options["file"])
    )
    rules = rules_of(options["change"])
    if options["decision"]:
        return work_out(template, options["pods"], rules, *recorded_snapshot(options["decision"]))
    return work_out(template, options["pods"], rules, live_snapshot(connect(), rules.reads))


def _read(file: str) -> Template:
    path = Path(file)
    try:
        return template_of(only_document(documents_of(path), path).document)
    except CommandError as error:
        raise ScenarioError(str(error)) from error


def _lines(found: Scenario) -> list[str]:
    lines = [f"{says}." for says in found.sentences]
    sides = [found.live, *([found.drafted] if found.drafted else [])]
    for what in ("cpu", "memory"):
        for side, placed in zip(("live", f"Change {found.change}"), sides, strict=False):
            before, after = getattr(placed.before, what), getattr(placed.after, what)
            lines.append(
                f"{what} requested, {side}: {percentage(before.min)} to {percentage(before.max)} before, "
                f"{percentage(after.min)} to {percentage(after.max)} after; "
                f"standard deviation {percentage(before.deviation)}, then {percentage(after.deviation)}"
            )
    width = max((len(name) for side in sides for name in side.nodes), default=4)
    lines.append(f"{'node':<{width}}  {'live':>6}{f'  Change {found.change}' if found.drafted else ''}")
    for name in sorted({name for side in sides for name in side.nodes}):
        numbers = "  ".join(f"{side.nodes.get(name, 0):>6}" for side in sides)
        lines.append(f"{name:<{width}}  {numbers}")
    return [*lines, f"{NOT_MODELLED}."]
