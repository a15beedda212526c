"""Archives of evidence that users request: a worker writes them into the database, piece by piece, for download.

They are not files: the worker that writes one and the process that sends it may be on two machines.
"""

import io
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from time import monotonic

from django.db import DatabaseError, OperationalError, transaction
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils import timezone

from policies.publishing import audit
from policies.publishing.actors import By, lock_account, name_of
from policies.publishing.silence import beating, is_silent
from scheduler.evidence.export import DamagedError, export, note_export
from scheduler.evidence.selection import Case, fault_of
from scheduler.ledger.keys import KeyFileError
from scheduler.models import EvidenceExport, EvidencePiece

# How long an archive can be downloaded.
KEPT = timedelta(days=7)
# The largest archive; for larger ones there is `manage.py evidence`, which writes a file.
MOST_BYTES = 2 << 30
TOO_LARGE = "It would be larger than 2 GiB. Ask about a shorter time, or have manage.py evidence write it to a disk."
NO_KEY = "Without the ledger's key nothing can be proved. Give the worker BERTH_LEDGER_KEY_FILE, and ask again."
_PIECE_BYTES = 1 << 20
_STEP_SECONDS = 1.0
# A worker that was silent for this long counts as dead; another one starts again.
_SILENT = timedelta(seconds=60)
_MOST_ATTEMPTS = 3
_State = EvidenceExport.State


class EvidenceError(Exception):
    """An archive can't be made; the message tells the user why."""


class _SupersededError(Exception):
    """Another worker has started again."""


def ask(case: Case, *, by: By, now: datetime) -> EvidenceExport:
    """Request an archive. The request itself is the audited act.

    Raises:
        EvidenceError: the account's last request is still in progress, or nothing can be in the archive.
    """
    if fault := fault_of(case, now):
        raise EvidenceError(fault)
    asked_by = name_of(by)
    with transaction.atomic():
        lock_account(by)
        under_way = Q(state__in=[_State.QUEUED, _State.RUNNING])
        if EvidenceExport.objects.filter(under_way, asked_by=asked_by).exists():
            message = "The archive that you asked for before is still being made."
            raise EvidenceError(message)
        row = EvidenceExport.objects.create(
            first=case.first, until=case.until, pod_namespace=case.pod_namespace, pod_name=case.pod_name,
            pod_uid=case.pod_uid, change=case.change, asked_by=asked_by, asked_at=now,
        )  # fmt: skip
        note_export(case_of(row), by=by)
    return row


def case_of(row: EvidenceExport) -> Case:
    """Return an archive's case."""
    return Case(
        first=row.first, until=row.until, pod_namespace=row.pod_namespace, pod_name=row.pod_name,
        pod_uid=row.pod_uid, change=row.change,
    )  # fmt: skip


def take(row: EvidenceExport, *, by: By) -> Iterator[bytes]:
    """Return the bytes of an archive, a piece at a time. This too is an audited act: accounts other than the requester may do it.

    Raises:
        EvidenceError: the archive isn't made yet, or isn't kept any more.
    """
    pieces = row.pieces.filter(attempt=row.attempts)
    numbers = list(pieces.order_by("number").values_list("number", flat=True))
    if row.state != _State.DONE or not numbers:
        message = "It isn't there any more. Ask for it again." if row.state == _State.DONE else "It isn't made yet."
        raise EvidenceError(message)
    audit.record_event(audit.Kind.EXPORT, by=by, thing=("evidence", f"archive {row.pk}: {case_of(row).words()}"))
    # Each piece by its own statement: for a cursor, PostgreSQL would first write all of them, up to 2 GiB, to a temporary file.
    return (bytes(pieces.values_list("data", flat=True).get(number=number)) for number in numbers)


_one_at_a_time = threading.Lock()


