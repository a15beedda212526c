"""Carries out preemption: removes Pods from a node to make room for one of higher priority.

`policies.engine.preemption.dry_run` decides which Pods, and from which node. Source of the steps and of the messages:
k8s.io/kubernetes v1.36.3 pkg/scheduler/framework/preemption/executor.go.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from policies.engine.objects.pod import DISRUPTED, Pod
from policies.engine.preemption.dry_run import BY_SCHEDULER, Preemption, Search
from scheduler.binder.actions import Event, Reference
from scheduler.cluster.bind import Target, binding_of
from scheduler.cluster.client import STRATEGIC_MERGE_PATCH, Client, pod_path
from scheduler.cluster.errors import (
    APIConflictError,
    APIError,
    APIForbiddenError,
    APIInvalidError,
    APINotFoundError,
)

logger = logging.getLogger("berth.binding")

# How many candidates a Decision names: a big cluster has hundreds.
MOST_NOTED = 50

_TIMEOUT_SECONDS = 5.0

# The API server's message where an admission webhook doesn't support dry runs (k8s.io/apiserver v0.36.3
# pkg/admission/plugin/webhook/errors/statuserror.go). The status is 400, as where a webhook denies without a status.
_NO_DRY_RUN = "does not support dry run"


class BindingRefusedError(APIError):
    """The API server refuses to bind the preemptor to the node that would be freed: RBAC or an admission controller forbids it."""

    def __init__(self, error: APIError) -> None:
        super().__init__(str(error), status=error.status, reason=error.reason)


class RemovalRefusedError(APIError):
    """The API server refuses to delete a victim: RBAC or an admission controller forbids it. `uid` is the victim's."""

    def __init__(self, victim: Pod, error: APIError) -> None:
        super().__init__(str(error), status=error.status, reason=error.reason)
        self.uid = victim.uid


def act(
    client: Client,
    preemption: Preemption,
    pod: Pod,
    *,
    post: Callable[[Event], None],
    expect: Callable[[Pod], None],
    leads: Callable[[], bool],
    is_there: Callable[[Pod], bool],
) -> bool:
    """Make room on the node: Pods that yield to this one lose their nomination, then the victims are deleted one by one.

    No victim is deleted if a dry run shows that the API server would refuse one of them, or the binding that follows: they would be
    deleted in vain.
    Victims that are already terminating are left alone, and so is a new Pod with a victim's name. Repeating this does nothing twice.

    Args:
        client: to the API server.
        preemption: the chosen node, victims and yielding Pods.
        pod: the Pod that needs the room.
        post: sends an event.
        expect: called with each victim just before it is removed, and with no other.
        leads: returns whether this process may still act; called before each victim.
        is_there: returns whether a victim still takes room on the node; called before each is removed. It may have completed, or
            its binding may have come to nothing.

    Returns:
        False when it stopped because this process no longer leads.

    Raises:
        BindingRefusedError: the Pod may not be bound to the node.
        RemovalRefusedError: a victim may not be deleted.
        APIError: a victim could not be deleted; those after it are left alone.
    """
    victims = [victim for victim in preemption.victims if not victim.is_deleting]
    if victims:
        _ask_whether_it_would_be_bound(client, pod, preemption.node)
    for victim in victims:
        with _refusals_of(victim):
            _ask_whether_it_would_go(client, victim)
    for other in preemption.yielding:
        _take_nomination(client, other)
    for victim in victims:
        if not leads():
            return False
        if not is_there(victim):
            continue
        expect(victim)
        with _refusals_of(victim):
            is_removed = _remove(client, victim, pod.spec.scheduler_name)
        if is_removed:
            post(preempted(victim, pod, preemption.node))
    return True


@contextmanager
def _refusals_of(victim: Pod) -> Iterator[None]:
    try:
        yield
    except APIError as error:
        if _is_refusal(error):
            raise RemovalRefusedError(victim, error) from error
        raise


def _is_refusal(error: APIError) -> bool:
    """Return whether RBAC or admission forbids the request, so that the same request would be in vain again."""
    forbids = isinstance(error, APIForbiddenError | APIInvalidError) and not error.is_unauthenticated
    return forbids or error.is_denial


def preempted(victim: Pod, pod: Pod, node_name: str) -> Event:
    """Return the event that a Pod was removed for another one."""
    return Event(
        regarding=Reference.of(victim),
        related=Reference.of(pod),
        reason="Preempted",
        action="Preempting",
        note=f"Preempted by pod {pod.uid} on node {node_name}",
        controller=pod.spec.scheduler_name,
    )


