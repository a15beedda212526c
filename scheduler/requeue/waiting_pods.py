"""The rows of waiting Pods: who waits, whose refusal is to be judged again, and who is to be requeued."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import OuterRef, Q, Subquery

from scheduler.models import Decision, WaitingPod
from scheduler.requeue.refusals import Judgement, ListedPod

_CHUNK = 500


class Head(NamedTuple):
    """The newest Decision about a Pod, without its body. `refuses` tells whether it let fewer nodes pass than asked."""

    id: UUID
    revision: int
    rule_set: str
    refuses: bool


class Changed(NamedTuple):
    """A waiting Pod to which something has happened; `newest` is None where no Decision about it is recorded."""

    row: WaitingPod
    newest: Head | None


def follow(waiting: Mapping[str, ListedPod]) -> None:
    """Keep a row for each waiting Pod, by its UID, and none for others."""
    known = set(WaitingPod.objects.values_list("uid", flat=True))
    for uids in _chunks(sorted(known - waiting.keys())):
        WaitingPod.objects.filter(uid__in=uids).delete()
    WaitingPod.objects.bulk_create(
        WaitingPod(uid=uid, namespace=pod.namespace, name=pod.name, created_at=pod.created_at)
        for uid, pod in waiting.items()
        if uid not in known
    )


def is_any_due(now: datetime) -> bool:
    """Return whether a Pod is to be requeued, wasn't looked at yet, or may be let pass by time now."""
    return WaitingPod.objects.filter(~Q(cause="") | Q(revision=0) | Q(next_at__lte=now)).exists()


def changed(revision: int, now: datetime, relabelled: Collection[str] = ()) -> list[Changed]:
    """Return the waiting Pods with a new Decision, not judged by this Revision yet, whose moment has come, or in these Namespaces."""
    newest = Decision.objects.filter(pod_uid=OuterRef("uid"), verb="filter", mode="enforce").order_by(
        "-at", "-sequence"
    )
    rows = [
        (row, row.newest)
        for row in WaitingPod.objects.annotate(newest=Subquery(newest.values("pk")[:1]))
        if row.newest != row.decision
        or row.revision != revision
        or (row.next_at is not None and row.next_at <= now)
        or row.namespace in relabelled
    ]
    heads = _heads([found for _, found in rows if found is not None])
    return [Changed(row, heads.get(found)) for row, found in rows]


def _heads(ids: Sequence[UUID]) -> dict[UUID | None, Head]:
    heads: dict[UUID | None, Head] = {}
    for chunk in _chunks(ids):
        found = Decision.objects.filter(pk__in=chunk)
        for pk, number, rule_set, nodes, feasible in found.values_list(
            "pk", "revision", "rule_set", "nodes", "feasible"
        ):
            heads[pk] = Head(pk, number, rule_set, feasible < nodes)
    return heads


def note(judged: Iterable[tuple[Changed, Judgement]], revision: int, relabelled: Collection[str] = ()) -> None:
    """Write down what refusals lead to. A Pod that was requeued isn't to be requeued for the same again.

    Beyond the Namespaces that are `relabelled`, it isn't known any more what labels were: what they called for stands.
    """
    rows = [found.row for found, outcome in judged if _take_over(found, outcome, revision, relabelled)]
    WaitingPod.objects.bulk_update(rows, ["decision", "revision", "next_at", "cause"], batch_size=_CHUNK)


def _take_over(found: Changed, outcome: Judgement, revision: int, relabelled: Collection[str]) -> bool:
    """Write into a row what its refusal leads to, and return whether that is something else than before."""
    row, decision = found.row, found.newest.id if found.newest else None
    stands = row.cause == "namespace" and row.decision == decision and row.namespace not in relabelled
    was_requeued = row.requeued_at is not None and (
        row.requeued_revision >= revision if outcome.cause == "revision" else row.requeued_decision == decision
    )
    cause = "" if was_requeued else outcome.cause or ("namespace" if stands else "")
    before = row.decision, row.revision, row.next_at, row.cause
    row.decision, row.revision, row.next_at, row.cause = now = decision, revision, outcome.next_at, cause
    return before != now


def due(limit: int, *, besides: Collection[str]) -> list[WaitingPod]:
    """Return the Pods that are to be requeued, the oldest first, without those of `besides`."""
    rows = WaitingPod.objects.exclude(cause="")[: limit + len(besides)]
    return [row for row in rows if row.uid not in besides][:limit]


def finish(row: WaitingPod, at: datetime) -> None:
    """Write down that a Pod was requeued, or can't be."""
    row.requeued_at, row.requeued_decision = at, row.decision
    if row.cause == "revision":
        row.requeued_revision = row.revision
    row.cause = ""
    row.save(update_fields=["requeued_at", "requeued_decision", "requeued_revision", "cause"])


def _chunks(items: Sequence[UUID] | Sequence[str]) -> Iterable[Sequence[UUID] | Sequence[str]]:
    return (items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK))
