"""The state of a workload's Pods, from its newest Decisions: which wait, which run and where, which are gone, and by which rules."""

from collections import Counter
from datetime import datetime

import msgspec

from scheduler.decisions.reading import recorded, recorded_outcomes
from scheduler.models import OPENING_VERBS, Decision, Outcome, PlacedPod

# The most Decisions for a page: the newest.
MOST_READ = 1_000
_MOST_PODS = 200


class PlacedNow(msgspec.Struct, frozen=True, kw_only=True):
    """A Pod that isn't known to have ended, and its node."""

    namespace: str
    name: str
    uid: str
    node: str
    bound_at: datetime


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why some of the Decisions allowed no node: the reason of most of their nodes, or an error."""

    text: str
    error: str
    number: int


class WorkloadStory(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a workload's Pods.

    Attributes:
        newest: the newest Decision about the nodes of one of its Pods; None if there is none.
        placed: its Pods that were bound and aren't known to have ended.
        nodes: the number of these on each node.
        ended: the number of other Pods by their end; "open" if it is unknown.
        decided_today: the number of the day's Decisions about nodes.
        refused_today: the number of these that allowed no node.
        reasons: why, the most frequent first.
        has_more: whether there are older Decisions that weren't read.
    """

    newest: Decision | None
    placed: list[PlacedNow]
    nodes: list[tuple[str, int]]
    ended: dict[str, int]
    decided_today: int
    refused_today: int
    reasons: list[Reason]
    has_more: bool


def workload_story(namespace: str, kind: str, name: str, since: datetime, waiting: set[str]) -> WorkloadStory:
    """Return the state of a workload's Pods.

    Args:
        namespace: the workload's.
        kind: the owner's.
        name: the owner's.
        since: the time from which refusals are counted.
        waiting: the UIDs of its Pods that are Pending.
    """
    found = recorded().filter(owner_name=name, owner_kind=kind, pod_namespace=namespace, mode="enforce").defer("body")
    rows = list(found[: MOST_READ + 1])
    has_more, rows = len(rows) > MOST_READ, rows[:MOST_READ]
    opening = [row for row in rows if row.verb in OPENING_VERBS]
    uids = list(dict.fromkeys(row.pod_uid for row in rows if row.pod_uid not in waiting))
    placed = _placed(uids)
    today = [row for row in opening if row.at >= since]
    refused = [row for row in today if not row.feasible]
    there = {each.uid for each in placed}
    return WorkloadStory(
        newest=opening[0] if opening else None,
        placed=placed[:_MOST_PODS],
        nodes=Counter(each.node for each in placed).most_common(),
        ended=_ended([uid for uid in uids if uid not in there]),
        decided_today=len(today),
        refused_today=len(refused),
        reasons=[
            Reason(text=text, error=error, number=number)
            for (text, error), number in Counter((row.top_reason, row.error) for row in refused).most_common()
        ],
        has_more=has_more,
    )


def _placed(uids: list[str]) -> list[PlacedNow]:
    rows = PlacedPod.objects.filter(uid__in=uids).order_by("-bound_at", "uid")
    return [
        PlacedNow(namespace=row.namespace, name=row.name, uid=row.uid, node=row.node_name, bound_at=row.bound_at)
        for row in rows
    ]


def _ended(uids: list[str]) -> dict[str, int]:
    """Return the number of Pods by their end: the last record of each counts, and exact records override vague ones."""
    rows = recorded_outcomes().filter(pod_uid__in=uids).order_by("at", "pk").values_list("pod_uid", "kind")
    # A Pod was bound before it ended, even if the clocks of the processes that saw it disagree.
    says_least: list[str] = [Outcome.Kind.GONE, Outcome.Kind.BOUND, Outcome.Kind.ENDED]
    ordered = sorted(rows, key=lambda row: says_least.index(row[1]) if row[1] in says_least else len(says_least))
    return dict(Counter((dict.fromkeys(uids, "open") | dict(ordered)).values()))
