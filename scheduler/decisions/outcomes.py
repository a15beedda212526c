"""Finds the outcomes of Pods that nobody recorded, because the process that answered was stopped before they were bound.

The process that answers records the outcome from its watch, within a second. So only outcomes that stay open for longer after the
Pod has stopped waiting are looked up in the API server. Its state decides: a Pod on a node has that node; a Pod that waits stays
open; a Pod that is gone, or whose name has another UID, was either bound and deleted or never bound, which nobody can know any more.
"""

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

import msgspec
from django.db import transaction

from scheduler.cluster.bind import decision_named, is_name
from scheduler.cluster.client import Client, connect, pod_path
from scheduler.cluster.errors import APIError, APINotFoundError
from scheduler.cluster.texts import stored
from scheduler.decisions.record import Outcome
from scheduler.decisions.settling import settle_shadows
from scheduler.decisions.storing import hold_up_others, known_outcomes, note_outcomes, store_outcomes
from scheduler.models import Decision
from scheduler.models import Outcome as OutcomeRow

logger = logging.getLogger("berth.decisions")

# For this long after the Decision, and after the Pod stopped waiting, the outcome is left to the process that answered. Its record
# names the Decision, which may be in transit; of several records of one event the first is kept.
YOUNG = timedelta(seconds=10)
# Older Decisions aren't looked at: a Pod that still waits was asked about since. A day, and one more for a clock that lags by one.
# The others are found by the index `decision_open`.
OLD = timedelta(days=2)
# Up to this many Pods are read one by one. For more Pods that no longer wait, one list of all Pods is read.
MOST_READ = 500
# Outcomes that are stored in one transaction: no other process stores meanwhile.
MOST_STORED = 2_000
# The pause after a look-up, as a multiple of its duration.
REST_FACTOR = 4.0
# The pause after an error of the API server.
AWAY_SECONDS = 10.0


class OpenPod(NamedTuple):
    """A Pod of an answered call, whose outcome isn't known."""

    uid: str
    namespace: str
    name: str


class _Meta(msgspec.Struct):
    uid: str = ""
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    scheduler_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


class _Pods(msgspec.Struct):
    items: list[_Pod] = []


# A Pod, and what the API server has of it; None where it is gone.
_Found = tuple[OpenPod, _Pod | None]


def find_outcomes() -> int:
    """Look once with this process's Finder; return the number of Pods whose outcome was found."""
    return _finder().look()


@lru_cache(maxsize=1)
def _finder() -> "Finder":
    return Finder(connect())


