"""`manage.py evidence --out FILE`: export the records of a period or a case, with proofs, as an archive that berth-verify checks."""

from argparse import ArgumentParser, ArgumentTypeError
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from policies.management.command import BerthCommand, NotEmpty, moment
from policies.origin import system_user
from scheduler.evidence.export import DamagedError, export, note_export
from scheduler.evidence.selection import Case, fault_of
from scheduler.ledger.keys import KeyFileError, read_signer


class Command(BerthCommand):
    """Exports evidence."""

    help = (
        "Export the Decisions, outcomes, events, rules and proofs of a period or a case as one archive, for auditors."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument(
            "--out", type=Path, required=True, metavar="FILE", help="the archive; it must not exist yet"
        )
        parser.add_argument(
            "--from",
            dest="first",
            type=moment,
            metavar="TIME",
            help="from this time on: 2026-05-01 or 2026-05-01T12:00:00Z",
        )
        parser.add_argument("--until", type=moment, metavar="TIME", help="before this time")
        parser.add_argument(
            "--pod", type=_pod, default=("", ""), metavar="NAMESPACE/NAME", help="only records about this Pod"
        )
        parser.add_argument("--uid", action=NotEmpty, default="", help="only records about the Pod with this UID")
        parser.add_argument(
            "--change",
            type=int,
            metavar="N",
            help="only records about this Change, and Decisions by the Revision that it made",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Export."""
        del args
        namespace, name = options["pod"]
        case = Case(
            first=options["first"], until=options["until"], pod_namespace=namespace, pod_name=name,
            pod_uid=options["uid"], change=options["change"],
        )  # fmt: skip
        if fault := fault_of(case, timezone.now()):
            raise CommandError(fault)
        out: Path = options["out"]
        try:
            _refuse_what_is_there(out)
            if not out.parent.is_dir():
                message = f"there is no folder {out.parent} for the archive: make it, or give another --out"
                raise CommandError(message)
            read_signer()  # without the key the export would fail
            counts = _write(case, out, system_user())
        except (DamagedError, KeyFileError, OSError) as error:
            raise CommandError(str(error)) from error
        rows = ", ".join(f"{number:,} {log}" for log, number in counts.items())
        self.stdout.write(f"{out}: {case.words()}: {rows}. Check it: berth-verify {out} --keys FILE")


def _write(case: Case, out: Path, by: str) -> dict[str, int]:
    """Write an archive, into a temporary file until it is complete: another run may write one of the same name."""
    with NamedTemporaryFile(dir=out.parent, prefix=f"{out.name}.", suffix=".part", delete=False) as file:
        fresh = Path(file.name)
        try:
            # Not before the file is there: an archive that nobody can write in this folder isn't noted.
            note_export(case, by=by)
            counts = export(case, file, by=by, now=datetime.now(UTC))
            file.close()
            _refuse_what_is_there(out)
            fresh.replace(out)
        finally:
            fresh.unlink(missing_ok=True)
    return counts


def _refuse_what_is_there(out: Path) -> None:
    if out.exists():
        message = f"{out} exists already"
        raise CommandError(message)


def _pod(text: str) -> tuple[str, str]:
    namespace, separator, name = text.partition("/")
    if not separator or not namespace or not name or "/" in name:
        message = f"{text!r} is not NAMESPACE/NAME"
        raise ArgumentTypeError(message)
    return namespace, name
