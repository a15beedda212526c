"""Which Assignment takes a Pod, in the cluster or from a document: for the page, REST and the command."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from policies import publishing
from policies.engine.errors import ObjectError
from policies.engine.objects.pod import Pod
from policies.engine.which import Which, which
from policies.manifests import not_a_pod
from scheduler.cluster.bind import is_name
from scheduler.cluster.client import ASK_TIMEOUT_SECONDS, connect, pod_path
from scheduler.cluster.errors import APIError, APINotFoundError

_DEFAULT_NAMESPACE = "default"


class _Metadata(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Namespace(msgspec.Struct):
    metadata: _Metadata


class AskedError(Exception):
    """The Pod can't be read; the message says why, and what to do."""


class UnknownPodError(AskedError):
    """The cluster has no such Pod."""


class ClusterAwayError(AskedError):
    """The API server can't be queried, or refuses."""


def which_of_cluster(named: str) -> Which:
    """Return which Assignment takes a Pod of the cluster, in its present state.

    Args:
        named: name, or namespace/name.

    Raises:
        AskedError: the Pod can't be read.
    """
    namespace, _, name = named.rpartition("/")
    namespace = namespace or _DEFAULT_NAMESPACE
    if not is_name(namespace) or not is_name(name):
        message = "name a Pod as NAMESPACE/NAME"
        raise AskedError(message)
    client = connect()
    try:
        body = client.get(path=pod_path(namespace, name), timeout_seconds=ASK_TIMEOUT_SECONDS)
        pod = Pod.from_json(msgspec.json.decode(body))
        body = client.get(path=f"/api/v1/namespaces/{namespace}", timeout_seconds=ASK_TIMEOUT_SECONDS)
        labels = msgspec.json.decode(body, type=_Namespace).metadata.labels or {}
    except APINotFoundError as error:
        message = f"the cluster has no Pod {namespace}/{name}"
        raise UnknownPodError(message) from error
    except (APIError, msgspec.DecodeError, ObjectError) as error:
        message = f"the cluster can't be asked: {str(error).rstrip('.')}. Give the Pod's manifest instead of its name"
        raise ClusterAwayError(message) from error
    return _which(pod, labels)


def which_of_document(document: Any, namespace_labels: Mapping[str, str] | None = None) -> Which:
    """Return which Assignment takes a Pod in Kubernetes JSON; it needn't be in the cluster.

    Args:
        document: the Pod.
        namespace_labels: of its namespace.

    Raises:
        AskedError: the document is no Pod.
    """
    if fault := not_a_pod(document):
        raise AskedError(fault)
    try:
        pod = Pod.from_json(document)
    except ObjectError as error:
        raise AskedError(str(error)) from error
    return _which(pod, namespace_labels or {})


def _which(pod: Pod, labels: Mapping[str, str]) -> Which:
    return which(publishing.current_revision(), pod, labels, datetime.now(UTC))
