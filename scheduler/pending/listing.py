"""Lists Pending Pods for pages and REST: their number, what holds most of them, and groups by reason and by owner.

All queries read the rows of `scheduler.pending.following`, and exclude Pods whose outcome is recorded:
the scheduler that binds a Pod records that within a second.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from django.conf import settings
from django.db.models import Count, Exists, Max, Min, OuterRef, Q, QuerySet, TextField, Value
from django.db.models.functions import Concat

from scheduler.models import BinderState, Outcome, PendingLook, PendingPod, WaitingPod, Wake
from scheduler.pending.holding import GATED, next_try

# After this long without a look the rows are outdated, and pages say so.
OLD = timedelta(seconds=60)
_WOKEN = "at once: somebody asked for it"
# A separator that no name contains.
_BETWEEN = "\n"
_OWNER = ("namespace", "owner_kind", "owner_name")


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that wait for the same reason: `rule` is "" if their scheduler's own plugins hold them."""

    rule: str
    reason: str
    pods: int
    owners: int
    since: datetime
    tried_at: datetime | None


class OwnerGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting Pods of one workload. `reasons` is the number of different reasons; `rule` and `reason` are one of them."""

    namespace: str
    kind: str
    name: str
    pods: int
    reasons: int
    rule: str
    reason: str
    since: datetime
    tried_at: datetime | None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A summary of the Pending Pods. `most` is the group with the most Pods; None if no Pods wait.

    Attributes:
        total: the number of Pods without a node.
        since: the time since which the longest waiting Pod waits.
        schedulers: the number of Pods of each scheduler, the most first.
        looked_at: the time of the last list of the cluster; None: never.
        fault: why it hasn't been listed since.
        is_old: whether the list is too old to be shown as current.
    """

    total: int
    since: datetime | None
    schedulers: Mapping[str, int]
    most: Group | None
    looked_at: datetime | None
    fault: str
    is_old: bool


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting Pod, and when it is tried next, in words."""

    row: PendingPod
    next_try: str


def pending(**narrowed: str) -> QuerySet[PendingPod]:
    """Return the Pods without a node, the longest waiting first.

    Args:
        narrowed: values of columns.
    """
    ended = Outcome.objects.filter(pod_uid=OuterRef("uid"))
    return PendingPod.objects.filter(~Exists(ended), **narrowed)


def summary_of_pending(now: datetime) -> Summary:
    """Return the summary."""
    look = PendingLook.objects.filter(pk=1).first() or PendingLook()
    by_scheduler = list(
        pending().order_by().values_list("scheduler_name").annotate(pods=Count("pk"), first=Min("since"))
    )
    most = by_reason(pending()).first() if by_scheduler else None
    return Summary(
        total=sum(pods for _, pods, _ in by_scheduler),
        since=min((first for _, _, first in by_scheduler), default=None),
        schedulers={name: pods for name, pods, _ in sorted(by_scheduler, key=lambda each: -each[1])},
        most=group_of(most) if most else None,
        looked_at=look.looked_at,
        fault=look.fault,
        is_old=look.looked_at is None or now - look.looked_at > OLD,
    )


def by_reason(rows: QuerySet[PendingPod]) -> QuerySet[PendingPod, Any]:
    """Return groups by what holds the Pods, the largest first: for pages of `group_of`."""
    grouped = rows.order_by().values("rule", "reason")
    return grouped.annotate(
        pods=Count("pk"),
        owners=Count(_together(*_OWNER), filter=~Q(owner_name=""), distinct=True),
        first=Min("since"),
        last=Max("tried_at"),
        **_tried(),
    ).order_by("-pods", "first", "rule", "reason")


def _together(*columns: str) -> Concat:
    """Return columns as one text, so that rows are distinguished by all of them."""
    first, *others = columns
    more = (part for column in others for part in (Value(_BETWEEN), column))
    return Concat(first, *more, output_field=TextField())


def _tried() -> dict[str, Count]:
    """Return counts of a group's Pods that a scheduler has tried, and of those that Berth's own scheduler has tried."""
    is_tried = ~Q(message="") & ~Q(condition=GATED)
    is_ours = Q(scheduler_name__in=settings.BERTH.scheduler_names)
    return {"tried": Count("pk", filter=is_tried), "tried_by_us": Count("pk", filter=is_tried & is_ours)}


def group_of(row: Mapping[str, Any]) -> Group:
    """Return the group in a row of `by_reason`."""
    return Group(
        rule=row["rule"], reason=row["reason"], pods=row["pods"], owners=row["owners"], since=row["first"], tried_at=row["last"]
    )  # fmt: skip


def by_owner(rows: QuerySet[PendingPod]) -> QuerySet[PendingPod, Any]:
    """Return groups by the Pods' workloads, the largest first: for pages of `owner_of`."""
    grouped: QuerySet[PendingPod, Any] = rows.order_by().values(*_OWNER)
    return grouped.annotate(
        pods=Count("pk"),
        reasons=Count(_together("rule", "reason"), distinct=True),
        first=Min("since"),
        last=Max("tried_at"),
        # A rule together with its own reason.
        a_hold=Max(_together("rule", "reason")),
        **_tried(),
    ).order_by("-pods", "first", *_OWNER)


def owner_of(row: Mapping[str, Any]) -> OwnerGroup:
    """Return the group in a row of `by_owner`."""
    rule, _, reason = row["a_hold"].partition(_BETWEEN)
    return OwnerGroup(
        namespace=row["namespace"], kind=row["owner_kind"], name=row["owner_name"], pods=row["pods"], reasons=row["reasons"],
        rule=rule, reason=reason, since=row["first"], tried_at=row["last"],
    )  # fmt: skip


def waiting_of(rows: Iterable[PendingPod], now: datetime) -> list[Waiting]:
    """Return Pods with the time at which each is tried next: three queries for any number of Pods."""
    rows = list(rows)
    uids = [row.uid for row in rows]
    queued = _queued(uids) if rows else {}
    requeued = WaitingPod.objects.in_bulk(uids) if rows else {}
    woken = set(Wake.objects.filter(uid__in=uids).values_list("uid", flat=True)) if rows else set()
    return [
        Waiting(
            row=row,
            next_try=_WOKEN if row.uid in woken else _next(row, queued.get(row.uid), requeued.get(row.uid), now),
        )
        for row in rows
    ]


def shown_pending(waiting: Waiting) -> dict[str, Any]:
    """Return a waiting Pod for REST: its columns, and when it is tried next."""
    columns = [field.attname for field in PendingPod._meta.concrete_fields]  # noqa: SLF001 - documented
    return {name: getattr(waiting.row, name) for name in columns} | {"next_try": waiting.next_try}


def _next(row: PendingPod, queued: dict[str, Any] | None, requeued: WaitingPod | None, now: datetime) -> str:
    return next_try(
        condition=row.condition,
        message=row.message,
        tried_at=row.tried_at,
        queued=queued,
        requeued_for=requeued.cause if requeued else "",
        requeue_at=requeued.next_at if requeued else None,
        now=now,
    )


def has_leader() -> bool:
    """Return whether a process of Berth's own scheduler leads, according to recent heartbeats."""
    return _leading().exists()


def _leading() -> QuerySet[BinderState]:
    return BinderState.objects.filter(leads=True, heartbeat_at__gt=datetime.now(UTC) - OLD)


def _queued(uids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return these Pods in the queue of the process that leads."""
    fresh = _leading().only("pods").first()
    wanted = set(uids)
    return {pod["uid"]: pod for pod in fresh.pods if pod["uid"] in wanted} if fresh else {}
