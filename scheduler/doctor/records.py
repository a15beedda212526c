"""Checks the way of Decisions into the history: Redis, the worker, the disk, what is lost, the replica, the history's size."""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS
from django.db.models import F, Max, Sum

from policies.wording import counted
from scheduler.broker import celery_app
from scheduler.decisions.missing import database_now, missing
from scheduler.decisions.replica import history_behind, is_history_away
from scheduler.decisions.shipping import MOST_IN_REDIS
from scheduler.decisions.stream import MOST_IN_ENTRY, DecisionStream, StreamError
from scheduler.doctor.parts import Part, State
from scheduler.history.storage import forecast_now, over_budget, samples_now, size_in_words
from scheduler.history.storage import in_words as forecast_in_words
from scheduler.models import DecisionGap

# Entries in Redis: half of the shippers' limit.
_WAITING_MANY = MOST_IN_REDIS // 2
# Decisions that were lost earlier don't make the checkup fail: nothing brings them back.
_LOST_LATELY = timedelta(days=1)
_INGEST_LOOK_SECONDS = 2.5
_FULL_SHARE = 0.95
_PING_SECONDS = 1.0
# The Celery node name of a binder (controlplane/binder.py), which answers a ping, too, but runs none of a worker's tasks.
_BINDER = "binder@"
_GAPS = "The admin's page Decision gaps shows their numbers and the reasons."


def ingest(*, quick: bool) -> Iterator[Part]:
    """Check Redis, the worker and, unless `quick`, whether fewer and fewer Decisions wait in Redis."""
    stream = DecisionStream(settings.BERTH.redis_url)
    try:
        waiting = stream.length()
        yield _redis(stream.refusal(), stream.eviction_policy())
        yield from () if quick else [_worker()]
        yield _ingested(stream, waiting, quick=quick)
    except StreamError as error:
        remedy = "Start it, wait until it has read its data, or correct BERTH_REDIS_URL. Decisions wait with the extender meanwhile."
        yield Part("Redis", "error", f"can't be reached: {error}", remedy)


def _redis(refusal: str, policy: str) -> Part:
    if refusal:
        remedy = (
            "Give it memory (maxmemory) or room on its disk; of replicas, lead BERTH_REDIS_URL to the master. Decisions wait "
            "with the extender meanwhile, and tasks aren't run."
        )
        return Part("Redis", "error", f"answers, but refuses writes: {refusal}", remedy)
    if policy in {"", "noeviction"}:
        return Part("Redis", "ok", "answers")
    says = f"answers, but may evict records and tasks: maxmemory-policy is {policy}"
    return Part(
        "Redis",
        "warning",
        says,
        "Set maxmemory-policy noeviction. Evicted Decisions are sent again from disk.",
    )


def _worker() -> Part:
    app = celery_app()
    with app.connection() as broker:
        try:
            answers = app.control.ping(timeout=_PING_SECONDS, connection=broker)
        except (*broker.connection_errors, *broker.channel_errors) as error:
            return Part(
                "worker",
                "error",
                f"can't be reached: {error}",
                "Is Redis up, and does it have free memory (maxmemory)?",
            )
    answers = [each for each in answers if not any(name.startswith(_BINDER) for name in each)]
    if not answers:
        remedy = "Start the worker: without it no Decision reaches the database, and refused Pods aren't requeued."
        return Part("worker", "error", "none answers", remedy)
    return Part("worker", "ok", f"{len(answers)} answer{'s' if len(answers) == 1 else ''}")


def _ingested(stream: DecisionStream, waiting: int, *, quick: bool) -> Part:
    """Return whether Decisions are being ingested. A few always wait: a second look shows whether their number goes down."""
    if waiting and not quick:
        time.sleep(_INGEST_LOOK_SECONDS)
        if (later := stream.length()) >= waiting:
            remedy = "Do the worker and beat run? Is the database up? See the worker's log."
            return Part("history", "warning", f"{_waiting(later)} and their number doesn't decrease", remedy)
        waiting = later
    if waiting > _WAITING_MANY:
        remedy = "Do the worker and beat run? A second worker helps."
        return Part("history", "warning", _waiting(waiting), remedy)
    return Part("history", "ok", _waiting(waiting))


def _waiting(number: int) -> str:
    return (
        f"at most {number * MOST_IN_ENTRY:,} records of Decisions wait in Redis"
        if number
        else "no Decision waits in Redis"
    )


