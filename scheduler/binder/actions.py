"""What Berth's own scheduler writes to the API server about a Pod: its condition and events. Bindings: `scheduler.cluster.bind`.

Events are sent in the background: no Pod waits for them. One that isn't accepted for now is sent up to twelve times; when too many wait,
the oldest are dropped.
"""

import logging
import socket
import threading
import time
from collections import deque
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from uuid import uuid4

import msgspec

from policies.engine.objects.pod import Pod
from scheduler.cluster.client import STRATEGIC_MERGE_PATCH, Client, pod_path
from scheduler.cluster.dispatcher import UNANSWERED, APIRequest, Dispatcher
from scheduler.cluster.errors import (
    DENIED_BY_WEBHOOK,
    APIConflictError,
    APIError,
    APINotFoundError,
    APIUnavailableError,
)
from scheduler.metrics import BINDER_EVENTS_DROPPED

logger = logging.getLogger("berth.binding")

UNSCHEDULABLE, SCHEDULER_ERROR = "Unschedulable", "SchedulerError"
# Bytes of an event's note, and characters of its name: the API server rejects a longer one (k8s.io/kubernetes v1.36.3
# pkg/apis/core/validation/events.go, and DNS1123SubdomainMaxLength of apimachinery).
_LONGEST_NOTE = 1024
_LONGEST_NAME = 253
# The suffix of a truncated note (pkg/scheduler/schedule_one.go, truncateMessage).
_CUT = " ..."

_TIMEOUT_SECONDS = 5.0

# How often an event is sent at most (client-go v0.36.3 tools/events/event_broadcaster.go, maxTriesPerEvent).
MOST_TRIES = 12
# The most events that wait to be sent again, some 2 KB each.
MOST_EVENTS_AGAIN = 1_000
# The most of these that are sent at a time, until one is accepted: where a webhook for events hangs, they would delay all others.
FIRST_EVENTS_AGAIN = 8


class Reference(msgspec.Struct, rename="camel", frozen=True):
    """An object that an event is about: `v1.ObjectReference`."""

    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str = "v1"
    resource_version: str = ""

    @classmethod
    def of(cls, pod: Pod) -> "Reference":
        """Refer to a Pod."""
        return cls("Pod", pod.namespace, pod.name, pod.uid, resource_version=pod.metadata.resource_version)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event of events.k8s.io/v1.

    Attributes:
        type: Normal or Warning.
        reason: why, in one word: "Scheduled".
        action: what was done or tried: "Binding".
    """

    regarding: Reference
    related: Reference | None = None
    type: str = "Normal"
    reason: str
    action: str
    note: str
    controller: str


class _Sent(msgspec.Struct):
    """An event as it is sent, and how often it was."""

    path: str
    body: bytes
    tries: int = 0


class Events:
    """Sends events in the background. Safe to use from several threads; `post` never waits."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._instance = f"berth-{socket.gethostname()}"[:128]
        self._lock = threading.Lock()
        self._again: deque[_Sent] = deque()

    def post(self, event: Event) -> None:
        """Queue an event to be sent; it is dropped and counted when too many are queued or the API server rejects it for good."""
        path = f"/apis/events.k8s.io/v1/namespaces/{event.regarding.namespace}/events"
        self._send(_Sent(path, self._encode(event, datetime.now(UTC))))

    def post_again(self) -> None:
        """Queue once more the events that the API server didn't accept for now. Called every few seconds.

        It begins with a few. Each of them that is accepted is followed by another.
        """
        for _ in range(min(FIRST_EVENTS_AGAIN, len(self._again))):
            self._send_next()

    def _send_next(self) -> None:
        with self._lock:
            event = self._again.popleft() if self._again else None
        if event is not None:
            self._send(event)

    def _send(self, event: _Sent) -> None:
        event.tries += 1

        def done(status: int, answer: bytes) -> None:
            self._on_answer(event, status, answer)

        if not self._dispatcher.send_later(APIRequest(event.path, event.body, done)):
            BINDER_EVENTS_DROPPED.inc()

    def _on_answer(self, event: _Sent, status: int, answer: bytes) -> None:
        # 409: an earlier try created it, whose answer was lost. Its name and body are the same.
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES or status == HTTPStatus.CONFLICT:
            if event.tries > 1:
                self._send_next()
            return
        if _may_be_taken_later(status, answer) and event.tries < MOST_TRIES:
            self._keep(event)
            return
        BINDER_EVENTS_DROPPED.inc()
        logger.debug("the API server didn't accept an event: %s %.200s", status, answer)

    def _keep(self, event: _Sent) -> None:
        with self._lock:
            if len(self._again) >= MOST_EVENTS_AGAIN:
                self._again.popleft()
                BINDER_EVENTS_DROPPED.inc()
            self._again.append(event)

    def _encode(self, event: Event, at: datetime) -> bytes:
        regarding = event.regarding
        document = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": _name_of(regarding), "namespace": regarding.namespace},
            "eventTime": f"{at:%Y-%m-%dT%H:%M:%S.%fZ}",
            "reportingController": event.controller,
            "reportingInstance": self._instance,
            "action": event.action,
            "reason": event.reason,
            "type": event.type,
            "note": _cut(event.note),
            "regarding": event.regarding,
        }
        if event.related is not None:
            document["related"] = event.related
        return msgspec.json.encode(document)


