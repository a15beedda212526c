"""Reads a coordination.k8s.io Lease, writes it by compare-and-set, and tells when another holder's Lease is free.

Time is measured by this process's own monotonic clock: another holder's Lease is free once it was *seen* unchanged for
its whole duration, as k8s.io/client-go v0.36.3 tools/leaderelection does it.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from scheduler.cluster.client import Client
from scheduler.cluster.errors import APINotFoundError, APIUnavailableError
from scheduler.cluster.texts import moment

# The API server refuses a Lease with more transitions.
MOST_TRANSITIONS = 2**31 - 1


class Metadata(msgspec.Struct, rename="camel", frozen=True):
    """The fields that are read of a Lease's metadata."""

    resource_version: str = ""
    annotations: dict[str, str] | None = None


class Spec(msgspec.Struct, rename="camel", frozen=True):
    """The fields that are read of a Lease's spec."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    acquire_time: str | None = None

    @property
    def transitions_and_one(self) -> int:
        """The Lease's transitions, plus one; 0 if that number would be refused."""
        return ((self.lease_transitions or 0) + 1) % (MOST_TRANSITIONS + 1)

    @property
    def acquired_at(self) -> str:
        """The Lease's acquireTime; "" if there is none, or the API server wouldn't accept it back."""
        return self.acquire_time if self.acquire_time and moment(self.acquire_time) else ""


class Lease(msgspec.Struct, frozen=True):
    """A Lease as read from the API server."""

    metadata: Metadata = Metadata()
    spec: Spec = Spec()


def timestamp() -> str:
    """Return the current time in the format of a Lease."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


class LeaseStore:
    """One Lease on the API server. For one thread at a time.

    Args:
        client: to the API server.
        namespace: where the Lease is, or is made.
        name: of the Lease.
        call_timeout_seconds: for each call.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        name: str,
        call_timeout_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace, self._name = namespace, name
        self._timeout_seconds = call_timeout_seconds
        self._clock = clock
        # Another holder's last version, and since when it was seen; "" for a Lease that was deleted.
        self._seen: tuple[str, float] | None = None

    def read(self) -> Lease | None:
        """Return the Lease; None where there is none.

        Raises:
            APIError: it can't be read.
        """
        path = f"{self._collection}/{self._name}"
        try:
            return _decode(self._client.get(path=path, timeout_seconds=self._timeout_seconds))
        except APINotFoundError:
            return None

    def write(self, version: str, spec: dict[str, Any], annotations: dict[str, str] | None = None) -> Lease:
        """Replace this version of the Lease; create the Lease if the version is "".

        Raises:
            APIConflictError: another process was faster.
            APIError: the Lease can't be written.
        """
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
        if annotations is not None:
            metadata["annotations"] = annotations
        if version:
            metadata["resourceVersion"] = version
        document = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        body = msgspec.json.encode(document)
        if version:
            path = f"{self._collection}/{self._name}"
            return _decode(self._client.put(path=path, body=body, timeout_seconds=self._timeout_seconds))
        return _decode(self._client.post(path=self._collection, body=body, timeout_seconds=self._timeout_seconds))

    def is_free(self, found: Lease | None, identity: str, *, default_seconds: float) -> bool:
        """Return whether the process with this identity may take the Lease; `default_seconds` if the Lease has no duration.

        A deleted Lease is free at once only if no other holder was seen: that holder notices the deletion when it renews it.
        """
        if found is None:
            found = Lease()
            is_held = self._seen is not None
        else:
            is_held = found.spec.holder_identity not in {None, "", identity}
        if not is_held:
            self._seen = None
            return True
        version = found.metadata.resource_version
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, self._clock())
            return False
        return self._clock() - self._seen[1] > (found.spec.lease_duration_seconds or default_seconds)


def _decode(answer: bytes) -> Lease:
    try:
        return msgspec.json.decode(answer, type=Lease)
    except msgspec.DecodeError as error:
        message = f"the answer isn't a Lease: {error}"
        raise APIUnavailableError(message) from error
