"""What a rule is: what it sees while one Pod is decided, what it answers, and what it says of itself.

A built-in derives from Filter or Score. All that others have to know of it stands in its class: how far it looks, which objects
it reads, which events can help a Pod that it refused, and the sentence of `explain`. So a new one needs no line elsewhere than in
its registry. That the declarations are true is tested for all rules at once (tests/unit/engine/test_declarations.py).

Source of the idea: kube-scheduler v1.36.3 framework/interface.go (EventsToRegister, PreFilterExtensions).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from policies.engine.objects.node import Path
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Numbers, Rows, Table
from policies.engine.selectors import Labels
from policies.engine.status import Status, Verdicts

# The events that can help a refused Pod, besides changes of the kinds of `objects.cluster_kinds`, which go by their names.
# A Pod that comes to a node, and one whose labels change there.
POD_CAME = "pod came"
# A Pod that leaves its node, ends, or asks for less than before; and a node that isn't kept free any more for a Pod that was
# nominated to it.
POD_GONE = "pod gone"
# A Pod on a node whose deletion begins: some rules don't count it any more. kube-scheduler v1.36.3 has no such event: its
# PodTopologySpread, which leaves such Pods out too (common.go, countPodsMatchSelector), waits until the Pod is gone.
POD_LEAVES = "pod leaves"
# A Namespace whose labels change: terms go by them, and Assignments. kube-scheduler v1.36.3 has no such event either
# (interpodaffinity/plugin.go, EventsToRegister): the Pod waits until something else happens, five minutes at most.
NAMESPACE = "namespace"
# A node that comes or changes.
NODE = "node"
# A node that goes: its domain is compared with no more, and its Pods aren't counted.
NODE_GONE = "node gone"
POD_CHANGES = frozenset({POD_CAME, POD_GONE})


class Scope(IntEnum):
    """Which Pods, besides the one asked about, can change what a rule says of a node."""

    # None: the node's own fields alone. A score may be normalised over the nodes at hand.
    NODE = 0
    # Those on the node.
    NODE_AND_PODS = 1
    # Any.
    CLUSTER = 2


def go_on() -> None:
    """Wait for nobody: the default of a Cycle."""


class Cycle:
    """One Pod, one Snapshot, one moment (`now` is aware of its time zone), and the rule set's constants.

    `give_way` is called before each rule, before each evaluation of an expression for a node, and between the terms of a Pod
    that built-ins go through: who decides beside something more urgent can wait there, or end by an exception. DeadlineError
    ends the answer where it stands, see `decide`. `end_in_time` is called where nobody may wait, since others wait too:
    it does nothing, or raises DeadlineError.
    """

    def __init__(
        self,
        *,
        pod: Pod,
        snapshot: Snapshot,
        now: datetime,
        params: Mapping[str, Any] | None = None,
        give_way: Callable[[], None] = go_on,
        end_in_time: Callable[[], None] = go_on,
    ) -> None:
        self.pod = pod
        self.snapshot = snapshot
        self.now = now
        self.params = params or {}
        self.give_way = give_way
        self.end_in_time = end_in_time

    @cached_property
    def requests(self) -> Mapping[str, int]:
        """What expressions see as `requests`. Several read it; of a Pod of many containers it takes 20 us."""
        return self.pod.amounts

    @cached_property
    def namespace(self) -> Mapping[str, Any]:
        """What expressions see as `namespaceObject`: without labels where the Pod's namespace isn't known."""
        labels = self.snapshot.namespace_labels(self.pod.namespace)
        return {"metadata": {"name": self.pod.namespace, "labels": dict(labels)}}

    def variable(self, name: str) -> Mapping[str, Any]:
        """Return what expressions see under one of the names of `cel.syntax.OF_POD`."""
        if name == "requests":
            return self.requests
        return self.namespace if name == "namespaceObject" else self.pod.json

    @property
    def table(self) -> Table:
        """The nodes as columns."""
        return self.snapshot.table


class Detail(NamedTuple):
    """What a rule saw of a node and wanted, and what would help. `says` and `remedy` are parts of a sentence.

    `value` and `bounds` are a score's: what its expression gave, and between what that counted.
    """

    says: str = ""
    wanted: str = ""
    remedy: str = ""
    seen: Mapping[str, Any] = {}
    value: float | int | None = None
    bounds: tuple[float | int, float | int] | None = None


class NoArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a built-in that takes none."""


