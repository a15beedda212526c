"""The interface of a rule: its input for one Pod, its answers, and its declarations.

A built-in derives from Filter or Score. Its class declares everything that other code needs to know: its scope, the objects
that it reads, the events that can help a Pod that it refused, and the sentence of `explain`. So a new built-in needs only one
other line, in its registry. One test checks the declarations of all rules (tests/unit/engine/test_declarations.py).

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

# The events that can help a refused Pod, besides changes of the kinds of `objects.cluster_kinds`, which are named after their kind.
# A Pod is added to a node, or the labels of a Pod there change.
POD_CAME = "pod came"
# A Pod leaves its node, ends, or lowers its requests; or a node is no longer kept free for a Pod that was nominated to it.
POD_GONE = "pod gone"
# The deletion of a Pod on a node begins: some rules don't count it any more. kube-scheduler v1.36.3 has no such event: its
# PodTopologySpread, which leaves such Pods out too (common.go, countPodsMatchSelector), waits until the Pod is gone.
POD_LEAVES = "pod leaves"
# The labels of a Namespace change: affinity terms and Assignments select by them. kube-scheduler v1.36.3 has no such event either
# (interpodaffinity/plugin.go, EventsToRegister): the Pod waits until something else happens, five minutes at most.
NAMESPACE = "namespace"
# A node is added or changes.
NODE = "node"
# A node is removed: its domain is no longer compared with, and its Pods aren't counted.
NODE_GONE = "node gone"
POD_CHANGES = frozenset({POD_CAME, POD_GONE})


class Scope(IntEnum):
    """Which Pods, besides the one being scheduled, can change the answer of a rule for a node."""

    # None: the rule reads only the node's own fields. A score may be normalised over the nodes at hand.
    NODE = 0
    # The Pods on the node.
    NODE_AND_PODS = 1
    # Any Pods.
    CLUSTER = 2


def go_on() -> None:
    """Wait for nobody: the default of a Cycle."""


class Cycle:
    """One Pod, one Snapshot, one moment (`now` is aware of its time zone), and the rule set's constants.

    `give_way` is called before each rule, before each evaluation of an expression for a node, and between the terms of a Pod
    that built-ins go through. A caller with more urgent work can wait there, or stop the decision by an exception. DeadlineError
    ends the answer where it stands, see `decide`. `end_in_time` is called where waiting isn't allowed, since other threads wait
    for the result: it does nothing, or raises DeadlineError.
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
        """The value that expressions see as `requests`. Cached for several expressions: for a Pod of many containers it takes 20 us."""
        return self.pod.amounts

    @cached_property
    def namespace(self) -> Mapping[str, Any]:
        """The value that expressions see as `namespaceObject`: without labels where the Pod's namespace isn't known."""
        labels = self.snapshot.namespace_labels(self.pod.namespace)
        return {"metadata": {"name": self.pod.namespace, "labels": dict(labels)}}

    def variable(self, name: str) -> Mapping[str, Any]:
        """Return the value that expressions see under one of the names of `cel.syntax.OF_POD`."""
        if name == "requests":
            return self.requests
        return self.namespace if name == "namespaceObject" else self.pod.json

    @property
    def table(self) -> Table:
        """The nodes as columns."""
        return self.snapshot.table


class Detail(NamedTuple):
    """What a rule read of a node and required, and what would help. `says` and `remedy` are parts of a sentence.

    `value` and `bounds` are for scores: the value of the expression, and the values that count as 0 and 100.
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
    """The declarations of filters and scores.

    Attributes:
        scope: the Pods that the rule's answer depends on. There is no default: every rule has to declare it.
        reads: the kinds of objects that it reads besides Nodes, Pods and Namespaces; only those are watched.
        requeued_by: the events that can turn its refusal into a pass; empty for a score, which refuses nobody.
        counts_pods: whether it is evaluated again at binding, under the lock, with the Pods that were placed a moment ago. The
            built-ins that kube-scheduler has too are not: kube-scheduler runs its own, and so does Berth's scheduler.
        reads_now: whether its answer may change by the passage of time alone.
        pod_paths: the paths that it reads of the Pod's JSON. None for built-ins: `reuse.Judge` recognises identical Pods by the
            fields that built-ins read.
        node_paths: the paths that it reads of the Node's JSON; empty for built-ins, whose fields kube-scheduler has events for.
        joins_params: whether it keeps a separate column of nodes for each set of params of its rule set.
        Arguments: the type that its `arguments` are decoded to.
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
        """Take the arguments. A rule without arguments has nothing to store."""

    def fault(self) -> str:
        """Return a fault of arguments that decode, but must not be saved; "" for none.

        Such arguments are refused in new documents. Live rule sets that have them keep working.
        """
        return ""

    @classmethod
    def summary(cls) -> str:
        """Return the first line of its docstring, without the full stop: its description in pages and sentences."""
        return (cls.__doc__ or "").strip().partition("\n")[0].rstrip(".")


class Filter(Declared):
    """Says which nodes a Pod may use."""

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Return a verdict for each of these rows of `cycle.table`, in their order."""
        raise NotImplementedError

    def selected(self, cycle: Cycle) -> Sequence[Labels] | None:
        """Return the labels by which it counts Pods of the Pod's namespace; None where it may depend on more.

        These labels and `pod_paths` are all by which it can distinguish Pods, wherever they are.
        """
        return None

    def helped_by(self, refusals: Collection[Status]) -> frozenset[str]:
        """Return which of `requeued_by` can help a Pod when these are all that it refused nodes with."""
        return self.requeued_by

    def looks_around(self, pod: Pod, snapshot: Snapshot, coming: Iterable[Pod]) -> bool:
        """Return whether, for this Pod, its answer for a node may depend on Pods on other nodes; at most as far as `scope` says.

        Args:
            pod: the Pod asked about.
            snapshot: has all the Pods that may be on nodes, except `coming`.
            coming: the Pods that may be added to nodes.
        """
        return self.scope is Scope.CLUSTER

    def detail(self, cycle: Cycle, row: int, status: Status) -> Detail:
        """Return what it read when it refused a node. This is for people and decides nothing."""
        return Detail(self.summary(), self.summary())

    def detail_of_pass(self, cycle: Cycle, row: int) -> Detail:
        """Return what it read when it let a node pass; nothing where that isn't worth a sentence."""
        return Detail()


class Score(Declared):
    """Says how good nodes are."""

    def score(self, cycle: Cycle, rows: Rows) -> Numbers | None:
        """Return 0..100 for each of these rows of `cycle.table`, normalised over them, in their order.

        None where the rule doesn't score this Pod (kube-scheduler's Skip).
        """
        raise NotImplementedError

    def score_with_faults(self, cycle: Cycle, rows: Rows) -> tuple[Numbers | None, Mapping[str, int]]:
        """Return what `score` returns, and on how many nodes the rule could not be evaluated, by message."""
        return self.score(cycle, rows), {}

    def detail(self, cycle: Cycle, row: int, scored: Rows) -> Detail:
        """Return what it read when it scored a node among those of `scored`. This is for people and decides nothing."""
        return Detail(self.summary(), self.summary())
