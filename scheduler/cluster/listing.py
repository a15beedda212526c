"""Lists the cluster once, for occasional use. The extender watches instead."""

from typing import TypeVar

from policies.engine.objects.snapshot import Snapshot
from scheduler.cluster.client import Client
from scheduler.cluster.kinds import NAMESPACES, NODES, PODS, Kept, Kind

T = TypeVar("T", bound=Kept)


def list_all(client: Client, kind: Kind[T]) -> dict[str, T]:
    """Read all objects of a kind, by their keys.

    Raises:
        APIError: the API server is unavailable, or refuses.
    """
    found: dict[str, T] = {}
    for page in client.list_pages(path=kind.path, query=kind.query):
        found |= kind.read_page(page).objects
    return found


def list_snapshot(client: Client, *, pods: bool) -> Snapshot:
    """Make a Snapshot of the current nodes and namespaces, and of the Pods on nodes if they are needed.

    Raises:
        APIError: the API server is unavailable, or refuses.
    """
    nodes = list_all(client, NODES).values()
    namespaces = {name: found.metadata.labels or {} for name, found in list_all(client, NAMESPACES).items()}
    return Snapshot.of(nodes, list_all(client, PODS).values() if pods else (), namespaces)
