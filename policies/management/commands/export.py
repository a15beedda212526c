"""`manage.py export [--kind KIND] [NAME…]`: write what is in the system as documents that `apply` reads."""

import getpass
import hashlib
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from policies import compiler, manifests, publishing
from policies.engine.validation import document_of
from policies.models import Assignment, Change, PriorityClass, RuleSetVersion


class Command(BaseCommand):
    """Writes YAML, the same bytes for the same state: rule sets by name, Assignments by order, PriorityClasses by value, others by name."""

    help = "Write published rule sets (or their drafts, with --draft), Assignments, PriorityClasses, Pauses and Exemptions as YAML to standard output."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        parser.add_argument("names", nargs="*", metavar="NAME", help="only these; without any, everything")
        parser.add_argument(
            "--kind", choices=["RuleSet", "Assignment", "PriorityClass", "Pause", "Exemption"], help="only this kind"
        )
        parser.add_argument(
            "--change", metavar="N", type=int, help="what this Change makes of things, not what is live"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the documents, divided by ---."""
        documents = _live() if options["change"] is None else _of_change(options["change"])
        documents = [each for each in documents if options["kind"] in {None, each["kind"]}]
        if wanted := set(options["names"]):
            documents = [document for document in documents if document["metadata"]["name"] in wanted]
            found = {document["metadata"]["name"] for document in documents}
            if missing := sorted(wanted - found):
                message = f"nothing to export is called {', '.join(missing)}"
                raise CommandError(message)
        text = "---\n".join(manifests.to_yaml(document) for document in documents)
        publishing.record_event(
            publishing.AuditKind.EXPORT,
            by=getpass.getuser(),
            thing=("Documents", ""),
            change=options["change"],
            digests=("", hashlib.sha256(text.encode()).hexdigest()),
            more={"documents": len(documents)},
        )
        self.stdout.write(text, ending="")


def _live() -> list[dict[str, Any]]:
    versions = RuleSetVersion.objects.filter(state=RuleSetVersion.State.PUBLISHED).order_by("rule_set__name")
    rows = versions.select_related("rule_set").prefetch_related("rules")
    documents = [compiler.rule_set_document(version) for version in rows]
    documents += [compiler.assignment_document(row) for row in Assignment.objects.select_related("rule_set")]
    documents += [compiler.priority_class_document(row) for row in PriorityClass.objects.all()]
    live = publishing.current_revision()
    documents += map(document_of, live.pauses)
    documents += map(document_of, live.exemptions)
    return documents


def _of_change(number: int) -> list[dict[str, Any]]:
    change = Change.objects.filter(pk=number).first()
    if change is None:
        message = f"There is no Change {number}."
        raise CommandError(message)
    return [document_of(edit.value) for edit in publishing.edits_of(change) if edit.value is not None]
