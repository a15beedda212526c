"""Keeps a row for each Pod without a node, as it is in the cluster, with what held it when Berth was last asked.

A worker lists the cluster every few seconds, not a page: so a page costs the same whether the API server answers or
not, and shows how old its data is. Concurrent lists do no harm: each writes the API server's answer.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec
from django.db import transaction
from django.db.models import OuterRef, Subquery

from scheduler.cluster.client import PENDING_SELECTOR, Client, connect
from scheduler.cluster.errors import APIError, APIUnavailableError
from scheduler.decisions.matrix import Refusal, refusals_of
from scheduler.decisions.reading import Names, read_decision
from scheduler.models import OPENING_VERBS, Decision, PendingLook, PendingPod
from scheduler.pending.holding import Unbound, hold_of, unbound_pods

logger = logging.getLogger("berth.pending")

# The pause after a look is this many times as long as the look took, so that a large cluster isn't listed all the time.
REST_FACTOR = 4.0
# The pause after a fault of the API server.
AWAY_SECONDS = 10.0
# The most Decisions that are read in a look: the next looks read the rest, the Pods that were read longest ago first.
MOST_READ = 500
_CHUNK = 500
_CLOCKS_APART = timedelta(hours=1)
_NEVER = datetime.min.replace(tzinfo=UTC)
_SAID = tuple(name for name in Unbound.__struct_fields__ if name != "uid")
_TRIED = ("decision", "tried_at", "nodes", "feasible", "rule_set", "assignment", "rule", "reason")


def follow_pending() -> int:
    """Look once with this process's Follower; return the number of Pods without a node."""
    return _follower().look()


@lru_cache(maxsize=1)
def _follower() -> "Follower":
    return Follower(connect())


class Follower:
    """Follows the Pods without a node.

    Args:
        client: of the cluster.
        clock: returns the time.
    """

    def __init__(self, client: Client, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._client = client
        self._clock = clock
        self._resting_until = float("-inf")

    def look(self) -> int:
        """List the Pods and write the differences. If the API server is unavailable, that is recorded, and the rows stay."""
        started = time.monotonic()
        if started < self._resting_until:
            return 0
        at = self._clock()
        try:
            unbound = self._list()
        except APIError as error:
            logger.warning("Pods without a node can't be listed yet: %s", error)
            self._resting_until = time.monotonic() + AWAY_SECONDS
            _note(fault=str(error), fault_at=at)
            return 0
        rows, changed = _follow(unbound)
        _judge(rows, changed)
        _note(looked_at=at, fault="", fault_at=None)
        self._resting_until = time.monotonic() + REST_FACTOR * (time.monotonic() - started)
        return len(unbound)

    def _list(self) -> dict[str, Unbound]:
        pages = self._client.list_pages(path="/api/v1/pods", query={"fieldSelector": PENDING_SELECTOR})
        try:
            return {pod.uid: pod for page in pages for pod in unbound_pods(page)}
        except msgspec.DecodeError as error:
            message = f"the list of Pods isn't what Kubernetes gives: {error}"
            raise APIUnavailableError(message) from error


def _note(**fields: Any) -> None:
    PendingLook.objects.update_or_create(id=1, defaults=fields)


def _follow(unbound: Mapping[str, Unbound]) -> tuple[dict[str, PendingPod], set[str]]:
    """Keep a row for each of these Pods, and none for others; return the rows, and which of those that were known have changed.

    What a Pod says is written with what that means (`_judge`), so that a look that ends before it leaves it for the next one.
    """
    known = PendingPod.objects.in_bulk()
    rows = {uid: known.get(uid) or PendingPod(uid=uid, reason=_alone(pod)) for uid, pod in unbound.items()}
    changed = {uid for uid, row in rows.items() if _take_over(row, unbound[uid])} & known.keys()
    with transaction.atomic():
        for uids in _chunks(sorted(known.keys() - unbound.keys())):
            PendingPod.objects.filter(uid__in=uids).delete()
        new = [row for uid, row in rows.items() if uid not in known]
        # Another worker may have inserted them already.
        PendingPod.objects.bulk_create(new, batch_size=_CHUNK // 5, ignore_conflicts=True)
    return rows, changed


def _alone(pod: Unbound) -> str:
    """Return what holds a Pod according to the Pod alone, until its Decision is read."""
    return hold_of(condition=pod.condition, message=pod.message, refusals=[]).reason


def _take_over(row: PendingPod, pod: Unbound) -> bool:
    """Write the Pod's values into its row; return whether anything changed."""
    differs = [name for name in _SAID if getattr(row, name) != getattr(pod, name)]
    for name in differs:
        setattr(row, name, getattr(pod, name))
    return bool(differs)


def _judge(rows: Mapping[str, PendingPod], changed: set[str]) -> None:
    """Write the newest Decisions into the rows of Pods where the Decision or the Pod has changed."""
    newest = _newest(min((row.created_at for row in rows.values()), default=None))
    due = _due([row for uid, row in rows.items() if uid in changed or newest.get(uid) != row.decision], newest)
    names = Names()
    wanted = [newest[row.uid] for row in due if newest.get(row.uid) is not None]
    found: dict[UUID | None, tuple[Decision, Sequence[Refusal]]] = {
        decision.pk: _read(decision, names) for decision in _decisions(wanted)
    }
    for row in due:
        key = newest.get(row.uid)
        decision, refusals = found[key] if key in found else (Decision(), ())
        hold = hold_of(condition=row.condition, message=row.message, refusals=refusals)
        row.rule, row.reason = hold.rule, hold.reason
        # Without a Decision the row gets no time either.
        row.decision, row.tried_at = (decision.pk, decision.at) if key in found else (None, None)
        row.nodes, row.feasible = decision.nodes, decision.feasible
        row.rule_set, row.assignment = decision.rule_set, decision.assignment
    PendingPod.objects.bulk_update(due, (*_SAID, *_TRIED), batch_size=_CHUNK // 5)


def _due(rows: Sequence[PendingPod], newest: Mapping[str, UUID | None]) -> list[PendingPod]:
    """Return the rows without a Decision, which are judged at once, and of the others as many as are read in a look."""
    unread = [row for row in rows if newest.get(row.uid) is None]
    # Pods that are tried between any two looks must not keep the others from being read.
    read = sorted((row for row in rows if newest.get(row.uid) is not None), key=lambda row: row.tried_at or _NEVER)
    return [*unread, *read[:MOST_READ]]


def _newest(since: datetime | None) -> dict[str, UUID | None]:
    """Return the newest Decision about nodes for each row; None for a Pod without one."""
    if since is None:
        return {}
    # The margin is for clocks that differ; the bound excludes partitions of older Decisions.
    opening = Decision.objects.filter(
        pod_uid=OuterRef("uid"), verb__in=OPENING_VERBS, mode="enforce", at__gte=since - _CLOCKS_APART
    )
    newest = opening.order_by("-at", "-sequence").values("pk")[:1]
    return dict(PendingPod.objects.order_by().annotate(newest=Subquery(newest)).values_list("uid", "newest"))


def _decisions(keys: Sequence[UUID | None]) -> Iterator[Decision]:
    for chunk in _chunks(keys):
        yield from Decision.objects.filter(pk__in=chunk)


def _read(decision: Decision, names: Names) -> tuple[Decision, Sequence[Refusal]]:
    try:
        return decision, refusals_of(read_decision(decision, names).answer)
    except ValueError as error:
        logger.warning("Decision %s can't be read: %s", decision.pk, error)
        return decision, []


def _chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK))