def _name_of(regarding: Reference) -> str:
    """Return a name for an event, as client-go v0.36.3 makes it (tools/record/util/util.go, GenerateEventName)."""
    name = f"{regarding.name}.{time.time_ns():x}"
    return name if len(name) <= _LONGEST_NAME else str(uuid4())


def _cut(note: str) -> str:
    encoded = note.encode()
    if len(encoded) <= _LONGEST_NOTE:
        return note
    return encoded[: _LONGEST_NOTE - len(_CUT)].decode(errors="ignore") + _CUT


def _may_be_taken_later(status: int, answer: bytes) -> bool:
    """Return whether an event may succeed when it is sent again: the API server was away or busy, or a token ran out."""
    for_now = status in {UNANSWERED, HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS}
    return (for_now or status >= HTTPStatus.INTERNAL_SERVER_ERROR) and DENIED_BY_WEBHOOK.encode() not in answer


def scheduled(pod: Pod, node_name: str) -> Event:
    """Return the event that a Pod was bound, as kube-scheduler words it (schedule_one.go, finishBinding)."""
    return Event(
        regarding=Reference.of(pod),
        reason="Scheduled",
        action="Binding",
        note=f"Successfully assigned {pod.namespace}/{pod.name} to {node_name}",
        controller=pod.spec.scheduler_name,
    )


def failed_scheduling(pod: Pod, message: str) -> Event:
    """Return the event that a Pod could not be placed."""
    return Event(
        regarding=Reference.of(pod),
        type="Warning",
        reason="FailedScheduling",
        action="Scheduling",
        note=message,
        controller=pod.spec.scheduler_name,
    )


class Condition(msgspec.Struct, frozen=True):
    """The condition PodScheduled of a Pod that was not placed, and the node that preemption is freeing for it."""

    reason: str
    message: str
    nominated: str = ""


def condition_of(pod: Pod) -> Condition | None:
    """Return the condition in the Pod's status; None when it has none, or its PodScheduled condition is True."""
    found = _not_scheduled(pod)
    if not found:
        return None
    nominated = pod.json["status"].get("nominatedNodeName", "")
    return Condition(found.get("reason", ""), found.get("message", ""), nominated)


def _not_scheduled(pod: Pod) -> dict[str, Any]:
    """Return the condition PodScheduled=False of a Pod; empty where it has none."""
    conditions = (pod.json.get("status") or {}).get("conditions") or ()
    scheduled = (found for found in conditions if found.get("type") == "PodScheduled")
    return next((found for found in scheduled if found.get("status") == "False"), {})


def write_condition(client: Client, pod: Pod, condition: Condition) -> bool:
    """Write the condition PodScheduled=False and nominatedNodeName of the Pod with this UID. False when they can't be written.

    Raises:
        APITimeoutError: no answer came. What delayed the call, such as an admission webhook, may delay others too.
        APIError: the condition couldn't be written for now: the API server is unavailable or busy, or a token ran out.

    A strategic merge patch, as kube-scheduler v1.36.3 writes it (util/utils.go, PatchPodStatus); lastTransitionTime is kept
    while the condition is False (k8s.io/kubernetes v1.36.3 pkg/api/v1/pod/util.go, UpdatePodCondition).
    """
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    body = msgspec.json.encode(
        {
            "metadata": {"uid": pod.uid},
            "status": {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": condition.reason,
                        "message": condition.message,
                        "lastProbeTime": None,
                        "lastTransitionTime": _not_scheduled(pod).get("lastTransitionTime") or now,
                        "observedGeneration": (pod.json.get("metadata") or {}).get("generation"),
                    }
                ],
                "nominatedNodeName": condition.nominated or None,
            },
        }
    )
    path = f"{pod_path(pod.namespace, pod.name)}/status"
    try:
        client.patch(path=path, body=body, content_type=STRATEGIC_MERGE_PATCH, timeout_seconds=_TIMEOUT_SECONDS)
    except (APINotFoundError, APIConflictError) as error:
        logger.debug("a Pod was deleted or replaced, its condition isn't written: %s", error)
        return False
    except APIError as error:
        logger.warning("a Pod's condition can't be written: %s", error)
        if isinstance(error, APIUnavailableError) or error.is_unauthenticated:
            raise
        return False
    return True
