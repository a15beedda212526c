"""Determines what holds a Pod without a node: from its scheduler's condition, and from the refusals of Berth's rules. Pure."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from policies.engine.filters.node_resources import each_lacking
from policies.engine.objects.metadata import Int32, Metadata, decode_object
from scheduler.cluster.texts import moment, stored
from scheduler.decisions.facts import owner_of
from scheduler.decisions.matrix import Refusal

GATED = "SchedulingGated"
NOT_TRIED = "no scheduler has tried it yet"
GATES_LEFT = "its scheduling gates are not taken off"
# The Pod's creator may write a text of any length; an index entry takes less than three thousand bytes.
_LONGEST_REASON = 500
_LONGEST_MESSAGE = 2_000
# kube-scheduler and Berth retry a Pod after this time without an event (podMaxInUnschedulablePodsDuration).
_LONGEST_WAIT = timedelta(minutes=5)
# The reasons for which Berth makes kube-scheduler retry a Pod.
_CAUSES = {"revision": "a new Revision", "time": "the time", "namespace": "the labels of its namespace"}
_AVAILABLE = "nodes are available: "
# kube-scheduler's additions after the reasons for nodes (Kubernetes v1.36.3 pkg/scheduler/framework/types.go, FitError).
_BEHIND = re.compile(r"\. (?:no new claims to deallocate|preemption: )")
# A number of nodes and their reason, up to the next number or the end. The reasons in place of {} are taken whole.
_COUNTED = r"(?:^|, )(\d+) ((?:{})(?=, \d+ |$)|.*?(?=, \d+ |$))"


class Unbound(msgspec.Struct, frozen=True, kw_only=True):
    """A Pod without a node. `condition` and `message` are those of PodScheduled; empty if no scheduler has tried the Pod."""

    uid: str
    namespace: str
    name: str
    scheduler_name: str
    owner_kind: str
    owner_name: str
    priority: int
    created_at: datetime
    since: datetime
    condition: str
    message: str
    nominated_node: str


class Hold(msgspec.Struct, frozen=True):
    """What holds a Pod: Berth's rule, "" for its scheduler's own plugins, and the reason for the nodes."""

    rule: str
    reason: str


class _Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _Status(msgspec.Struct, rename="camel"):
    conditions: list[_Condition] = []
    nominated_node_name: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    scheduler_name: str = ""
    priority: Int32 = 0


class _Metadata(Metadata, rename="camel", frozen=True, gc=False):
    creation_timestamp: datetime = datetime(1970, 1, 1, tzinfo=UTC)


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Pods(msgspec.Struct):
    items: list[_Pod] = []


_pods = msgspec.json.Decoder(_Pods)


def unbound_pods(page: bytes) -> list[Unbound]:
    """Return the Pods of a page of a list that have no node and aren't being deleted.

    Raises:
        msgspec.DecodeError: the page isn't an API server's answer.
    """
    found = decode_object(page, _pods).items
    return [_unbound(pod) for pod in found if not pod.spec.node_name and pod.metadata.deletion_timestamp is None]


def _unbound(pod: _Pod) -> Unbound:
    conditions = pod.status.conditions
    tried = next((each for each in conditions if each.type == "PodScheduled" and each.status == "False"), _Condition())
    kind, name = owner_of(pod.metadata)
    return Unbound(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        scheduler_name=stored(pod.spec.scheduler_name),
        owner_kind=kind,
        owner_name=name,
        priority=pod.spec.priority,
        created_at=pod.metadata.creation_timestamp,
        since=moment(tried.last_transition_time or "") or pod.metadata.creation_timestamp,
        condition=stored(tried.reason),
        message=stored(tried.message, _LONGEST_MESSAGE),
        nominated_node=stored(pod.status.nominated_node_name),
    )


def reasons_in(message: str, known: Iterable[str] = ()) -> list[tuple[str, int]]:
    """Return the reasons with counts in a scheduler's message, each with its number of nodes; empty if it has none.

    Args:
        message: the scheduler's.
        known: reasons that may be in it. One of them is found whole where it has numbers behind commas: "4 nodes, 4 are used".
    """
    _, said, counted = message.partition(_AVAILABLE)
    if not said:
        return []
    head, *behind = _BEHIND.split(counted, maxsplit=1)
    longest_first = sorted(filter(None, known), key=len, reverse=True)
    pattern = _COUNTED.format("|".join(map(re.escape, longest_first)) or "(?!)")
    found = re.finditer(pattern, head if behind else head.removesuffix("."), re.DOTALL)
    return [(each[2], int(each[1])) for each in found]


def hold_of(*, condition: str, message: str, refusals: Sequence[Refusal]) -> Hold:
    """Return what holds a Pod.

    The scheduler's last message takes precedence over Berth's newest Decision: another plugin may hold the Pod by now.

    Args:
        condition: the reason of PodScheduled.
        message: its message.
        refusals: of the newest Decision about the Pod, the most nodes first.
    """
    rules = rule_by_reason(refusals)
    if condition == GATED:
        return Hold("", GATES_LEFT)
    if counted := reasons_in(message, rules):
        reason, _ = max(counted, key=lambda each: (each[1], each[0] in rules))
        return Hold(rules.get(reason, ""), stored(reason, _LONGEST_REASON))
    told = next((reason for reason in rules if reason in message), "")
    if told:
        return Hold(rules[told], stored(told, _LONGEST_REASON))
    # If the message says only that nodes aren't available, the refusal is by a rule without a reason.
    if message and not (refusals and _AVAILABLE in message):
        return Hold("", stored(message, _LONGEST_REASON))
    if refusals:
        return Hold(refusals[0].rule, stored(refusals[0].reason or refusals[0].code, _LONGEST_REASON))
    return Hold("", NOT_TRIED)


def rule_by_reason(refusals: Sequence[Refusal]) -> dict[str, str]:
    """Return which rule gave each reason; of several missing resources, the message has each for itself, or all together."""
    rules: dict[str, str] = {}
    for each in reversed(refusals):
        rules |= dict.fromkeys([*each_lacking(each.reason), each.reason], each.rule) if each.reason else {}
    return rules


def next_try(
    *,
    condition: str,
    message: str,
    tried_at: datetime | None,
    queued: dict[str, Any] | None,
    requeued_for: str,
    requeue_at: datetime | None,
    now: datetime,
) -> str:
    """Return in words when a Pod is tried next, if that is known.

    Args:
        condition: the reason of PodScheduled.
        message: its message.
        tried_at: the time of Berth's last Decision about it.
        queued: the Pod in the queue of Berth's own scheduler, if it is there.
        requeued_for: why Berth makes kube-scheduler retry it: `revision`, `time` or `namespace`; "" if it doesn't.
        requeue_at: the time at which the refusal may change.
        now: the current time.
    """
    if condition == GATED:
        return "once its scheduling gates are taken off"
    if queued is not None:
        return _next_of_queue(queued, now)
    if requeued_for:
        return f"at once: Berth asks for it, because of {_CAUSES[requeued_for]}"
    if tried_at is None and not message and (requeue_at is None or requeue_at <= now):
        return "when its scheduler takes it"
    return _next_by_clock(tried_at, requeue_at, now)


def _next_by_clock(tried_at: datetime | None, requeue_at: datetime | None, now: datetime) -> str:
    """Return when a Pod of kube-scheduler is tried next: it retries after five minutes, however late time may change the answer."""
    at_latest = tried_at + _LONGEST_WAIT if tried_at else now
    changes_at = requeue_at if requeue_at is not None and requeue_at > now else None
    said = _shown(changes_at) if changes_at else ""
    if changes_at and not now < at_latest < changes_at:
        return f"at {said}, when time may change the answer, or when the cluster changes"
    if at_latest > now:
        later = f"; time may change the answer at {said}" if said else ""
        return f"when the cluster changes, at {_shown(at_latest)} at the latest{later}"
    return "when the cluster changes, else five minutes after the last try"


def _next_of_queue(queued: dict[str, Any], now: datetime) -> str:
    until = datetime.fromisoformat(queued["until"]) if queued.get("until") else None
    match queued.get("state"):
        case "backoff" if until is not None:
            return f"in {max(0, round((until - now).total_seconds()))} s"
        case "active" | "taken" | "backoff":
            return "at once"
        case "gated":
            return "once its scheduling gates are taken off"
    opens_at = datetime.fromisoformat(queued["opens_at"]) if queued.get("opens_at") else None
    later = f"; time may change the answer at {_shown(opens_at)}" if opens_at and opens_at > now else ""
    return f"when the cluster, the rules or the time change so that it may pass, else five minutes after the last try{later}"


def _shown(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
