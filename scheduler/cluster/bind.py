"""Binds a Pod to a node, and looks up the outcome.

The API server is the only source of truth: a binding that it confirmed is done, and one that it didn't confirm is looked
up before it is reported. Source: k8s.io/kubernetes v1.36.3 pkg/registry/core/pod/storage/storage.go (BindingREST).
"""

import logging
import re
import time
from collections.abc import Mapping
from enum import StrEnum
from http import HTTPStatus
from typing import Any

import msgspec

from scheduler.cluster.client import Client, decoded, pod_path
from scheduler.cluster.errors import (
    APIConflictError,
    APIError,
    APINotFoundError,
    APIUnavailableError,
)
from scheduler.cluster.versions import number_of
from scheduler.trouble import Trouble

logger = logging.getLogger("berth.cluster")
# While the API server is away, each unconfirmed binding is looked up again and again: that is logged once, not for each look.
_unread = Trouble()

# The messages about a Pod that isn't bound. The cause is in the log: it may differ from attempt to attempt.
BINDING_REFUSED = "the API server refused the binding"
BINDING_FAILED = "the API server failed to do the binding"
BINDING_UNCONFIRMED = "the API server doesn't confirm the binding, which is sent again"
BINDING_UNAUTHENTICATED = "the API server doesn't accept Berth's credentials, so the binding is sent again"

# The annotation of a bound Pod with the id of the Decision behind its binding.
DECISION_ANNOTATION = "berth/decision"

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def is_name(text: str) -> bool:
    """Return whether a text is a valid Kubernetes name, so that it may become part of a path."""
    return _NAME.fullmatch(text) is not None


def decision_named(annotations: Mapping[str, str] | None) -> str:
    """Return the id of the Decision in a Pod's annotations; "" if there is none, or it isn't an id."""
    named = (annotations or {}).get(DECISION_ANNOTATION, "")
    return named if _ID.fullmatch(named) else ""


class Target(msgspec.Struct, frozen=True):
    """A Pod and the node to bind it to. If there is a resource version, the Pod must still have it.

    `decision` is the id of the Decision behind the binding; the API server writes it to the Pod.

    Raises:
        ValueError: a name isn't a valid Kubernetes name; it would become part of a path.
    """

    namespace: str
    name: str
    uid: str
    node_name: str
    resource_version: str = ""
    decision: str = ""

    def __post_init__(self) -> None:
        """Refuse names that could lead elsewhere."""
        for name in (self.namespace, self.name, self.node_name):
            if not is_name(name):
                message = "not a name of Kubernetes"
                raise ValueError(message)

    @property
    def path(self) -> str:
        """The Pod's path."""
        return pod_path(self.namespace, self.name)


class Outcome(StrEnum):
    """The outcome of a binding.

    REFUSED: the Pod has changed or was replaced. DENIED: nobody may bind it, or not to this node. FAILED: the API server reported
    an error with this request, mostly an admission webhook that is unavailable. UNAUTHENTICATED: it doesn't accept the credentials;
    as for UNKNOWN, a binding that was sent before may still be done.
    """

    BOUND = "bound"
    ELSEWHERE = "elsewhere"
    GONE = "gone"
    REFUSED = "refused"
    DENIED = "denied"
    FAILED = "failed"
    UNKNOWN = "unknown"
    UNAUTHENTICATED = "unauthenticated"


class _Metadata(msgspec.Struct, rename="camel", frozen=True):
    uid: str = ""
    resource_version: str = ""


class _Spec(msgspec.Struct, rename="camel", frozen=True):
    node_name: str = ""


class _PodList(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class Placed(msgspec.Struct, frozen=True):
    """A Pod's node according to the API server."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


def binding_of(target: Target) -> bytes:
    """Return the Binding to POST to the Pod's path with `/binding`."""
    metadata: dict[str, Any] = {"name": target.name, "namespace": target.namespace, "uid": target.uid}
    if target.resource_version:
        metadata["resourceVersion"] = target.resource_version
    if target.decision:
        # BindingREST puts these into the Pod (storage.go, setPodNodeAndMetadata).
        metadata["annotations"] = {DECISION_ANNOTATION: target.decision}
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": target.node_name},
        }
    )


