"""What scenarios read of the cluster, and of a recorded Decision: Deployments, Pods, a Snapshot."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

import msgspec
from django.core.exceptions import ValidationError

from policies.engine.objects.snapshot import Snapshot
from scheduler.cluster.bind import is_name
from scheduler.cluster.building import SnapshotBuilder
from scheduler.cluster.client import ASK_TIMEOUT_SECONDS, PENDING_SELECTOR, Client, pod_path
from scheduler.cluster.errors import APIError, APINotFoundError
from scheduler.cluster.kinds import NAMESPACES, NODES, OBJECTS, PODS
from scheduler.cluster.listing import list_all
from scheduler.cluster.reflection import added
from scheduler.decisions.rebuilding import ReplayError, Snapshots
from scheduler.models import Decision
from scheduler.scenario.errors import ClusterAwayError, ScenarioError
from scheduler.scenario.template import Template, make_template, template_of

_DEPLOYMENT_REVISION = "deployment.kubernetes.io/revision"
_LONGEST_NUMBER = 19


class _Owner(msgspec.Struct, kw_only=True):
    uid: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, rename="camel", kw_only=True):
    name: str = ""
    uid: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None


class _WorkloadSpec(msgspec.Struct, kw_only=True):
    replicas: int | None = None
    template: dict[str, Any] = {}


class _Workload(msgspec.Struct, kw_only=True):
    metadata: _Metadata
    spec: _WorkloadSpec


class _Workloads(msgspec.Struct):
    items: list[_Workload] | None = None


class _Pod(msgspec.Struct, kw_only=True):
    metadata: _Metadata


class _Pods(msgspec.Struct):
    items: list[_Pod] | None = None


def template_of_deployment(client: Client, named: str) -> Template:
    """Return the template of a Deployment in the cluster, from its current ReplicaSet, with the number of its Pods on nodes.

    Raises:
        ScenarioError: the Deployment doesn't exist, or can't be read; ClusterAwayError if that may change.
    """
    namespace, name = _split(named, "Deployment")
    path = f"/apis/apps/v1/namespaces/{namespace}"
    try:
        body = client.get(path=f"{path}/deployments/{name}", timeout_seconds=ASK_TIMEOUT_SECONDS)
        deployment = msgspec.json.decode(body, type=_Workload)
        body = client.get(path=f"{path}/replicasets", timeout_seconds=ASK_TIMEOUT_SECONDS)
        sets = msgspec.json.decode(body, type=_Workloads).items or []
        body = client.get(
            path=f"/api/v1/namespaces/{namespace}/pods",
            query={"fieldSelector": PENDING_SELECTOR},
            timeout_seconds=ASK_TIMEOUT_SECONDS,
        )
        pods = msgspec.json.decode(body, type=_Pods).items or []
    except (APIError, msgspec.DecodeError) as error:
        raise _unread(error, f"Deployment {named}") from error
    uid = deployment.metadata.uid
    own = [each for each in sets if _is_of(each.metadata, {uid})]
    newest = max(own, key=_age, default=None)
    if newest is None:
        return template_of({"kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
                            "spec": {"template": deployment.spec.template}})  # fmt: skip
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": newest.metadata.name, "uid": newest.metadata.uid}
    replicas = 1 if deployment.spec.replicas is None else deployment.spec.replicas
    uids = {each.metadata.uid for each in own}
    waiting = sum(_is_of(each.metadata, uids) and not each.metadata.deletion_timestamp for each in pods)
    return make_template(name, namespace, newest.spec.template, None, owner, max(0, replicas - waiting))


def _split(named: str, kind: str) -> tuple[str, str]:
    namespace, _, name = named.rpartition("/")
    namespace = namespace or "default"
    if not is_name(namespace) or not is_name(name):
        message = f"name a {kind} as NAMESPACE/NAME"
        raise ScenarioError(message)
    return namespace, name


def _unread(error: Exception, what: str) -> ScenarioError:
    message = f"{what} can't be read: {error}. Use its manifest instead"
    return (ScenarioError if isinstance(error, APINotFoundError) else ClusterAwayError)(message)


def _age(found: _Workload) -> tuple[int, str, str]:
    """Return the sort key by which a Deployment's current ReplicaSet is the last: after a rollback it is an older one."""
    metadata = found.metadata
    revision = (metadata.annotations or {}).get(_DEPLOYMENT_REVISION, "")
    number = int(revision) if revision.isdecimal() and len(revision) <= _LONGEST_NUMBER else 0
    return number, metadata.creation_timestamp or "", metadata.name


def _is_of(metadata: _Metadata, uids: Collection[str]) -> bool:
    return any(owner.uid in uids for owner in metadata.owner_references or ())


def pod_of_cluster(client: Client, named: str) -> dict[str, Any]:
    """Return a Pod of the cluster, by namespace/name, as Kubernetes JSON.

    Raises:
        ScenarioError: the Pod doesn't exist, or can't be read; ClusterAwayError if that may change.
    """
    namespace, name = _split(named, "Pod")
    try:
        body = client.get(path=pod_path(namespace, name), timeout_seconds=ASK_TIMEOUT_SECONDS)
        return msgspec.json.decode(body, type=dict[str, Any])
    except (APIError, msgspec.DecodeError) as error:
        raise _unread(error, f"Pod {named}") from error


def live_snapshot(client: Client, reads: frozenset[str]) -> Snapshot:
    """Return the cluster as it is now, with these kinds of objects.

    Raises:
        ClusterAwayError: the API server is unavailable, or refuses.
    """
    builder = SnapshotBuilder()
    try:
        builder.on_nodes(added(list_all(client, NODES)))
        builder.on_namespaces(added(list_all(client, NAMESPACES)))
        for kind in sorted(reads):
            builder.on_objects(kind, added(list_all(client, OBJECTS[kind])))
        builder.on_pods(added(list_all(client, PODS)))
    except APIError as error:
        message = f"the cluster can't be listed: {error}"
        raise ClusterAwayError(message) from error
    return builder.build()


def recorded_snapshot(named: str) -> tuple[Snapshot, datetime]:
    """Return the Snapshot and the time of a recorded Decision.

    Raises:
        ScenarioError: the Decision doesn't exist (any more).
    """
    try:
        decision = Decision.objects.filter(pk=named).first()
    except ValidationError:
        decision = None
    if decision is None:
        message = f"no Decision has the id {named}"
        raise ScenarioError(message)
    try:
        return Snapshots().of(decision), decision.at
    except ReplayError as error:
        message = f"Decision {named} can't be used: {error}"
        raise ScenarioError(message) from error
