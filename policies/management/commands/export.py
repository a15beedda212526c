"""`manage.py export [--kind KIND] [NAME…]`: write what is in the system as documents that `apply` reads."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from policies import compiler, manifests, publishing
from policies.engine.validation import document_of
from policies.models import Assignment, PriorityClass, RuleSet, RuleSetVersion


class Command(BaseCommand):
    """Writes YAML, the same bytes for the same state: rule sets by name, Assignments by order, PriorityClasses by value, others by name."""

    help = "Write published rule sets (or their drafts, with --draft), Assignments, PriorityClasses, Pauses and Exemptions as YAML to standard output."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        parser.add_argument("names", nargs="*", metavar="NAME", help="only these; without any, everything")
        parser.add_argument(
            "--kind", choices=["RuleSet", "Assignment", "PriorityClass", "Pause", "Exemption"], help="only this kind"
        )
        parser.add_argument("--draft", action="store_true", help="the draft of a rule set where there is one")

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the documents, divided by ---."""
        documents: list[dict[str, Any]] = []
        if options["kind"] in {None, "RuleSet"}:
            documents += _rule_sets(draft=options["draft"])
        if options["kind"] in {None, "Assignment"}:
            rows = Assignment.objects.select_related("rule_set")
            documents += [compiler.assignment_document(row) for row in rows]
        if options["kind"] in {None, "PriorityClass"}:
            documents += [compiler.priority_class_document(row) for row in PriorityClass.objects.all()]
        live = publishing.current_revision()
        for kind, values in (("Pause", live.pauses), ("Exemption", live.exemptions)):
            if options["kind"] in {None, kind}:
                documents += map(document_of, values)
        if wanted := set(options["names"]):
            documents = [document for document in documents if document["metadata"]["name"] in wanted]
            found = {document["metadata"]["name"] for document in documents}
            if missing := sorted(wanted - found):
                message = f"nothing to export is called {', '.join(missing)}"
                raise CommandError(message)
        self.stdout.write("---\n".join(manifests.to_yaml(document) for document in documents), ending="")


def _rule_sets(*, draft: bool) -> list[dict[str, Any]]:
    state = RuleSetVersion.State
    wanted = [state.DRAFT, state.PUBLISHED] if draft else [state.PUBLISHED]
    documents = []
    for rule_set in RuleSet.objects.prefetch_related("versions__rules", "versions__rule_set"):
        versions = {version.state: version for version in rule_set.versions.all()}
        version = next((versions[each] for each in wanted if each in versions), None)
        if version is not None:
            documents.append(compiler.rule_set_document(version))
    return documents
