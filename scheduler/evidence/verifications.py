"""Verifications of the ledger that people ask for: carried out by workers, a slice at a time, so that one may end and another go on."""

import threading
from datetime import datetime, timedelta
from time import monotonic
from uuid import uuid4

import msgspec
from django.db import DatabaseError, transaction
from django.db.models import F, Q, QuerySet, Sum
from django.utils import timezone

from policies.publishing import audit
from policies.publishing.actors import By, name_of
from scheduler.evidence.verify import LogReport, Progress, verify
from scheduler.ledger.keys import KeyFileError, known_verifiers
from scheduler.ledger.outside import checkpoint_dir
from scheduler.models import LedgerHead, Verification

NO_KEY = "The worker knows no public key, so that no checkpoint counts. Give it BERTH_LEDGER_KEY_FILE with FILE.pub beside, and verify again."
GIVEN_UP = "The worker ended each time. Look at its log, or run manage.py verify."
# A worker goes on for so long at a time; then others of its tasks have their turn.
SLICE_SECONDS = 20.0
_STEP_SECONDS = 1.0
_SILENT = timedelta(seconds=60)
_MOST_DEATHS = 3
_KEPT = 20
_State = Verification.State


class UnderWayError(Exception):
    """Another verification isn't done yet."""


class _PausedError(Exception):
    """The slice is over, or the verification is another worker's by now."""


@transaction.atomic
def ask(*, by: By, now: datetime) -> Verification:
    """Ask for a verification of the whole ledger.

    Raises:
        UnderWayError: one is under way, which says the same.
    """
    if Verification.objects.filter(state__in=[_State.QUEUED, _State.RUNNING]).exists():
        raise UnderWayError
    kept = list(Verification.objects.values_list("pk", flat=True)[: _KEPT - 1])
    Verification.objects.exclude(pk__in=kept).delete()
    total = LedgerHead.objects.aggregate(total=Sum("size"))["total"] or 0
    audit.record_event(audit.Kind.VERIFY, by=by, thing=("Ledger", ""))
    return Verification.objects.create(asked_by=name_of(by), asked_at=now, total=total)


_one_at_a_time = threading.Lock()


def run_waiting() -> None:
    """Go on with the verification that waits; one at a time in each worker."""
    now = timezone.now()
    idle = Q(state=_State.RUNNING) & (Q(heartbeat_at=None) | Q(heartbeat_at__lt=now - _SILENT))
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
    if not mine.update(state=_State.RUNNING, heartbeat_at=now, holder=holder, deaths=row.deaths + died):
        return  # another worker has it
    held = Verification.objects.filter(pk=row.pk, holder=holder, state=_State.RUNNING)
    progress = msgspec.convert(row.progress, dict[str, Progress])
    steps = _Steps(held, progress)
    try:
        keys = known_verifiers()
        reports = verify(keys, checkpoint_dir(), progress, steps.tell) if keys else None
    except _PausedError:
        return
    except (KeyFileError, OSError, DatabaseError) as error:
        held.update(state=_State.FAILED, ended_at=timezone.now(), fault=f"{error}.")
        return
    if reports is None:
        held.update(state=_State.FAILED, ended_at=timezone.now(), fault=NO_KEY)
        return
    held.update(
        state=_State.DONE,
        ended_at=timezone.now(),
        reports=msgspec.to_builtins(reports),
        is_sound=all(report.ok for report in reports),
        progress={},
        done=F("total"),
    )


def reports_of(row: Verification) -> list[LogReport]:
    """Return what was found of each log."""
    return msgspec.convert(row.reports, list[LogReport], strict=False)


class _Steps:
    """Notes now and then how far a verification is, and breaks off when its slice is over."""

    def __init__(self, held: QuerySet[Verification], progress: dict[str, Progress]) -> None:
        self._held, self._progress = held, progress
        self._began = self._noted = monotonic()

    def tell(self, _log: str, _progress: Progress, _size: int) -> None:
        """Note it, where that was a while ago.

        Raises:
            _PausedError: it is time to stop, or another worker has it.
        """
        now = monotonic()
        is_over = now - self._began >= SLICE_SECONDS
        if not is_over and now - self._noted < _STEP_SECONDS:
            return
        self._noted = now
        beat = None if is_over else timezone.now()
        done = sum(each.next for each in self._progress.values())
        written = self._held.update(heartbeat_at=beat, done=done, progress=msgspec.to_builtins(self._progress))
        if is_over or not written:
            raise _PausedError
