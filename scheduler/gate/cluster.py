"""The cluster as it is now, listed once: nodes, Pods, and what else the rules in question read."""

from collections.abc import Iterable, Mapping

from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from scheduler.cluster.building import SnapshotBuilder
from scheduler.cluster.client import Client
from scheduler.cluster.kinds import NAMESPACES, NODES, OBJECTS
from scheduler.cluster.listing import T, list_all
from scheduler.cluster.reflection import Change
from scheduler.cluster.waiting import whole_pods


def list_cluster(client: Client, kinds: Iterable[str]) -> tuple[Snapshot, list[Pod]]:
    """Return a Snapshot of now, and all Pods, those that wait among them.

    Args:
        client: where to ask.
        kinds: what to list besides nodes, Pods and namespaces, by the names of `policies.engine.objects.cluster_kinds`.

    Raises:
        APIError: the API server is away, or refuses.
    """
    pods = list_all(client, whole_pods())
    builder = SnapshotBuilder()
    builder.on_nodes(_added(list_all(client, NODES)))
    builder.on_namespaces(_added(list_all(client, NAMESPACES)))
    builder.on_pods(_added(pods))
    for kind in sorted(kinds):
        builder.on_objects(kind, _added(list_all(client, OBJECTS[kind])))
    return builder.build(), list(pods.values())


def _added(found: Mapping[str, T]) -> list[Change[T]]:
    return [Change("added", key, each, None, "") for key, each in found.items()]