def bind(client: Client, target: Target, *, timeout_seconds: float) -> Outcome:
    """Bind a Pod, and look up the outcome if it isn't confirmed. Safe to repeat.

    UNKNOWN means that the API server neither confirmed the binding nor shows the Pod on a node: this request, or one sent
    before, may still be carried out.
    """
    try:
        client.post(path=f"{target.path}/binding", body=binding_of(target), timeout_seconds=timeout_seconds)
    except (APINotFoundError, APIConflictError) as error:
        # Gone, bound already, being deleted, gated, or another Pod under this name; or an admission webhook's own message.
        otherwise = Outcome.DENIED if isinstance(error, APINotFoundError) else Outcome.REFUSED
        outcome = _look(client, target, timeout_seconds=timeout_seconds, otherwise=otherwise)
        if outcome is Outcome.DENIED:
            logger.warning("a binding was refused: %s", error, extra=_said_of(target))
        return outcome
    except APIUnavailableError as error:
        logger.warning("a binding was not confirmed, the Pod is looked up: %s", error, extra=_said_of(target))
        return _look(client, target, timeout_seconds=timeout_seconds, otherwise=_outcome_of(error))
    except APIError as error:
        logger.warning("a binding was refused: %s", error, extra=_said_of(target))
        # With new credentials, the same binding will do: the node isn't the reason.
        return Outcome.UNAUTHENTICATED if error.is_unauthenticated else Outcome.DENIED
    return Outcome.BOUND


def _outcome_of(error: APIUnavailableError) -> Outcome:
    """Return the outcome of a binding that failed, if the Pod is on no node."""
    if error.is_denial:
        return Outcome.DENIED
    return Outcome.FAILED if error.status == HTTPStatus.INTERNAL_SERVER_ERROR else Outcome.UNKNOWN


def look_up(client: Client, target: Target, *, timeout_seconds: float) -> Outcome:
    """Return the outcome of a binding that got no answer, without sending it again; UNKNOWN while it can still be carried out."""
    return _look(client, target, timeout_seconds=timeout_seconds, otherwise=Outcome.UNKNOWN)


def read_placed(client: Client, target: Target, *, timeout_seconds: float) -> Placed:
    """Read a Pod's node.

    Raises:
        APIError: as Client.
    """
    answer = client.get(path=target.path, timeout_seconds=timeout_seconds)
    return decoded(answer, type_=Placed, context=f"GET {target.path}")


def bound_version(client: Client, target: Target, *, timeout_seconds: float) -> str:
    """Return the resourceVersion of a Pod that was just bound.

    If it can't be read, this waits long enough for a working watch to have seen it, and returns "".
    """
    try:
        return read_placed(client, target, timeout_seconds=timeout_seconds).metadata.resource_version
    except APIError as error:
        message = "the resourceVersion of a bound Pod can't be read; Berth waits for its watch event: %s"
        logger.warning(message, error, extra=_said_of(target))
        time.sleep(timeout_seconds)
        return ""


def version_if_possible(client: Client, version: str, *, timeout_seconds: float) -> str:
    """Return a resourceVersion that was waited for in vain; "" if it is none that the API server has given to a Pod.

    That happens if the Lease that names it was copied from another cluster, for example with a backup.
    """
    try:
        answer = client.get(path="/api/v1/pods", query={"limit": "1"}, timeout_seconds=timeout_seconds)
        newest = msgspec.json.decode(answer, type=_PodList).metadata.resource_version
    except (APIError, msgspec.DecodeError) as error:
        logger.warning("the newest resourceVersion of the Pods can't be read: %s", error)
        return version
    if number_of(newest) < 0 or 0 <= number_of(version) <= number_of(newest):
        return version
    logger.warning(
        "the Lease names the resourceVersion %.40s, but that of the Pods is %s: it is ignored", version, newest
    )
    return ""


def _look(client: Client, target: Target, *, timeout_seconds: float, otherwise: Outcome) -> Outcome:
    try:
        placed = read_placed(client, target, timeout_seconds=timeout_seconds)
    except APINotFoundError:
        _unread.end()
        return Outcome.GONE
    except APIError as error:
        # Its text names the Pod, so it differs from look to look.
        if _unread.is_news(f"{type(error).__name__} {error.status}"):
            logger.warning("the outcome of a binding can't be read: %s", error, extra=_said_of(target))
        return Outcome.UNKNOWN
    _unread.end()
    if placed.metadata.uid != target.uid:
        return Outcome.GONE
    if not placed.spec.node_name:
        is_unchanged = placed.metadata.resource_version == target.resource_version
        return Outcome.DENIED if otherwise is Outcome.REFUSED and is_unchanged else otherwise
    return Outcome.BOUND if placed.spec.node_name == target.node_name else Outcome.ELSEWHERE


def _said_of(target: Target) -> dict[str, str]:
    """Return the extra fields of a log line about a binding: the Decision behind it."""
    return {"decision": target.decision} if target.decision else {}
