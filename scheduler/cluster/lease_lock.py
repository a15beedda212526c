"""A lock across processes: a coordination.k8s.io Lease, taken and released by compare-and-set.

Binding needs the API server anyway, so the lock is available whenever it is needed. Time is measured by this
process's own monotonic clock: another holder's Lease is free once it was *seen* unchanged for its whole duration
(as k8s.io/client-go v0.36.3 tools/leaderelection does it), and a holder stops relying on its own Lease before that.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import SystemRandom
from typing import Any

import msgspec

from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIConflictError, APIError
from scheduler.cluster.lease import Lease, LeaseStore, timestamp

logger = logging.getLogger("berth.cluster")

# The Lease that a process holds while it binds a Pod whose rules count Pods.
BINDING_LEASE = "berth-binding"

DURATION_SECONDS = 5
# A holder no longer acts on a Lease with less than this left: its last request may take as long.
MARGIN_SECONDS = 1.5

# How long one process keeps the Lease for its own next threads while other processes may wait.
LONGEST_HOLD_SECONDS = 0.5

NOTE = "berth/note"
_POLL_SECONDS = (0.01, 0.03)
_CALL_TIMEOUT_SECONDS = 1.0


class LockBusyError(Exception):
    """The lock could not be taken in time."""


class Held(msgspec.Struct):
    """The lock while it is held.

    Attributes:
        note: the previous holder's note; set it to leave one for the next holder.
        until: monotonic seconds until which the lock may be relied upon.
    """

    note: str
    until: float
    resource_version: str
    since: float


class LeaseLock:
    """One named lock. One object per process, used by all its threads.

    Args:
        client: to the API server.
        namespace: where the Lease is, or is made.
        name: of the Lease.
        identity: of this process; no other may have it.
    """

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = LeaseStore(
            client, namespace=namespace, name=name, call_timeout_seconds=_CALL_TIMEOUT_SECONDS, clock=clock
        )
        self._name, self._identity = name, identity
        self._clock = clock
        self._jitter = SystemRandom()
        self._turn = threading.Condition()
        self._busy = False
        # The threads that wait, in the order in which they came: otherwise the thread that had the turn mostly gets it again.
        self._waiting: deque[int] = deque()
        self._held: Held | None = None
        # Until then the threads of this process leave a released Lease to other processes, which look only every 10 to 30 ms.
        self._leaves_until = float("-inf")

    @contextmanager
    def hold(self, timeout_seconds: float) -> Iterator[Held]:
        """Hold the lock for a `with` block.

        Raises:
            LockBusyError: the lock could not be taken within this time.
            APIError: the API server can't be called.
        """
        deadline = self._clock() + timeout_seconds
        self._take_turn(timeout_seconds)
        try:
            yield self._renewed(deadline)
        finally:
            self._give_back()

    def is_valid(self, held: Held) -> bool:
        """Return whether the lock may still be relied upon."""
        return self._clock() < held.until

    def _take_turn(self, timeout_seconds: float) -> None:
        """Wait for the other threads of this process that came before."""
        this = threading.get_ident()
        with self._turn:
            self._waiting.append(this)
            free = self._turn.wait_for(lambda: not self._busy and self._waiting[0] == this, timeout_seconds)
            self._waiting.remove(this)
            if not free:
                # The next one may have been woken while this one came first.
                self._turn.notify_all()
                message = "other threads hold the lock"
                raise LockBusyError(message)
            self._busy = True

    def _give_back(self) -> None:
        with self._turn:
            held = self._held
            if held is not None and self._waiting and self._may_keep(held):
                # Within this turn: otherwise a waiting thread could come in between, and nobody would release the Lease.
                self._end_turn()
                return
        if held is not None:
            self._held = None
            self._release(held)
        with self._turn:
            if held is not None and self._waiting:
                self._leaves_until = self._clock() + _POLL_SECONDS[1]
            self._end_turn()

    def _end_turn(self) -> None:
        self._busy = False
        self._turn.notify_all()

    def _may_keep(self, held: Held) -> bool:
        return self.is_valid(held) and self._clock() - held.since < LONGEST_HOLD_SECONDS

    def _renewed(self, deadline: float) -> Held:
        held = self._held
        if held is None or not self.is_valid(held):
            self._held = None
            held = self._held = self._acquire(deadline)
        return held

    def _acquire(self, deadline: float) -> Held:
        left = min(self._leaves_until, deadline) - self._clock()
        if left > 0:
            time.sleep(left)
        while True:
            sent = self._clock()
            found = self._store.read()
            if self._store.is_free(found, self._identity, default_seconds=DURATION_SECONDS):
                version = self._write(found)
                if version:
                    note = (found.metadata.annotations or {}).get(NOTE, "") if found else ""
                    return Held(note, sent + DURATION_SECONDS - MARGIN_SECONDS, version, sent)
            pause = self._jitter.uniform(*_POLL_SECONDS)
            if self._clock() + pause > deadline:
                message = "another process holds the lock"
                raise LockBusyError(message)
            time.sleep(pause)

    def _write(self, found: Lease | None) -> str:
        """Take the Lease; "" when another process was faster."""
        version, note, transitions = "", "", 0
        if found is not None:
            version = found.metadata.resource_version
            note = (found.metadata.annotations or {}).get(NOTE, "")
            transitions = found.spec.transitions_and_one
        spec = _spec(self._identity) | {"acquireTime": timestamp(), "leaseTransitions": transitions}
        try:
            return self._store.write(version, spec, {NOTE: note}).metadata.resource_version
        except APIConflictError:
            return ""

    def _release(self, held: Held) -> None:
        """Release the Lease, with the note. A process that took it meanwhile keeps it; if the call is lost, the Lease expires."""
        try:
            self._store.write(held.resource_version, _spec(""), {NOTE: held.note})
        except APIError as error:
            # The Lease expires by itself; the others wait that long.
            logger.warning("the Lease %s could not be released: %s", self._name, error)


def _spec(holder: str) -> dict[str, Any]:
    return {"holderIdentity": holder, "leaseDurationSeconds": DURATION_SECONDS, "renewTime": timestamp()}
