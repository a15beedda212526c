"""The users of each PriorityClass: Pods by workload and priority, counted in the cluster from time to time, and on request.

Counting is pure and needs memory only for the number of workloads; the list is read page by page, within a time limit. The
admin has no rights in the cluster, so a worker counts, and pages show the stored rows.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from threading import Lock
from typing import Any

import msgspec
from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from policies.engine.objects.metadata import Metadata, controller_of
from policies.models import PriorityClassLook, PriorityClassUser
from scheduler.cluster.client import Client, decoded
from scheduler.cluster.errors import APIError
from scheduler.cluster.kinds import PODS
from scheduler.cluster.texts import stored

logger = logging.getLogger("berth.priority_classes")

# The interval of counts; the next one also waits at least this many times as long as the last one took.
EVERY_SECONDS = 60.0
REST_FACTOR = 30.0
# The time limit for the whole list. A user waits for it, and the worker has other tasks.
LONGEST_SECONDS = 20.0
# The most rows that are kept, for a cluster in which each Pod is a workload of its own.
MOST_WORKLOADS = 20_000
# The most names of Pods that are kept for each workload.
_EXAMPLES = 10
_BATCH = 500


class _Spec(msgspec.Struct, rename="camel", frozen=True):
    priority_class_name: str | None = None
    priority: int | None = None


class _Pod(msgspec.Struct, frozen=True):
    metadata: Metadata = Metadata()
    spec: _Spec = _Spec()


class _Page(msgspec.Struct, frozen=True):
    items: list[_Pod] | None = None


class Key(msgspec.Struct, frozen=True, order=True):
    """Pods that are counted together: of one class, one workload and one priority."""

    priority_class: str
    namespace: str
    kind: str
    name: str
    priority: int


class Count(msgspec.Struct):
    """The number of these Pods, and the names of some."""

    pods: int = 0
    examples: list[str] = []


def count(pods: Iterable[_Pod]) -> dict[Key, Count]:
    """Count the Pods that name a class."""
    counts: dict[Key, Count] = {}
    for pod in pods:
        if not pod.spec.priority_class_name:
            continue
        kind, name = map(stored, workload_of(pod.metadata))
        priority = pod.spec.priority or 0
        key = Key(pod.spec.priority_class_name, pod.metadata.namespace, kind, name, priority)
        found = counts.setdefault(key, Count())
        found.pods += 1
        if len(found.examples) < _EXAMPLES:
            found.examples.append(pod.metadata.name)
    return counts


def workload_of(metadata: Metadata) -> tuple[str, str]:
    """Return the kind and name of a Pod's workload: the Deployment of its ReplicaSet, or the Pod itself if it has no owner."""
    owner = controller_of(metadata.owner_references)
    if owner is None:
        return "Pod", metadata.name
    # As the Deployment controller names them: kubernetes v1.36.3 pkg/controller/deployment/sync.go.
    hashed = (metadata.labels or {}).get("pod-template-hash")
    if owner.kind == "ReplicaSet" and hashed and owner.name.endswith(f"-{hashed}"):
        return "Deployment", owner.name.removesuffix(f"-{hashed}")
    return owner.kind, owner.name


def read_users(client: Client, *, longest_seconds: float = LONGEST_SECONDS) -> tuple[dict[Key, Count], str]:
    """Count the Pods of the cluster that haven't ended.

    Returns:
        The counts, and why they don't cover all Pods; "" if they do.

    Raises:
        APIError: the API server is unavailable, or refuses.
    """
    until = time.monotonic() + longest_seconds
    said: list[str] = []

    def pods() -> Iterator[_Pod]:
        seen = 0
        for page in client.list_pages(path=PODS.path, query=PODS.query):
            items = decoded(page, type_=_Page, context=f"GET {PODS.path}").items or []
            seen += len(items)
            yield from items
            if time.monotonic() > until:
                said.append(f"The list took too long: only the first {seen:,} Pods are counted.")
                return

    return count(pods()), "".join(said)


class Counter:
    """Counts users for one process. Another worker may count at the same time: both get the same result."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counting = Lock()
        self._rests_until = float("-inf")

    def tick(self, client: Client) -> bool:
        """Count if a count is due or requested; return whether it was done."""
        if not self._is_due() or not self._counting.acquire(blocking=False):
            return False
        started, rest = self._clock(), EVERY_SECONDS
        try:
            # Cleared first: a request that arrives during the count is for another count.
            PriorityClassLook.objects.update(users_asked_at=None)
            counts, fault = read_users(client)
            _keep(counts, fault)
            rest = max(rest, REST_FACTOR * (self._clock() - started))
        except APIError as error:
            logger.warning("the Pods of PriorityClasses can't be counted: %s", error)
            PriorityClassLook.objects.update(users_error=str(error))
            return False
        finally:
            self._rests_until = self._clock() + rest
            self._counting.release()
        return True

    def _is_due(self) -> bool:
        look = PriorityClassLook.objects.filter(pk=1).values_list("users_asked_at", "users_counted_at").first()
        if look is None:
            return False
        asked_at, counted_at = look
        is_old = counted_at is None or timezone.now() - counted_at >= timedelta(seconds=EVERY_SECONDS)
        return asked_at is not None or (is_old and self._clock() >= self._rests_until)


def _keep(counts: Mapping[Key, Count], fault: str) -> None:
    kept = sorted(counts.items(), key=lambda item: (-item[1].pods, item[0]))[:MOST_WORKLOADS]
    if len(kept) < len(counts):
        fault = f"{fault} Only the {len(kept):,} workloads with the most Pods are kept of {len(counts):,}.".strip()
    rows = [
        PriorityClassUser(**_fields(key), pods=found.pods, examples=", ".join(found.examples)) for key, found in kept
    ]
    with transaction.atomic():
        # The first write locks the row, so that two concurrent counts are written one after the other.
        PriorityClassLook.objects.update(users_counted_at=Now(), users_error=fault)
        PriorityClassUser.objects.all().delete()
        PriorityClassUser.objects.bulk_create(rows, batch_size=_BATCH)


def _fields(key: Key) -> dict[str, Any]:
    return msgspec.structs.asdict(key)