class Declared:
    """What filters and scores say of themselves.

    Attributes:
        scope: how far the rule looks. There is no default: a rule has to say it.
        reads: the kinds of objects that it reads besides Nodes, Pods and Namespaces; only those are watched.
        requeued_by: the events that can turn its refusal into a pass; empty for a score, which refuses nobody.
        counts_pods: whether it is asked again at binding, under the lock, with the Pods that were placed a moment ago. The
            built-ins that kube-scheduler has too aren't: it asks its own, and so does Berth's scheduler.
        reads_now: whether its answer may change by itself.
        pod_paths: what it reads of the Pod's JSON. None for what built-ins read: `reuse.Judge` knows Pods alike by that.
        node_paths: what it reads of the Node's JSON; empty for built-ins, which read what kube-scheduler has events for.
        joins_params: whether it keeps a column of nodes for each params of its rule set.
        Arguments: what its `arguments` are decoded to.
    """

    scope: Scope
    reads: frozenset[str] = frozenset()
    requeued_by: frozenset[str] = frozenset()
    counts_pods: bool = False
    reads_now: bool = False
    pod_paths: frozenset[Path] | None = None
    node_paths: frozenset[Path] = frozenset()
    joins_params: bool = False
    Arguments: type[msgspec.Struct] = NoArguments

    def __init__(self, arguments: Any = None) -> None:
        """Take the arguments. A rule without any has nothing to keep."""

    def fault(self) -> str:
        """Return what is wrong with arguments that it can be made with all the same; "" for nothing.

        They aren't saved any more. What is live with them goes on.
        """
        return ""

    @classmethod
    def summary(cls) -> str:
        """Return the first line of its docstring, without the full stop: what it is for, in pages and sentences."""
        return (cls.__doc__ or "").strip().partition("\n")[0].rstrip(".")


class Filter(Declared):
    """Says which nodes a Pod may use."""

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Return a verdict for each of these rows of `cycle.table`, in their order."""
        raise NotImplementedError

    def selected(self, cycle: Cycle) -> Sequence[Labels] | None:
        """Return by which labels it counts Pods of the Pod's namespace; None where it may go by more.

        With `pod_paths` that says all that it can tell Pods apart by, wherever they are.
        """
        del cycle
        return None

    def helped_by(self, refusals: Collection[Status]) -> frozenset[str]:
        """Return which of `requeued_by` can help a Pod when these are all that it refused nodes with."""
        del refusals
        return self.requeued_by

    def looks_around(self, pod: Pod, snapshot: Snapshot, coming: Iterable[Pod]) -> bool:
        """Return whether what it says of a node may depend on the Pods on other nodes, for this Pod: `scope`, and no more.

        Args:
            pod: the Pod asked about.
            snapshot: has all the Pods that may be on nodes, but for those coming.
            coming: the Pods that may come to nodes.
        """
        del pod, snapshot, coming
        return self.scope is Scope.CLUSTER

    def detail(self, cycle: Cycle, row: int, status: Status) -> Detail:
        """Return what it looked at when it refused a node. It is for people and decides nothing."""
        del cycle, row, status
        return Detail(self.summary(), self.summary())

    def detail_of_pass(self, cycle: Cycle, row: int) -> Detail:
        """Return what it looked at when it let a node pass; nothing where that isn't worth a sentence."""
        del cycle, row
        return Detail()


class Score(Declared):
    """Says how good nodes are."""

    def score(self, cycle: Cycle, rows: Rows) -> Numbers | None:
        """Return 0..100 for each of these rows of `cycle.table`, normalised over them, in their order.

        None where the rule has nothing to say of this Pod (kube-scheduler's Skip).
        """
        raise NotImplementedError

    def score_with_faults(self, cycle: Cycle, rows: Rows) -> tuple[Numbers | None, Mapping[str, int]]:
        """Return what `score` returns, and on how many nodes the rule could not be evaluated, by message."""
        return self.score(cycle, rows), {}

    def detail(self, cycle: Cycle, row: int, scored: Rows) -> Detail:
        """Return what it looked at when it scored a node among those of `scored`. It is for people and decides nothing."""
        del cycle, row, scored
        return Detail(self.summary(), self.summary())
