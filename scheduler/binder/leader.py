"""One active scheduler at a time, by a coordination.k8s.io Lease, as k8s.io/client-go v0.36.3 tools/leaderelection does it.

Time is measured by this process's own monotonic clock: another process's Lease is free once it was *seen* unchanged for its whole
duration, and a holder stops relying on its own Lease well before that. An identity belongs to a host and a state folder, and a
file lock there ensures that only one process uses it at a time: so the successor of a killed process takes its Lease at once.
"""

import fcntl
import logging
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIConflictError, APIError
from scheduler.cluster.lease import Lease, LeaseStore, timestamp
from scheduler.metrics import BINDER_LEADER

logger = logging.getLogger("berth.binding")

DURATION_SECONDS = 15.0
# A holder that could not renew its Lease for this long no longer leads: all its requests are answered before another process
# takes over.
RENEW_WITHIN_SECONDS = 10.0

RETRY_SECONDS = 2.0
_CALL_TIMEOUT_SECONDS = 3.0
# How soon to retry when the API server didn't answer: it may be back in a moment.
_AWAY_RETRY_SECONDS = 0.25


class StateLock:
    """The lock on a state folder: one process holds it, and the kernel releases it when that process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "binder.lock"
        self._file: IO[str] | None = None

    def take(self) -> bool:
        """Take the lock. False when another process holds it."""
        if self._file is not None:
            return True
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        self._file = file
        return True

    def give_back(self) -> None:
        """Release the lock."""
        if self._file is not None:
            self._file.close()
            self._file = None


def identity_of(folder: Path) -> str:
    """Return the identity of the process that holds the lock of a state folder on this host.

    The folder stores the identity. The folder's path wouldn't do: containers may share a host name and use the same path.
    """
    path = folder / "binder.id"
    kept = made = uuid4().hex[:12]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            kept = file.read(len(made)) or made
            if kept is made:
                file.write(made)
    except OSError as error:
        logger.warning("the identity can't be saved in the state folder: %s", error)
    return f"berth-binder@{socket.gethostname()}:{kept}"


class Elector:
    """Tries to hold the Lease for as long as it runs. `leads` may be asked by any thread.

    Args:
        client: to the API server.
        namespace: where the Lease is, or is made.
        name: of the Lease.
        identity: of this process; no other running process has it.
        lock: makes the identity unique; None where it is unique anyway.
        clock: monotonic seconds.
        on_change: called in the elector's thread with whether it leads now.
    """

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        name: str,
        identity: str,
        lock: StateLock | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self._store = LeaseStore(
            client, namespace=namespace, name=name, call_timeout_seconds=_CALL_TIMEOUT_SECONDS, clock=clock
        )
        self._name, self.identity = name, identity
        self._lock = lock
        self._clock = clock
        self._on_change = on_change
        self._until = float("-inf")
        self._led = False
        self._said_failing = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="berth-elector", daemon=True)
        # The Lease's holder when it was last read.
        self.holder = ""

    def leads(self) -> bool:
        """Return whether this process may bind: it renewed the Lease not long ago."""
        return self._clock() < self._until

    def start(self) -> None:
        """Start the elector's thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop leading and release the Lease, so that another process takes over at once."""
        self._stopping.set()
        self._thread.join(timeout=2 * _CALL_TIMEOUT_SECONDS)
        led, self._until = self.leads(), float("-inf")
        if led:
            self._release()
        if self._lock is not None:
            self._lock.give_back()
        self._tell()

    def step(self) -> float:
        """Try to take or to renew the Lease once. Return how many seconds later to try again."""
        if self._lock is not None and not self._lock.take():
            self.holder = "another process with the same state folder"
            return RETRY_SECONDS
        asked = self._clock()
        try:
            held = self._try()
        except APIError as error:
            if not self._said_failing:
                logger.warning("the Lease %s can't be acquired: %s", self._name, error)
            self._said_failing = True
            self._tell()
            return _AWAY_RETRY_SECONDS if not self.leads() else RETRY_SECONDS / 4
        self._said_failing = False
        if held:
            self._until = asked + RENEW_WITHIN_SECONDS
        elif self.holder != self.identity:
            self._until = float("-inf")
        self._tell()
        return RETRY_SECONDS

    def _run(self) -> None:
        wait = 0.0
        while not self._stopping.wait(wait):
            try:
                wait = self.step()
            except Exception:
                # The last guard of a thread that must not end, as when the state folder can't be written.
                logger.exception("the leader election failed, it is retried")
                wait = RETRY_SECONDS

    def _tell(self) -> None:
        leads = self.leads()
        BINDER_LEADER.set(leads)
        if leads != self._led:
            self._led = leads
            logger.info("%s the Lease %s", "holding" if leads else "no longer holding", self._name)
            self._on_change(leads)

    def _try(self) -> bool:
        found = self._store.read()
        # The holder is written to the database, and PostgreSQL rejects NUL, which the API server allows.
        self.holder = (found.spec.holder_identity or "").replace("\0", "") if found else ""
        if not self._store.is_free(found, self.identity, default_seconds=DURATION_SECONDS):
            return False
        try:
            self._write(found, holder=self.identity)
        except APIConflictError:
            return False
        self.holder = self.identity
        return True

    def _write(self, found: Lease | None, *, holder: str) -> None:
        now = timestamp()
        spec: dict[str, Any] = {
            "holderIdentity": holder,
            # As client-go releases a Lease: a candidate that waits for its duration doesn't wait long either.
            "leaseDurationSeconds": int(DURATION_SECONDS) if holder else 1,
            "renewTime": now,
            "acquireTime": now,
            "leaseTransitions": 0,
        }
        if found is not None:
            kept = found.spec.holder_identity == holder or not holder
            spec["acquireTime"] = (found.spec.acquired_at or now) if kept else now
            spec["leaseTransitions"] = found.spec.lease_transitions or 0 if kept else found.spec.transitions_and_one
        self._store.write(found.metadata.resource_version if found else "", spec)

    def _release(self) -> None:
        try:
            found = self._store.read()
            if found is not None and found.spec.holder_identity == self.identity:
                self._write(found, holder="")
        except APIError as error:
            logger.warning("the Lease %s can't be released, it will expire: %s", self._name, error)