class Finder:
    """Looks for outcomes. Several do no harm: each writes what the API server says.

    Args:
        client: of the cluster.
        clock: gives the time.
    """

    def __init__(self, client: Client, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._client = client
        self._clock = clock
        self._resting_until = float("-inf")
        # When each open Pod was first found not to wait any more, by its UID.
        self._noticed: dict[str, float] = {}
        self._process = f"worker@{socket.gethostname()}:{os.getpid()}"

    def look(self) -> int:
        """Find outcomes, and return for how many Pods; if the API server is unavailable, the next call tries again."""
        started = time.monotonic()
        if started < self._resting_until:
            return 0
        found: list[_Found] = []
        try:
            for each in self._find():
                found.append(each)  # noqa: PERF402 - what was found before a fault counts
        except APIError as error:
            logger.warning("outcomes of Pods can't be looked up yet: %s", error)
            self._resting_until = time.monotonic() + AWAY_SECONDS
        else:
            self._resting_until = time.monotonic() + REST_FACTOR * (time.monotonic() - started)
        for start in range(0, len(found), MOST_STORED):
            self._store(self._outcomes(found[start : start + MOST_STORED]))
        return len(found)

    def _store(self, found: Sequence[Outcome]) -> None:
        with transaction.atomic():
            hold_up_others(self._clock())
            rows = [outcome.row(self._process, 0, outcome.encode()) for outcome in found]
            store_outcomes(rows, known_outcomes(outcome.pod_uid for outcome in found))
            note_outcomes(found)
            settle_shadows(found)

    def _find(self) -> Iterator[_Found]:
        """Iterate over the Pods that stopped waiting a while ago, each with its current state; None for one that is gone.

        Raises:
            APIError: the API server can't be called now.
        """
        pods = open_pods(self._clock())
        waiting = self._waiting() if pods else set()
        pods = self._ripe([pod for pod in pods if pod.uid not in waiting])
        if len(pods) <= MOST_READ:
            yield from ((pod, self._read(pod)) for pod in pods)
            return
        # A caller may have sent Pods that never existed, or a watch may have been down for long: reading those Pods one by one
        # would delay the others.
        there = self._listed({pod.uid for pod in pods})
        yield from ((pod, there.get(pod.uid)) for pod in pods)

    def _ripe(self, pods: Sequence[OpenPod]) -> list[OpenPod]:
        """Return those of the Pods, which no longer wait, that this Finder noticed long enough ago."""
        now = time.monotonic()
        self._noticed = {pod.uid: self._noticed.get(pod.uid, now) for pod in pods}
        return [pod for pod in pods if now - self._noticed[pod.uid] >= YOUNG.total_seconds()]

    def _waiting(self) -> set[str]:
        pages = self._client.list_pages(path="/api/v1/pods", query={"fieldSelector": "spec.nodeName="})
        return {pod.metadata.uid for page in pages for pod in msgspec.json.decode(page, type=_Pods).items}

    def _listed(self, uids: Set[str]) -> dict[str, _Pod]:
        pages = self._client.list_pages(path="/api/v1/pods")
        listed = (pod for page in pages for pod in msgspec.json.decode(page, type=_Pods).items)
        return {pod.metadata.uid: pod for pod in listed if pod.metadata.uid in uids}

    def _read(self, pod: OpenPod) -> _Pod | None:
        """Return a Pod's current state; None when it is gone, also if its name has another UID now.

        Raises:
            APIError: the Pod can't be read now.
        """
        if not (is_name(pod.namespace) and is_name(pod.name)):
            return None  # the API server can't have a Pod of such a name, and the name would become part of a path
        try:
            answer = self._client.get(path=pod_path(pod.namespace, pod.name))
        except APINotFoundError:
            return None
        read = msgspec.json.decode(answer, type=_Pod)
        return read if read.metadata.uid == pod.uid else None

    def _outcomes(self, found: Sequence[_Found]) -> list[Outcome]:
        """Return the Outcome of each Pod: on a node, or gone. An annotation counts only if its Decision is about this Pod."""
        named = {decision_named(read.metadata.annotations) for _, read in found if read is not None} - {""}
        rows = Decision.objects.filter(pk__in=named).values_list("pk", "pod_uid") if named else ()
        about = {str(key): uid for key, uid in rows}
        return [self._outcome(pod, read, about) for pod, read in found]

    def _outcome(self, pod: OpenPod, read: _Pod | None, about: Mapping[str, str]) -> Outcome:
        outcome = Outcome(
            kind=OutcomeRow.Kind.GONE.value,
            pod_uid=pod.uid,
            pod_namespace=pod.namespace,
            pod_name=pod.name,
            node_name="",
            at=self._clock(),
        )
        if read is None or not read.spec.node_name:
            return outcome
        named = decision_named(read.metadata.annotations)
        return msgspec.structs.replace(
            outcome,
            kind=OutcomeRow.Kind.BOUND.value,
            node_name=read.spec.node_name,
            by=stored(read.spec.scheduler_name),
            decision=named if about.get(named) == pod.uid else "",
        )


def open_pods(now: datetime) -> list[OpenPod]:
    """Return the Pods without an outcome, neither young nor old; also those with a future time, from before the clock was set back."""
    rows = (
        Decision.objects.filter(placed_at=None, at__gt=now - OLD)
        .exclude(at__gt=now - YOUNG, at__lte=now + YOUNG)
        .order_by()
    )
    return [OpenPod(*row) for row in rows.values_list("pod_uid", "pod_namespace", "pod_name").distinct()]
