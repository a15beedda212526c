"""Checkpoints outside the database: a log line, a file, a webhook. An attacker who rewrites the database can't reach them.

A file `LOG.checkpoints` has a line of JSON for each: {"at", "note"}.
"""

import fcntl
import http.client
import json
import logging
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, NamedTuple

from django.conf import settings

from scheduler.metrics import LEDGER_UNPUBLISHED
from scheduler.redirects import NoRedirects

logger = logging.getLogger("berth.ledger")

_SUFFIX = ".checkpoints"
_SECONDS = 5.0
_LOCK_PAUSE_SECONDS = 0.05
# Of a line with its checkpoint; more without an end is no line of Berth's, and stays.
_LONGEST_LINE = 1 << 16


class Kept(NamedTuple):
    """A checkpoint that was kept outside: where, and the signed note; empty where the line can't be read."""

    where: str
    note: str


def checkpoint_dir() -> Path | None:
    """Return where files of checkpoints are; None where there are none."""
    if settings.BERTH.ledger_checkpoint_dir:
        return Path(settings.BERTH.ledger_checkpoint_dir)
    return Path(settings.BERTH.state_dir) / "checkpoints" if settings.BERTH.local else None


def publish(log: str, note: str, at: datetime) -> None:
    """Write a checkpoint wherever it belongs outside the database. What fails is logged and counted; the next one follows in a minute."""
    logger.info("checkpoint of %s: %s", log, note.replace("\n", " | "))
    folder = checkpoint_dir()
    if folder is not None:
        try:
            _append(folder / f"{log}{_SUFFIX}", json.dumps({"at": at.isoformat(), "note": note}))
        except OSError as error:
            LEDGER_UNPUBLISHED.labels("file").inc()
            logger.error("a checkpoint of %s can't be written into %s: %s", log, folder, error)  # noqa: TRY400 - the disk's fault
    if settings.BERTH.ledger_webhook_url:
        try:
            _send(settings.BERTH.ledger_webhook_url, note)
        except (OSError, urllib.error.URLError, http.client.HTTPException) as error:
            LEDGER_UNPUBLISHED.labels("webhook").inc()
            logger.error("a checkpoint of %s can't be sent to BERTH_LEDGER_WEBHOOK_URL: %s", log, error)  # noqa: TRY400


def _append(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        # Another process, such as a command's, may append at the same moment.
        if _is_locked(file):
            _end_last_line(file)
        file.write(f"{line}\n".encode())
        file.flush()
        os.fsync(file.fileno())


def _is_locked(file: IO[bytes]) -> bool:
    """Lock a file, unless somebody who only reads it holds it for long, or the file system has no locks."""
    until = time.monotonic() + _SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                logger.warning("%s is locked by another process; the checkpoint is appended without a lock", file.name)
                return False
            time.sleep(_LOCK_PAUSE_SECONDS)
        except OSError as error:
            logger.warning("%s can't be locked, the checkpoint is appended without: %s", file.name, error)
            return False
        else:
            return True


def _end_last_line(file: IO[bytes]) -> None:
    """End a checkpoint that lacks its end of line, and cut off what a full disk or a power failure left of one.

    With the next line it would make one that nobody can read.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _LONGEST_LINE, 0))
    _whole, _end, last = file.read().rpartition(b"\n")
    if not last or len(last) >= _LONGEST_LINE:
        return
    if _note_in(last.decode(errors="replace")):
        file.write(b"\n")
        return
    logger.warning("%s ends with %s bytes of a line that was never finished; they are cut off", file.name, len(last))
    file.truncate(size - len(last))


_OPENER = urllib.request.build_opener(NoRedirects)


def _send(url: str, note: str) -> None:
    request = urllib.request.Request(url, data=note.encode(), headers={"Content-Type": "text/plain; charset=utf-8"})  # noqa: S310 - env.py takes http(s) alone
    # Only the status matters: the rest of the receiver's answer isn't read.
    _OPENER.open(request, timeout=_SECONDS).close()


def is_any_kept(folder: Path) -> bool:
    """Return whether a folder has a file of checkpoints."""
    return any(folder.glob(f"*{_SUFFIX}"))


def kept(log: str, folder: Path) -> Iterator[Kept]:
    """Iterate over the checkpoints of a log in files, as they were written.

    Raises:
        OSError: a file can't be read.
    """
    path = folder / f"{log}{_SUFFIX}"
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            yield Kept(f"{path.name}, line {number}", _note_in(line))


def _note_in(line: str) -> str:
    try:
        return str(json.loads(line)["note"])
    except (ValueError, KeyError, TypeError):
        return ""
