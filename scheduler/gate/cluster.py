"""Lists the current cluster once: nodes, Pods, and the other kinds that the rules in question read."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from policies.engine.decision import CompiledRevision
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.scheduling import default_profile
from scheduler.cluster.building import SnapshotBuilder
from scheduler.cluster.client import Client
from scheduler.cluster.kinds import NAMESPACES, NODES, OBJECTS
from scheduler.cluster.listing import list_all
from scheduler.cluster.reflection import added
from scheduler.cluster.waiting import whole_pods
from scheduler.gate.forecast import Gathered, OwnScheduler


class Cluster(NamedTuple):
    """A Snapshot, and all Pods at that time, grouped for a forecast of that time."""

    snapshot: Snapshot
    pods: Gathered


def list_cluster(
    client: Client,
    compiled: Callable[[], tuple[CompiledRevision, CompiledRevision]],
    on_progress: Callable[[int], None],
    own: OwnScheduler,
) -> Cluster:
    """Return the current cluster. Of several equal Pods, only one is kept completely.

    Args:
        client: to the API server.
        compiled: returns the live Revision and the one after the Change; called once the API server has answered.
        on_progress: called with the number of Pods read, after each page.
        own: the configuration of Berth's own scheduler.

    Raises:
        APIError: the API server is unavailable, or refuses.
    """
    at = datetime.now(UTC)
    builder = SnapshotBuilder()
    builder.on_nodes(added(list_all(client, NODES)))
    before, after = compiled()
    namespaces = list_all(client, NAMESPACES)
    builder.on_namespaces(added(namespaces))
    for name in sorted(before.reads | after.reads | default_profile().reads):
        builder.on_objects(name, added(list_all(client, OBJECTS[name])))
    labels = {name: found.metadata.labels or {} for name, found in namespaces.items()}
    gathered = Gathered(before, after, labels, at, own)
    kind, read = whole_pods(), 0
    for page in client.list_pages(path=kind.path, query=kind.query):
        pods = kind.read_page(page).objects
        for pod in pods.values():
            gathered.add(pod)
        builder.on_pods(added({key: Pod.counting(pod.parsed) for key, pod in pods.items() if pod.spec.node_name}))
        read += len(pods)
        on_progress(read)
    return Cluster(builder.build(), gathered)
