"""The last call of each caller and verb: noted in memory by each call, written to the database with the heartbeat.

A call must not wait for the database, and one row per call would be far too many: users only ask whether a
kube-scheduler's calls arrive at all, from whom, and how long ago the last one came.
"""

import threading
import time
from collections import OrderedDict
from datetime import UTC, datetime

import msgspec

from scheduler.models import Caller

# The most pairs of caller and verb that are remembered; the pair that was silent longest is dropped first.
MAX_CALLERS = 256

_MAX_LENGTH = 256


class Call(msgspec.Struct, frozen=True):
    """A caller's last call of a verb. `address` is its client's address, "" when unknown."""

    verb: str
    identity: str
    address: str
    last_at: datetime


class Callers:
    """The last calls of all callers. Any thread may call `note`; one thread saves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: OrderedDict[tuple[str, str], tuple[float, str]] = OrderedDict()
        self._saved: dict[tuple[str, str], datetime] = {}

    def note(self, verb: str, identity: str, address: str = "") -> None:
        """Note a permitted call.

        Args:
            verb: filter, prioritize, bind or preempt.
            identity: the caller: the name in its client certificate, or a placeholder for callers without one.
            address: the client's address.
        """
        key = (identity[:_MAX_LENGTH], verb)
        with self._lock:
            self._last[key] = (time.time(), address[:_MAX_LENGTH])
            self._last.move_to_end(key)
            if len(self._last) > MAX_CALLERS:
                self._last.popitem(last=False)

    def rows(self) -> list[Call]:
        """Return the last calls, by caller and verb."""
        with self._lock:
            found = sorted(self._last.items())
        return [Call(verb, who, address, datetime.fromtimestamp(at, UTC)) for (who, verb), (at, address) in found]

    def save(self, process: str) -> None:
        """Write the calls that are new since the last save. `process` is the process that was called.

        Raises:
            django.db.DatabaseError: the database is unavailable; the next save writes these calls.
        """
        fresh = [row for row in self.rows() if self._saved.get((row.identity, row.verb)) != row.last_at]
        if not fresh:
            return
        Caller.objects.bulk_create(
            [Caller(process=process, **msgspec.structs.asdict(row)) for row in fresh],
            update_conflicts=True,
            unique_fields=["identity", "verb"],
            update_fields=["address", "process", "last_at"],
        )
        known = {(row.identity, row.verb): row.last_at for row in self.rows()}
        self._saved = {key: at for key, at in self._saved.items() if key in known}
        self._saved |= {(row.identity, row.verb): row.last_at for row in fresh}