def _remove(client: Client, victim: Pod, scheduler_name: str) -> bool:
    """Write the condition DisruptionTarget of the Pod with this UID, then delete it with its own grace period. False if it is gone."""
    condition = {
        "type": DISRUPTED,
        "status": "True",
        "reason": BY_SCHEDULER,
        "message": f"{scheduler_name}: preempting to accommodate a higher priority pod",
        "lastProbeTime": None,
        "lastTransitionTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    }
    try:
        _patch_status(client, victim, {"conditions": [condition]})
        _delete(client, victim)
    except (APINotFoundError, APIConflictError) as error:
        if _is_refusal(error):
            raise
        logger.debug("a victim was deleted, or another Pod has its name: %s", error)
        return False
    return True


def _ask_whether_it_would_be_bound(client: Client, pod: Pod, node_name: str) -> None:
    """Check a binding against RBAC and admission with a dry run.

    Raises:
        BindingRefusedError: the binding would be refused.
        APIError: the dry run failed; the Pod may be gone, or bound.
    """
    target = Target(pod.namespace, pod.name, pod.uid, node_name)
    try:
        client.post(
            path=f"{target.path}/binding",
            body=binding_of(target),
            query={"dryRun": "All"},
            timeout_seconds=_TIMEOUT_SECONDS,
        )
    except APIError as error:
        if _NO_DRY_RUN in str(error):
            logger.debug("nothing says whether a Pod would be bound: %s", error)
        elif _is_refusal(error):
            raise BindingRefusedError(error) from error
        else:
            raise


def _ask_whether_it_would_go(client: Client, victim: Pod) -> None:
    """Check a deletion against RBAC and admission with a dry run.

    Raises:
        APIError: the deletion would be refused, or the dry run failed.
    """
    try:
        _delete(client, victim, dryRun=["All"])
    except (APINotFoundError, APIConflictError, APIInvalidError) as error:
        if _is_refusal(error) and _NO_DRY_RUN not in str(error):
            raise
        logger.debug("a victim was deleted already, or nothing says whether it would be: %s", error)


def _delete(client: Client, pod: Pod, **more: Any) -> None:
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod.uid}, **more}
    client.delete(
        path=pod_path(pod.namespace, pod.name), body=msgspec.json.encode(options), timeout_seconds=_TIMEOUT_SECONDS
    )


def _take_nomination(client: Client, pod: Pod) -> None:
    """Clear a Pod's nomination. A failure isn't critical: the Pod doesn't get the node anyway."""
    try:
        _patch_status(client, pod, {"nominatedNodeName": None})
    except APIError as error:
        logger.info("nominatedNodeName can't be cleared: %s", error)


def _patch_status(client: Client, pod: Pod, status: dict[str, Any]) -> None:
    body = msgspec.json.encode({"metadata": {"uid": pod.uid}, "status": status})
    path = f"{pod_path(pod.namespace, pod.name)}/status"
    client.patch(path=path, body=body, content_type=STRATEGIC_MERGE_PATCH, timeout_seconds=_TIMEOUT_SECONDS)


def notes_of(found: Search) -> dict[str, Any]:
    """Return a search as a Decision notes it, as JSON: the preemptor's node, its victims, the candidate nodes, vetoes."""
    said: dict[str, Any] = {}
    if found.preemption is not None:
        chosen = found.preemption
        said["node"] = chosen.node
        said["victims"] = [_noted(victim) for victim in chosen.victims]
        said["pdbViolations"] = chosen.pdb_violations
        if chosen.yielding:
            said["yielding"] = [_noted(other) for other in chosen.yielding]
    if found.reason:
        said["reason"] = found.reason
    if found.candidates:
        said["candidateCount"] = len(found.candidates)
        said["candidates"] = [
            {
                "node": candidate.node,
                "victims": [victim.name for victim in candidate.victims],
                "pdbViolations": candidate.pdb_violations,
            }
            for candidate in found.candidates[:MOST_NOTED]
        ]
    vetoes = {"vetoes": msgspec.to_builtins(found.vetoes)} if found.vetoes else {}
    return {"preemption": said, **vetoes}


def _noted(pod: Pod) -> dict[str, Any]:
    return {"name": f"{pod.namespace}/{pod.name}", "uid": pod.uid, "priority": pod.priority}
