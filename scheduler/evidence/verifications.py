"""Verifications of the ledger that users request: workers run them in slices, so that another worker can continue one that stopped."""

import threading
from datetime import datetime, timedelta
from time import monotonic
from uuid import uuid4

import msgspec
from django.db import DatabaseError, transaction
from django.db.models import F, Q, QuerySet, Sum
from django.db.models.functions import Now
from django.utils import timezone

from policies.publishing import audit, locks
from policies.publishing.actors import By, name_of
from policies.publishing.locks import Lock
from policies.publishing.silence import beating, is_silent
from scheduler.evidence.verify import LogReport, Progress, verify_each
from scheduler.ledger.keys import KeyFileError, known_verifiers
from scheduler.ledger.outside import checkpoint_dir
from scheduler.models import LedgerHead, Verification

NO_KEY = "The worker knows no public key, so that no checkpoint counts. Give it BERTH_LEDGER_KEY_FILE with FILE.pub beside, and verify again."
GIVEN_UP = "The worker ended each time. Look at its log, or run manage.py verify."
# The length of a slice; after it, the worker's other tasks have their turn.
SLICE_SECONDS = 20.0
_STEP_SECONDS = 1.0
_SILENT = timedelta(seconds=60)
_MOST_DEATHS = 3
_KEPT = 20
_State = Verification.State


class UnderWayError(Exception):
    """Another verification isn't finished."""


class _PausedError(Exception):
    """The slice is over, or another worker has taken over the verification."""


@transaction.atomic
def ask(*, by: By, now: datetime) -> Verification:
    """Request a verification of the whole ledger. Two clicks at the same instant, be they of two people, make one.

    Raises:
        UnderWayError: one is under way, which gives the same result.
    """
    locks.take(Lock.VERIFICATIONS)
    if Verification.objects.filter(state__in=[_State.QUEUED, _State.RUNNING]).exists():
        raise UnderWayError
    kept = list(Verification.objects.values_list("pk", flat=True)[: _KEPT - 1])
    Verification.objects.exclude(pk__in=kept).delete()
    total = LedgerHead.objects.aggregate(total=Sum("size"))["total"] or 0
    audit.record_event(audit.Kind.VERIFY, by=by, thing=("Ledger", ""))
    return Verification.objects.create(asked_by=name_of(by), asked_at=now, total=total)


_one_at_a_time = threading.Lock()


def run_waiting() -> None:
    """Continue the waiting verification; one at a time in each worker."""
    now = timezone.now()
    idle = Q(state=_State.RUNNING) & (Q(heartbeat_at=None) | is_silent("heartbeat_at", _SILENT))
    row = Verification.objects.filter(Q(state=_State.QUEUED) | idle).order_by("pk").first()
    if row is None or not _one_at_a_time.acquire(blocking=False):
        return
    try:
        _go_on(row, now)
    finally:
        _one_at_a_time.release()


def _go_on(row: Verification, now: datetime) -> None:
    mine = Verification.objects.filter(pk=row.pk, holder=row.holder, state=row.state)
    died = row.heartbeat_at is not None
    if died and row.deaths + 1 >= _MOST_DEATHS:
        mine.update(state=_State.FAILED, ended_at=now, fault=GIVEN_UP)
        return
    holder = uuid4().hex
    if not mine.update(state=_State.RUNNING, heartbeat_at=Now(), holder=holder, deaths=row.deaths + died):
        return  # another worker has it
    held = Verification.objects.filter(pk=row.pk, holder=holder, state=_State.RUNNING)
    try:
        with beating(held.filter(heartbeat_at__isnull=False)):
            fault = _verify(held, row)
    except _PausedError:
        return
    except (KeyFileError, OSError, DatabaseError) as error:
        fault = f"{error}."
    if fault:
        held.update(state=_State.FAILED, ended_at=timezone.now(), fault=fault)


def _verify(held: QuerySet[Verification], row: Verification) -> str:
    """Verify the rest; return why that fails, empty if it succeeds.

    Raises:
        _PausedError, KeyFileError, OSError, django.db.DatabaseError: as `verify_each`, and as `_Steps`.
    """
    keys = known_verifiers()
    if not keys:
        return NO_KEY
    progress = msgspec.convert(row.progress, dict[str, Progress])
    reports = reports_of(row)
    ended = {report.log for report in reports}
    for report in verify_each(keys, checkpoint_dir(), progress, _Steps(held, progress).tell, but=ended):
        reports.append(report)
        # The reports of completed logs, so that the next slice doesn't repeat their last queries.
        if not held.update(reports=msgspec.to_builtins(reports), progress=msgspec.to_builtins(progress)):
            raise _PausedError
    is_sound = all(report.ok for report in reports)
    held.update(state=_State.DONE, ended_at=timezone.now(), is_sound=is_sound, progress={}, done=F("total"))
    return ""


def reports_of(row: Verification) -> list[LogReport]:
    """Return the findings of each log."""
    return msgspec.convert(row.reports, list[LogReport], strict=False)


class _Steps:
    """Stores the progress of a verification from time to time, and interrupts it at the end of its slice."""

    def __init__(self, held: QuerySet[Verification], progress: dict[str, Progress]) -> None:
        self._held, self._progress = held, progress
        self._began = self._noted = monotonic()

    def tell(self, _log: str, _progress: Progress, _size: int) -> None:
        """Store the progress, if the last time was a while ago.

        Raises:
            _PausedError: the slice is over, or another worker has the verification.
        """
        now = monotonic()
        is_over = now - self._began >= SLICE_SECONDS
        if not is_over and now - self._noted < _STEP_SECONDS:
            return
        self._noted = now
        beat = None if is_over else Now()
        done = sum(each.next for each in self._progress.values())
        written = self._held.update(heartbeat_at=beat, done=done, progress=msgspec.to_builtins(self._progress))
        if is_over or not written:
            raise _PausedError
