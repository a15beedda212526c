"""`manage.py plan FILE…`: say what `apply --publish` would change, here and in the cluster, and change nothing."""

import getpass
import io
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from policies import publishing, wording
from policies.engine.ruleset import PriorityClass, Revision
from policies.manifests import to_json
from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIError
from scheduler.gate.forecast import Forecast
from scheduler.gate.runs import connect, examine
from scheduler.gate.words import lines_of
from scheduler.management.commands.apply import Command as Apply
from scheduler.priority_classes.execute import read_classes
from scheduler.priority_classes.plan import SENT, Act, Found, Step, plan
from scheduler.priority_classes.users import read_users

_WOULD_CHANGE = 2
_SILENT = frozenset({Act.NOTHING, Act.SYSTEM, Act.KEEP})


class Report(msgspec.Struct, omit_defaults=True):
    """What would be changed: of the Revision in sentences, of the cluster by class."""

    ok: bool
    # The number that the Revision would have; 0 when none would be made.
    revision: int = 0
    changes: list[str] = []
    cluster: list[dict[str, str]] = []
    # Who uses the classes that would be made anew.
    users: list[dict[str, Any]] = []
    # Why it is refused, or why the cluster can't be asked.
    error: str = ""
    # What the checks of the gate found, and what they found of Pods; why that stands against publishing.
    gate: list[publishing.Result] = []
    forecast: Forecast | None = None
    blocked: str = ""
    # What comes of each check.
    levels: dict[str, str] = {}


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
        parser.add_argument("--gate", action="store_true", help="run the gate: documents, tests, Pods")
        parser.add_argument("--no-cluster", action="store_true", help="don't ask the API server about PriorityClasses")
        parser.add_argument("--output", choices=["text", "json"], default="text")

    def handle(self, *args: Any, **options: Any) -> None:
        """Ask the cluster, publish, roll back, write."""
        found, fault = ([], "") if options["no_cluster"] else _read_cluster()
        try:
            before, after, withdrawn, edits = _publish_and_roll_back(options["files"], options["prune"])
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
        replaced = {step.name for step in steps if step.act is Act.REPLACE}
        if replaced:
            report.users, report.error = _users_of(replaced)
        if options["gate"] and report.revision:
            _run_gate(report, before, after, edits, asks_cluster=not options["no_cluster"])
        self.stdout.write(to_json(msgspec.to_builtins(report)) if options["output"] == "json" else _text(report))
        if report.blocked:
            raise CommandError(report.blocked)
        if report.revision or any(step.act in SENT for step in steps):
            sys.exit(_WOULD_CHANGE)


def _read_cluster() -> tuple[list[Found], str]:
    kubeconfig = settings.BERTH.kubeconfig
    try:
        return read_classes(Client.connect(Path(kubeconfig) if kubeconfig else None)), ""
    except APIError as error:
        return [], str(error)


def _run_gate(
    report: Report, before: Revision, after: Revision, edits: Sequence[publishing.Edit], *, asks_cluster: bool
) -> None:
    """Write into a report what the gate finds."""
    report.levels = publishing.levels_of(publishing.rule_sets_of(edits, before))
    examined = examine(before, after, edits, report.levels, client=connect if asks_cluster else None)
    report.gate, report.forecast = examined.results, examined.forecast
    report.blocked = publishing.blocked(examined.results, report.levels)
    report.ok = not report.blocked


def _users_of(names: Collection[str]) -> tuple[list[dict[str, Any]], str]:
    """Return the workloads whose Pods keep the number that they have, and why they aren't all of them."""
    try:
        counts, fault = read_users(connect())
    except APIError as error:
        return [], str(error)
    found = {key: count for key, count in sorted(counts.items()) if key.priority_class in names}
    return [{**msgspec.structs.asdict(key), "pods": count.pods} for key, count in found.items()], fault


def _publish_and_roll_back(
    files: Sequence[str], prune: list[str]
) -> tuple[Revision, Revision, list[PriorityClass], list[publishing.Edit]]:
    """Return the live Revision, the one that would be, the classes that would be withdrawn then, and what makes the difference."""
    documents = Apply(stdout=io.StringIO()).read(list(files))
    documents.prune = prune
    with transaction.atomic():
        before = publishing.current_revision()
        edits = list(publishing.differing(documents.edits(before), before).values())
        # A question needs no approvals: the Change that it names isn't stored.
        publishing.make_live(
            before,
            edits,
            by=getpass.getuser(),
            reason="plan",
            authors={},
        )
        after = publishing.current_revision()
        withdrawn = publishing.withdrawn_priority_classes()
        transaction.set_rollback(True)
    return before, after, withdrawn, edits


def _told(step: Step) -> dict[str, str]:
    return {"name": step.name, "act": str(step.act)} | ({"message": step.message} if step.message else {})


def _text(report: Report) -> str:
    if report.revision:
        lines = [f"Revision {report.revision} would be made:", *(f"  {line}" for line in report.changes)]
    else:
        lines = ["Nothing would be published: all of it is live."]
    if report.cluster:
        lines += ["In the cluster:", *(f"  {_line(told)}" for told in report.cluster)]
    if report.users:
        lines += ["Pods that keep the priority that they have:", *(f"  {_user(each)}" for each in report.users)]
    if report.forecast:
        lines.append(f"On {report.forecast.nodes} nodes, of {report.forecast.pods} Pods:")
    elif report.gate:
        lines.append("The gate:")
    lines += [f"  {line}" for line in lines_of(report.gate, report.levels)]
    if report.error:
        lines.append(f"The cluster can't be asked about PriorityClasses: {report.error}")
    return "\n".join(lines)


def _user(user: Mapping[str, Any]) -> str:
    pods = "1 Pod" if user["pods"] == 1 else f"{user['pods']} Pods"
    return f"{user['priority_class']}: {pods} of {user['kind']} {user['namespace']}/{user['name']} with {user['priority']:,}"


def _line(told: dict[str, str]) -> str:
    word = told["act"] if told["act"] in SENT else f"left, {told['act']}"
    return f"PriorityClass {told['name']}: {word}" + (f". {told['message']}" if "message" in told else "")
