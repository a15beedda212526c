"""What a rule sees while one Pod is decided, and the two shapes that every rule has.

A rule that reads objects besides Nodes, Pods and Namespaces says which kinds in `reads: frozenset[str]`, by the names of
`objects.cluster_kinds`: only those are watched.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Numbers, Rows, Table
from policies.engine.status import Verdicts


class Cycle:
    """One Pod, one Snapshot, one moment (`now` is aware of its time zone), and the rule set's constants."""

    def __init__(self, *, pod: Pod, snapshot: Snapshot, now: datetime, params: Mapping[str, Any] | None = None) -> None:
        self.pod = pod
        self.snapshot = snapshot
        self.now = now
        self.params = params or {}

    @property
    def table(self) -> Table:
        """The nodes as columns."""
        return self.snapshot.table


class Filter(Protocol):
    """Says which nodes a Pod may use."""

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Return a verdict for each of these rows of `cycle.table`, in their order."""
        ...


class Score(Protocol):
    """Says how good nodes are."""

    def score(self, cycle: Cycle, rows: Rows) -> Numbers | None:
        """Return 0..100 for each of these rows of `cycle.table`, normalised over them, in their order.

        None where the rule has nothing to say of this Pod (kube-scheduler's Skip).
        """
        ...
