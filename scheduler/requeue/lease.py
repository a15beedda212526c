"""The lease on requeueing Pods: one process at a time holds it, by the database's clock alone."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from django.db.models import Q
from django.db.models.functions import Now

from scheduler.models import RequeueState

# A process that dies with the lease blocks the others for this long.
LEASE_SECONDS = 10.0
RENEW_SECONDS = 1.0
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


class LeaseLostError(Exception):
    """Another process holds the lease now."""


class Lease:
    """A lease that was taken. For one thread."""

    def __init__(self, holder: str) -> None:
        self._holder = holder
        self._renewed_at = time.monotonic()

    def keep(self) -> None:
        """Renew the lease when it is due. Call this before each action under the lease.

        Raises:
            LeaseLostError: the lease has expired.
        """
        if time.monotonic() - self._renewed_at >= RENEW_SECONDS:
            self.note(held_until=Now() + timedelta(seconds=LEASE_SECONDS))
            self._renewed_at = time.monotonic()

    def note(self, **fields: Any) -> None:
        """Write fields of the row.

        Raises:
            LeaseLostError: another process holds the lease.
        """
        if not RequeueState.objects.filter(pk=1, holder=self._holder).update(**fields):
            raise LeaseLostError

    def give_back(self) -> None:
        """Release the lease at once, unless another process has taken it already."""
        RequeueState.objects.filter(pk=1, holder=self._holder).update(holder="")


@contextmanager
def leased() -> Iterator[Lease | None]:
    """Take the lease, and release it at the end; None while another process holds it."""
    RequeueState.objects.get_or_create(pk=1, defaults={"held_until": _NEVER})
    holder = uuid4().hex
    free = RequeueState.objects.filter(Q(holder="") | Q(held_until__lt=Now()), pk=1)
    if not free.update(holder=holder, held_until=Now() + timedelta(seconds=LEASE_SECONDS)):
        yield None
        return
    lease = Lease(holder)
    try:
        yield lease
    finally:
        lease.give_back()
