"""Moves Decisions from Redis to the database. Safe to run twice at once: a Decision is stored once by its number."""

import logging

import msgspec
from django.conf import settings

from scheduler.decisions.record import Record
from scheduler.decisions.stream import DecisionStream
from scheduler.models import Decision

logger = logging.getLogger("berth.decisions")

BATCH = 500
MAX_BATCHES = 20


def drain(stream: DecisionStream | None = None) -> int:
    """Store what waits, at most MAX_BATCHES batches of BATCH, and give the number of entries handled.

    An entry leaves Redis only after its row is committed.

    Raises:
        StreamError: Redis is away. What was stored stays stored and isn't stored again.
        django.db.DatabaseError: the database is away. Nothing has left Redis.
    """
    stream = stream or DecisionStream(settings.BERTH.redis_url)
    handled = 0
    for _ in range(MAX_BATCHES):
        entries = stream.read(BATCH)
        if not entries:
            break
        rows = [row for _, entry in entries if (row := _row(entry)) is not None]
        Decision.objects.bulk_create(rows, ignore_conflicts=True)
        stream.finish([entry_id for entry_id, _ in entries])
        handled += len(entries)
    return handled


def _row(entry: bytes) -> Decision | None:
    try:
        record = msgspec.json.decode(entry, type=Record)
    except msgspec.DecodeError as error:
        # Nothing of ours writes such an entry. It must not hold up the ones behind it.
        logger.error("an entry of the stream is not a Decision and is dropped: %s", error)  # noqa: TRY400 - the entry is at fault
        return None
    return Decision(**msgspec.structs.asdict(record))
