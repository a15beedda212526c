"""Asking one built-in about a small cluster."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from policies.engine.filters.registry import BUILTIN_FILTERS
from policies.engine.objects.cluster_objects import MEMBERS, ClusterObjects
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.engine.scores.registry import BUILTIN_SCORES
from policies.engine.status import Code, Status

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JSON = dict[str, Any]
HOSTNAME, ZONE, REGION = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/region"

UNSCHEDULABLE, UNRESOLVABLE = Code.UNSCHEDULABLE, Code.UNRESOLVABLE


def snapshot_of(
    nodes: list[JSON], pods: list[JSON] = (), namespaces: dict[str, dict[str, str]] | None = None, **objects: list[JSON]
) -> Snapshot:
    """Make a Snapshot; objects by the names of their lists (persistentVolumeClaims, services). Without any, None."""
    assert set(objects) <= set(MEMBERS)
    known = ClusterObjects.from_json(objects) if objects else None
    return Snapshot.of(map(Node.from_json, nodes), map(Pod.from_json, pods), namespaces, objects=known)


def cycle_of(pod: JSON, snapshot: Snapshot) -> Cycle:
    return Cycle(pod=Pod.from_json(pod), snapshot=snapshot, now=NOW)


def verdicts(name: str, pod: JSON, snapshot: Snapshot, **arguments: Any) -> dict[str, Status | None]:
    """Ask a filter about all nodes."""
    made = BUILTIN_FILTERS[name]
    found = made(msgspec.convert(arguments, made.Arguments)).filter(cycle_of(pod, snapshot), snapshot.table.all_rows())
    return {info.name: found.at(row) for row, info in enumerate(snapshot.table.infos)}


def refused(name: str, pod: JSON, snapshot: Snapshot, **arguments: Any) -> set[str]:
    """Return the nodes that a filter refuses."""
    return {node for node, status in verdicts(name, pod, snapshot, **arguments).items() if status}


def points(
    name: str, pod: JSON, snapshot: Snapshot, *, among: list[str] | None = None, **arguments: Any
) -> dict[str, int] | None:
    """Ask a score about all nodes, or about some; None when it has nothing to say."""
    made = BUILTIN_SCORES[name]
    rows = snapshot.table.all_rows() if among is None else snapshot.table.rows(among)
    numbers = made(msgspec.convert(arguments, made.Arguments)).score(cycle_of(pod, snapshot), rows)
    if numbers is None:
        return None
    infos = snapshot.table.infos
    return {infos[row].name: number for row, number in zip(rows.tolist(), numbers.tolist(), strict=True)}


def on(node: str, pod: JSON, **metadata: Any) -> JSON:
    """Return a Pod as it is once it is on a node."""
    return {**pod, "metadata": {**pod["metadata"], **metadata}, "spec": {**pod["spec"], "nodeName": node}}
