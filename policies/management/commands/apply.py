"""`manage.py apply [--publish] FILE…`: bring rule documents from files into the running system."""

import getpass
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from policies import checking, manifests, publishing
from policies.engine import ruleset as engine
from policies.engine.errors import Fault, RuleSetError
from policies.models import Assignment, PriorityClass, RuleSet, RuleSetVersion


class Command(BaseCommand):
    """Applies RuleSet, Assignment and PriorityClass documents: all of them, or none when one is faulty."""

    help = "Bring RuleSet, Assignment and PriorityClass documents (YAML or JSON) into Berth; with --publish, make them live."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        parser.add_argument("files", nargs="+", metavar="FILE", help="a file of documents, - for standard input")
        parser.add_argument(
            "--publish", action="store_true", help="publish what changed; refused where review is required"
        )
        parser.add_argument("--reason", default="", help="why, kept with the Revision")
        parser.add_argument(
            "--replace-draft", action="store_true", help="replace drafts and unpublished edits of others; says which"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Read everything, then apply, then publish."""
        if options["publish"] and settings.BERTH.review_required:
            message = (
                "--publish is refused: review is required here (BERTH_REVIEW_REQUIRED). "
                "Apply without --publish and have an Approver publish the drafts in the admin."
            )
            raise CommandError(message)
        documents = self.read(options["files"])
        by = getpass.getuser()
        reason = options["reason"] or f"apply {' '.join(options['files'])}"
        try:
            with transaction.atomic():
                drafts = self.save(documents, by=by, replace=options["replace_draft"])
                if options["publish"]:
                    self.publish(drafts, documents, by=by, reason=reason)
        except publishing.PublishingError as error:
            raise CommandError("\n".join(["Nothing was applied:", *error.messages])) from error

    def save(self, documents: "Documents", *, by: str, replace: bool = False) -> list[RuleSetVersion]:
        """Bring documents into the rows, and give the drafts that aren't published.

        Raises:
            PublishingError: drafts or unpublished edits of others are in the way, and aren't to be replaced.
        """
        self._by, self._replace = by, replace
        self._in_the_way: list[str] = []
        drafts = self._apply_rule_sets(documents.rule_sets)
        self._apply_assignments(documents.assignments)
        self._apply_priority_classes(documents.priority_classes)
        if self._in_the_way:
            raise publishing.PublishingError([*self._in_the_way, _WAY_OUT])
        return drafts

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

    def _apply_rule_sets(self, documents: Mapping[str, engine.RuleSet]) -> list[RuleSetVersion]:
        """Put rule sets into their drafts; give all drafts that hold what is wanted."""
        known = RuleSet.objects.in_bulk(list(documents), field_name="name")
        versions = publishing.lock_versions(known.values())
        kept: dict[str, RuleSetVersion] = {}
        unchanged: dict[str, str] = {}
        for name, wanted in documents.items():
            draft, published = versions.get(name, (None, None))
            theirs = f"draft version {draft.number} of {_who_and_when(draft.author, draft.saved_at)}" if draft else ""
            if published is not None and publishing.holds(published, wanted):
                stays = f"; {theirs} stays" if draft else ""
                unchanged[name] = f"version {published.number} is published{stays}"
            elif draft is not None and publishing.holds(draft, wanted):
                kept[name], unchanged[name] = draft, f"draft version {draft.number}"
            elif draft is not None and not self._may_replace(f"rule set {name}", draft.author, theirs):
                unchanged[name] = f"{theirs} stays"
        changed = [wanted for name, wanted in documents.items() if name not in unchanged]
        saved = publishing.save_drafts(rule_sets=changed, by=self._by)
        for name in documents:
            if name in unchanged:
                self._say(f"rule set {name} is unchanged: {unchanged[name]}")
            else:
                word = "changed" if name in known else "created"
                self._say(f"rule set {name} {word}: draft version {saved[name].number}")
        return [found[name] for found in (kept, saved) for name in documents if name in found]

    def _apply_assignments(self, documents: Mapping[str, engine.Assignment]) -> None:
        live = {each.name: each for each in publishing.current_revision().assignments}
        locked = Assignment.objects.select_for_update(of=("self",)).select_related("rule_set")
        rows = locked.in_bulk(list(documents), field_name="name")
        wanted = {}
        for name, each in documents.items():
            content = publishing.assignment_of_row(rows[name]) if name in rows else None
            if self._may_save("Assignment", each, rows.get(name), content, live.get(name)):
                wanted[name] = each
        changed = publishing.save_assignments(assignments=wanted, by=self._by)
        for name in wanted:
            self._say(f"Assignment {name} is {'saved' if name in changed else 'unchanged'}")

    def _apply_priority_classes(self, documents: Mapping[str, engine.PriorityClass]) -> None:
        live = {
            name: msgspec.structs.replace(each, version=0) for name, each in publishing.live_priority_classes().items()
        }
        # Whichever isn't the global default goes first: so the default can move from one class to another.
        for wanted in sorted(documents.values(), key=lambda each: (each.global_default, each.name)):
            found = PriorityClass.objects.select_for_update().filter(name=wanted.name).first()
            content = publishing.priority_class_of_row(found) if found else None
            if self._may_save("PriorityClass", wanted, found, content, live.get(wanted.name)):
                _row, changed = publishing.save_priority_class(priority_class=wanted, by=self._by)
                self._say(f"PriorityClass {wanted.name} is {'saved' if changed else 'unchanged'}")

    def _may_save(
        self,
        kind: str,
        wanted: engine.Assignment | engine.PriorityClass,
        row: Assignment | PriorityClass | None,
        content: engine.Assignment | engine.PriorityClass | None,
        live: engine.Assignment | engine.PriorityClass | None,
    ) -> bool:
        """Return whether a row may become what is wanted: nobody else has an unpublished edit of it."""
        if content == wanted or (content == live and bool(row) == bool(live)):
            return True
        edit = f"the edit of {_who_and_when(row.author, row.updated_at)}" if row else ""
        if wanted == live:
            self._say(f"{kind} {wanted.name} is unchanged: it is live; {edit or 'its removal'} stays")
            return False
        removed = "it was removed here, and that" if row is None else ""
        return self._may_replace(f"{kind} {wanted.name}", row.author if row else "", edit or removed)

    def _may_replace(self, what: str, author: str, edit: str) -> bool:
        if author == self._by:
            return True
        if self._replace:
            self._say(f"{what} replaces {edit}")
            return True
        self._in_the_way.append(f"{what}: {edit} isn't published")
        return False

    def publish(self, drafts: list[RuleSetVersion], documents: "Documents", *, by: str, reason: str) -> None:
        """Publish drafts, and the other kinds that documents hold, in one Revision."""
        revision = publishing.publish_together(
            versions=drafts,
            assignments=list(documents.assignments.values()),
            priority_classes=list(documents.priority_classes.values()),
            by=by,
            reason=reason,
        )
        if revision is None:
            self._say(f"Nothing to publish: Revision {publishing.current_revision().number} holds all of it")
            return
        self._say(f"Revision {revision.number} was made:")
        for line in revision.summary.splitlines():
            self._say(f"  {line}")

    def _say(self, line: str) -> None:
        self.stdout.write(line)


_WAY_OUT = "Have it published first, or replace it by what is in these files: --replace-draft."


def _who_and_when(author: str, at: datetime) -> str:
    return f"{author or 'somebody'} (saved at {at:%Y-%m-%d %H:%M:%S} UTC)"


class Documents(msgspec.Struct):
    """What files hold, by name."""

    rule_sets: dict[str, engine.RuleSet] = {}
    assignments: dict[str, engine.Assignment] = {}
    priority_classes: dict[str, engine.PriorityClass] = {}

    def of_kind(self, value: engine.RuleSet | engine.Assignment | engine.PriorityClass) -> dict[str, Any]:
        """Return the documents of the same kind."""
        match value:
            case engine.RuleSet():
                return self.rule_sets
            case engine.Assignment():
                return self.assignments
            case engine.PriorityClass():
                return self.priority_classes


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