def spool() -> Part:
    """Check this machine's state folder, where an extender keeps Decisions until they are stored."""
    folder: Path = settings.BERTH.state_dir
    try:
        disk = shutil.disk_usage(folder)
    except OSError as error:
        return Part("disk", "error", f"{folder} can't be used: {error.strerror}", "Correct BERTH_STATE_DIR.")
    says, remedy = f"{disk.free / 2**30:.1f} GiB free for state", ""
    try:
        sizes = list(_sizes(folder / "spool"))
    except OSError as error:
        says += f"; {error.filename} can't be read: {error.strerror}"
        remedy = "Let this account read the spool, or run doctor as the extender's account."
    else:
        if sizes:
            says += f"; {sum(sizes) / 2**20:.1f} MiB of Decisions in {counted(len(sizes), 'file')} of the spool"
    # Without what the file system keeps for root, as `df` counts: there is no room left when that remains.
    if disk.used / max(disk.used + disk.free, 1) > _FULL_SHARE:
        return Part("disk", "warning", says, "Free disk space: an extender that can't write loses Decisions.")
    return Part("disk", "warning", says, remedy) if remedy else Part("disk", "ok", says)


def _sizes(folder: Path) -> Iterator[int]:
    """Yield the sizes of the files in a folder. A file that is shipped and deleted meanwhile is left out.

    Raises:
        OSError: the folder can't be read.
    """
    for parent, _, names in os.walk(folder, onerror=_unless_gone):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                yield Path(parent, name).stat().st_size


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def recorded() -> Part:
    """Return whether every answered Decision is in the history; computed now, so it doesn't depend on beat."""
    now = database_now()
    rows = DecisionGap.objects.filter(may_return=False)
    lost = rows.aggregate(decisions=Sum(F("last") - F("first") + 1), newest=Max("at"))
    said = _lost_in_words(lost["decisions"], lost["newest"]) if lost["decisions"] else ""
    gone = missing(now)
    if gone:
        number = sum(gap.decisions for gap in gone)
        says = f"{number:,} of processes that are gone {'is' if number == 1 else 'are'} not stored"
        remedy = (
            f"Bring back the state folder (BERTH_STATE_DIR) of {', '.join(gap.process for gap in gone[:3])}, and start a process "
            "on it: it ships what is left. If the folder is there, do Redis, the worker and beat run?"
        )
        return Part("Decisions", "error", f"{says}; {said}" if said else says, f"{remedy} {_GAPS}" if said else remedy)
    if not said:
        return Part("Decisions", "ok", "none is lost")
    state: State = "error" if now - lost["newest"] < _LOST_LATELY else "warning"
    return Part("Decisions", state, said, _GAPS)


def _lost_in_words(number: int, newest: datetime) -> str:
    return f"{number:,} {'is' if number == 1 else 'are'} lost, the last on {newest:%Y-%m-%d %H:%M} UTC"


def replica() -> Iterator[Part]:
    """Yield whether the replica from which pages read is up to date, if there is one."""
    if settings.HISTORY_DATABASE == DEFAULT_DB_ALIAS:
        return
    if is_history_away():
        remedy = "Bring it back, or take BERTH_HISTORY_DATABASE_URL out: pages read the database itself then."
        yield Part("replica", "warning", "can't be reached: pages show no history", remedy)
    elif behind := history_behind():
        remedy = "Check its replication: pages and REST don't show newer records. Scheduling doesn't read the replica."
        yield Part("replica", "warning", f"is {behind} behind", remedy)
    else:
        yield Part("replica", "ok", "pages read the history from it")


def storage() -> Part:
    """Return the history's size, and whether the forecast stays within the budget."""
    newest, _ = samples_now()
    if newest is None:
        says = "how large the history is hasn't been measured yet"
        return Part(
            "Storage", "unknown", says, "Wait five minutes after the start; then see whether worker and beat run."
        )
    says = f"the history takes up {size_in_words(newest.decision_bytes + newest.journal_bytes)}"
    found = forecast_now()
    if found is None:
        return Part("Storage", "ok", says)
    says = f"{says}; {forecast_in_words(found)}"
    if over_budget(found):
        remedy = (
            f"The budget is {size_in_words(settings.BERTH.history_budget_bytes)}: keep details for fewer days "
            "(BERTH_RETENTION_DETAILS_DAYS), or Decisions (BERTH_RETENTION_DAYS), or give it more."
        )
        return Part("Storage", "warning", says, remedy)
    return Part("Storage", "ok", says)
