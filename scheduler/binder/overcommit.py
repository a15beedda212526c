"""Nodes with more Pods than they have room for: what two schedulers that fill the same nodes can come to.

The API server checks no room when a Pod is bound, so another scheduler's binding can reach a node in the moment between Berth's
decision and its own. The kubelet then refuses the Pod that came last.
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
    """Name the nodes whose Pods ask for more of cpu, memory, ephemeral storage or Pod slots than there is."""
    table = snapshot.table
    over: Mask = pod_count(table) > allocatable(table, PODS)
    for name in (CPU, MEMORY, EPHEMERAL):
        over = over | (requested(table, name) > allocatable(table, name))
    return [table.names[row] for row in np.flatnonzero(over).tolist()]


class Overcommits:
    """Notices when a node comes to be overcommitted. For one thread."""

    def __init__(self) -> None:
        self._known: frozenset[str] = frozenset()
        self._looked_at: Snapshot | None = None
        # How often one was found.
        self.found = 0

    def look(self, snapshot: Snapshot) -> list[str]:
        """Return the overcommitted nodes, some of them where they are many; count and log those that are new."""
        if snapshot is not self._looked_at:
            self._looked_at = snapshot
            now = frozenset(overcommitted(snapshot))
            new = sorted(now - self._known)
            if new:
                self.found += len(new)
                BINDER_OVERCOMMITS.inc(len(new))
                logger.warning("nodes have more Pods than room: %s", ", ".join(new[:_MOST_NAMED]))
            self._known = now
            BINDER_OVERCOMMITTED.set(len(now))
        return sorted(self._known)[:_MOST_NAMED]
