"""`manage.py replay ID`: decide a recorded Decision again, and report whether the answer is the same."""

from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError

from policies.management.command import BerthCommand
from policies.manifests import to_json
from scheduler.decisions.rebuilding import ReplayError
from scheduler.decisions.replay import replay
from scheduler.models import Decision


class Command(BerthCommand):
    """Replays a Decision."""

    help = "Evaluate a recorded Decision again with its Revision and Snapshot, and compare the answers; exit 1 if they differ or the Decision can't be replayed."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("id", metavar="ID", help="the Decision's id, as the admin and the log show it")
        parser.add_argument("--output", choices=["text", "json"], default="text")

    def handle(self, *args: Any, **options: Any) -> None:
        """Find the Decision, replay, write."""
        del args
        decision = _find(options["id"])
        differences: list[str] = []
        if decision is None:
            fault = f"no Decision has the id {options['id']}"
        else:
            fault, differences = _replay(decision)
        if options["output"] == "json":
            report = {"ok": not fault, "id": options["id"], "differences": differences}
            self.stdout.write(to_json(report | ({"error": fault} if fault else {})))
        elif decision is not None and not fault:
            pod = f"{decision.pod_namespace}/{decision.pod_name}"
            self.stdout.write(f"{decision.verb} of {pod}, Revision {decision.revision}: the same answer")
        if fault:
            raise CommandError(fault, returncode=1)


def _find(name: str) -> Decision | None:
    try:
        return Decision.objects.filter(pk=name).first()
    except ValidationError:
        return None


def _replay(decision: Decision) -> tuple[str, list[str]]:
    try:
        found = replay(decision)
    except ReplayError as error:
        return f"not replayable: {error}", []
    return ("" if found.ok else f"the answer differs: {'; '.join(found.differences)}"), found.differences
