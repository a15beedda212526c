"""`manage.py apply [--publish] FILE…`: apply rule documents from files to the running system, by a Change."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from policies import manifests, publishing
from policies.management.command import BerthCommand, NotEmpty
from policies.management.files import texts_of
from policies.origin import system_user
from policies.publishing.gates import FOUND
from policies.wording import counted, visible
from scheduler.applying import (
    Applied,
    Documents,
    DocumentsError,
    FileFault,
    Wish,
    apply,
    examine_documents,
    read_files,
)
from scheduler.gate.words import lines_of

# The most files that a Change's title names.
_NAMED_IN_TITLE = 3


class Command(BerthCommand):
    """Opens a Change with documents of any kind: with all of them, or with none if one has faults."""

    help = (
        "Open a Change with RuleSet, Assignment, PriorityClass, Pause and Exemption documents (YAML or JSON); with --publish, make it live. "
        "Nothing else goes live with it."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        parser.add_argument(
            "files", nargs="+", metavar="FILE", help="a file of documents, a folder of them, or - for standard input"
        )
        parser.add_argument(
            "--publish", action="store_true", help="publish the Change; refused where review is required"
        )
        parser.add_argument("--reason", default="", help="the reason, stored with the Change and its Revision")
        parser.add_argument(
            "--prune",
            metavar="SCOPE",
            action="append",
            default=[],
            help="remove live objects that aren't in the files and have such a name: team-a-*, or Assignment/team-a-* for one kind",
        )
        parser.add_argument("--title", default="", help="the Change's title; default: the files' names")
        add_keeper(parser)
        parser.add_argument("--no-cluster", action="store_true", help="publish without reading the cluster's Pods")
        parser.add_argument("--output", choices=["text", "json"], default="text")

    def handle(self, *args: Any, **options: Any) -> None:
        """Read all files, open the Change, publish it, report."""
        title = options["title"] or _title_of([Path(file).name or file for file in options["files"]])
        wish = Wish(title=title, reason=options["reason"], publish=options["publish"])
        try:
            documents = read(options)
            asks_cluster = not options["no_cluster"]
            examined = examine_documents(documents, asks_cluster=asks_cluster) if wish.publish else None
            applied = apply(documents, wish, by=system_user(), examined=examined)
        except (CommandError, publishing.PublishingError) as error:
            if options["output"] == "json":
                self.stdout.write(
                    manifests.to_json({"ok": False, "change": None, "revision": None, "error": str(error)})
                )
            if isinstance(error, CommandError):
                raise
            raise CommandError("\n".join(["Nothing was applied:", *error.messages])) from error
        self.stdout.write(manifests.to_json(applied.summary()) if options["output"] == "json" else _text(applied))


def add_keeper(parser: CommandParser) -> None:
    """Add the arguments about the files' repository."""
    parser.add_argument(
        "--owner",
        default="",
        action=NotEmpty,
        metavar="NAME",
        help="the repository that holds these files: applied objects are marked as its own, and --prune removes only those",
    )
    parser.add_argument("--take-over", action="store_true", help="also apply to objects that another repository owns")


def read(options: Mapping[str, Any], done: str = "applied") -> Documents:
    """Return the documents of a command's files, with their repository and what is pruned; - is standard input.

    Args:
        options: the command's.
        done: what isn't done with them where they have faults.

    Raises:
        CommandError: with every fault in them.
    """
    texts, faults = [], []
    for file in texts_of(options["files"]):
        if file.fault:
            message = f"not readable: {file.fault}"
            faults.append(FileFault(file.name, "", message, 0, f"{file.name}: {message}"))
        else:
            texts.append((file.name, file.text))
    try:
        documents = read_files(texts, faults=faults)
    except DocumentsError as error:
        message = f"{error}\nNothing was {done}: {counted(len(error.faults), 'fault')}."
        raise CommandError(message) from error
    documents.prune = options["prune"]
    documents.keeper = publishing.Keeper(options["owner"], options["take_over"])
    return documents


def _title_of(names: Sequence[str]) -> str:
    """Return the title of a Change with these files, as the command `berth` makes it; names that wouldn't fit are counted."""
    names = [visible(name) for name in names]
    if len(names) <= _NAMED_IN_TITLE:
        return f"apply {' '.join(names)}"
    return f"apply {len(names)} files: {', '.join(names[:_NAMED_IN_TITLE])} and {len(names) - _NAMED_IN_TITLE} more"


def _text(applied: Applied) -> str:
    lines = [f"{what} is unchanged" for what in applied.unchanged]
    lines += [f"! {line}" for line in (*applied.notes, *applied.drift)]
    if applied.change is None:
        number = publishing.current_revision().number
        lines += [f"! {line}" for line in applied.beside]
        return "\n".join([*lines, f"Nothing to publish: Revision {number} already has all of it"])
    lines.append(f"{applied.heading}: {applied.change.title}")
    if applied.revision is None:
        lines += [f"  {line}" for line in applied.changes]
        beside = [f"! {line}" for line in applied.beside]
        return "\n".join([*lines, *beside, "Nothing is live yet: review and publish it in the admin."])
    lines += [f"! {line}" for line in applied.beside]
    lines.append(f"Revision {applied.revision.number} was made:")
    ends = publishing.past_ends(publishing.edits_of(applied.change))
    lines += [f"  {line}" for line in (*applied.revision.summary.splitlines(), *ends)]
    found = [each for each in applied.gate if each.verdict == FOUND]
    return "\n".join([*lines, *(["The gate found:"] if found else []), *lines_of(found, settings.BERTH.gate_checks)])
