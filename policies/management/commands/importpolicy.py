"""`manage.py importpolicy FILE`: convert a classic Policy or a KubeSchedulerConfiguration to RuleSets or a Change."""

from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from policies import checking, manifests, publishing
from policies.changes_in_words import part_changes
from policies.engine.documents import document_of
from policies.engine.errors import Fault, RuleSetError
from policies.engine.ruleset import RuleSet
from policies.management.files import documents_of, is_beside_rules, only_document
from policies.models import Change
from policies.origin import system_user
from policies.publishing.revisions import lock_revisions
from policies.wording import visible


class Command(BaseCommand):
    """Prints the rule set as YAML, ready for `lint` and `apply`."""

    help = (
        "Convert a classic scheduler Policy (JSON or YAML, kind Policy) to a RuleSet document on standard output; "
        "a KubeSchedulerConfiguration into one for each of its profiles."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("file", metavar="FILE", type=Path, help="a Policy or a KubeSchedulerConfiguration")
        parser.add_argument(
            "--name",
            default="imported",
            help="name of the rule set (default imported); profiles other than default-scheduler append their schedulerName",
        )
        parser.add_argument(
            "--open-change", action="store_true", help="also open a Change with the rule set; this needs the database"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Read, import, write."""
        items = list(read_only_document(options["file"]).items())
        made = _imported(items, options["name"])
        has_rules = any(each.spec.filters or each.spec.scores for each in made)
        if options["open_change"]:
            if not has_rules:
                raise CommandError(_without_rules(items), returncode=1)  # such a Change could never go live
            self._open_change(made, options["file"].name)
            return
        self.stdout.write("---\n".join(manifests.to_yaml(document_of(each)) for each in made), ending="")
        if not has_rules:
            self.stderr.write(_without_rules(items))

    def _open_change(self, made: list[RuleSet], file: str) -> None:
        try:
            change, is_new = _opened(made, f"import of {visible(file)}")
        except publishing.PublishingError as error:
            raise CommandError("\n".join(error.messages), returncode=1) from error
        bases = publishing.bases_of(change)
        how = "was opened" if is_new else "is open already, and makes the same"
        said = [f"{change} {how}: {change.title}"]
        said += [
            f"  {line}" for each in publishing.edits_of(change) for line in part_changes(bases[each.key], each.value)
        ]
        said += [f"! {line}" for line in publishing.beside(bases, publishing.NOBODY, (), but=change)]
        self.stdout.write("\n".join([*said, "Nothing is live yet: review and publish it in the admin."]))


@transaction.atomic
def _opened(made: list[RuleSet], title: str) -> tuple[Change, bool]:
    """Return the Change with these rule sets, and whether it is new: an equal open one of this account is used."""
    edits, by = [publishing.Edit.of(each) for each in made], system_user()
    wanted = publishing.differing(edits, lock_revisions())
    there = publishing.open_already(wanted=wanted, by=by) if wanted else None
    return there or publishing.open_change(title=title, edits=edits, by=by), there is None


def _imported(items: Sequence[manifests.Located], name: str) -> list[RuleSet]:
    """Return the rule set of a Policy, or of each profile of a configuration.

    Raises:
        CommandError: with every fault, by its place in the file.
    """
    made: dict[str, RuleSet] = {}
    faults = []
    for index, each in enumerate(items):
        try:
            found = checking.import_policy(each.document, name=name)
        except RuleSetError as error:
            faults += [each.describe(fault) for fault in error.faults]
            continue
        if found.name in made:
            # The schedulers' names have more characters than those of rule sets: a.b and a-b.
            faults.append(each.describe(Fault(f"profiles[{index}].schedulerName", _taken(found.name))))
        made[found.name] = found
    if faults:
        raise CommandError("\n".join(faults), returncode=1)
    return list(made.values())


def _without_rules(items: Sequence[manifests.Located]) -> str:
    is_policy = any(each.document["kind"] == "Policy" and each.document.get("extenders") for each in items)
    hint = " To convert its extenders, use doctor configuration --from-policy" if is_policy else ""
    return f"This file names no rules.{hint}"


def _taken(name: str) -> str:
    return f"a profile before it becomes the rule set {name}, too: import one of them from a file of its own, with another --name"


def read_only_document(path: Path) -> manifests.Located:
    """Return the only document of a file, not counting those of other kinds than rules.

    Raises:
        CommandError: there is none, or more than one, or the file can't be read.
    """
    found = [each for each in documents_of(path) if not is_beside_rules(each.document)]
    return only_document(found, path)
