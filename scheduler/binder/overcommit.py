"""Nodes with more Pods than they have room for, which can happen when two schedulers fill the same nodes.

The API server doesn't check a node's capacity when a Pod is bound, so another scheduler's binding can reach a node between Berth's
decision and Berth's binding. The kubelet then refuses the Pod that came last.
"""

import logging

import numpy as np

from policies.engine.objects.columns import Mask, allocatable, pod_count, requested
from policies.engine.objects.resources import CPU, EPHEMERAL, MEMORY, PODS
from policies.engine.objects.snapshot import Snapshot
from scheduler.metrics import BINDER_OVERCOMMITS, BINDER_OVERCOMMITTED

logger = logging.getLogger("berth.binding")

_MOST_NAMED = 100


def overcommitted(snapshot: Snapshot) -> list[str]:
    """Return the names of nodes whose Pods request more cpu, memory, ephemeral storage or Pod slots than is allocatable."""
    table = snapshot.table
    over: Mask = pod_count(table) > allocatable(table, PODS)
    for name in (CPU, MEMORY, EPHEMERAL):
        over = over | (requested(table, name) > allocatable(table, name))
    return [table.names[row] for row in np.flatnonzero(over).tolist()]


class Overcommits:
    """Notices when a node becomes overcommitted. For one thread."""

    def __init__(self) -> None:
        self._known: frozenset[str] = frozenset()
        self._looked_at: Snapshot | None = None
        # How many times a node was newly found to be overcommitted.
        self.found = 0

    def look(self, snapshot: Snapshot) -> list[str]:
        """Return the overcommitted nodes, up to a limit; count and log the new ones."""
        if snapshot is not self._looked_at:
            self._looked_at = snapshot
            now = frozenset(overcommitted(snapshot))
            new = sorted(now - self._known)
            if new:
                self.found += len(new)
                BINDER_OVERCOMMITS.inc(len(new))
                logger.warning("nodes are overcommitted: %s", ", ".join(new[:_MOST_NAMED]))
            self._known = now
            BINDER_OVERCOMMITTED.set(len(now))
        return sorted(self._known)[:_MOST_NAMED]
