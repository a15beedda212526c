"""Compares the times of AuditEvents with those at which the ledger was signed before and after they were logged.

Anybody who can write rows can add an event of any time, and a worker logs it. Its place among the signed leaves can't be chosen.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from policies.models import AuditEvent
from scheduler.ledger.events import time_of_row
from scheduler.ledger.logs import EVENTS
from scheduler.models import LedgerLeaf

# Clocks differ, and one that is a day ahead may sign and act for a while before it is set right.
MOST_APART = timedelta(days=2)
_CHUNK = 2_000


class Signing(NamedTuple):
    """How many leaves a checkpoint is over, and when it was signed."""

    size: int
    at: datetime


class Misplaced(NamedTuple):
    """An event whose time can't be right: its leaf, and why, in words."""

    leaf: int
    words: str


def misplaced_events(signings: Sequence[Signing]) -> Iterator[Misplaced]:
    """Iterate over the events that were logged long after the time that they say, or long before.

    One clock alone proves nothing: beside the checkpoint's time, that of an event logged before has to be later, or earlier. So
    events that nobody logged for days are no fault, nor are those beside a signer whose clock is wrong.

    Args:
        signings: the checkpoints of the log of events, by size.
    """
    passed, newest = 0, None
    logged_after: datetime | None = None
    leaves = LedgerLeaf.objects.filter(log=EVENTS, index__gte=0).order_by("index").values_list("index", "row")
    for index, row in leaves.iterator(chunk_size=_CHUNK):
        while passed < len(signings) and signings[passed].size <= index:
            logged_after = min(signings[passed].at, newest) if newest else None
            passed += 1
        at = time_of_row(row)
        if at is None:
            continue  # tampered with, which is reported
        if logged_after and logged_after - at > MOST_APART:
            yield _misplaced(index, row, at, "later than", signings[passed - 1])
        elif newest and passed < len(signings) and at - max(signings[passed].at, newest) > MOST_APART:
            yield _misplaced(index, row, at, "before", signings[passed])
        else:
            newest = max(newest or at, at)


def _misplaced(index: int, row: str, at: datetime, when: str, signing: Signing) -> Misplaced:
    event = AuditEvent.objects.filter(pk=row).first()
    name = f"AuditEvent {row} ({event})" if event else row
    return Misplaced(
        index,
        f"leaf {index}: {name} was made at {at}, and was logged {when} the checkpoint over {signing.size} leaves, which was signed at "
        f"{signing.at.astimezone(UTC)}: it was planted, or a clock was days wrong",
    )
