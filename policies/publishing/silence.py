"""Signs of life of a process that took up work, and how others detect that it is gone.

Only the database's clock counts, since machines' clocks differ.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import DatabaseError, InterfaceError, connection
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

_logger = logging.getLogger("berth.process")

_BEAT_SECONDS = 10.0


def is_silent(field: str, after: timedelta) -> Q:
    """Return the condition for rows without a sign of life for this long, or with a future one, after the clock was set back."""
    return Q(**{f"{field}__lt": Now() - after}) | Q(**{f"{field}__gt": Now() + after})


@contextmanager
def beating(rows: QuerySet[Any]) -> Iterator[None]:
    """Set `heartbeat_at` of these rows again and again, from a thread of its own: one query of the work may take minutes."""
    is_over = threading.Event()

    def beat() -> None:
        while not is_over.wait(_BEAT_SECONDS):
            try:
                rows.update(heartbeat_at=Now())
            except (DatabaseError, InterfaceError) as error:
                _logger.warning("no sign of life of a %s can be written: %s", rows.model.__name__, error)
            finally:
                connection.close()

    thread = threading.Thread(target=beat, name="berth-beating", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
