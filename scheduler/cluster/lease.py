"""A lock that holds across processes: a coordination.k8s.io Lease, taken and given back by compare-and-set.

Whoever binds needs the API server anyway, so the lock can't be away when it is needed. Time is judged by this
process's own monotonic clock: a Lease that someone holds is free once it was *seen* unchanged for its whole duration
(as k8s.io/client-go v0.36.3 tools/leaderelection does it), and a holder stops believing in its own before that.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from random import SystemRandom
from typing import Any

import msgspec

from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIConflictError, APIError, APINotFoundError, APIUnavailableError

logger = logging.getLogger("berth.cluster")

DURATION_SECONDS = 5
MARGIN_SECONDS = 1.5
"""A holder acts no longer on a Lease that has less than this left: what it sent may take as long."""

LONGEST_HOLD_SECONDS = 0.5
"""How long one process keeps the Lease for its own next ones while others may wait."""

NOTE = "berth/note"
_POLL_SECONDS = (0.01, 0.03)
_CALL_TIMEOUT_SECONDS = 1.0


class LockBusyError(Exception):
    """The lock could not be had in time."""


class Held(msgspec.Struct):
    """The lock while it is held.

    Attributes:
        note: what the holder before left for the next; set it to leave something.
        until: monotonic seconds up to which the lock may be relied upon.
    """

    note: str
    until: float
    resource_version: str
    since: float


class _Metadata(msgspec.Struct, rename="camel", frozen=True):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct, rename="camel", frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


class LeaseLock:
    """One named lock. One object a process, used by all its threads.

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
        self._client = client
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace, self._name, self._identity = namespace, name, identity
        self._clock = clock
        self._jitter = SystemRandom()
        self._turn = threading.Condition()
        self._busy = False
        self._waiting = 0
        self._held: Held | None = None
        self._seen: tuple[str, float] = ("", 0.0)

    @contextmanager
    def hold(self, timeout_seconds: float) -> Iterator[Held]:
        """Hold the lock for a `with` block.

        Raises:
            LockBusyError: it could not be had within this time.
            APIError: the API server can't be asked.
        """
        deadline = self._clock() + timeout_seconds
        self._take_turn(timeout_seconds)
        try:
            yield self._renewed(deadline)
        finally:
            self._give_back()

    def is_valid(self, held: Held) -> bool:
        """Tell whether the lock may still be relied upon."""
        return self._clock() < held.until

    def _take_turn(self, timeout_seconds: float) -> None:
        """Wait for the other threads of this process."""
        with self._turn:
            self._waiting += 1
            free = self._turn.wait_for(lambda: not self._busy, timeout_seconds)
            self._waiting -= 1
            if not free:
                message = "other threads hold the lock"
                raise LockBusyError(message)
            self._busy = True

    def _give_back(self) -> None:
        with self._turn:
            held = self._held
            passes_on = held is not None and self._waiting and self._may_keep(held)
        if held is not None and not passes_on:
            self._held = None
            self._release(held)
        with self._turn:
            self._busy = False
            self._turn.notify()

    def _may_keep(self, held: Held) -> bool:
        return self.is_valid(held) and self._clock() - held.since < LONGEST_HOLD_SECONDS

    def _renewed(self, deadline: float) -> Held:
        held = self._held
        if held is None or not self.is_valid(held):
            self._held = None
            held = self._held = self._acquire(deadline)
        return held

    def _acquire(self, deadline: float) -> Held:
        while True:
            sent = self._clock()
            found = self._read()
            if found is None or self._is_free(found):
                version = self._write(found)
                if version:
                    note = (found.metadata.annotations or {}).get(NOTE, "") if found else ""
                    return Held(note, sent + DURATION_SECONDS - MARGIN_SECONDS, version, sent)
            pause = self._jitter.uniform(*_POLL_SECONDS)
            if self._clock() + pause > deadline:
                message = "another process holds the lock"
                raise LockBusyError(message)
            time.sleep(pause)

    def _is_free(self, found: _Lease) -> bool:
        if not found.spec.holder_identity or found.spec.holder_identity == self._identity:
            return True
        version, since = self._seen
        if version != found.metadata.resource_version:
            self._seen = (found.metadata.resource_version, self._clock())
            return False
        return self._clock() - since > (found.spec.lease_duration_seconds or DURATION_SECONDS)

    def _read(self) -> _Lease | None:
        try:
            answer = self._client.get(path=f"{self._collection}/{self._name}", timeout_seconds=_CALL_TIMEOUT_SECONDS)
        except APINotFoundError:
            return None
        return _lease_of(answer)

    def _write(self, found: _Lease | None) -> str:
        """Take the Lease; "" when someone else was faster."""
        transitions = (found.spec.lease_transitions or 0) + 1 if found else 0
        note = (found.metadata.annotations or {}).get(NOTE, "") if found else ""
        document = self._document(
            version=found.metadata.resource_version if found else "",
            holder=self._identity,
            note=note,
            transitions=transitions,
        )
        try:
            if found is None:
                answer = self._client.post(path=self._collection, body=document, timeout_seconds=_CALL_TIMEOUT_SECONDS)
            else:
                answer = self._put(document)
        except APIConflictError:
            return ""
        return _lease_of(answer).metadata.resource_version

    def _release(self, held: Held) -> None:
        """Give the Lease back, with the note. Whoever took it meanwhile keeps it; a lost call lets it run out."""
        document = self._document(version=held.resource_version, holder="", note=held.note, transitions=None)
        try:
            self._put(document)
        except APIError as error:
            # It runs out by itself; the others wait that long.
            logger.warning("the Lease %s could not be given back: %s", self._name, error)

    def _put(self, document: bytes) -> bytes:
        return self._client.put(
            path=f"{self._collection}/{self._name}", body=document, timeout_seconds=_CALL_TIMEOUT_SECONDS
        )

    def _document(self, *, version: str, holder: str, note: str, transitions: int | None) -> bytes:
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace, "annotations": {NOTE: note}}
        if version:
            metadata["resourceVersion"] = version
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        spec: dict[str, Any] = {
            "holderIdentity": holder,
            "leaseDurationSeconds": DURATION_SECONDS,
            "renewTime": now,
        }
        if transitions is not None:
            spec |= {"acquireTime": now, "leaseTransitions": transitions}
        return msgspec.json.encode(
            {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        )


def _lease_of(answer: bytes) -> _Lease:
    try:
        return msgspec.json.decode(answer, type=_Lease)
    except msgspec.DecodeError as error:
        message = f"the answer isn't a Lease: {error}"
        raise APIUnavailableError(message) from error
