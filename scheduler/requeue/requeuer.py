"""Requeues waiting Pods when a Revision, time or labels of their Namespace can have changed their refusal.

kube-scheduler retries a Pod that an extender refused only when something in the cluster changes, otherwise after five
minutes. An annotation on the waiting Pod is such a change, and affects no other Pod. So waiting Pods are followed:
their newest refusal is judged once (`scheduler.requeue.refusals`), again for each new Revision that all
extender processes serve, again at the time when it can change by itself, and when a watch notes that the labels of their
Namespace changed (`scheduler.requeue.relabelled`).

A tick does nothing unless one of these has happened. One process at a time works (`scheduler.requeue.lease`), so it doesn't
matter how many ticks are delivered, or where.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from http import HTTPStatus
from itertools import islice
from threading import Lock
from typing import Any
from uuid import UUID

import msgspec
from django.conf import settings
from django.db.models import F

from policies.engine.decision import CompiledRevision
from policies.engine.errors import ExpressionError, ObjectError
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.models import Revision
from policies.publishing import load_revision
from scheduler.cluster.client import Client, connect, pending_pods
from scheduler.cluster.errors import (
    APIConflictError,
    APIError,
    APIForbiddenError,
    APIInvalidError,
    APINotFoundError,
    APITimeoutError,
    APIUnavailableError,
)
from scheduler.cluster.listing import list_snapshot
from scheduler.decisions.missing import database_now
from scheduler.decisions.reading import Names, read_decision
from scheduler.decisions.time_limit import TimeLimit
from scheduler.models import Decision, Process, Requeue, RequeueState, WaitingPod
from scheduler.requeue.lease import Lease, LeaseLostError, leased
from scheduler.requeue.refusals import (
    Judge,
    Judgement,
    ListedPod,
    Refusal,
    goes_by_namespaces,
    reads_pods,
    recorded_refusal,
    repeated_refusal,
    timed_rule_sets,
    waiting_pods,
)
from scheduler.requeue.relabelled import SETTLED_SECONDS, forget, relabelled_namespaces
from scheduler.requeue.waiting_pods import Changed, changed, due, finish, follow, is_any_due, note

logger = logging.getLogger("berth.requeue")

# Its value names the cause and the time, so that it differs from whatever was there.
ANNOTATION = "berth/woken-for"

# A process that hasn't written a heartbeat for this long is ignored.
_ALIVE_SECONDS = 5.0
# How long to wait for the Decision about a refused Pod: it arrives through Redis. After that it counts as lost.
_UNRECORDED_SECONDS = 5.0
# All waiting Pods are examined at least this often, for Decisions that arrived late.
SWEEP_SECONDS = 30.0
# The pause after a look, as a multiple of its duration: a large cluster isn't listed all the time.
REST_FACTOR = 2.0
# How long to postpone a Pod that can't be patched: an admission webhook of its namespace is unavailable, or denies it.
PUT_OFF_SECONDS = 10.0
# How long to wait for an answer: well below the lease, and below the 10 s that the API server waits for an admission webhook.
_PATCH_SECONDS = 3.0
# The time limit for judging a Pod: other Pods wait meanwhile, and beyond the limit the Pod is requeued.
MOST_SECONDS = 5.0
_SETTLED = timedelta(seconds=SETTLED_SECONDS)
_CHUNK = 50
_MOST_REVISIONS = 4
# The causes in the annotation's value.
_CAUSES = {"revision": "Revision {revision}", "time": "time", "namespace": "labels of Namespace {namespace}"}
_SAID = {"time": "time has come", "namespace": "labels of Namespaces changed"}


def _of_kube_scheduler(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out the Pods of Berth's own scheduler: it retries them by itself."""
    return [pod for pod in pods if pod["spec"].get("schedulerName") not in settings.BERTH.scheduler_names]


def _begin() -> Callable[[], None]:
    return TimeLimit(MOST_SECONDS).give_way


def requeue_waiting_pods() -> int:
    """Run a tick of this process's Requeuer. Return the number of Pods requeued."""
    return _requeuer().tick()


@lru_cache(maxsize=1)
def _requeuer() -> "Requeuer":
    client = connect()
    return Requeuer(client, per_second=settings.BERTH.requeues_per_second)