def run_waiting() -> None:
    """Write the longest-waiting archive; one at a time in each worker. Delete expired archives."""
    now = timezone.now()
    waiting = Q(state=_State.QUEUED) | is_silent("heartbeat_at", _SILENT) & Q(state=_State.RUNNING)
    row = EvidenceExport.objects.filter(waiting).order_by("pk").first()
    if row is None:
        EvidencePiece.objects.filter(export__ended_at__lt=now - KEPT).delete()
        return
    if not _one_at_a_time.acquire(blocking=False):
        return
    try:
        _run(row, now)
    finally:
        _one_at_a_time.release()


def _run(row: EvidenceExport, now: datetime) -> None:
    mine = EvidenceExport.objects.filter(pk=row.pk, attempts=row.attempts, state=row.state)
    if row.attempts >= _MOST_ATTEMPTS:
        mine.update(
            state=_State.FAILED,
            ended_at=now,
            fault="The worker, or its connection to the database, ended each time. Look at the worker's log, and ask again.",
        )
        return
    if not mine.update(state=_State.RUNNING, attempts=F("attempts") + 1, heartbeat_at=Now(), rows=0, bytes=0):
        return  # another worker has it
    row.refresh_from_db()
    row.pieces.exclude(attempt=row.attempts).delete()
    running = EvidenceExport.objects.filter(pk=row.pk, attempts=row.attempts, state=_State.RUNNING)
    pieces = _Pieces(row)
    try:
        with beating(running):
            export(case_of(row), pieces, by=row.asked_by, now=now, on_step=pieces.count)  # type: ignore[arg-type] # written to alone
            pieces.end()
    except _SupersededError:
        return
    except (DamagedError, EvidenceError, KeyFileError, DatabaseError) as error:
        if _says_database_is_away(error):
            raise  # that is no fault of the archive: it is begun again, as after a worker's end
        fault = NO_KEY if isinstance(error, KeyFileError) else str(error)
        running.update(state=_State.FAILED, ended_at=timezone.now(), fault=fault)
        row.pieces.filter(attempt=row.attempts).delete()
    else:
        running.update(state=_State.DONE, ended_at=timezone.now())


def _says_database_is_away(error: Exception) -> bool:
    """Return whether PostgreSQL ended the connection, or it broke: then there is no code, or one of a shutdown or a connection's end."""
    if not isinstance(error, OperationalError):
        return False  # psycopg gives no code either for a value that it can't send
    code = getattr(error.__cause__, "sqlstate", "")
    return code is None or code.startswith(("08", "57P"))


class _Pieces(io.RawIOBase):
    """Stores an archive's bytes, and writes its progress now and then.

    Raises:
        EvidenceError: the archive is too large.
        _SupersededError: another worker has taken over the archive.
    """

    def __init__(self, row: EvidenceExport) -> None:
        super().__init__()
        self._row = row
        self._held = bytearray()
        self._number = self._rows = self._bytes = 0
        self._at = monotonic()

    def writable(self) -> bool:
        """Return True: this file is only written."""
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override] # the one kind of buffer that tarfile writes
        """Take bytes."""
        self._held += data
        self._bytes += len(data)
        if self._bytes > MOST_BYTES:
            raise EvidenceError(TOO_LARGE)
        while len(self._held) >= _PIECE_BYTES:
            self._store(self._held[:_PIECE_BYTES])
            del self._held[:_PIECE_BYTES]
        return len(data)

    def count(self, rows: int) -> None:
        """Count rows that were written."""
        self._rows += rows
        if monotonic() - self._at > _STEP_SECONDS:
            self._show()

    def end(self) -> None:
        """Store the remaining bytes."""
        if self._held:
            self._store(self._held)
        self._show()

    def _store(self, data: bytearray) -> None:
        self._number += 1
        EvidencePiece.objects.create(
            export=self._row, attempt=self._row.attempts, number=self._number, data=bytes(data)
        )
        self._show()

    def _show(self) -> None:
        self._at = monotonic()
        mine = EvidenceExport.objects.filter(pk=self._row.pk, attempts=self._row.attempts, state=_State.RUNNING)
        if not mine.update(heartbeat_at=Now(), rows=self._rows, bytes=self._bytes):
            raise _SupersededError
