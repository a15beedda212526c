"""`manage.py verify`: prove that nothing in the history was changed, inserted, removed or truncated since it was recorded."""

import os
import secrets
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import msgspec
from django.core.management.base import CommandError

from policies.management.command import BerthCommand
from policies.manifests import to_json
from policies.wording import counted
from scheduler.evidence.verify import LogReport, Progress, verify
from scheduler.ledger.keys import KeyFileError, known_verifiers, read_public
from scheduler.ledger.note import Verifier
from scheduler.ledger.outside import checkpoint_dir, is_any_kept

_TELL_SECONDS = 2.0
_NOTHING_OUTSIDE = "no checkpoints outside the database were compared: the database's owner could have rewritten a log and deleted its checkpoints"


class Command(BerthCommand):
    """Verifies the ledger."""

    help = "Verify the ledger: rows, trees, and checkpoints in and outside the database; exit 1 if something is wrong."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument(
            "--keys", type=Path, metavar="FILE", help="the public keys to trust; default: this installation's keys"
        )
        parser.add_argument(
            "--checkpoints",
            type=Path,
            metavar="DIR",
            help="the folder of checkpoints outside the database; default: BERTH_LEDGER_CHECKPOINT_DIR",
        )
        parser.add_argument(
            "--resume",
            type=Path,
            metavar="FILE",
            help="store the run's progress in this file, and continue from the progress stored there",
        )
        parser.add_argument(
            "--processes",
            type=int,
            default=os.cpu_count() or 1,
            metavar="N",
            help="the most processes that read rows; default: one for each processor",
        )
        parser.add_argument("--output", choices=["text", "json"], default="text")

    def handle(self, *args: Any, **options: Any) -> None:
        """Verify, write."""
        del args
        given: Path | None = options["checkpoints"]
        if given is not None and not is_any_kept(given):
            message = f"there are no checkpoints in {given}: no file LOG.checkpoints is there"
            raise CommandError(message)
        folder = given or checkpoint_dir()
        try:
            resume = _Resume(options["resume"], self._say_progress if options["output"] == "text" else lambda *_: None)
            verifiers = _trusted(options["keys"]) if options["keys"] else known_verifiers()
            reports = verify(verifiers, folder, resume.progress, resume.tell, options["processes"])
            resume.end()
        except (KeyFileError, OSError, msgspec.DecodeError) as error:
            raise self.refused(str(error), options["output"]) from error
        ok = all(report.ok for report in reports)
        has_outside = folder is not None and is_any_kept(folder)
        if options["output"] == "json":
            self.stdout.write(
                to_json(
                    {
                        "ok": ok,
                        "keys": list(map(str, verifiers)),
                        "outside": has_outside,
                        "logs": list(map(_as_json, reports)),
                    }
                )
            )
        else:
            for report in reports:
                self.stdout.write("\n".join(map(_printable, _sentences(report))))
            if not has_outside:
                self.stdout.write(_NOTHING_OUTSIDE)
            self.stdout.write(_of_keys(verifiers))
        if not ok:
            first = next(report.faults[0] for report in reports if report.faults)
            message = f"the history is not what was recorded: {_printable(first)}"
            raise CommandError(message, returncode=1)

    def _say_progress(self, log: str, progress: Progress, size: int) -> None:
        self.stderr.write(f"{log}: {progress.next:,} of {size:,}")


class _Resume:
    """Stores the progress of a run from time to time.

    Raises:
        OSError: the file can't be read or written; that is tested before the run, which may take hours.
        msgspec.DecodeError: the file has other contents.
    """

    def __init__(self, path: Path | None, say: Any) -> None:
        self._path, self._say, self._said_at = path, say, time.monotonic()
        self.progress: dict[str, Progress] = {}
        if path is not None and path.exists():
            try:
                self.progress = msgspec.json.decode(path.read_bytes(), type=dict[str, Progress])
            except msgspec.DecodeError as error:
                message = f"{path} isn't a file that --resume wrote: {error}. Without the file, a run starts from the beginning"
                raise msgspec.DecodeError(message) from error
        self._note()

    def tell(self, log: str, progress: Progress, size: int) -> None:
        """Store the progress, if the last time was a while ago."""
        if time.monotonic() - self._said_at >= _TELL_SECONDS:
            self._said_at = time.monotonic()
            self._say(log, progress, size)
            self._note()

    def end(self) -> None:
        """Store the final state. A log with faults is read from its beginning next time: the faults may be repaired by then."""
        self.progress = {log: progress for log, progress in self.progress.items() if not progress.faults}
        self._note()

    def _note(self) -> None:
        if self._path is not None:
            # A name of its own: the run of the night before may still be under way.
            fresh = self._path.with_name(f"{self._path.name}.{secrets.token_hex(8)}")
            try:
                fresh.write_bytes(msgspec.json.encode(self.progress))
                fresh.replace(self._path)
            finally:
                fresh.unlink(missing_ok=True)


def _trusted(path: Path) -> list[Verifier]:
    """Return the public keys of a file.

    Raises:
        KeyFileError: it can't be read, or has none: each checkpoint would be called wrong.
    """
    found = read_public(path)
    if not found:
        message = f"{path} holds no public key: lines NAME+ID+KEY, as in the .pub file beside the ledger's key"
        raise KeyFileError(message)
    return found


def _printable(text: str) -> str:
    """Return a text without terminal control characters: names in the database may contain anything."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _as_json(report: LogReport) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(report)
    return {"ok": report.ok} | found


def _sentences(report: LogReport) -> list[str]:
    if report.since is None:
        return [f"{report.log}: nothing is logged yet"]
    read = report.proved - report.proved_before
    by_whom = f" ({read:,} read by this run, {report.proved_before:,} by runs before)" if report.proved_before else ""
    proved = f"{report.log}: {report.proved:,} of {report.size:,} rows proved{by_whom}, since {report.since:%Y-%m-%d %H:%M:%S} UTC"
    agree = f"{counted(report.checkpoints, 'checkpoint')} agree{'s' if report.checkpoints == 1 else ''}"
    said = [f"{proved}; {agree}, the last over {counted(report.signed_size, 'row')}"]
    if report.unlogged:
        said.append(f"  {report.unlogged:,} rows are older than the log, which doesn't prove them")
    said += [
        f"  {each.what} of {each.leaves:,} leaves, from {each.ranges[0][0]:,} to {each.ranges[-1][1] - 1:,}, were deleted by a retention rule: {each.rule}; "
        f"the last at {each.at:%Y-%m-%d %H:%M} UTC. Their hashes stay"
        for each in report.pruned
    ]
    if report.losses:
        said.append(f"  {report.losses:,} gaps and dead letters agree with their signed notes")
    if report.older_losses:
        said.append(f"  {report.older_losses:,} gaps and dead letters are older than such notes: nothing proves them")
    if report.older_places:
        said.append(
            f"  {report.older_places:,} Decisions name a node, but retention deleted the outcome: nothing proves the node"
        )
    said += [f"  WRONG {fault}" for fault in report.faults]
    return [*said, f"  and {report.more_faults:,} more"] if report.more_faults else said


def _of_keys(verifiers: list[Verifier]) -> str:
    if not verifiers:
        return "no key is known, so no checkpoint counts: the database's administrator could have changed everything"
    return f"keys: {', '.join(f'{verifier.name}+{verifier.id.hex()}' for verifier in verifiers)}"