class Requeuer:
    """Requeues Pods, a tick at a time.

    Args:
        client: of the cluster.
        per_second: how many Pods are requeued in a second at most.
        clock: returns the time.
        database_clock: returns the database's time, by which processes report.
        pause: waits for some seconds.
    """

    def __init__(
        self,
        client: Client,
        *,
        per_second: int,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        database_clock: Callable[[], datetime] = database_now,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._per_second = per_second
        self._clock = clock
        self._database_clock = database_clock
        self._pause = pause
        self._revisions: dict[str, CompiledRevision] = {}
        self._resting_until = float("-inf")
        # The postponed Pods, by UID, each with the time until which; in the order in which they are retried.
        self._put_off: dict[str, datetime] = {}
        self._working = Lock()

    def tick(self) -> int:
        """Check for work, do it, and return the number of Pods requeued.

        If the API server is unavailable, or another process holds the lease, the work is left to the next tick. A tick that comes while
        one is at work in this process does nothing.
        """
        if not self._working.acquire(blocking=False):
            return 0
        try:
            return self._tick()
        finally:
            self._working.release()

    def _tick(self) -> int:
        revision = self._served()
        if revision is None or time.monotonic() < self._resting_until:
            return 0
        with leased() as lease:
            if lease is None:
                return 0
            try:
                return self._work(lease, revision)
            except LeaseLostError:
                logger.warning("another process requeues Pods now")
            except APIError as error:
                logger.warning("can't requeue Pods yet: %s", error)
        return 0

    def _served(self) -> CompiledRevision | None:
        """Return the oldest Revision that a living extender process serves: all others serve it or a later one."""
        since = self._database_clock() - timedelta(seconds=_ALIVE_SECONDS)
        alive = Process.objects.filter(role="extender", heartbeat_at__gt=since)
        return self._compiled(min(alive.values_list("revision", flat=True), default=0))

    def _compiled(self, number: int) -> CompiledRevision | None:
        """Return a compiled Revision; None if there is none, or this process can't compile it."""
        digest = Revision.objects.filter(number=number).values_list("digest", flat=True).first()
        if digest is None or digest in self._revisions:
            return self._revisions.get(digest or "")
        try:
            revision = load_revision(number)
            if revision is None:
                return None
            compiled = CompiledRevision(revision)
        except (ExpressionError, msgspec.ValidationError, KeyError) as error:
            logger.error("Revision %s can't be used, no Pods are requeued for it: %s", number, error)  # noqa: TRY400 - the fault is in the document
            return None
        while len(self._revisions) >= _MOST_REVISIONS:
            del self._revisions[next(iter(self._revisions))]
        self._revisions[digest] = compiled
        return compiled

    def _work(self, lease: Lease, revision: CompiledRevision) -> int:
        state = RequeueState.objects.get(pk=1)
        now = self._clock()
        timed = timed_rule_sets(revision, now)
        newest = _newest_decision(timed)
        relabelled = _relabelled(revision, now)
        if not relabelled and not _is_called_for(state, revision.number, newest, now):
            return 0
        started = time.monotonic()
        listed = pending_pods(self._client, lease.keep)
        waiting = {pod.uid: pod for pod in waiting_pods(_of_kube_scheduler(listed))}
        lease.keep()
        follow(waiting)
        judged = self._look(lease, revision, timed, waiting, relabelled, now)
        forget(relabelled, now - _SETTLED)
        if state.revision != revision.number:
            Requeue.objects.get_or_create(
                cause="revision", revision=revision.number, defaults={"requeued_at": now, "looked_at": judged}
            )
        lease.note(revision=revision.number, newest_decision=newest, looked_at=now)
        self._resting_until = time.monotonic() + REST_FACTOR * (time.monotonic() - started)
        return self._requeue(lease, state.requeued_at, revision.number, waiting)

    def _look(
        self,
        lease: Lease,
        revision: CompiledRevision,
        timed: list[str],
        waiting: Mapping[str, ListedPod],
        relabelled: Mapping[str, datetime],
        now: datetime,
    ) -> int:
        """Judge the refusals that something may have changed, and return how many there were."""
        concerned: list[Changed] = []
        others: list[Changed] = []
        for found in changed(revision.number, now, relabelled):
            pod = waiting.get(found.row.uid)
            if pod is None or (found.newest is None and now - pod.refused_at < timedelta(seconds=_UNRECORDED_SECONDS)):
                continue
            # Its moment may have passed long ago, and `timed` not have its rule set any more: no worker ran, or the API server was away.
            is_due = found.row.next_at is not None and found.row.next_at <= now
            is_concerned = is_due or _concerns(found, pod.refused_at, revision.number, timed, relabelled)
            (concerned if is_concerned else others).append(found)
        note([(found, Judgement()) for found in others], revision.number, relabelled)
        if concerned:
            pods = reads_pods(revision) or any(found.newest is None for found in concerned)
            until = {name: at + _SETTLED for name, at in relabelled.items()}
            snapshot = list_snapshot(self._client, pods=pods, on_page=lease.keep)
            judge = Judge(revision, snapshot, self._clock(), _begin, until)
            for start in range(0, len(concerned), _CHUNK):
                self._judge(lease, judge, concerned[start : start + _CHUNK], waiting, relabelled)
        return len(concerned)

    def _judge(
        self,
        lease: Lease,
        judge: Judge,
        chunk: list[Changed],
        waiting: Mapping[str, ListedPod],
        relabelled: Collection[str],
    ) -> None:
        decisions = Decision.objects.in_bulk([found.newest.id for found in chunk if found.newest])
        # For this chunk alone: each Decision has its own order of all nodes.
        names = Names()
        judged = []
        for found in chunk:
            lease.keep()  # each may take `MOST_SECONDS`
            decision = decisions.get(found.newest.id) if found.newest else None
            judged.append((found, self._outcome(judge, waiting[found.row.uid], decision, names)))
        lease.keep()
        note(judged, judge.revision.number, relabelled)

    def _outcome(self, judge: Judge, waiting: ListedPod, decision: Decision | None, names: Names) -> Judgement:
        try:
            pod = Pod.from_json(waiting.json)
            at = waiting.refused_at
            refusal = _recorded(decision, names) if decision else self._repeated(pod, at, judge.snapshot)
        except ObjectError as error:
            logger.warning("%s/%s can't be evaluated and isn't requeued: %s", waiting.namespace, waiting.name, error)
            return Judgement()
        if refusal is None or not refusal.is_told_in(waiting.message):
            return Judgement()
        return judge.outcome(pod, refusal)

    def _repeated(self, pod: Pod, at: datetime, snapshot: Snapshot) -> Refusal | None:
        former = self._compiled(_in_force(at))
        return repeated_refusal(pod, former, snapshot, at, _begin()) if former else None

    def _requeue(self, lease: Lease, last: datetime | None, revision: int, waiting: Mapping[str, ListedPod]) -> int:
        """Requeue the due Pods, the longest-waiting first; Pods beyond the rate are left."""
        self._put_off = {uid: until for uid, until in self._put_off.items() if uid in waiting}
        rows = self._due()
        if len(rows) == self._per_second:
            self._resting_until = float("-inf")  # there may be more
        requeued: Counter[str] = Counter()
        faults: list[str] = []
        for number, row in enumerate(rows, 1):
            last = self._keep_pace(last)
            lease.keep()
            lease.note(requeued_at=last)
            try:
                requeued[row.cause] += self._requeue_one(row, waiting[row.uid], revision)
            except (APIForbiddenError, APIUnavailableError) as error:
                self._put_off_after(error, row, rows[number:])
                if not _is_of_one(error):
                    logger.warning("can't requeue Pods yet: %s", error)
                    break
                faults.append(f"{row.namespace}/{row.name}: {error}")
        if faults:
            logger.warning("%s Pods can't be requeued yet, the last one %s", len(faults), faults[-1])
        _count(requeued, revision, self._clock())
        return requeued.total()

    def _due(self) -> list[WaitingPod]:
        """Return the Pods to requeue now. Postponed ones come after the others, in turn, so that they delay no other Pod."""
        rows = due(self._per_second, besides=self._put_off.keys())
        now, left = self._clock(), self._per_second - len(rows)
        again = list(islice((uid for uid, until in self._put_off.items() if until <= now), left))
        if not again:
            return rows
        for uid in again:
            del self._put_off[uid]
        turns = {uid: turn for turn, uid in enumerate(again, 1)}
        return sorted(due(self._per_second, besides=self._put_off.keys()), key=lambda row: turns.get(row.uid, 0))

    def _put_off_after(self, error: APIError, row: WaitingPod, left: Sequence[WaitingPod]) -> None:
        """Postpone a Pod after an error that may affect it alone, such as a hanging webhook; the API server may hang as well.

        Of the Pods in `left`, those of its namespace are moved to the end: the webhook may hang for them, too.
        """
        now, hangs = self._clock(), isinstance(error, APITimeoutError)
        if hangs:
            self._put_off |= {each.uid: now for each in left if each.namespace == row.namespace}
        if hangs or _is_of_one(error):
            self._put_off[row.uid] = now + timedelta(seconds=PUT_OFF_SECONDS)

    def _keep_pace(self, last: datetime | None) -> datetime:
        """Wait until the next Pod may be requeued, and return the time."""
        apart = timedelta(seconds=1 / self._per_second)
        left = apart - (self._clock() - last) if last else timedelta(0)
        if timedelta(0) < left <= apart:
            self._pause(left.total_seconds())
        return self._clock()

    def _requeue_one(self, row: WaitingPod, pod: ListedPod, revision: int) -> bool:
        now = self._clock()
        cause = _CAUSES[row.cause].format(revision=revision, namespace=pod.namespace)
        try:
            self._client.patch_pod_annotations(
                namespace=pod.namespace,
                name=pod.name,
                uid=pod.uid,
                resource_version=pod.resource_version,
                annotations={ANNOTATION: f"{cause} at {now:%Y-%m-%dT%H:%M:%S.%fZ}"},
                timeout_seconds=_PATCH_SECONDS,
            )
        except (APINotFoundError, APIConflictError):
            return False  # gone, or changed meanwhile: the next tick sees its new state
        except APIInvalidError as error:
            logger.warning("%s/%s can't be requeued: %s", pod.namespace, pod.name, error)
            finish(row, now)
            return False
        finish(row, now)
        return True


def _is_of_one(error: APIError) -> bool:
    """Return whether an error concerns one Pod only; after any other error the tick ends."""
    is_forbidden = isinstance(error, APIForbiddenError) and not error.is_unauthenticated
    return is_forbidden or error.status == HTTPStatus.INTERNAL_SERVER_ERROR


def _recorded(decision: Decision, names: Names) -> Refusal | None:
    """Return the refusal in a Decision; None for a damaged Decision, which requeues no Pod."""
    try:
        read = read_decision(decision, names)
    except ValueError as error:
        pod = f"{decision.pod_namespace}/{decision.pod_name}"
        logger.warning(
            "%s can't be evaluated and isn't requeued: Decision %s can't be read: %s", pod, decision.id, error
        )
        return None
    return recorded_refusal(
        read.answer,
        at=decision.at,
        revision=decision.revision,
        rule_set=decision.rule_set,
        version=decision.rule_set_version,
        params=read.notes.get("params") or {},
    )


def _newest_decision(rule_sets: list[str]) -> UUID | None:
    """Return the newest Decision by one of these rule sets."""
    newest = [
        found
        for name in rule_sets
        if (found := Decision.objects.filter(rule_set=name).order_by("-at").values_list("at", "pk").first())
    ]
    return max(newest)[1] if newest else None


def _is_called_for(state: RequeueState, revision: int, newest: UUID | None, now: datetime) -> bool:
    """Return whether something has happened since the last look, or it is time for one."""
    # A look that is far ahead is by a clock that was set back since.
    if state.looked_at is None or abs(now - state.looked_at) >= timedelta(seconds=SWEEP_SECONDS):
        return True
    return state.revision != revision or state.newest_decision != newest or is_any_due(now)


def _relabelled(revision: CompiledRevision, now: datetime) -> dict[str, datetime]:
    """Return the Namespaces whose labels changed; none where the Revision doesn't go by them."""
    relabelled = relabelled_namespaces()
    if relabelled and not goes_by_namespaces(revision):
        forget(relabelled, now)
        return {}
    return relabelled


def _concerns(
    found: Changed, refused_at: datetime, revision: int, timed: list[str], relabelled: Collection[str]
) -> bool:
    """Return whether a Revision, time, or labels can have changed the newest refusal of a waiting Pod at all."""
    newest = found.newest
    if newest is None:
        # What its Namespace's labels were isn't known.
        return bool(timed) or _in_force(refused_at) < revision
    has_cause = newest.revision < revision or newest.rule_set in timed or found.row.namespace in relabelled
    return newest.refuses and has_cause


def _in_force(at: datetime) -> int:
    """Return the Revision that was the newest at a time, 0 before the first."""
    number = Revision.objects.filter(created_at__lte=at).order_by("-number").values_list("number", flat=True).first()
    return number or 0


def _count(requeued: Counter[str], revision: int, now: datetime) -> None:
    if requeued["revision"]:
        rows = Requeue.objects.filter(cause="revision", revision=revision)
        rows.update(pods=F("pods") + requeued["revision"])
        logger.info("Revision %s: %s waiting Pods requeued", revision, requeued["revision"])
    for cause, said in _SAID.items():
        if requeued[cause]:
            Requeue.objects.create(cause=cause, revision=revision, requeued_at=now, pods=requeued[cause])
            logger.info("%s: %s waiting Pods requeued", said, requeued[cause])
