"""`manage.py lint FILE…`: print every fault of rule documents, with file, line and path."""

from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from policies import checking
from policies.engine.errors import RuleSetError
from policies.management.files import FileText, texts_of
from policies.manifests import Located, documents_in
from policies.wording import counted


class Command(BaseCommand):
    """Checks files and runs the tests inside them. Needs no database."""

    help = "Check rule documents and run the tests inside them; exit 1 if there is a fault."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the files."""
        parser.add_argument(
            "files", nargs="+", metavar="FILE", help="a file of documents, a folder of them, or - for standard input"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Lint the files."""
        notes: list[str] = []
        lines = list(lint_files(options["files"], notes))
        for line in (*(f"! {note}" for note in notes), *lines):
            self.stdout.write(line)
        if lines:
            message = counted(len(lines), "fault")
            raise CommandError(message, returncode=1)
        self.stdout.write("no faults")


def lint_files(names: Iterable[Path | str], notes: list[str]) -> Iterator[str]:
    """Yield a line for each fault of files that are checked together; only one for a fault that several profiles share.

    Notes about skipped documents are added to `notes`.
    """
    given: list[tuple[Located, str]] = []
    for each in texts_of(map(str, names)):
        yield from _read_file(each, given, notes)
    checked = checking.faults_together((item.document, file) for item, file in given)
    told = (item.describe(fault) for (item, _), faults in zip(given, checked, strict=True) for fault in faults)
    yield from dict.fromkeys(told)


def _read_file(file: FileText, given: list[tuple[Located, str]], notes: list[str]) -> Iterator[str]:
    if file.fault:
        yield f"{file.name}:1: can't be read: {file.fault}"
        return
    try:
        documents = checking.read_documents(file.text, file.name)
    except RuleSetError as error:
        yield from (fault.message for fault in error.faults)
        return
    try:
        held = documents_in(documents)
    except RuleSetError as error:
        yield from (f"{file.name}:1: {fault.message}" for fault in error.faults)
        return
    given += [(item, file.name) for item in held.documents]
    notes += [f"{file.name}: {held.note}"] if held.note else []
