"""`manage.py lint FILE…`: print every fault of rule documents, with file, line and path."""

import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from policies import checking
from policies.engine.errors import RuleSetError
from policies.manifests import Located, documents_in
from policies.wording import counted


class Command(BaseCommand):
    """Checks files and runs the tests inside them. Needs no database."""

    help = "Check rule documents and run the tests inside them; exit 1 if there is a fault."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the files."""
        parser.add_argument(
            "files", nargs="+", metavar="FILE", type=Path, help="a file of documents, - for standard input"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Lint the files."""
        del args
        notes: list[str] = []
        lines = list(lint_files(options["files"], notes))
        for line in (*(f"! {note}" for note in notes), *lines):
            self.stdout.write(line)
        if lines:
            message = counted(len(lines), "fault")
            raise CommandError(message, returncode=1)
        self.stdout.write("no faults")


def lint_files(paths: Iterable[Path], notes: list[str]) -> Iterator[str]:
    """Yield a line for each fault of files that are checked together; only one for a fault that several profiles share.

    Notes about skipped documents are added to `notes`.
    """
    given: list[tuple[Located, str]] = []
    for path in paths:
        yield from _read_file(path, given, notes)
    checked = checking.faults_together((item.document, file) for item, file in given)
    told = (item.describe(fault) for (item, _), faults in zip(given, checked, strict=True) for fault in faults)
    yield from dict.fromkeys(told)


def _read_file(path: Path, given: list[tuple[Located, str]], notes: list[str]) -> Iterator[str]:
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        documents = checking.read_documents(text, str(path))
    except RuleSetError as error:
        yield from (fault.message for fault in error.faults)
        return
    except (OSError, UnicodeDecodeError) as error:
        yield f"{path}:1: can't be read: {error}"
        return
    try:
        held = documents_in(documents)
    except RuleSetError as error:
        yield from (f"{path}:1: {fault.message}" for fault in error.faults)
        return
    given += [(item, str(path)) for item in held.documents]
    notes += [f"{path}: {held.note}"] if held.note else []
