"""`manage.py plan FILE…`: say what `apply --publish` would change, here and in the cluster, and change nothing."""

import getpass
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.utils import timezone

from policies import publishing, wording
from policies.engine.decision import CompiledRevision
from policies.engine.ruleset import PriorityClass, Revision
from policies.engine.scheduling import default_profile
from policies.management.commands.apply import Command as Apply
from policies.manifests import to_json
from policies.models import Change
from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIError
from scheduler.gate.cluster import list_cluster
from scheduler.gate.forecast import Forecast, forecast
from scheduler.priority_classes.execute import read_classes
from scheduler.priority_classes.plan import SENT, Act, Found, Step, plan

_WOULD_CHANGE = 2
_SILENT = frozenset({Act.NOTHING, Act.SYSTEM, Act.KEEP})


class Report(msgspec.Struct, omit_defaults=True):
    """What would be changed: of the Revision in sentences, of the cluster by class."""

    ok: bool
    # The number that the Revision would have; 0 when none would be made.
    revision: int = 0
    changes: list[str] = []
    cluster: list[dict[str, str]] = []
    # Why it is refused, or why the cluster can't be asked.
    error: str = ""
    forecast: Forecast | None = None


class Command(BaseCommand):
    """Publishes in a transaction that is rolled back: what it says is what publishing does."""

    help = (
        "Say what `apply --publish` of these documents would change, here and in the cluster; nothing is changed. "
        "Exit 2 when anything would, 0 when nothing would, 1 for faults."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        parser.add_argument("files", nargs="+", metavar="FILE", help="a file of documents, - for standard input")
        parser.add_argument("--prune", metavar="SCOPE", action="append", default=[], help="as of apply")
        parser.add_argument("--gate", action="store_true", help="say what it would do to the Pods that are there")
        parser.add_argument("--no-cluster", action="store_true", help="don't ask the API server about PriorityClasses")
        parser.add_argument("--output", choices=["text", "json"], default="text")

    def handle(self, *args: Any, **options: Any) -> None:
        """Ask the cluster, publish, roll back, write."""
        found, fault = ([], "") if options["no_cluster"] else _read_cluster()
        try:
            before, after, withdrawn = _publish_and_roll_back(options["files"], options["prune"])
        except (CommandError, publishing.PublishingError) as error:
            if options["output"] == "json":
                self.stdout.write(to_json(msgspec.to_builtins(Report(ok=False, error=str(error)))))
            message = f"Refused: {error}"
            raise CommandError(message) from error
        asks_cluster = not options["no_cluster"] and not fault
        steps = plan(after.priority_classes, found, withdrawn=withdrawn) if asks_cluster else []
        report = Report(
            ok=True,
            revision=after.number if after.number != before.number else 0,
            changes=wording.revision_changes(before, after),
            cluster=[_told(step) for step in steps if step.act not in _SILENT],
            error=fault,
        )
        if options["gate"] and not options["no_cluster"] and report.revision:
            report.forecast, report.error = _forecast(before, after)
        self.stdout.write(to_json(msgspec.to_builtins(report)) if options["output"] == "json" else _text(report))
        if report.revision or any(step.act in SENT for step in steps):
            sys.exit(_WOULD_CHANGE)


def _read_cluster() -> tuple[list[Found], str]:
    kubeconfig = settings.BERTH.kubeconfig
    try:
        return read_classes(Client.connect(Path(kubeconfig) if kubeconfig else None)), ""
    except APIError as error:
        return [], str(error)


def _forecast(before: Revision, after: Revision) -> tuple[Forecast | None, str]:
    """Return what it would do to the Pods that are there, or why the cluster can't be asked."""
    live = CompiledRevision(before)
    wanted = CompiledRevision(after, former=live)
    kubeconfig = settings.BERTH.kubeconfig
    try:
        client = Client.connect(Path(kubeconfig) if kubeconfig else None)
        snapshot, pods = list_cluster(client, live.reads | wanted.reads | default_profile().reads)
    except APIError as error:
        return None, str(error)
    return forecast(live, wanted, snapshot, pods, timezone.now()), ""


def _publish_and_roll_back(files: Sequence[str], prune: list[str]) -> tuple[Revision, Revision, list[PriorityClass]]:
    """Return the live Revision, the one that would be, and the classes that would be withdrawn then."""
    documents = Apply(stdout=io.StringIO()).read(list(files))
    documents.prune = prune
    with transaction.atomic():
        before = publishing.current_revision()
        # A question needs no approvals: the Change that it names isn't stored.
        publishing.make_live(
            before,
            list(publishing.differing(documents.edits(before), before).values()),
            by=getpass.getuser(),
            reason="plan",
            change=Change(),
        )
        after = publishing.current_revision()
        withdrawn = publishing.withdrawn_priority_classes()
        transaction.set_rollback(True)
    return before, after, withdrawn


def _told(step: Step) -> dict[str, str]:
    return {"name": step.name, "act": str(step.act)} | ({"message": step.message} if step.message else {})


def _text(report: Report) -> str:
    if report.revision:
        lines = [f"Revision {report.revision} would be made:", *(f"  {line}" for line in report.changes)]
    else:
        lines = ["Nothing would be published: all of it is live."]
    if report.cluster:
        lines += ["In the cluster:", *(f"  {_line(told)}" for told in report.cluster)]
    if report.forecast:
        lines += _forecast_lines(report.forecast)
    if report.error:
        lines.append(f"The cluster can't be asked about PriorityClasses: {report.error}")
    return "\n".join(lines)


def _forecast_lines(found: Forecast) -> list[str]:
    lines = [f"On {found.nodes} nodes, of {found.pods} Pods:"]
    none = found.left_with_none
    lines += [f"  ! {each.pod} waits, and would be left with no node: {each.nodes} would do now" for each in none]
    lines += [
        f"  {each.pod} waits: {each.nodes} nodes would do now, {each.gained} more and {each.lost} less then"
        for each in found.waiting
        if not each.is_left_with_none
    ]
    lines += [
        f"  ! {each.pod} runs on {each.node}, which {each.rule} would refuse: {each.reason}" for each in found.refused
    ]
    lines += [
        f"  {f'rule set {each.rule_set}' if each.rule_set else 'no rule set'}: {each.gained} Pods more, {each.lost} less"
        for each in found.taken
    ]
    return lines if len(lines) > 1 else [*lines, "  nothing would change for any of them"]


def _line(told: dict[str, str]) -> str:
    word = told["act"] if told["act"] in SENT else f"left, {told['act']}"
    return f"PriorityClass {told['name']}: {word}" + (f". {told['message']}" if "message" in told else "")
