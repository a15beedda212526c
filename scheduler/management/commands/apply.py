"""`manage.py apply [--publish] FILE…`: bring rule documents from files into the running system, by way of a Change."""

import getpass
import sys
from collections.abc import Collection
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from policies import checking, manifests, publishing, wording
from policies.engine import ruleset as engine
from policies.engine.errors import Fault, RuleSetError
from policies.models import Change, Revision, RuleSet
from policies.publishing.gates import FOUND
from scheduler.gate.runs import Examined, connect, examine
from scheduler.gate.words import lines_of


class Command(BaseCommand):
    """Opens a Change with documents of any kind: all of them, or none when one is faulty."""

    help = (
        "Open a Change with RuleSet, Assignment, PriorityClass, Pause and Exemption documents (YAML or JSON); with --publish, make it live. "
        "Nothing else goes live with it."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        parser.add_argument("files", nargs="+", metavar="FILE", help="a file of documents, - for standard input")
        parser.add_argument("--publish", action="store_true", help="publish it; refused where review is required")
        parser.add_argument("--reason", default="", help="why, kept with the Change and its Revision")
        parser.add_argument(
            "--prune",
            metavar="SCOPE",
            action="append",
            default=[],
            help="remove what is live, isn't in the files, and has such a name: team-a-*, or Assignment/team-a-* of one kind",
        )
        parser.add_argument("--title", default="", help="the Change's title; the files' names where none is given")
        parser.add_argument(
            "--no-cluster", action="store_true", help="publish without a look at the Pods that are there"
        )
        parser.add_argument("--output", choices=["text", "json"], default="text")

    def handle(self, *args: Any, **options: Any) -> None:
        """Read everything, open the Change, publish it, say what was done."""
        by = getpass.getuser()
        title = options["title"] or f"apply {' '.join(Path(file).name for file in options['files'])}"
        try:
            documents = self.read(options["files"])
            documents.prune = options["prune"]
            examined = _examine(documents, asks_cluster=not options["no_cluster"]) if options["publish"] else None
            applied = apply(
                documents, by=by, title=title, reason=options["reason"], publish=options["publish"], examined=examined
            )
        except (CommandError, publishing.PublishingError) as error:
            if options["output"] == "json":
                self.stdout.write(
                    manifests.to_json({"ok": False, "change": None, "revision": None, "error": str(error)})
                )
            if isinstance(error, CommandError):
                raise
            raise CommandError("\n".join(["Nothing was applied:", *error.messages])) from error
        self.stdout.write(manifests.to_json(applied.summary()) if options["output"] == "json" else _text(applied))

    def read(self, files: list[str]) -> "Documents":
        """Read the documents of files.

        Raises:
            CommandError: with every fault in them.
        """
        faults: list[str] = []
        documents = Documents()
        for file in files:
            for located in _documents(file, faults):
                try:
                    value = checking.read_document(located.document)
                except RuleSetError as error:
                    faults += [located.describe(fault) for fault in error.faults]
                    continue
                kept = documents.of_kind(value)
                if value.name in kept:
                    faults.append(located.describe(Fault("metadata.name", f"{value.name} is in these files twice")))
                kept[value.name] = value
        known = set(RuleSet.objects.values_list("name", flat=True)) | set(documents.rule_sets)
        faults += [
            f"Assignment {each.name}: no rule set is called {each.rule_set}, here or in these files"
            for each in documents.assignments.values()
            if each.rule_set not in known
        ]
        if faults:
            raise CommandError("\n".join([*faults, f"Nothing was applied: {len(faults)} faults."]))
        return documents


class Applied(msgspec.Struct, kw_only=True):
    """What came of documents: the Change, what it changes in words, and the Revision where it was published."""

    change: Change | None = None
    changes: list[str] = []
    # What stays as it is.
    unchanged: list[str] = []
    # Of others, and about the same things.
    beside: list[str] = []
    revision: Revision | None = None
    # What the gate found before it was published.
    gate: list[publishing.Result] = []

    def summary(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "ok": True,
            "change": self.change.pk if self.change else None,
            "revision": self.revision.number if self.revision else None,
            "changes": self.changes,
            "beside": self.beside,
            "gate": msgspec.to_builtins(self.gate),
        }


def _examine(documents: "Documents", *, asks_cluster: bool) -> tuple[engine.Revision, Examined] | None:
    """Run the gate on what documents change, outside any transaction; None where they change nothing or need approvals."""
    live = publishing.current_revision()
    edits = list(publishing.differing(documents.edits(live), live).values())
    if not edits or settings.BERTH.review_required:
        return None
    for edit in edits:
        if isinstance(edit.value, engine.RuleSet):
            publishing.remember_checked(edit.value)
    levels = publishing.levels_of(publishing.rule_sets_of(edits, live))
    after = publishing.with_edits(live, edits)
    return live, examine(live, after, edits, levels, client=connect if asks_cluster else None)


@transaction.atomic
def apply(
    documents: "Documents",
    *,
    by: str,
    title: str,
    reason: str,
    publish: bool,
    examined: tuple[engine.Revision, Examined] | None = None,
) -> Applied:
    """Open a Change with what documents change; publish it where that is asked for, and what the gate found allows it.

    Raises:
        PublishingError: nothing is left of it then.
    """
    live = publishing.current_revision()
    values = publishing.values_of(live)
    edits = documents.edits(live)
    wanted = publishing.differing(edits, live)
    applied = Applied(
        changes=[line for edit in wanted.values() for line in wording.part_changes(values.get(edit.key), edit.value)],
        unchanged=[_named(edit.key) for edit in edits if edit.key not in wanted],
        beside=_beside(wanted),
    )
    if not wanted:
        return applied
    applied.change = publishing.open_change(title=title, edits=edits, by=by, reason=reason)
    if examined is not None:
        before, found = examined
        applied.gate = found.results
        publishing.record_gate(applied.change, by, found.results, revision=before.number, snapshot_at=found.snapshot_at)
    if publish:
        applied.revision = publishing.publish_change(
            change=applied.change, by=by, reason=reason or title, expected_digest=applied.change.digest
        )
    return applied


def _beside(wanted: Collection[publishing.Key]) -> list[str]:
    """Return what others are about to do to the same things: it stays, and has to look at this before it goes live."""
    return [
        f"Change {number}, which is open, edits {', '.join(map(_named, keys))} as well"
        for number, keys in sorted(publishing.open_changes_of(wanted).items())
    ]


def _named(key: publishing.Key) -> str:
    kind, name = key
    return f"{'rule set' if kind == 'RuleSet' else kind} {name}"


def _text(applied: Applied) -> str:
    lines = [f"{what} is unchanged" for what in applied.unchanged]
    if applied.change is None:
        number = publishing.current_revision().number
        return "\n".join([*lines, f"Nothing to publish: Revision {number} holds all of it"])
    lines.append(f"{applied.change} was opened: {applied.change.title}")
    if applied.revision is None:
        lines += [f"  {line}" for line in applied.changes]
        beside = [f"! {line}" for line in applied.beside]
        return "\n".join([*lines, *beside, "Nothing is live by it yet: review and publish it in the admin."])
    lines += [f"! {line}" for line in applied.beside]
    lines.append(f"Revision {applied.revision.number} was made:")
    lines += [f"  {line}" for line in applied.revision.summary.splitlines()]
    found = [each for each in applied.gate if each.verdict == FOUND]
    return "\n".join([*lines, *(["The gate found:"] if found else []), *lines_of(found, settings.BERTH.gate_checks)])


class Documents(msgspec.Struct):
    """What files hold, by name."""

    rule_sets: dict[str, engine.RuleSet] = {}
    assignments: dict[str, engine.Assignment] = {}
    priority_classes: dict[str, engine.PriorityClass] = {}
    pauses: dict[str, engine.Pause] = {}
    exemptions: dict[str, engine.Exemption] = {}
    # Scopes of what is to be removed where the files don't hold it.
    prune: list[str] = []

    def edits(self, live: engine.Revision) -> list[publishing.Edit]:
        """Return what makes all of them live, and removes what is live in the scopes and not among them."""
        values: list[publishing.Value] = [*self.rule_sets.values(), *self.assignments.values()]
        values += [*self.priority_classes.values(), *self.pauses.values(), *self.exemptions.values()]
        edits = [publishing.Edit.of(value) for value in values]
        kept = {edit.key for edit in edits}
        gone = [key for key in publishing.values_of(live) if key not in kept and self._is_in_scope(*key)]
        return edits + [publishing.Edit(*key, None) for key in gone]

    def _is_in_scope(self, kind: str, name: str) -> bool:
        return any(fnmatchcase(f"{kind}/{name}" if "/" in scope else name, scope) for scope in self.prune)

    def of_kind(self, value: engine.Document) -> dict[str, Any]:
        """Return the documents of the same kind."""
        match value:
            case engine.RuleSet():
                return self.rule_sets
            case engine.Assignment():
                return self.assignments
            case engine.PriorityClass():
                return self.priority_classes
            case engine.Pause():
                return self.pauses
            case engine.Exemption():
                return self.exemptions


def _documents(file: str, faults: list[str]) -> list[manifests.Located]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        found = [item for document in checking.read_documents(text, file) for item in document.items()]
    except (OSError, UnicodeDecodeError) as error:
        faults.append(f"{file}: not readable: {error}")
        return []
    except RuleSetError as error:
        faults += [str(fault) for fault in error.faults]
        return []
    if not found:
        faults.append(f"{file}: holds no document")
    return found
