"""Lists the cluster once, for occasional use. The extender watches instead."""

from collections.abc import Callable
from typing import TypeVar

from policies.engine.objects.snapshot import Snapshot
from scheduler.cluster.client import Client
from scheduler.cluster.kinds import NAMESPACES, NODES, PODS, Kept, Kind

T = TypeVar("T", bound=Kept)


def list_all(client: Client, kind: Kind[T], on_page: Callable[[], None] = lambda: None) -> dict[str, T]:
    """Read all objects of a kind, by their keys. `on_page` is called after each page.

    Raises:
        APIError: the API server is unavailable, or refuses.
    """
    found: dict[str, T] = {}
    for page in client.list_pages(path=kind.path, query=kind.query):
        found |= kind.read_page(page).objects
        on_page()
    return found


def list_snapshot(client: Client, *, pods: bool, on_page: Callable[[], None] = lambda: None) -> Snapshot:
    """Make a Snapshot of the current nodes and namespaces, and of the Pods on nodes if they are needed.

    `on_page` is called after each page of a list.

    Raises:
        APIError: the API server is unavailable, or refuses.
    """
    nodes = list_all(client, NODES, on_page).values()
    listed = list_all(client, NAMESPACES, on_page)
    namespaces = {name: found.metadata.labels or {} for name, found in listed.items()}
    return Snapshot.of(nodes, list_all(client, PODS, on_page).values() if pods else (), namespaces)
